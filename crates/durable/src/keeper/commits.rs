//! Commits: what consumers settled and what callers ask for, and what came of it.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use crate::Error;
use crate::keeper::Keeper;
use crate::keeper::manner::Manner;
use crate::keeper::outbox::Outbox;
use crate::keeper::words::{Command, CommitCall, Event, Found, Now, Settled};
use crate::store::{
    Act, Change, Changed, Done, Outcome, Position, Replaced, Row, Settlement, Then,
};
use crate::values::{NEVER, time};

impl<T> Keeper<T> {
    /// Settlements come first, so that a name that was acked is unknown to a cancel after it.
    pub(super) fn commit(&mut self, now: Now) -> Option<CommitCall<T>> {
        // Without the store's clock it cannot be told what may be out.
        if !self.commit_pause.is_over(now.steady) || !self.tenure.is_known {
            let error = self.last_error.clone().unwrap_or(Error::Closed);
            self.refuse_commands(&error);
            return None;
        }
        self.flights.take_up(now);
        let lingers = now.steady < self.lingers_until() && !self.is_closing();
        if !self.has_commands() && (self.flights.settled() == 0 || lingers) {
            return None;
        }
        let time = self.tenure.time(now);
        let settled = self.flights.settled().min(self.config.group);
        let settlements: Vec<Settlement> = self
            .flights
            .first_settled(settled)
            .map(|(held, settled, before)| {
                let attempt = before.saturating_add(1);
                let again = |delay: u64| match self.config.max_attempts {
                    Some(most) if most <= attempt => Then::Dead { at: time },
                    _ => Then::Again { at: time.saturating_add(delay).min(NEVER), attempt },
                };
                let then = match settled {
                    Settled::Ack => Then::Done,
                    Settled::Retry { delay } => again(delay),
                    Settled::Dropped => again(self.config.redeliver),
                    Settled::Next { at } => Then::Again { at, attempt: 0 },
                    Settled::Extend { .. } => unreachable!("it settles nothing"),
                    Settled::Count => Then::Counted { attempt },
                    Settled::Uncount => Then::Counted { attempt: before },
                    Settled::Bury => Then::Dead { at: time },
                };
                Settlement { held, then }
            })
            .collect();
        // After a failure what was handed out goes alone: what callers want put may be too much
        // for a full disk, and then nobody could make room.
        let failed = self.commit_pause.failures > 0 && Manner::SettlesAlone.is_kept();
        let alone = failed && settled > 0;
        let commands = if alone { Vec::new() } else { self.take_commands() };
        let (mut changes, tickets): (Vec<Change>, Vec<T>) =
            commands.into_iter().map(|Command { ticket, change }| (change, ticket)).unzip();
        for change in &mut changes {
            if let Act::Revive { at } = &mut change.act {
                *at = time;
            }
        }
        self.counts.commits += 1;
        self.counts.changes += (settlements.len() + changes.len()) as u64;
        Some(CommitCall { settlements, changes, tickets, asked: now.steady })
    }

    /// Returns until when acks wait for a commit to go along with. The more workers share the store
    /// the longer, so that all together commit no more often than one would.
    pub(super) fn lingers_until(&self) -> u64 {
        let counts = 0 < self.flights.counting;
        if self.config.group <= self.flights.settled() || !self.has_room_for_flights() || counts {
            return 0;
        }
        let linger = self.tenure.lingers(self.config.linger);
        self.flights.settled_since.saturating_add(linger)
    }

    /// Takes the commands that go into one commit. Those of names that the store refused last, or
    /// that a commit had no time for, take turns with the others, because they may take long again.
    /// Those of one name keep their order.
    fn take_commands(&mut self) -> Vec<Command<T>> {
        // Only as many are looked at as may go into one commit: thousands may wait.
        let mut first = self.commands.len().min(self.config.group);
        if !self.left.is_empty() || !self.refused.is_empty() {
            let left: HashSet<&str> = self.left.iter().map(|left| &*left.change.name).collect();
            let is_left = |Command { change, .. }: &Command<T>| {
                left.contains(&*change.name) || self.refused.contains(&change.name)
            };
            let (left, others): (Vec<_>, Vec<_>) = self.commands.drain(..first).partition(is_left);
            first = others.len();
            self.left.extend(left);
            others.into_iter().rev().for_each(|command| self.commands.push_front(command));
        }
        self.is_turn_of_left = !self.left.is_empty() && (!self.is_turn_of_left || first == 0);
        let (commands, most) = match self.is_turn_of_left {
            true => (&mut self.left, self.config.group),
            false => (&mut self.commands, first),
        };
        let mut bytes = 0;
        let fits = commands.iter().take(most).take_while(|command| {
            let has_room = bytes < GROUP_BYTES;
            bytes += command.change.bytes();
            has_room
        });
        let most = fits.count();
        let taken = commands.drain(..most).collect();
        give_back(&mut self.commands);
        give_back(&mut self.left);
        taken
    }

