//! The keeper: decides what to ask of the store and what to hand out.
//!
//! A state machine. Time, commands and the store's answers go in; calls of the store, due timeouts
//! and replies come out. It reads no clock and starts no thread, so the timer's thread, the model
//! test and a simulation run the same code.
//!
//! The wheel is a cache of the store's front. All that the keeper knows may be forgotten at any
//! time except for `flying`, and that only so that nothing is handed out twice without a crash.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tickwheel::{Key, Mode, Wheel};

use crate::Error;
use crate::due::Outbox;
use crate::store::{
    Damaged, Held, Lease, Leases, Limit, Op, Outcome, Page, Position, Replaced, Row,
};

/// How a keeper behaves; all times in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// How far ahead rows are loaded.
    pub(crate) horizon: u64,
    /// The most rows in memory, near and in flight together.
    pub(crate) near_rows: usize,
    /// The most bytes of rows in memory.
    pub(crate) near_bytes: usize,
    /// The most rows of one load.
    pub(crate) page: usize,
    /// The most changes of one commit.
    pub(crate) group: usize,
    /// The most timeouts that are handed out and not settled.
    pub(crate) in_flight: usize,
    /// When a timeout that was dropped comes again.
    pub(crate) redeliver: u64,
    /// How long acks wait for a commit to go along with.
    pub(crate) linger: u64,
    /// How often all is forgotten and loaded anew, if the store has one owner.
    pub(crate) refresh: u64,
    /// How often the front is loaded anew, if the store has several owners: others put and cancel.
    pub(crate) look: u64,
    /// If the store has several owners: how old a look may be, at the deadline, for a timeout to be
    /// handed out on the strength of it.
    pub(crate) margin: u64,
}

/// The present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Now {
    /// Milliseconds since 1970 by the wall clock, rounded down. May jump.
    pub(crate) wall: u64,
    /// Milliseconds since some moment, by a clock that is never set.
    pub(crate) steady: u64,
}

/// What a caller wants done in the store. `T` tells the callers apart.
#[derive(Debug)]
pub(crate) struct Command<T> {
    pub(crate) ticket: T,
    pub(crate) request: Request,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Put { name: Arc<str>, deadline: u64, payload: Arc<[u8]> },
    Cancel { name: Arc<str> },
    Get { name: Arc<str> },
    Len,
    Page { after: Position, limit: Limit },
}

/// What came of a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Scheduled(Scheduled),
    Cancelled(Cancelled),
    Found(Option<Row>),
    Len(u64),
    Page { rows: Vec<Row>, end: Option<Position> },
}

/// What [`DurableTimer::schedule`](crate::DurableTimer::schedule) did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheduled {
    /// No timeout had this name.
    New,
    /// A timeout of this name was pending. It has the new deadline and the new payload now, and
    /// will not come at its old deadline.
    Moved,
    /// A consumer had been handed the earlier timeout of this name, and goes on with it. The new
    /// one comes as well.
    Firing,
}

/// What [`DurableTimer::cancel`](crate::DurableTimer::cancel) found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cancelled {
    /// The timeout was pending, and will not be handed out.
    Cancelled,
    /// A consumer has been handed the timeout, and goes on with it. It is not handed out again.
    Firing,
    /// No timeout has this name: it never had one, it was acked, or it was cancelled before.
    Unknown,
}

/// What a consumer did with a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    Ack,
    Retry { delay: u64 },
    Dropped,
}

/// A call of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Lease { wanted: bool },
    Load { leases: Option<Vec<Lease>>, after: Position, until: u64, limit: Limit },
    Commit { ops: Vec<Op> },
    Get { name: Arc<str> },
    Len,
}

/// The store's answer to a [`Call`].
#[derive(Debug)]
pub(crate) enum Answer {
    Leases(Leases),
    Page(Page),
    Outcomes(Vec<Outcome>),
    Row(Option<Row>),
    Len(u64),
}

