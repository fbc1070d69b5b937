//! The timeouts that were handed out and are still in the store.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::keeper::manner::Manner;
use crate::keeper::outbox::Outbox;
use crate::keeper::words::{Now, Settled};
use crate::store::{Held, Lease, Row};

/// What is in flight. The keeper never forgets it, so that nothing is handed out twice without a
/// crash.
#[derive(Debug, Default)]
pub(super) struct Flights {
    pub(super) by_number: HashMap<u64, Flight>,
    /// How many are of each partition that has any.
    by_partition: HashMap<u32, usize>,
    /// How many of them are not settled.
    pub(super) unsettled: usize,
    /// The bytes of all.
    pub(super) bytes: usize,
    /// What consumers settled, in order.
    settled: VecDeque<(u64, Settled)>,
    /// How many of these are to be counted, to be handed out.
    pub(super) counting: usize,
    /// When the first of `settled` came.
    pub(super) settled_since: u64,
    /// What consumers hold, by the time until which they may.
    until: BTreeSet<(u64, u64)>,
    /// What is locked in the store or refused by it, by when it is tried again.
    again: BTreeMap<u64, Vec<(u64, Settled)>>,
    /// How many are held up so, those that are being tried again included.
    held_up: usize,
    /// No later than since when the oldest of them is, or when it was told last.
    held_up_since: u64,
}

#[derive(Debug)]
pub(super) struct Flight {
    pub(super) name: Arc<str>,
    pub(super) deadline: u64,
    pub(super) lease: Lease,
    pub(super) bytes: usize,
    /// How often it was handed out before.
    pub(super) attempt: u32,
    /// Whether this time was counted before it was handed out.
    is_counted: bool,
    /// When it was settled, and whether by the keeper.
    settled_at: Option<u64>,
    is_settled_by_keeper: bool,
    /// Until when a consumer may hold it, if that is said.
    until: Option<u64>,
    /// Whether a consumer had it when that was counted last, and has not asked for more time since.
    was_held: bool,
    /// When it was locked or refused first.
    held_up_at: u64,
    /// How often it was locked or refused, and how often refused.
    held_up: u32,
    refused: u32,
}

impl Flight {
    pub(super) fn is_settled(&self) -> bool {
        self.settled_at.is_some()
    }
}

impl Flights {
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Returns how many are locked in the store or refused by it.
    pub(super) fn held_up(&self) -> usize {
        self.held_up
    }

    /// Returns how many are not held up by the store.
    pub(super) fn going(&self) -> usize {
        match Manner::HeldUpApart.is_kept() {
            true => self.len() - self.held_up,
            false => self.len(),
        }
    }

    /// Whether some are held up for so long since the last time that this was so.
    pub(super) fn are_held_up_for(&mut self, time: u64, now: Now) -> bool {
        if self.held_up == 0 {
            self.held_up_since = now.steady;
        }
        if now.steady < self.held_up_since.saturating_add(time) {
            return false;
        }
        // The one since which time is counted may be settled by now.
        let held_up = self.by_number.values().filter(|flight| 0 < flight.held_up);
        let oldest = held_up.map(|flight| flight.held_up_at).min().unwrap_or(now.steady);
        let is_long = oldest.saturating_add(time) <= now.steady;
        self.held_up_since = if is_long { now.steady } else { oldest };
        is_long
    }

    /// Returns how many are of a partition.
    pub(super) fn of(&self, partition: u32) -> usize {
        self.by_partition.get(&partition).copied().unwrap_or_default()
    }

    /// Whether the timeout of this name and number is in flight.
    pub(super) fn has(&self, name: &str, number: u64) -> bool {
        self.by_number.get(&number).is_some_and(|flight| &*flight.name == name)
    }

    /// Whether one of this number is. A copy of a table may have the numbers of others.
    pub(super) fn has_number(&self, number: u64) -> bool {
        self.by_number.contains_key(&number)
    }

    /// Whether it was handed out under this epoch.
    pub(super) fn is_under(&self, number: u64, epoch: u64) -> bool {
        self.by_number.get(&number).is_some_and(|flight| flight.lease.epoch == epoch)
    }