    pub(super) fn has_commands(&self) -> bool {
        !self.commands.is_empty() || !self.left.is_empty()
    }

    /// Answers all commands with this error.
    pub(super) fn refuse_commands(&mut self, error: &Error) {
        let [left, commands] = [&mut self.left, &mut self.commands].map(std::mem::take);
        let refused = left.into_iter().chain(commands);
        self.replies.extend(refused.map(|command| (command.ticket, Err(error.clone()))));
    }

    pub(super) fn committed(
        &mut self,
        now: Now,
        outbox: &mut Outbox,
        call: CommitCall<T>,
        done: Done,
    ) {
        // Whoever read the store before the commit did so by one of these.
        let latest = self.tenure.latest(now);
        let was_set = self.tenure.notice_clock(now, call.asked, done.clock);
        let latest = latest.max(self.tenure.latest(now));
        // The others are still the first: there was no time for them.
        let settled = self.flights.take_settled(done.outcomes.len().min(call.settlements.len()));
        let mut fenced = Vec::new();
        let answers = settled.into_iter().zip(&call.settlements).zip(done.outcomes);
        for (((number, settled), Settlement { then, .. }), outcome) in answers {
            if let (Settled::Count, Outcome::Settled(Some(row))) = (settled, &outcome) {
                self.counted(now, outbox, row.clone());
                continue;
            }
            let is_refused = matches!(outcome, Outcome::Refused(_));
            if !self.is_closing() && (is_refused || outcome == Outcome::Locked) {
                let lease = self.tenure.good_for();
                let settlement = (number, settled);
                let (name, refused) = self.flights.try_again(now, settlement, is_refused, lease);
                // The longer it lasts, the rarer it is told.
                if let Outcome::Refused(why) = outcome
                    && refused.is_power_of_two()
                {
                    self.troubles.push(not_settled(&name, why));
                }
                continue;
            }
            let ended = self.flights.end(number);
            let is_held = !settled.is_by_keeper();
            self.tell_settled(&ended.name, settled, &outcome);
            let lost = match outcome {
                Outcome::Settled(None) => {
                    let count = match then {
                        Then::Done => &mut self.counts.acked,
                        _ => &mut self.counts.dead,
                    };
                    *count += 1;
                    None
                }
                Outcome::Settled(Some(row)) => {
                    match settled {
                        Settled::Next { .. } => self.counts.acked += 1,
                        _ => self.counts.retried += u64::from(is_held),
                    }
                    self.insert_if_loaded(row);
                    None
                }
                Outcome::Fenced => {
                    self.counts.fenced += 1;
                    fenced.push((ended.lease.partition, Position::before(ended.deadline)));
                    self.is_closing().then(|| "another worker has its partition".to_owned())
                }
                Outcome::Locked => Some("somebody else has locked it".to_owned()),
                Outcome::Refused(why) => Some(why),
                Outcome::Gone => None,
            };
            // What no consumer had is no loss.
            if let Some(why) = lost.filter(|_| is_held) {
                self.lose(1, not_settled(&ended.name, why));
            }
        }
        self.flights.settled_since = now.steady;
        if MOST_REFUSED < self.refused.len() {
            self.refused.clear();
        }
        let mut asked = call.tickets.into_iter().zip(call.changes);
        for (changed, (ticket, change)) in done.changed.into_iter().zip(asked.by_ref()) {
            match &changed {
                Ok(_) => drop(self.refused.remove(&change.name)),
                Err(_) => drop(self.refused.insert(change.name.clone())),
            }
            let reply = changed.map(|Changed { row, replaced, was_dead }| {
                let found = match (&change.act, was_dead) {
                    (Act::Put(_) | Act::Cancel, _) => {
                        self.take_out(latest, outbox, &change, replaced)
                    }
                    (_, false) => Found::Nothing,
                    // The name is that of another timeout.
                    (Act::Revive { .. }, true) if row.is_none() => Found::Firing,
                    (_, true) => Found::Pending,
                };
                self.tell_changed(&change, row.as_ref(), found, was_dead);
                if let Some(row) = row {
                    self.insert_if_loaded(row);
                }
                found
            });
            self.replies.push((ticket, reply));
        }
        // There was no time for the others.
        let others = asked.map(|(ticket, change)| Command { ticket, change });
        if self.is_turn_of_left {
            let rest = std::mem::take(&mut self.left);
            self.left = others.chain(rest).collect();
        } else {
            self.left.extend(others);
        }
        if !fenced.is_empty() {
            match self.tenure.is_shared() {
                true => self.forget(),
                // Another process had the file while it was closed after an error. It is this
                // one's again, under an epoch that it has to ask for.
                false => self.lose_leases(now, outbox),
            }
        }
        // If this worker owns one of them anew, it was passed over because it was in flight.
        for (partition, before) in fenced.into_iter().filter(|_| Manner::ReadsFenced.is_kept()) {
            self.front.forget(partition, before);
        }
        if was_set {
            self.begin_anew(now, outbox);
        }
        self.bound();
    }