/// What a keeper has done; goes into [`Stats`](crate::Stats).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) handed_out: u64,
    pub(crate) acked: u64,
    pub(crate) retried: u64,
    pub(crate) fenced: u64,
    pub(crate) commits: u64,
    pub(crate) changes: u64,
    pub(crate) loads: u64,
    pub(crate) forgotten: u64,
    pub(crate) errors: u64,
    pub(crate) damaged: u64,
    pub(crate) late_max: u64,
    pub(crate) late_total: u64,
}

#[derive(Debug)]
pub(crate) struct Keeper<T> {
    config: Config,

    /// The rows that are not handed out, by deadline.
    wheel: Wheel<Row>,
    /// Where in the wheel the row of a name is.
    near: HashMap<Arc<str>, Key>,
    /// All rows of the store at or before this position are near or in flight. A position and not
    /// a time, because there may be more rows of one deadline than a page holds.
    loaded: Position,
    /// The time by which was last handed out. If the clock is before it, the clock was set back.
    handed_out_at: u64,
    /// What was handed out and is still in the store, by number.
    flying: HashMap<u64, Flying>,
    /// How many of `flying` are not settled.
    unsettled: usize,
    /// The bytes of all rows in `near` and `flying`.
    bytes: usize,

    commands: VecDeque<Command<T>>,
    /// What consumers settled, in order: numbers of `flying`.
    settled: VecDeque<(u64, Settled)>,
    /// When the first of `settled` came.
    settled_since: u64,

    leases: HashMap<u32, u64>,
    /// When to renew the leases, when to stop handing out, and when they are over; by the steady
    /// clock.
    lease_until: Option<LeaseTimes>,
    /// The store's clock, if it has one: then the store has several owners.
    clock: Option<StoreClock>,
    /// The time when the last load from the front was asked for. All that is near was so in the
    /// store at that time or later.
    looked_at: u64,
    /// The steady time of the next look.
    look_next: u64,

    /// The one call that is under way.
    pending: Option<Pending<T>>,
    /// Nothing more to load up to this deadline.
    complete_until: u64,
    load_next: bool,
    refresh_at: u64,
    lease_pause: Pause,
    load_pause: Pause,
    commit_pause: Pause,
    last_error: Option<Error>,
    closing: bool,
    waits: bool,
    released: bool,

    pub(crate) replies: Vec<(T, Result<Reply, Error>)>,
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) counts: Counts,
}

/// What the person who runs the timer should hear of.
#[derive(Debug)]
pub(crate) enum Trouble {
    Store(Error),
    Damaged(Damaged),
}

#[derive(Debug)]
struct Flying {
    name: Arc<str>,
    deadline: u64,
    lease: Lease,
    bytes: usize,
    settled: bool,
}

#[derive(Clone, Copy, Debug)]
struct LeaseTimes {
    renew: u64,
    hand_out: u64,
    over: u64,
}

/// What is known of the store's clock: what it is less the steady clock, at least and at most.
#[derive(Clone, Copy, Debug)]
struct StoreClock {
    least: u64,
    most: u64,
}

/// A call that is under way, and what its answer is for.
#[derive(Debug)]
enum Pending<T> {
    Lease {
        asked: u64,
        wanted: bool,
    },
    /// `front`: the time and the steady time when a load from the front was asked for.
    Load {
        until: u64,
        front: Option<(u64, u64)>,
    },
    Commit {
        settled: usize,
        commands: Vec<Command<T>>,
    },
    Read(Command<T>),
}

/// Waits longer after each failure.
#[derive(Debug, Default)]
struct Pause {
    failures: u32,
    until: u64,
}