    /// Whether a consumer has it, or had it and settled it.
    pub(super) fn is_held(&self, number: u64) -> bool {
        self.by_number.get(&number).is_some_and(|flight| !flight.is_settled_by_keeper)
    }

    /// Returns the numbers of those that have this name.
    pub(super) fn named(&self, name: &str) -> Vec<u64> {
        let named = self.by_number.iter().filter(|(_, flight)| &*flight.name == name);
        named.map(|(&number, _)| number).collect()
    }

    pub(super) fn begin(&mut self, row: &Row, lease: Lease) {
        let flight = Flight {
            name: row.name.clone(),
            deadline: row.deadline,
            lease,
            bytes: row.bytes(),
            attempt: row.attempt,
            is_counted: false,
            settled_at: None,
            is_settled_by_keeper: false,
            until: None,
            was_held: false,
            held_up_at: 0,
            held_up: 0,
            refused: 0,
        };
        self.bytes += flight.bytes;
        self.unsettled += 1;
        *self.by_partition.entry(lease.partition).or_default() += 1;
        self.by_number.insert(row.number, flight);
    }

    /// Takes that a consumer goes on with the timeout of this number, and lets it hold that until
    /// then, or longer if it may already.
    pub(super) fn hold_until(&mut self, number: u64, until: Option<u64>) {
        let flight = self.by_number.get_mut(&number).filter(|flight| !flight.is_settled());
        let Some(flight) = flight else { return };
        flight.was_held = false;
        if flight.until < until {
            if let Some(before) = std::mem::replace(&mut flight.until, until) {
                self.until.remove(&(before, number));
            }
            self.until.extend(until.map(|until| (until, number)));
        }
    }

    /// When the first is held for too long.
    pub(super) fn expires_at(&self) -> Option<u64> {
        self.until.first().map(|&(until, _)| until)
    }

    /// Takes what a consumer did with the timeout of this number.
    pub(super) fn settle(&mut self, now: Now, number: u64, settled: Settled) {
        let Some(flight) = self.by_number.get_mut(&number) else { return };
        if flight.is_settled() {
            return;
        }
        if let Some(until) = flight.until.take() {
            self.until.remove(&(until, number));
        }
        flight.settled_at = Some(now.steady);
        flight.is_settled_by_keeper = settled.is_by_keeper();
        self.unsettled -= 1;
        if self.settled.is_empty() {
            self.settled_since = now.steady;
        }
        self.push_settled((number, settled));
    }

    fn push_settled(&mut self, (number, settled): (u64, Settled)) {
        self.counting += usize::from(settled == Settled::Count);
        self.settled.push_back((number, settled));
    }

    /// How many consumers, or the keeper, have settled.
    pub(super) fn settled(&self) -> usize {
        self.settled.len()
    }

    /// Lets one that was counted be handed out. Returns its lease, and how often it was before.
    pub(super) fn go_on(&mut self, row: &Row) -> (Lease, u32) {
        let flight = self.by_number.get_mut(&row.number).expect("it is in flight");
        flight.is_counted = true;
        (flight.settled_at, flight.is_settled_by_keeper) = (None, false);
        self.unsettled += 1;
        self.held_up -= usize::from(0 < flight.held_up);
        flight.held_up = 0;
        // Somebody may have changed the row by hand meanwhile.
        self.bytes -= std::mem::replace(&mut flight.bytes, row.bytes());
        self.bytes += flight.bytes;
        (flight.lease, flight.attempt)
    }

    /// Returns how many consumers have held since this was counted last.
    pub(super) fn count_held(&mut self, outbox: &Outbox) -> usize {
        let waiting: HashSet<u64> = outbox.waiting().map(|(row, _)| row.number).collect();
        let taken = self
            .by_number
            .iter_mut()
            .filter(|(number, flight)| !flight.is_settled() && !waiting.contains(number));
        taken.map(|(_, flight)| usize::from(std::mem::replace(&mut flight.was_held, true))).sum()
    }

