//! The keeper: decides what to ask of the store and what to hand out.
//!
//! A state machine. Time, commands and the store's answers go in; calls of the store, due timeouts
//! and replies come out. It reads no clock and starts no thread, so the timer's thread, the model
//! test and a simulation run the same code.
//!
//! One call of the store is under way at a time. Meanwhile the keeper goes on handing out.
//!
//! The wheel is a cache of the store's front. All that the keeper knows may be forgotten at any
//! time except for what is in flight, and that only so that nothing is handed out twice without a
//! crash.

mod commits;
mod flights;
mod front;
mod limit;
mod load;
mod manner;
pub(crate) mod outbox;
mod pace;
mod pause;
mod tenure;
mod words;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use crate::Error;
use crate::store::{Leases, Position, RateLimit, Row};
use crate::values::time;
use flights::Flights;
use front::Front;
use limit::Limit;
use manner::Manner;
use outbox::Outbox;
use pace::Pace;
use pause::Pause;
use tenure::{News, Tenure};
pub(crate) use words::{
    Answer, Call, Command, Config, Counts, Found, LeaseCall, Now, Rate, Settled,
};
#[cfg(all(test, feature = "postgres"))]
pub(crate) use words::{BehindCall, CommitCall, LoadCall};
pub use words::{Cancelled, Event, Retried, Scheduled};

#[derive(Debug)]
pub(crate) struct Keeper<T> {
    config: Config,
    front: Front,
    flights: Flights,
    tenure: Tenure,
    commands: VecDeque<Command<T>>,
    /// Those that may take long, and whether the last commit was of those.
    left: VecDeque<Command<T>>,
    is_turn_of_left: bool,
    /// The names of which the store refused the last change.
    refused: HashSet<Arc<str>>,
    /// Whether a call is under way.
    is_pending: bool,
    /// Whether the store was told that this worker wants partitions.
    wanted: bool,
    /// The steady time since when it was.
    wanted_since: u64,
    /// Whether some partition had no owner at the last look.
    sees_free: bool,
    /// Whether anybody takes what is due.
    receives: bool,
    /// Whether something comes for each that asks, where that is counted.
    is_sated: bool,
    /// The steady time since when something is due, nobody asks for it, and consumers hold none.
    unasked_since: Option<u64>,

    /// The time by which was last handed out. If the clock is before it, the clock was set back.
    handed_out_at: u64,
    /// The steady time of the next look.
    look_next: u64,
    refresh_at: u64,
    /// The partition that was read again last.
    refreshed: u32,
    /// The kind of call that was made last.
    turn: u8,
    /// The steady time since when something waits for consumers, and they have settled none.
    held_since: Option<u64>,
    /// How many consumers held a minute long when that was counted last, and when.
    held_long: usize,
    held_counted: u64,
    /// When somebody asked last for what is due, if all was given back because nobody did.
    abandoned: Option<u64>,
    /// Whether nothing is handed out, because an operator says so.
    pub(crate) is_paused: bool,
    /// When one of this process has said so: a call for leases from before does not know.
    pause_told: Option<u64>,
    /// What all owners of the store together may hand out, and when one of this process has said so.
    limit: Limit,
    limit_told: Option<u64>,
    pace: Option<Pace>,
    /// The steady time until which the pace lets nothing be handed out.
    paced_until: u64,

    lease_pause: Pause,
    load_pause: Pause,
    behind_pause: Pause,
    commit_pause: Pause,
    last_error: Option<Error>,
    /// Why what was to be settled or given back at the end was not, and how many were not settled.
    lost: Option<Error>,
    lost_count: usize,

    /// The steady time since when it closes.
    closing_since: Option<u64>,
    waits: bool,
    released: bool,

    pub(crate) replies: Vec<(T, Result<Found, Error>)>,
    /// What the person who runs the timer should hear of.
    pub(crate) troubles: Vec<Error>,
    /// What was done, if somebody wants to hear of it.
    pub(crate) events: Option<Vec<Event>>,
    pub(crate) counts: Counts,
}