impl Pause {
    fn fail(&mut self, now: u64) -> u64 {
        let pause = (FIRST_PAUSE << self.failures.min(16)).min(LAST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.until = now.saturating_add(pause);
        pause
    }

    fn is_over(&self, now: u64) -> bool {
        self.until <= now
    }

    fn reset(&mut self) {
        *self = Self::default();
    }
}

const LOOK_HORIZON: u64 = 2_000;
const SLACK: u64 = 2;
const FIRST_PAUSE: u64 = 100;
const LAST_PAUSE: u64 = 30_000;

impl<T> Keeper<T> {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            wheel: Wheel::new(Mode::hierarchical()),
            near: HashMap::new(),
            loaded: Position::start(),
            handed_out_at: 0,
            flying: HashMap::new(),
            unsettled: 0,
            bytes: 0,
            commands: VecDeque::new(),
            settled: VecDeque::new(),
            settled_since: 0,
            leases: HashMap::new(),
            lease_until: None,
            clock: None,
            looked_at: 0,
            look_next: 0,
            pending: None,
            complete_until: 0,
            load_next: false,
            refresh_at: 0,
            lease_pause: Pause::default(),
            load_pause: Pause::default(),
            commit_pause: Pause::default(),
            last_error: None,
            closing: false,
            waits: false,
            released: false,
            replies: Vec::new(),
            troubles: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Takes a command. Its reply is in `replies` after some later call.
    pub(crate) fn command(&mut self, command: Command<T>) {
        self.commands.push_back(command);
    }

    /// Takes what a consumer did with the timeout of this number.
    pub(crate) fn settle(&mut self, now: Now, number: u64, settled: Settled) {
        let Some(flying) = self.flying.get_mut(&number) else { return };
        if flying.settled {
            return;
        }
        flying.settled = true;
        self.unsettled -= 1;
        if self.settled.is_empty() {
            self.settled_since = now.steady;
        }
        self.settled.push_back((number, settled));
    }

    /// Hands out nothing from now on, takes back what no consumer has taken, and commits what was
    /// asked for. With `waits` it goes on until consumers have settled what they hold.
    pub(crate) fn close(&mut self, outbox: &mut Outbox, waits: bool) {
        self.closing = true;
        self.waits = waits;
        self.recall(outbox);
    }

    /// Whether settlements wait for a commit to go along with.
    pub(crate) fn lingers(&self) -> bool {
        !self.settled.is_empty()
    }

    /// What went wrong since the last success.
    pub(crate) fn last_error(&self) -> Option<&Error> {
        self.last_error.as_ref()
    }

    /// Whether all is done after [`close`](Self::close).
    pub(crate) fn is_closed(&self) -> bool {
        self.released
    }

    /// Hands out what is due, and returns the next call for the store. After a call
    /// [`answer`](Self::answer) must come before this returns another.
    pub(crate) fn poll(&mut self, now: Now, outbox: &mut Outbox) -> Option<Call> {
        if self.pending.is_some() || self.released {
            return None;
        }
        self.notice(now, outbox);
        self.hand_out(now, outbox);
        self.next_call(now)
    }

    /// Returns the steady time at which to call [`poll`](Self::poll) again, if nothing else
    /// happens. The wall clock may jump, so look at it once a second at least.
    pub(crate) fn wake(&mut self, now: Now) -> u64 {
        let mut wake = if self.clock.is_none() { self.refresh_at } else { u64::MAX };
        let mut at = |steady: u64| wake = wake.min(steady);
        let time = self.time(now);
        if let Some(times) = self.lease_until {
            at(times.renew.max(self.lease_pause.until));
            at(times.over);
        } else if self.leases.is_empty() {
            at(self.lease_pause.until);
        }
        if !self.settled.is_empty() {
            at(self.commit_pause.until.max(self.settled_since + self.config.linger));
        }
        if self.wants_load(time) {
            at(self.load_pause.until);
        }
        if self.clock.is_some() && !self.leases.is_empty() && !self.closing {
            at(self.look_next.max(self.load_pause.until));
        }
        let limit = match self.clock {
            None => u64::MAX,
            Some(_) => self.looked_at.saturating_add(self.config.margin),
        };
        if self.has_room_to_fly()
            && self.may_hand_out(now)
            && let Some(deadline) = self.wheel.next_deadline()
            && deadline <= limit
        {
            at(now.steady.saturating_add(deadline.saturating_sub(time)));
        }
        wake
    }

    /// Takes the store's answer to the last call.
    pub(crate) fn answer(&mut self, now: Now, outbox: &mut Outbox, answer: Result<Answer, Error>) {
        let pending = self.pending.take().expect("an answer follows a call");
        match answer {
            Ok(answer) => self.succeed(now, outbox, pending, answer),
            Err(error) => self.fail(now, outbox, pending, error),
        }
    }