    /// Lets the settlement of one that is locked in the store, or refused, be tried again: `AGAIN`
    /// after half a lease at the latest. Returns its name, and how often it was refused.
    pub(super) fn try_again(
        &mut self,
        now: Now,
        (number, settled): (u64, Settled),
        is_refused: bool,
        lease: u64,
    ) -> (Arc<str>, u32) {
        let flight = self.by_number.get_mut(&number).expect("it is in flight");
        flight.refused = flight.refused.saturating_add(u32::from(is_refused));
        if flight.held_up == 0 {
            self.held_up += 1;
            flight.held_up_at = now.steady;
            // Its payload was the consumer's.
            self.bytes -= std::mem::take(&mut flight.bytes);
        }
        // The commit has waited for the lock: the longer it was locked, the rarer are such waits.
        let pause = AGAIN << if Manner::TriesRarely.is_kept() { flight.held_up.min(4) } else { 0 };
        // It may be due: who owned it anew would hand it out soon.
        let pause = pause.min((lease / 2).max(AGAIN));
        flight.held_up = flight.held_up.saturating_add(1);
        // Many share one wait.
        let again = (now.steady.saturating_add(pause) / AGAIN + 1) * AGAIN;
        self.again.entry(again).or_default().push((number, settled));
        (flight.name.clone(), flight.refused)
    }

    /// Settles what was held for too long. Returns how many.
    pub(super) fn expire(&mut self, now: Now) -> u64 {
        let mut count = 0;
        while let Some(&(_, number)) = self.until.first().filter(|(until, _)| *until <= now.steady)
        {
            self.settle(now, number, Settled::Dropped);
            count += 1;
        }
        count
    }

    /// Takes up again what was locked or refused.
    pub(super) fn take_up(&mut self, now: Now) {
        while let Some(first) = self.again.first_entry().filter(|first| *first.key() <= now.steady)
        {
            first.remove().into_iter().for_each(|settled| self.push_settled(settled));
        }
    }

    /// Returns when something that was locked or refused is to be tried again.
    pub(super) fn tries_again_at(&self) -> Option<u64> {
        self.again.first_key_value().map(|(&again, _)| again)
    }

    /// Takes back one that no consumer had taken. If it was counted, that is settled.
    pub(super) fn recall(&mut self, now: Now, number: u64) -> Option<(u32, u64)> {
        if self.by_number.get(&number).is_some_and(|flight| flight.is_counted) {
            self.settle(now, number, Settled::Uncount);
            return None;
        }
        Some(self.take_back(number))
    }

    /// Forgets one that no consumer had taken, and returns its partition and its deadline.
    pub(super) fn take_back(&mut self, number: u64) -> (u32, u64) {
        self.unsettled -= 1;
        let Flight { lease, deadline, .. } = self.end(number);
        (lease.partition, deadline)
    }

    /// Takes the first that were settled out of the list; `end` or `try_again` is to be called for
    /// each.
    pub(super) fn take_settled(&mut self, count: usize) -> Vec<(u64, Settled)> {
        let taken = Vec::from_iter(self.settled.drain(..count));
        self.counting -= taken.iter().filter(|(_, settled)| *settled == Settled::Count).count();
        taken
    }

    /// Forgets all that were settled by this steady time, and returns how many of them consumers
    /// settled.
    pub(super) fn end_settled_before(&mut self, time: u64) -> usize {
        let is_over = |flight: &Flight| flight.settled_at.is_some_and(|at| at <= time);
        let over = self.by_number.iter().filter(|(_, flight)| is_over(flight));
        let over: Vec<u64> = over.map(|(&number, _)| number).collect();
        let held = over.iter().filter(|&&number| self.is_held(number)).count();
        for &number in &over {
            self.end(number);
        }
        let by_number = &self.by_number;
        let is_left = |(number, _): &(u64, Settled)| by_number.contains_key(number);
        self.settled.retain(is_left);
        let counts = |(_, settled): &&(u64, Settled)| *settled == Settled::Count;
        self.counting = self.settled.iter().filter(counts).count();
        self.again.retain(|_, again| {
            again.retain(is_left);
            !again.is_empty()
        });
        held
    }