    /// Tells what came of what a consumer, or the keeper, settled.
    fn tell_settled(&mut self, name: &Arc<str>, settled: Settled, outcome: &Outcome) {
        let (Some(events), Outcome::Settled(again)) = (&mut self.events, outcome) else { return };
        let name = || name.clone();
        match (settled, again) {
            (Settled::Ack, _) => events.push(Event::Acked { name: name() }),
            (Settled::Uncount, _) => {}
            (_, None) => events.push(Event::Dead { name: name() }),
            (_, Some(row)) => {
                if matches!(settled, Settled::Next { .. }) {
                    events.push(Event::Acked { name: name() });
                }
                events.push(Event::Again { name: name(), deadline: time(row.deadline) });
            }
        }
    }

    /// Tells what came of what a caller asked for.
    fn tell_changed(&mut self, change: &Change, row: Option<&Row>, found: Found, was_dead: bool) {
        let Some(events) = &mut self.events else { return };
        let name = change.name.clone();
        match (&change.act, row) {
            (Act::Put(_) | Act::Revive { .. }, Some(row)) => {
                events.push(Event::Scheduled { name, deadline: time(row.deadline) });
            }
            (Act::Cancel, _) if found != Found::Nothing => events.push(Event::Cancelled { name }),
            (Act::Drop, _) if was_dead => events.push(Event::Dropped { name }),
            _ => {}
        }
    }

    /// Hands out a row that was counted, unless that is not allowed any more.
    fn counted(&mut self, now: Now, outbox: &mut Outbox, row: Row) {
        let (lease, attempt) = self.flights.go_on(&row);
        let is_allowed = !self.is_closing()
            && self.may_hand_out(now)
            && self.tenure.holds(lease)
            && row.deadline <= self.tenure.time(now);
        match is_allowed {
            true => self.push(now, outbox, Row { attempt, ..row }, lease.epoch),
            false => self.flights.settle(now, row.number, Settled::Uncount),
        }
    }

    /// Forgets a row that is gone from the store.
    fn take_out(
        &mut self,
        latest: Option<u64>,
        outbox: &mut Outbox,
        change: &Change,
        replaced: Option<Replaced>,
    ) -> Found {
        let Some(Replaced { number, deadline }) = replaced else { return Found::Nothing };
        // One that has rotted since it was loaded has no number any more: it is all of its name.
        let is_known = number != 0;
        self.front.remove(&change.name, is_known.then_some(number));
        let flights = match is_known {
            true => Vec::from_iter(self.flights.has(&change.name, number).then_some(number)),
            false => self.flights.named(&change.name),
        };
        let mut is_held = false;
        for number in flights {
            if outbox.take_back(number) {
                self.flights.take_back(number);
            } else {
                // What the keeper has settled finds no row.
                is_held |= self.flights.is_held(number);
            }
        }
        // Any owner may have read it by now.
        let read = latest.map(|latest| latest.saturating_add(self.config.margin));
        let may_be_out = read.is_some_and(|read| deadline <= read);
        if is_held || may_be_out { Found::Firing } else { Found::Pending }
    }

    fn insert_if_loaded(&mut self, row: Row) {
        if !self.front.reaches(&row) {
            return;
        }
        match self.tenure.has(row.partition) {
            true => self.front.insert(row),
            // The lease is over. If it is renewed under the same epoch, what is known stays known.
            false => self.front.forget(row.partition, Position::before(row.deadline)),
        }
    }

    /// Drops the far half of the wheel if more is near than may be.
    pub(super) fn bound(&mut self) {
        while self.front.len() > 0
            && (self.known() > self.config.near_rows || self.bytes() > self.config.near_bytes)
        {
            self.front.halve();
        }
    }
}

/// Gives back the memory of a queue that was long.
fn give_back<T>(queue: &mut VecDeque<T>) {
    let most = queue.len().max(SHORT) * 4;
    if most < queue.capacity() {
        queue.shrink_to(most / 2);
    }
}

fn not_settled(name: &str, why: String) -> Error {
    Error::store(format!("settle {name:?}"), why)
}

/// The most names of refused changes that are remembered.
const MOST_REFUSED: usize = 10_000;

/// The bytes of changes at which a commit is full: one that takes too long fails as a whole.
const GROUP_BYTES: usize = 1 << 20;

/// A queue of so many is short.
const SHORT: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::{SHORT, VecDeque, give_back};

    #[test]
    fn a_queue_keeps_room_for_a_few_times_what_it_holds() {
        for (len, room, least) in [(0, 4, None), (0, 5, Some(2)), (2, 8, None), (2, 9, Some(4))] {
            let mut queue: VecDeque<u8> = VecDeque::with_capacity(room * SHORT);
            queue.resize(len * SHORT, 0);
            let before = queue.capacity();
            give_back(&mut queue);
            let left = queue.capacity();
            match least {
                None => assert_eq!(left, before),
                Some(least) => assert!(least * SHORT <= left && left < before),
            }
        }
    }
}