    pub(crate) fn near_rows(&self) -> usize {
        self.near.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.unsettled
    }

    pub(crate) fn partitions(&self) -> usize {
        self.leases.len()
    }

    /// Whether the leases are good for long enough: a timeout that is handed out in their last
    /// quarter might be handed out by their next owner before it is acked.
    fn may_hand_out(&self, now: Now) -> bool {
        self.lease_until.is_none_or(|times| now.steady < times.hand_out)
    }

    /// The time that deadlines are compared with.
    fn time(&self, now: Now) -> u64 {
        match self.clock {
            None => now.wall,
            Some(clock) => now.steady.saturating_add(clock.least),
        }
    }

    /// The latest deadline that may be handed out.
    ///
    /// If the store has several owners, a caller elsewhere who cancels or moves a timeout `margin`
    /// before its deadline is told that it will not come. So it is not handed out unless a look has
    /// begun since.
    fn limit(&self, now: Now) -> u64 {
        let time = self.time(now);
        match self.clock {
            None => time,
            Some(_) => time.min(self.looked_at.saturating_add(self.config.margin)),
        }
    }

    /// Whether a timeout that was replaced or cancelled may have been handed out by any owner.
    fn may_be_out(&self, now: Now, deadline: u64) -> bool {
        self.clock.is_some_and(|clock| {
            let latest = now.steady.saturating_add(clock.most);
            deadline <= latest.saturating_add(self.config.margin)
        })
    }

    fn has_room_to_fly(&self) -> bool {
        !self.closing && self.unsettled < self.config.in_flight
    }

    /// Loading begins below a quarter of what may be near and ends at half of it: what is put
    /// near has the other half, so that dropping the far half and loading it again are rare. Where
    /// nothing is near, what is in flight may fill more than that.
    fn has_room_in_memory(&self) -> bool {
        let Config { near_rows, near_bytes, .. } = self.config;
        if self.near.is_empty() {
            self.known() < near_rows && self.bytes < near_bytes
        } else {
            self.known() < near_rows / 4 && self.bytes < near_bytes / 4
        }
    }

    /// How far a load fills the memory.
    fn is_filled(&self) -> bool {
        let Config { near_rows, near_bytes, .. } = self.config;
        !self.near.is_empty() && (near_rows / 2 <= self.known() || near_bytes / 2 <= self.bytes)
    }

    /// How many rows are in memory.
    fn known(&self) -> usize {
        self.near.len() + self.flying.len()
    }

    /// Notices that the clock was set back, that the leases are over, and that it is time to load
    /// all anew.
    fn notice(&mut self, now: Now, outbox: &mut Outbox) {
        let time = self.time(now);
        if time < self.handed_out_at {
            self.recall(outbox);
            self.forget();
        }
        self.handed_out_at = time;
        if self.lease_until.is_some_and(|times| times.over <= now.steady) {
            self.recall(outbox);
            self.leases.clear();
            self.lease_until = None;
            self.forget();
        }
        if self.clock.is_none() && self.refresh_at <= now.steady {
            self.refresh_at = now.steady + self.config.refresh;
            self.forget();
        }
    }

    fn hand_out(&mut self, now: Now, outbox: &mut Outbox) {
        if !self.may_hand_out(now) {
            return;
        }
        let time = self.time(now);
        let limit = self.limit(now);
        while self.has_room_to_fly() {
            let Some(expired) = self.wheel.expire(limit) else { return };
            let row = expired.value;
            self.near.remove(&row.name);
            let epoch = self.leases[&row.partition];
            let lease = Lease { partition: row.partition, epoch };
            let flying = Flying {
                name: row.name.clone(),
                deadline: row.deadline,
                lease,
                bytes: row.bytes(),
                settled: false,
            };
            self.flying.insert(row.number, flying);
            self.unsettled += 1;
            let late = time.saturating_sub(row.deadline);
            self.counts.handed_out += 1;
            self.counts.late_max = self.counts.late_max.max(late);
            self.counts.late_total = self.counts.late_total.saturating_add(late);
            outbox.push(row, lease.epoch);
        }
    }

