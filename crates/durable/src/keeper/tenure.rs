//! The leases, and the clock that they and the deadlines go by.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::keeper::manner::Manner;
use crate::keeper::words::Now;
use crate::store::{Lease, Leases};
use crate::values::milliseconds;

/// What the keeper may hand out, and until when.
#[derive(Debug, Default)]
pub(super) struct Tenure {
    /// Whether the store ever answered: before, it is not known whether it has several owners.
    pub(super) is_known: bool,
    /// The epochs of the partitions that may be handed out of.
    pub(super) epochs: HashMap<u32, u64>,
    /// The others that are leased. They are given back, and whether that was done is not always
    /// known, so they are not handed out of again under the same epoch.
    leaving: HashMap<u32, Leaving>,
    until: Option<Times>,
    /// How long a lease is good for, whether there is one or not.
    pub(super) lasts: u64,
    /// How many owners share the store.
    owners: u64,
    /// The steady time of the last call that was answered.
    pub(super) asked: Option<u64>,
    /// The store's clock, if it has one: then the store has several owners.
    clock: Option<StoreClock>,
}

/// A partition that is given back when nothing of it is in flight, or when its lease would have run
/// out.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    epoch: u64,
    until: u64,
}

/// When to renew the leases, when to stop handing out, and when they are over; by the steady clock.
#[derive(Clone, Copy, Debug)]
struct Times {
    renew: u64,
    hand_out: u64,
    over: u64,
}

/// What is known of the store's clock: what it is less the steady clock, at least and at most.
#[derive(Clone, Copy, Debug)]
struct StoreClock {
    /// When it was read last.
    asked: u64,
    least: Bound,
    most: Bound,
}

/// A difference of two clocks, and when it was measured.
#[derive(Clone, Copy, Debug)]
struct Bound {
    asked: u64,
    difference: u64,
}

impl Bound {
    /// Returns by how much the clocks can have drifted apart since it was measured.
    fn drift(self, steady: u64) -> u64 {
        steady.saturating_sub(self.asked).div_ceil(DRIFT)
    }
}

impl StoreClock {
    /// The store read its clock after it was asked and before it answered.
    fn new(now: Now, asked: u64, clock: u64) -> Self {
        let bound = |difference| Bound { asked, difference };
        Self {
            asked,
            least: bound(clock.saturating_sub(now.steady).saturating_sub(1)),
            most: bound(clock.saturating_sub(asked).saturating_add(2)),
        }
    }

    /// Keeps what `old` knew better, because a call may have been slow. `None`: they contradict
    /// each other, because the store's clock was set.
    fn and(self, old: Self) -> Option<Self> {
        if !Manner::KeepsClock.is_kept() {
            return Some(self);
        }
        let at = self.asked;
        let is_more = |most: u64, least: u64, slewed: u64| most.saturating_add(slewed) < least;
        let contradict = |slewed| {
            is_more(self.most(at), old.least(at), slewed)
                || is_more(old.most(at), self.least(at), slewed)
        };
        if contradict(at.saturating_sub(old.asked) / SLEW) {
            return None;
        }
        if contradict(0) {
            // What was known of a clock that is slewed is known no more.
            return Some(self);
        }
        Some(Self {
            asked: at,
            least: if self.least(at) < old.least(at) { old.least } else { self.least },
            most: if old.most(at) < self.most(at) { old.most } else { self.most },
        })
    }

    fn least(&self, steady: u64) -> u64 {
        self.least.difference.saturating_sub(self.least.drift(steady))
    }

    fn most(&self, steady: u64) -> u64 {
        self.most.difference.saturating_add(self.most.drift(steady))
    }
}

/// What a call for leases brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Other partitions are leased now, or under another epoch.
    OtherLeases,
    /// The store's clock was set.
    ClockWasSet,
}