    /// Forgets one.
    pub(super) fn end(&mut self, number: u64) -> Flight {
        let flight = self.by_number.remove(&number).expect("it is in flight");
        self.bytes -= flight.bytes;
        self.held_up -= usize::from(0 < flight.held_up);
        let Entry::Occupied(mut count) = self.by_partition.entry(flight.lease.partition) else {
            unreachable!("each is counted")
        };
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
        flight
    }

    /// Returns the first that were settled, as the store knows them, and how often each was handed
    /// out before.
    pub(super) fn first_settled(
        &self,
        count: usize,
    ) -> impl Iterator<Item = (Held, Settled, u32)> + '_ {
        self.settled.iter().take(count).map(|&(number, settled)| {
            let Flight { name, deadline, lease, attempt, .. } = &self.by_number[&number];
            let held = Held { name: name.clone(), deadline: *deadline, number, lease: *lease };
            (held, settled, *attempt)
        })
    }
}

/// When what is locked or refused is tried again first, in milliseconds.
const AGAIN: u64 = 250;

#[cfg(test)]
mod tests {
    use super::{AGAIN, Flights};
    use crate::keeper::front::tests::row;
    use crate::keeper::words::{Now, Settled};
    use crate::store::{Lease, Row};

    const LEASE: u64 = 10_000;

    fn at(steady: u64) -> Now {
        Now { wall: 0, steady }
    }

    /// So many are in flight, and numbered from 0 on.
    fn flying(count: u64) -> Flights {
        let mut flights = Flights::default();
        for number in 0..count {
            flights.begin(&row(number, 0), Lease { partition: 0, epoch: 1 });
        }
        flights
    }

    /// Acks one, and finds it locked.
    fn hold_up(flights: &mut Flights, number: u64, steady: u64) {
        flights.settle(at(steady), number, Settled::Ack);
        for settled in flights.take_settled(1) {
            flights.try_again(at(steady), settled, false, LEASE);
        }
    }

    #[test]
    fn one_that_became_shorter_by_hand_while_it_was_counted_goes_on() {
        let mut flights = Flights::default();
        let long = Row { payload: vec![0; 100].into(), ..row(0, 0) };
        flights.begin(&long, Lease { partition: 0, epoch: 1 });
        flights.settle(at(0), 0, Settled::Count);
        flights.take_settled(1);
        flights.go_on(&row(0, 0));
        assert_eq!(flights.bytes, row(0, 0).bytes());
    }

    #[test]
    fn they_are_held_up_for_as_long_as_the_oldest_of_them_is() {
        let mut flights = flying(3);
        assert!(!flights.are_held_up_for(60_000, at(500_000)));
        hold_up(&mut flights, 0, 501_000);
        hold_up(&mut flights, 1, 531_000);
        assert_eq!((flights.held_up(), flights.going()), (2, 1));
        assert!(!flights.are_held_up_for(60_000, at(560_999)));
        assert!(flights.are_held_up_for(60_000, at(561_000)));
        // It is told once in so long, and not of one that is settled by then.
        assert!(!flights.are_held_up_for(60_000, at(561_001)));
        flights.end(0);
        assert!(!flights.are_held_up_for(60_000, at(590_999)));
        assert!(flights.are_held_up_for(60_000, at(621_000)));
    }

    #[test]
    fn what_a_timer_that_closes_gives_up_is_gone_and_nothing_else() {
        let mut flights = flying(6);
        hold_up(&mut flights, 0, 1_000);
        hold_up(&mut flights, 1, 2_000);
        for (number, settled, steady) in
            [(2, Settled::Ack, 1_000), (3, Settled::Count, 1_000), (4, Settled::Count, 2_000)]
        {
            flights.settle(at(steady), number, settled);
        }
        assert_eq!((flights.settled(), flights.counting), (3, 2));
        assert_eq!(flights.end_settled_before(1_000), 2, "the keeper settled the third");
        assert_eq!((flights.len(), flights.settled(), flights.counting), (3, 1, 1));
        assert_eq!(flights.tries_again_at(), Some(2_000 + 2 * AGAIN));
        assert_eq!(flights.end_settled_before(2_000), 1);
        assert_eq!((flights.len(), flights.settled(), flights.counting), (1, 0, 0));
        assert_eq!(flights.tries_again_at(), None);
    }
}