    fn next_call(&mut self, now: Now) -> Option<Call> {
        if self.closing && self.is_idle() {
            self.pending = Some(Pending::Lease { asked: now.steady, wanted: false });
            return Some(Call::Lease { wanted: false });
        }
        let lease_is_due = match self.lease_until {
            Some(times) => times.renew <= now.steady,
            None => self.leases.is_empty(),
        };
        if lease_is_due && self.lease_pause.is_over(now.steady) {
            self.pending = Some(Pending::Lease { asked: now.steady, wanted: true });
            return Some(Call::Lease { wanted: true });
        }
        // Loads and commits take turns, so that neither holds the other up.
        self.load_next = !self.load_next;
        if self.load_next {
            self.load(now).or_else(|| self.commit(now))
        } else {
            self.commit(now).or_else(|| self.load(now))
        }
    }

    /// Whether nothing is left that a timer that closes waits for.
    fn is_idle(&self) -> bool {
        let holds = if self.waits { self.flying.len() } else { self.settled.len() };
        self.commands.is_empty() && holds == 0
    }

    fn wants_load(&self, time: u64) -> bool {
        !self.closing
            && !self.leases.is_empty()
            && self.has_room_in_memory()
            && self.complete_until < time.saturating_add(self.horizon() / 2)
    }

    /// What is near is read again with each look, so it must not be much.
    fn horizon(&self) -> u64 {
        match self.clock {
            None => self.config.horizon,
            Some(_) => self.config.horizon.min(LOOK_HORIZON),
        }
    }

    fn load(&mut self, now: Now) -> Option<Call> {
        let time = self.time(now);
        let looks = self.wants_look(now);
        if !looks && !self.wants_load(time) || !self.load_pause.is_over(now.steady) {
            return None;
        }
        let until = time.saturating_add(self.horizon());
        let after = if looks { Position::start() } else { self.loaded.clone() };
        // A look replaces all that is near, so it is one page.
        let rows = if looks { self.config.near_rows / 2 } else { self.config.page };
        let limit = Limit {
            // What is in flight comes again if all was forgotten.
            rows: rows.min(self.config.near_rows) + self.flying.len(),
            bytes: self.config.near_bytes,
        };
        let front = (after == Position::start()).then_some((time, now.steady));
        self.pending = Some(Pending::Load { until, front });
        self.counts.loads += 1;
        Some(Call::Load { leases: Some(self.held()), after, until, limit })
    }

    fn wants_look(&self, now: Now) -> bool {
        self.clock.is_some()
            && !self.closing
            && !self.leases.is_empty()
            && self.look_next <= now.steady
            && self.flying.len() < self.config.near_rows
    }

    fn held(&self) -> Vec<Lease> {
        self.leases.iter().map(|(&partition, &epoch)| Lease { partition, epoch }).collect()
    }

    /// Settlements come first, so that a name that was acked is unknown to a cancel after it.
    fn commit(&mut self, now: Now) -> Option<Call> {
        if !self.commit_pause.is_over(now.steady) {
            let error = self.last_error.clone().unwrap_or(Error::Closed);
            while let Some(command) = self.commands.pop_front() {
                if command.request.is_read() {
                    return Some(self.read(command));
                }
                self.replies.push((command.ticket, Err(error.clone())));
            }
            return None;
        }
        if self.commands.front().is_some_and(|command| command.request.is_read()) {
            let command = self.commands.pop_front().expect("it was there");
            return Some(self.read(command));
        }
        let lingers = self.commands.is_empty()
            && self.settled.len() < self.config.group
            && now.steady < self.settled_since.saturating_add(self.config.linger)
            && !self.closing;
        if self.commands.is_empty() && (self.settled.is_empty() || lingers) {
            return None;
        }
        let time = self.time(now);
        let settled = self.settled.len().min(self.config.group);
        let mut ops = Vec::with_capacity(settled);
        for (number, what) in self.settled.iter().take(settled) {
            let flying = &self.flying[number];
            let held = Held {
                name: flying.name.clone(),
                deadline: flying.deadline,
                number: *number,
                lease: flying.lease,
            };
            ops.push(match *what {
                Settled::Ack => Op::Ack(held),
                Settled::Retry { delay } => Op::Retry(held, time.saturating_add(delay)),
                Settled::Dropped => Op::Retry(held, time.saturating_add(self.config.redeliver)),
            });
        }
        // After a failure what was handed out goes alone: what callers want put may be too much
        // for a full disk, and then nobody could make room.
        let mut commands = Vec::new();
        let alone = self.commit_pause.failures > 0 && settled > 0;
        while !alone && commands.len() < self.config.group {
            if self.commands.front().is_none_or(|command| command.request.is_read()) {
                break;
            }
            let command = self.commands.pop_front().expect("it was there");
            ops.push(match &command.request {
                Request::Put { name, deadline, payload } => {
                    Op::Put { name: name.clone(), deadline: *deadline, payload: payload.clone() }
                }
                Request::Cancel { name } => Op::Cancel { name: name.clone() },
                _ => unreachable!("reads are not committed"),
            });
            commands.push(command);
        }
        self.counts.commits += 1;
        self.counts.changes += ops.len() as u64;
        self.pending = Some(Pending::Commit { settled, commands });
        Some(Call::Commit { ops })
    }