impl<T> Keeper<T> {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            is_paused: false,
            pause_told: None,
            limit: Limit::default(),
            limit_told: None,
            pace: config.rate.map(Pace::new),
            paced_until: 0,
            config,
            front: Front::new(),
            flights: Flights::default(),
            tenure: Tenure::default(),
            commands: VecDeque::new(),
            left: VecDeque::new(),
            is_turn_of_left: false,
            refused: HashSet::new(),
            is_pending: false,
            wanted: false,
            wanted_since: 0,
            sees_free: false,
            receives: false,
            is_sated: false,
            unasked_since: None,
            handed_out_at: 0,
            look_next: 0,
            refresh_at: 0,
            refreshed: 0,
            turn: 0,
            held_since: None,
            held_long: 0,
            held_counted: 0,
            abandoned: None,
            lease_pause: Pause::default(),
            load_pause: Pause::default(),
            behind_pause: Pause::default(),
            commit_pause: Pause::default(),
            last_error: None,
            lost: None,
            lost_count: 0,
            closing_since: None,
            waits: false,
            released: false,
            replies: Vec::new(),
            troubles: Vec::new(),
            events: None,
            counts: Counts::default(),
        }
    }

    /// Takes a command. Its reply is in `replies` after some later call.
    pub(crate) fn command(&mut self, command: Command<T>) {
        self.commands.push_back(command);
    }

    /// Takes what a consumer did with the timeout of this number, which it had under this epoch.
    pub(crate) fn settle(&mut self, now: Now, (number, epoch): (u64, u64), settled: Settled) {
        // It may have held it for too long, and another consumer has it under a later one.
        if !self.flights.is_under(number, epoch) {
            return;
        }
        match settled {
            Settled::Extend { time } => {
                let until = self.config.visibility.map(|_| now.steady.saturating_add(time));
                self.flights.hold_until(number, until);
            }
            _ => self.flights.settle(now, number, settled),
        }
        self.held_since = None;
    }

    /// Hands out nothing from now on, takes back what no consumer has taken, and commits what was
    /// asked for. With `waits` it goes on until consumers have settled what they hold.
    pub(crate) fn close(&mut self, now: Now, outbox: &mut Outbox, waits: bool) {
        self.closing_since.get_or_insert(now.steady);
        self.waits = waits;
        self.recall(now, outbox);
    }

    /// Whether settlements can wait: the keeper will look by itself soon.
    pub(crate) fn lingers(&self) -> bool {
        self.is_pending || 0 < self.flights.settled() && self.has_room_to_fly()
    }

    /// Why what was to be settled or given back at the end was not.
    pub(crate) fn lost(&self) -> Option<Error> {
        let error = self.lost.clone()?;
        Some(match self.lost_count {
            0 | 1 => error,
            count => Error::store(
                format!("settle {count} timeouts, which come again"),
                error.to_string(),
            ),
        })
    }

    fn lose(&mut self, count: usize, error: Error) {
        self.lost_count += count;
        self.lost = Some(error);
    }

    fn is_closing(&self) -> bool {
        self.closing_since.is_some()
    }

    /// Whether all is done after [`close`](Self::close).
    pub(crate) fn is_closed(&self) -> bool {
        self.released
    }

    /// Hands out what is due, and returns the next call for the store. After a call this returns
    /// none until [`answer`](Self::answer) came; it hands out all the same.
    pub(crate) fn poll(&mut self, now: Now, outbox: &mut Outbox) -> Option<Call<T>> {
        if self.released {
            return None;
        }
        // Whether or not it matters: a limit may come or go at any time.
        for (number, taken) in outbox.taken.drain(..) {
            if let Some(visibility) = self.config.visibility {
                self.flights.hold_until(number, Some(taken.saturating_add(visibility)));
            }
            for pace in self.pace.iter_mut().chain(&mut self.limit.pace) {
                pace.note(taken);
            }
        }
        self.counts.expired += self.flights.expire(now);
        self.notice(now, outbox);
        self.front.lags = self.lags(self.tenure.time(now));
        self.hand_out(now, outbox);
        if Manner::ClosesOutbox.is_kept() {
            outbox.close_at(self.tenure.hands_out_until());
        }
        if self.is_pending {
            return None;
        }
        let call = self.next_call(now)?;
        self.is_pending = true;
        Some(call)
    }

    /// Returns the steady time at which to call [`poll`](Self::poll) again, if nothing else
    /// happens. The wall clock may jump, so look at it once a second at least.
    pub(crate) fn wake(&mut self, now: Now) -> u64 {
        let mut wake = if self.tenure.is_shared() { u64::MAX } else { self.refresh_at };
        let mut at = |steady: u64| wake = wake.min(steady);
        let time = self.tenure.time(now);
        if let Some((_, over)) = self.tenure.ends() {
            at(over);
        }
        if let Some(expires) = self.flights.expires_at() {
            at(expires);
        }
        if self.has_room_to_fly()
            && !self.is_sated
            && self.may_hand_out(now)
            && let Some(deadline) = self.front.next_deadline()
        {
            let due = now.steady.saturating_add(deadline.saturating_sub(time));
            at(due.max(self.paced_until));
            if let Some(grows) = self.limit.grows_at(now.steady, self.spans()) {
                at(grows);
            }
        }
        if self.is_pending {
            return wake;
        }
        if self.has_news_of_leases(now) {
            at(self.lease_pause.until);
        }
        if let Some(takes) = self.takes_at() {
            at(takes.max(self.lease_pause.until));
        }
        if let Some(leaves) = self.tenure.leaves_at() {
            at(leaves.max(self.lease_pause.until));
        }
        match self.tenure.ends() {
            Some((renew, _)) => at(renew.max(self.lease_pause.until)),
            None if self.tenure.is_empty() => at(self.lease_pause.until),
            None => {}
        }
        if 0 < self.flights.settled() {
            at(self.commit_pause.until.max(self.lingers_until()));
        }
        if let Some(again) = self.flights.tries_again_at() {
            at(self.commit_pause.until.max(again));
        }
        if !self.may_load() {
            return wake;
        }
        if self.wants_load(time) {
            at(self.load_pause.until);
        }
        if self.tenure.is_shared() && !self.tenure.is_empty() && !self.is_closing() {
            if self.has_room_to_look() {
                at(self.look_next.max(self.load_pause.until));
            }
            if let Some(behind) = self.front.behind_at().filter(|_| self.has_room_behind()) {
                at(self.behind_pause.until.max(behind));
            }
        }
        wake
    }

    /// Takes the store's answer to the last call.
    pub(crate) fn answer(&mut self, now: Now, outbox: &mut Outbox, answer: Answer<T>) {
        self.is_pending = false;
        match answer {
            Answer::Lease(call, Ok(leases)) => self.leased(now, outbox, call, leases),
            Answer::Load(call, Ok(mut loaded)) => {
                self.load_pause.reset();
                self.tell_damaged(std::mem::take(&mut loaded.damaged));
                match self.tenure.notice_clock(now, call.asked, loaded.clock) {
                    true => self.begin_anew(now, outbox),
                    false => self.loaded(now, call, loaded),
                }
            }
            Answer::Behind(call, Ok(mut loaded)) => {
                self.tell_damaged(std::mem::take(&mut loaded.damaged));
                self.loaded_behind(now, call, loaded);
            }
            Answer::Commit(call, Ok(done)) => {
                self.commit_pause.reset();
                self.last_error = None;
                self.committed(now, outbox, call, done);
            }
            Answer::Lease(call, Err(error)) => {
                self.lease_pause.fail(now.steady);
                // The leases run out by themselves. What was given back, or not, is handed out of
                // no more.
                if call.is_last {
                    self.released = true;
                    self.lost.get_or_insert_with(|| error.clone());
                }
                self.tell(error);
            }
            Answer::Behind(call, Err(error)) => self.failed_behind(now, &call, true, error),
            Answer::Load(_, Err(error)) => {
                self.load_pause.fail(now.steady);
                self.failed(now, outbox, error);
            }
            Answer::Commit(call, Err(error)) => {
                self.commit_pause.fail(now.steady);
                if self.is_closing() {
                    // A timer that closes does not wait for a store that fails: what was not
                    // settled comes again.
                    for (number, settled) in self.flights.take_settled(self.flights.settled()) {
                        self.flights.end(number);
                        if !settled.is_by_keeper() {
                            self.lose(1, error.clone());
                        }
                    }
                }
                // What callers want waited while what was handed out went alone.
                if call.changes.is_empty() && 1 < self.commit_pause.failures {
                    self.refuse_commands(&error);
                }
                let tickets = call.tickets.into_iter();
                self.replies.extend(tickets.map(|ticket| (ticket, Err(error.clone()))));
                self.failed(now, outbox, error);
            }
        }
    }

    pub(crate) fn near_rows(&self) -> usize {
        self.front.len()
    }

    /// Returns the bytes of all rows in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.front.bytes() + self.flights.bytes
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.flights.unsettled
    }

    pub(crate) fn held_up(&self) -> usize {
        self.flights.held_up()
    }

    pub(crate) fn partitions(&self) -> usize {
        self.tenure.epochs.len()
    }

    /// How many rows are in memory.
    fn known(&self) -> usize {
        self.front.len() + self.flights.len()
    }

    /// What was settled and is not committed comes again after a crash, so that is bounded too; of
    /// what is locked in the store or refused by it there may be more. So are bytes: what becomes due has room
    /// beside them.
    fn has_room_to_fly(&self) -> bool {
        !self.is_closing()
            && self.flights.unsettled + self.flights.counting < self.config.in_flight
            && self.has_room_for_flights()
    }

    /// Whether there is room for more, whoever holds what there is.
    fn has_room_for_flights(&self) -> bool {
        self.flights.going() < self.config.in_flight * 2
            && self.flights.len() < self.most_flights()
            && (self.flights.len() == 0 || self.flights.bytes < self.config.near_bytes / 4)
    }

    fn most_flights(&self) -> usize {
        (self.config.near_rows / 4).max(self.config.in_flight * 2)
    }

    /// Whether a look may find more: what is in flight comes with it again.
    fn has_room_to_look(&self) -> bool {
        self.flights.len() < self.config.near_rows
    }

    /// Whether the store is asked for partitions: else others have them, who hand out of them.
    fn wants(&self) -> bool {
        self.receives && !self.is_closing()
    }

    /// Whether the leases will be good when a load is answered.
    fn may_load(&self) -> bool {
        self.lease_pause.failures == 0
    }

    /// Whether the store is to hear something about the leases before they are renewed.
    fn has_news_of_leases(&self, now: Now) -> bool {
        self.tenure.is_shared() && (self.wants() != self.wanted || !self.given_back(now).is_empty())
            || self.takes_at().is_some_and(|at| at <= now.steady)
    }

    /// Returns when to ask for what others gave back, before the leases are renewed. A worker that
    /// has none sees it by no look; the others give its share back when they hear of it.
    fn takes_at(&self) -> Option<u64> {
        let asked = self.tenure.asked?;
        let comes = self.wanted_since.saturating_add(self.tenure.outlasts());
        let takes = self.sees_free || self.tenure.is_empty() && asked < comes;
        (self.wants() && takes).then(|| asked + self.tenure.good_for() / 20)
    }

    /// Returns the partitions to be given back now.
    fn given_back(&self, now: Now) -> Vec<u32> {
        self.tenure.given_back(now, |partition| self.flights.of(partition))
    }

    /// Notices that the clock was set back, that the leases are over, and that it is time to load
    /// all anew.
    fn notice(&mut self, now: Now, outbox: &mut Outbox) {
        let time = self.tenure.time(now);
        // A store's clock is known better with each lease, which is no clock that was set.
        if time < self.handed_out_at && !self.tenure.is_shared() {
            self.recall(now, outbox);
            self.forget();
        }
        self.handed_out_at = time;
        if self.tenure.is_over(now) {
            self.lose_leases(now, outbox);
        }
        if self.flights.are_held_up_for(HELD, now) && !self.is_closing() {
            let (count, most) = (self.flights.held_up(), self.most_flights());
            self.troubles.push(Error::store(
                format!("settle {count} timeouts"),
                format!("they are locked or refused; of {most} that are, all others wait too"),
            ));
        }
        // Consumers that hold something may be long about it.
        if outbox.len() == self.flights.unsettled {
            let since = now.steady.saturating_sub(self.tenure.good_for());
            let unasked = match self.has_unasked(now) {
                true => *self.unasked_since.get_or_insert(now.steady),
                false => u64::MAX,
            };
            let waits = 0 < outbox.len() || unasked < since;
            self.abandoned = outbox.notice_abandoned(since, waits).or(self.abandoned);
        }
        if outbox.len() < self.flights.unsettled || !self.has_unasked(now) {
            self.unasked_since = None;
        }
        self.receives = outbox.is_asked();
        if self.receives || self.is_closing() {
            self.abandoned = None;
        }
        if self.abandoned.is_some_and(|asked| asked + HELD <= now.steady) {
            self.abandoned = None;
            self.troubles.push(Error::Held { timeouts: 0 });
        }
        if !self.wants() && self.tenure.is_shared() {
            self.leave(now, outbox, 0, &[]);
        }
        if !self.tenure.is_shared() && self.refresh_at <= now.steady {
            self.refresh_at = now.steady + self.config.refresh;
            self.forget();
        }
    }

    fn hand_out(&mut self, now: Now, outbox: &mut Outbox) {
        if !self.may_hand_out(now) {
            return;
        }
        let time = self.tenure.time(now);
        self.notice_held(now, outbox);
        self.is_sated = false;
        self.paced_until = 0;
        if self.limit.settle(now.steady, self.spans()) < outbox.len() {
            // There are more workers now.
            self.recall(now, outbox);
        }
        while self.has_room_to_fly() {
            let ready = outbox.len() + self.flights.counting;
            for pace in self.pace.iter_mut().chain(&mut self.limit.pace) {
                let next = pace.next(now.steady, ready);
                outbox.is_paced = next.is_none();
                self.paced_until = next.unwrap_or(u64::MAX);
                if now.steady < self.paced_until {
                    return;
                }
            }
            // Counted is what somebody asks for: what waits for nobody would be dead after a few
            // crashes, and no consumer would have seen it.
            self.is_sated = self.config.max_attempts.is_some()
                && outbox.wanted() <= outbox.len() + self.flights.counting;
            if self.is_sated {
                return;
            }
            let Some(row) = self.front.expire(time) else { return };
            if self.flights.has_number(row.number) {
                // It waits for the other one.
                self.front.forget(row.partition, Position::before(row.deadline));
                self.load_pause.fail_for(now.steady, pause::FIRST);
                continue;
            }
            let lease = self.tenure.lease(row.partition);
            self.flights.begin(&row, lease);
            match self.config.max_attempts {
                None => self.push(now, outbox, row, lease.epoch),
                Some(most) if most <= row.attempt => {
                    self.flights.settle(now, row.number, Settled::Bury);
                }
                Some(_) => self.flights.settle(now, row.number, Settled::Count),
            }
        }
        // Others may settle what they take meanwhile.
        let is_due = |deadline| deadline <= time;
        if 0 < self.held_long && self.front.next_deadline().is_some_and(is_due) {
            self.held_since = None;
            self.troubles.push(Error::Held { timeouts: std::mem::take(&mut self.held_long) });
        }
    }

    fn push(&mut self, now: Now, outbox: &mut Outbox, row: Row, epoch: u64) {
        let late = self.tenure.time(now).saturating_sub(row.deadline);
        self.counts.handed_out += 1;
        self.counts.late_max = self.counts.late_max.max(late);
        self.counts.late_total = self.counts.late_total.saturating_add(late);
        if let Some(events) = &mut self.events {
            let attempt = row.attempt.saturating_add(1);
            let (name, deadline) = (row.name.clone(), time(row.deadline));
            events.push(Event::HandedOut { name, deadline, attempt });
        }
        outbox.push(now.steady, row, epoch);
    }

    /// Whether something is due that waits until somebody asks for it.
    fn has_unasked(&mut self, now: Now) -> bool {
        let time = self.tenure.time(now);
        self.is_sated && self.front.next_deadline().is_some_and(|deadline| deadline <= time)
    }

    /// Notices that what is due waits for consumers for long: they hold as many as they may, or
    /// they take no other.
    fn notice_held(&mut self, now: Now, outbox: &Outbox) {
        if self.held_counted + HELD <= now.steady {
            self.held_counted = now.steady;
            self.held_long = self.flights.count_held(outbox);
        }
        let (held, waiting) = (self.flights.unsettled - outbox.len(), outbox.len());
        // Where there is room, a consumer that takes is not stuck.
        let (waits, timeouts, taken) = match self.has_room_to_fly() {
            true => {
                let takes = 0 < held || outbox.is_asked();
                (
                    takes && (0 < waiting || self.has_unasked(now)),
                    held,
                    outbox.asked().unwrap_or_default(),
                )
            }
            false => (0 < self.flights.unsettled, self.flights.unsettled, 0),
        };
        if self.is_closing() || !waits {
            self.held_since = None;
            return;
        }
        let settled = *self.held_since.get_or_insert(now.steady);
        if settled.max(taken) + HELD <= now.steady {
            // Again in a minute.
            (self.held_since, self.held_counted, self.held_long) = (None, now.steady, 0);
            self.troubles.push(Error::Held { timeouts });
        }
    }

    fn next_call(&mut self, now: Now) -> Option<Call<T>> {
        let (asked, wanted, given_back) = (now.steady, self.wants(), self.given_back(now));
        let lease = |is_last| LeaseCall { asked, wanted, given_back, is_last };
        self.give_up(now);
        if self.is_closing() && self.is_idle() {
            if !self.tenure.is_shared() {
                self.released = true;
                return None;
            }
            let given_back = self.tenure.leaving().collect();
            return Some(Call::Lease(LeaseCall { given_back, ..lease(true) }));
        }
        let is_due = self.tenure.is_due(now) || self.has_news_of_leases(now);
        if is_due && self.lease_pause.is_over(asked) {
            return Some(Call::Lease(lease(false)));
        }
        // They take turns, so that none holds another up.
        if !Manner::TurnsOfCalls.is_kept() {
            self.turn = 2;
        }
        (0..3).find_map(|_| {
            self.turn = (self.turn + 1) % 3;
            match self.turn {
                0 if self.may_load() => self.load_behind(now).map(Call::Behind),
                1 if self.may_load() => self.load(now).map(Call::Load),
                0 | 1 => None,
                _ => self.commit(now).map(Call::Commit),
            }
        })
    }

    /// A timer that closes has a lease for what was asked for, and for what was settled. A store may
    /// need longer for each than a call may take, and there may be thousands.
    fn give_up(&mut self, now: Now) {
        if !self.tenure.is_known {
            // A store that fails ends it, too.
            return;
        }
        let Some(began) = now.steady.checked_sub(self.tenure.lasts) else { return };
        if self.closing_since.is_none_or(|since| began < since) {
            return;
        }
        let count = self.flights.end_settled_before(began);
        if 0 < count {
            let slow = || Error::store("settle all within a lease", "the store takes too long");
            let error = self.lost.take().unwrap_or_else(slow);
            self.lose(count, error);
        }
        self.refuse_commands(&Error::Closed);
    }

    /// Whether nothing is left that a timer that closes waits for.
    fn is_idle(&self) -> bool {
        let holds = if self.waits { self.flights.len() } else { self.flights.settled() };
        !self.has_commands() && holds == 0
    }

    fn leased(&mut self, now: Now, outbox: &mut Outbox, call: LeaseCall, leases: Leases) {
        // Leases that it did not know of, because they had run out or an answer was lost, go back
        // too.
        self.released = call.is_last
            && leases.held.iter().all(|lease| call.given_back.contains(&lease.partition));
        if self.released {
            return;
        }
        if call.wanted && !self.wanted {
            self.wanted_since = now.steady;
        }
        self.wanted = call.wanted;
        self.sees_free = false;
        self.lease_pause.reset();
        if !call.given_back.is_empty() || leases.good_for.is_none() && leases.held.is_empty() {
            // What is settled one after another is given back together.
            self.lease_pause.until = now.steady.saturating_add(pause::FIRST);
        }
        if self.pause_told.is_none_or(|told| told < call.asked) {
            self.set_paused(now, outbox, leases.is_paused);
        }
        if self.limit_told.is_none_or(|told| told < call.asked) {
            self.limit.set(leases.rate_limit.map(Rate::from));
        }
        match call.wanted || leases.good_for.is_none() {
            true => self.limit.tell(now.steady, leases.owners, leases.owners_before),
            false => self.limit.end(),
        }
        let (share, yielding) = (leases.share, leases.yielding.clone());
        match self.tenure.take(now, call.asked, leases) {
            None => {}
            Some(News::OtherLeases) => self.keep_leased(now, outbox),
            Some(News::ClockWasSet) => self.begin_anew(now, outbox),
        }
        let share = if self.wants() || !self.tenure.is_shared() { share } else { 0 };
        self.leave(now, outbox, share, &yielding);
    }

    /// Hands out nothing until it is told otherwise, or again, after the store has noted that.
    pub(crate) fn pause(&mut self, now: Now, outbox: &mut Outbox, pauses: bool) {
        self.pause_told = Some(now.steady);
        self.set_paused(now, outbox, pauses);
    }

    /// Keeps this limit from now on, after the store has noted it.
    pub(crate) fn limit_rate(&mut self, now: Now, limit: Option<RateLimit>) {
        self.limit_told = Some(now.steady);
        self.limit.set(limit.map(Rate::from));
    }

    /// How long what another owner may take counts: a lease, where there are others.
    fn spans(&self) -> u64 {
        if self.tenure.is_shared() { self.tenure.good_for() } else { 0 }
    }

    fn set_paused(&mut self, now: Now, outbox: &mut Outbox, pauses: bool) {
        self.is_paused = pauses;
        if pauses {
            self.is_sated = false;
            self.recall(now, outbox);
        }
    }

    pub(super) fn may_hand_out(&self, now: Now) -> bool {
        !self.is_paused && self.tenure.may_hand_out(now)
    }

    /// Hands out nothing more of these partitions, and of all others but so many, to give them
    /// back.
    fn leave(&mut self, now: Now, outbox: &mut Outbox, share: usize, yielding: &[u32]) {
        let yields = yielding.iter().any(|partition| self.tenure.has(*partition));
        if yields || share < self.tenure.epochs.len() {
            // What nobody has taken is not in flight.
            self.recall(now, outbox);
            self.tenure.leave(now, share, yielding, |partition| self.flights.of(partition));
            self.keep_leased(now, outbox);
        }
    }

    /// Forgets all, because the store's clock was set: what is further away than the margin may be
    /// known, by the clock of now.
    fn begin_anew(&mut self, now: Now, outbox: &mut Outbox) {
        self.recall(now, outbox);
        self.forget();
        self.front.clear();
    }

    /// Hands out nothing more until it has leases again.
    fn lose_leases(&mut self, now: Now, outbox: &mut Outbox) {
        self.recall(now, outbox);
        self.tenure.clear();
        self.limit.end();
        self.forget();
    }

    /// Forgets what may not be handed out.
    fn keep_leased(&mut self, now: Now, outbox: &mut Outbox) {
        self.recall(now, outbox);
        self.forget();
        self.front.retain(|lease| self.tenure.holds(lease));
    }

    /// What was done and what not is not known.
    fn failed(&mut self, now: Now, outbox: &mut Outbox, error: Error) {
        self.tell(error);
        self.recall(now, outbox);
        self.forget();
    }

    fn tell(&mut self, error: Error) {
        self.counts.errors += 1;
        self.last_error = Some(error.clone());
        self.troubles.push(error);
    }

    /// Takes back what is handed out and not taken.
    fn recall(&mut self, now: Now, outbox: &mut Outbox) {
        let mut recalled = outbox.drain().peekable();
        if recalled.peek().is_none() {
            return;
        }
        for number in recalled {
            if let Some((partition, deadline)) = self.flights.recall(now, number) {
                self.front.forget(partition, Position::before(deadline));
            }
        }
        // They are no longer near nor in flight, and before `loaded`.
        self.forget();
    }

    /// Forgets all that is not in flight, to load it again. If a store has several owners, what was
    /// read and is gone stays known, because to read it again may take long.
    fn forget(&mut self) {
        self.counts.forgotten += 1;
        self.look_next = 0;
        match self.tenure.is_shared() && Manner::KeepsPlaces.is_kept() {
            true => self.front.drop_rows(),
            false => self.front.clear(),
        }
    }
}

/// How long consumers may settle nothing, or the store not what they did, before it is told, in
/// milliseconds.
const HELD: u64 = 60_000;

#[cfg(test)]
mod answered;
#[cfg(test)]
mod model;
#[cfg(test)]
mod simulation;