impl Tenure {
    /// Takes what the store answered to a call at the steady time `asked`.
    pub(super) fn take(&mut self, now: Now, asked: u64, leases: Leases) -> Option<News> {
        self.lasts = leases.good_for.map_or(u64::MAX, milliseconds);
        self.until = leases.good_for.map(|good_for| {
            // Counted from before the call, and by a clock that is never set.
            let good_for = milliseconds(good_for);
            let ends = leases.others_end.filter(|_| Manner::AsksAtEnds.is_kept());
            // What the store said after it was asked is no later by now.
            let end = ends.map_or(u64::MAX, |end| now.steady.saturating_add(milliseconds(end) + 1));
            Times {
                renew: asked.saturating_add(good_for / 4).min(end),
                hand_out: asked.saturating_add(good_for / 4 * 3),
                over: asked.saturating_add(good_for),
            }
        });
        let measured = leases.clock.map(|clock| StoreClock::new(now, asked, clock));
        let known = measured.zip(self.clock).and_then(|(new, old)| new.and(old));
        let was_set = self.clock.is_some() && known.is_none();
        self.clock = known.or(measured);
        let mut epochs: HashMap<u32, u64> =
            leases.held.into_iter().map(|lease| (lease.partition, lease.epoch)).collect();
        self.leaving.retain(|partition, leaving| epochs.get(partition) == Some(&leaving.epoch));
        epochs.retain(|partition, _| !self.leaving.contains_key(partition));
        let changed = epochs != self.epochs;
        self.is_known = true;
        self.asked = self.until.map(|_| asked);
        self.epochs = epochs;
        self.owners = leases.owners as u64;
        match was_set {
            true => Some(News::ClockWasSet),
            false => changed.then_some(News::OtherLeases),
        }
    }

    /// Takes a reading of the store's clock between two calls for leases. Returns whether that was
    /// set. By a clock that was set forward the leases may have run out, and others have them: they
    /// are to be renewed before more is handed out.
    pub(super) fn notice_clock(&mut self, now: Now, asked: u64, clock: Option<u64>) -> bool {
        let measured = clock.map(|clock| StoreClock::new(now, asked, clock));
        let Some((new, old)) = measured.zip(self.clock) else { return false };
        let known = new.and(old);
        self.clock = known.or(measured);
        if let (None, Some(times)) = (known, &mut self.until) {
            times.hand_out = times.hand_out.min(now.steady);
            times.renew = times.renew.min(now.steady);
        }
        known.is_none()
    }

    /// Gives all up.
    pub(super) fn clear(&mut self) {
        self.epochs.clear();
        self.until = None;
    }

    /// Lets these partitions be given back, and of the others all but so many, first those of which
    /// least is in flight.
    pub(super) fn leave(
        &mut self,
        now: Now,
        share: usize,
        yielding: &[u32],
        in_flight: impl Fn(u32) -> usize,
    ) {
        let all = self.epochs.keys().copied();
        let (mut left, mut most): (Vec<u32>, Vec<u32>) = all.partition(|it| yielding.contains(it));
        most.sort_by_key(|&partition| (Reverse(in_flight(partition)), partition));
        left.extend(most.into_iter().skip(share));
        let until = now.steady.saturating_add(self.good_for());
        for partition in left {
            let epoch = self.epochs.remove(&partition).expect("it is leased");
            self.leaving.insert(partition, Leaving { epoch, until });
        }
    }

    /// Returns what is to be given back now.
    pub(super) fn given_back(&self, now: Now, in_flight: impl Fn(u32) -> usize) -> Vec<u32> {
        let leaving = self.leaving.iter();
        let over = leaving.filter(|&(&partition, leaving)| {
            leaving.until <= now.steady || in_flight(partition) == 0
        });
        over.map(|(&partition, _)| partition).collect()
    }