    fn read(&mut self, command: Command<T>) -> Call {
        let call = match &command.request {
            Request::Get { name } => Call::Get { name: name.clone() },
            Request::Len => Call::Len,
            Request::Page { after, limit } => {
                Call::Load { leases: None, after: after.clone(), until: u64::MAX, limit: *limit }
            }
            Request::Put { .. } | Request::Cancel { .. } => unreachable!("not a read"),
        };
        self.pending = Some(Pending::Read(command));
        call
    }

    fn succeed(&mut self, now: Now, outbox: &mut Outbox, pending: Pending<T>, answer: Answer) {
        match (pending, answer) {
            (Pending::Lease { asked, wanted }, Answer::Leases(leases)) => {
                self.lease_pause.reset();
                if wanted {
                    self.lease(now, outbox, asked, leases);
                } else {
                    self.released = true;
                }
            }
            (Pending::Load { until, front }, Answer::Page(page)) => {
                self.load_pause.reset();
                if let Some((time, asked)) = front
                    && self.clock.is_some()
                {
                    // All at once, so that nothing is missing meanwhile.
                    self.clear();
                    self.looked_at = time;
                    // Where looks take long, most of the time is left for other calls.
                    let took = now.steady.saturating_sub(asked);
                    self.look_next = now.steady.saturating_add(self.config.look.max(took * 4));
                }
                self.take_page(until, page);
            }
            (Pending::Commit { settled, commands }, Answer::Outcomes(outcomes)) => {
                self.commit_pause.reset();
                self.last_error = None;
                self.take_outcomes(now, outbox, settled, commands, outcomes);
            }
            (Pending::Read(command), answer) => {
                let reply = match answer {
                    Answer::Row(row) => Reply::Found(row),
                    Answer::Len(len) => Reply::Len(len),
                    Answer::Page(page) => {
                        self.tell_damaged(page.damaged);
                        Reply::Page { rows: page.rows, end: page.end }
                    }
                    _ => unreachable!("the answer fits the call"),
                };
                self.replies.push((command.ticket, Ok(reply)));
            }
            _ => unreachable!("the answer fits the call"),
        }
    }

    fn lease(&mut self, now: Now, outbox: &mut Outbox, asked: u64, leases: Leases) {
        self.lease_until = leases.good_for.map(|good_for| {
            // Counted from before the call, and by a clock that is never set.
            let good_for = milliseconds(good_for);
            LeaseTimes {
                renew: asked.saturating_add(good_for / 4),
                hand_out: asked.saturating_add(good_for / 4 * 3),
                over: asked.saturating_add(good_for),
            }
        });
        // The store read its clock after it was asked and before it answered. All times here are
        // rounded down, and until the next lease the clocks may drift apart: `SLACK` is for both.
        self.clock = leases.clock.map(|clock| StoreClock {
            least: clock.saturating_sub(now.steady).saturating_sub(SLACK),
            most: clock.saturating_sub(asked).saturating_add(SLACK + 1),
        });
        let held: HashMap<u32, u64> =
            leases.held.into_iter().map(|lease| (lease.partition, lease.epoch)).collect();
        if held.is_empty() {
            self.lease_pause.until = now.steady.saturating_add(FIRST_PAUSE);
        }
        if held != self.leases {
            self.leases = held;
            self.recall(outbox);
            self.forget();
        }
    }

    fn take_page(&mut self, until: u64, page: Page) {
        self.tell_damaged(page.damaged);
        for row in page.rows {
            if self.is_filled() {
                return;
            }
            self.loaded = row.position();
            if !self.flying.contains_key(&row.number) && self.leases.contains_key(&row.partition) {
                self.insert(row);
            }
        }
        match page.end {
            Some(end) => self.loaded = end,
            None => {
                self.loaded = Position::before(until.saturating_add(1));
                self.complete_until = until;
            }
        }
    }

    fn tell_damaged(&mut self, damaged: Vec<Damaged>) {
        self.counts.damaged += damaged.len() as u64;
        self.troubles.extend(damaged.into_iter().map(Trouble::Damaged));
    }

    fn take_outcomes(
        &mut self,
        now: Now,
        outbox: &mut Outbox,
        settled: usize,
        commands: Vec<Command<T>>,
        outcomes: Vec<Outcome>,
    ) {
        let mut outcomes = outcomes.into_iter();
        let mut fenced = false;
        for (number, _) in self.settled.drain(..settled).collect::<Vec<_>>() {
            let flying = self.flying.remove(&number).expect("what is settled was in flight");
            self.bytes -= flying.bytes;
            match outcomes.next().expect("an outcome for each change") {
                Outcome::Acked => self.counts.acked += 1,
                Outcome::Retried(row) => {
                    self.counts.retried += 1;
                    self.insert_if_loaded(row);
                }
                Outcome::Fenced => {
                    self.counts.fenced += 1;
                    fenced = true;
                }
                Outcome::Gone => {}
                outcome => unreachable!("{outcome:?} for what was settled"),
            }
        }
        self.settled_since = now.steady;
        for command in commands {
            let reply = match outcomes.next().expect("an outcome for each change") {
                Outcome::Put { row, replaced } => {
                    let reply = match replaced.map(|old| self.take_out(now, outbox, &row.name, old))
                    {
                        None => Scheduled::New,
                        Some(false) => Scheduled::Moved,
                        Some(true) => Scheduled::Firing,
                    };
                    self.insert_if_loaded(row);
                    Reply::Scheduled(reply)
                }
                Outcome::Cancelled(old) => {
                    let Request::Cancel { name } = &command.request else {
                        unreachable!("the outcome fits the change")
                    };
                    Reply::Cancelled(match old.map(|old| self.take_out(now, outbox, name, old)) {
                        None => Cancelled::Unknown,
                        Some(false) => Cancelled::Cancelled,
                        Some(true) => Cancelled::Firing,
                    })
                }
                outcome => unreachable!("{outcome:?} for a command"),
            };
            self.replies.push((command.ticket, Ok(reply)));
        }
        if fenced {
            self.forget();
        }
        self.bound();
    }

    /// Forgets a row that is gone from the store. Returns whether a consumer has it, or may have.
    fn take_out(&mut self, now: Now, outbox: &mut Outbox, name: &Arc<str>, old: Replaced) -> bool {
        let Replaced { number, deadline } = old;
        if self.flying.contains_key(&number) {
            if outbox.take_back(number) {
                self.land(number);
                return self.may_be_out(now, deadline);
            }
            return true;
        }
        if let Some(&key) = self.near.get(name)
            && self.wheel.get(key).is_some_and(|row| row.number == number)
        {
            self.remove_near(name);
        }
        self.may_be_out(now, deadline)
    }

    /// Forgets a row that no consumer had taken.
    fn land(&mut self, number: u64) {
        let flying = self.flying.remove(&number).expect("what is in the outbox is in flight");
        self.bytes -= flying.bytes;
        self.unsettled -= 1;
    }