    /// Returns what is to be given back.
    pub(super) fn leaving(&self) -> impl Iterator<Item = u32> + '_ {
        self.leaving.keys().copied()
    }

    /// Returns when something is to be given back whatever is in flight.
    pub(super) fn leaves_at(&self) -> Option<u64> {
        self.leaving.values().map(|leaving| leaving.until).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.epochs.is_empty()
    }

    pub(super) fn has(&self, partition: u32) -> bool {
        self.epochs.contains_key(&partition)
    }

    pub(super) fn holds(&self, lease: Lease) -> bool {
        self.epochs.get(&lease.partition) == Some(&lease.epoch)
    }

    /// Returns how long a lease is good for.
    pub(super) fn good_for(&self) -> u64 {
        let times = self.until.zip(self.asked);
        times.map_or(u64::MAX, |(times, asked)| times.over - asked)
    }

    /// Returns how long acks wait, if those of one owner wait for so long. A small part of the
    /// lease is what it grows to.
    pub(super) fn lingers(&self, one: u64) -> u64 {
        let owners = if Manner::Lingers.is_kept() { self.owners } else { 1 };
        one.saturating_mul(owners).min(self.good_for() / 40).max(one)
    }

    /// Returns how long a timeout may be due before a new owner comes: a lease and a quarter.
    pub(super) fn outlasts(&self) -> u64 {
        self.good_for().saturating_add(self.good_for() / 4)
    }

    /// Returns the lease of a partition that is leased.
    pub(super) fn lease(&self, partition: u32) -> Lease {
        Lease { partition, epoch: self.epochs[&partition] }
    }

    /// Whether others put, cancel and hand out as well.
    pub(super) fn is_shared(&self) -> bool {
        self.clock.is_some()
    }

    /// Whether the leases have run out.
    pub(super) fn is_over(&self, now: Now) -> bool {
        self.until.is_some_and(|times| times.over <= now.steady)
    }

    /// Whether it is time to ask for leases.
    pub(super) fn is_due(&self, now: Now) -> bool {
        match self.until {
            Some(times) => times.renew <= now.steady,
            None => self.epochs.is_empty(),
        }
    }

    /// When to renew, and when all is over.
    pub(super) fn ends(&self) -> Option<(u64, u64)> {
        self.until.map(|times| (times.renew, times.over))
    }

    /// Whether the leases are good for long enough: a timeout that is handed out in their last
    /// quarter might be handed out by their next owner before it is acked.
    pub(super) fn may_hand_out(&self, now: Now) -> bool {
        self.until.is_none_or(|times| now.steady < times.hand_out)
    }

    /// Returns until when may be handed out, if not for ever.
    pub(super) fn hands_out_until(&self) -> Option<u64> {
        self.until.map(|times| times.hand_out)
    }

    /// The time that deadlines are compared with.
    pub(super) fn time(&self, now: Now) -> u64 {
        match self.clock {
            None => now.wall,
            Some(clock) => now.steady.saturating_add(clock.least(now.steady)),
        }
    }

    /// The latest time that it can be by the store's clock.
    pub(super) fn latest(&self, now: Now) -> Option<u64> {
        self.clock.map(|clock| now.steady.saturating_add(clock.most(now.steady)))
    }
}

/// Clocks that are never set drift apart by a millisecond in so many, or less: 500 ppm.
const DRIFT: u64 = 2_000;

/// A clock that is put right bit by bit gains or loses a millisecond in so many, or less.
const SLEW: u64 = 10;

#[cfg(test)]
mod tests {
    use super::StoreClock;
    use crate::keeper::words::Now;

    fn read(asked: u64, answered: u64, clock: u64) -> StoreClock {
        StoreClock::new(Now { wall: 0, steady: answered }, asked, clock)
    }

    #[test]
    fn of_two_readings_of_a_clock_the_narrower_bounds_are_kept_and_widen_as_clocks_drift() {
        let old = read(0, 10, 1_000);
        assert_eq!((old.least(0), old.most(0)), (989, 1_002));
        for (clock, least, most) in [(1_105, 994, 1_003), (1_098, 988, 1_000)] {
            let both = read(100, 110, clock).and(old).expect("they agree");
            assert_eq!((both.least(100), both.most(100)), (least, most));
        }
        let both = read(100, 110, 1_098).and(old).expect("they agree");
        assert_eq!((both.least(10_000), both.most(10_000)), (984, 1_005));
    }
}