    fn insert_if_loaded(&mut self, row: Row) {
        if row.position() <= self.loaded && self.leases.contains_key(&row.partition) {
            self.insert(row);
        }
    }

    fn insert(&mut self, row: Row) {
        // In a damaged store a name may have two rows.
        self.remove_near(&row.name.clone());
        self.bytes += row.bytes();
        let name = row.name.clone();
        let key = self.wheel.schedule(row.deadline, row);
        self.near.insert(name, key);
    }

    fn remove_near(&mut self, name: &Arc<str>) {
        if let Some(key) = self.near.remove(name) {
            let row = self.wheel.cancel(key).expect("near rows are in the wheel");
            self.bytes -= row.bytes();
        }
    }

    /// Drops the far half of the wheel if more is near than may be.
    fn bound(&mut self) {
        while !self.near.is_empty()
            && (self.known() > self.config.near_rows || self.bytes > self.config.near_bytes)
        {
            let mut positions: Vec<Position> =
                self.wheel.iter().map(|(_, _, row)| row.position()).collect();
            let middle = positions.len() / 2;
            let (kept, end, _) = positions.select_nth_unstable(middle);
            self.loaded = kept.iter().max().cloned().unwrap_or_else(|| Position {
                // The one row is dropped too: all before it is loaded, and it is not.
                deadline: end.deadline,
                name: Arc::from(""),
            });
            self.complete_until = 0;
            let dropped: Vec<Arc<str>> = self
                .wheel
                .iter()
                .filter(|(_, _, row)| self.loaded < row.position())
                .map(|(_, _, row)| row.name.clone())
                .collect();
            for name in dropped {
                self.remove_near(&name);
            }
        }
    }

    /// Takes back what is handed out and not taken.
    fn recall(&mut self, outbox: &mut Outbox) {
        let recalled: Vec<u64> = outbox.drain().collect();
        if recalled.is_empty() {
            return;
        }
        for number in recalled {
            self.land(number);
        }
        // They are no longer near nor in flight, and before `loaded`.
        self.forget();
    }

    /// Forgets all that is not in flight, to load it from the front again.
    fn forget(&mut self) {
        self.counts.forgotten += 1;
        self.look_next = 0;
        self.clear();
    }

    fn clear(&mut self) {
        self.bytes = self.flying.values().map(|flying| flying.bytes).sum();
        self.near.clear();
        self.wheel = Wheel::new(Mode::hierarchical());
        self.loaded = Position::start();
        self.complete_until = 0;
    }

    fn fail(&mut self, now: Now, outbox: &mut Outbox, pending: Pending<T>, error: Error) {
        self.counts.errors += 1;
        match pending {
            Pending::Lease { wanted, .. } => {
                self.lease_pause.fail(now.steady);
                // The store may have given some back, and another owner may have them by now.
                self.leases.clear();
                self.lease_until = None;
                if !wanted {
                    // The leases run out by themselves.
                    self.released = true;
                }
            }
            Pending::Load { .. } => {
                self.load_pause.fail(now.steady);
            }
            Pending::Commit { commands, .. } => {
                self.commit_pause.fail(now.steady);
                if self.closing {
                    // A timer that closes does not wait for a store that fails: what was not
                    // settled comes again.
                    while let Some((number, _)) = self.settled.pop_front() {
                        let flying = self.flying.remove(&number).expect("settled is in flight");
                        self.bytes -= flying.bytes;
                    }
                }
                for command in commands {
                    self.replies.push((command.ticket, Err(error.clone())));
                }
            }
            Pending::Read(command) => {
                self.replies.push((command.ticket, Err(error.clone())));
            }
        }
        self.last_error = Some(error.clone());
        self.troubles.push(Trouble::Store(error));
        // What was done and what not is not known.
        self.recall(outbox);
        self.forget();
    }
}

impl Request {
    fn is_read(&self) -> bool {
        match self {
            Self::Put { .. } | Self::Cancel { .. } => false,
            Self::Get { .. } | Self::Len | Self::Page { .. } => true,
        }
    }
}

/// Rounds up.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod simulation;
