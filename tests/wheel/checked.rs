//! A wheel that checks itself after every step.

use crate::common::long;
use std::cell::Cell;
use std::ops::{Deref, RangeInclusive};
use tickwheel::{Drain, Expired, Key, Mode, Wheel};

/// A wheel that checks every invariant after every step while few timeouts wait. A check looks at
/// all of them, so of many it checks as often as costs as much as some steps.
pub(crate) struct Checked<T> {
    wheel: Wheel<T>,
    /// Steps until the next check.
    left: Cell<usize>,
}

impl<T> Checked<T> {
    /// A wheel with room for so many that it holds few in buckets, too.
    pub(crate) fn new(mode: Mode) -> Self {
        Self { wheel: Wheel::with_capacity(mode, MANY), left: Cell::new(0) }.checked()
    }

    /// A wheel that holds few in one array.
    pub(crate) fn of_few(mode: Mode) -> Self {
        Self { wheel: Wheel::new(mode), left: Cell::new(0) }.checked()
    }

    /// An empty wheel that was driven to tick `now`.
    pub(crate) fn at(mode: Mode, now: u64) -> Self {
        let mut wheel = Self::new(mode);
        assert!(wheel.expire(now).is_none());
        assert_eq!(wheel.now(), now);
        wheel
    }

    fn checked(self) -> Self {
        self.check();
        self
    }

    /// Whether all is well, the invariants inside and what can be seen from outside.
    pub(crate) fn check(&self) {
        self.wheel.check();
        assert_eq!(self.is_empty(), self.earliest().is_none());
        assert_eq!(self.is_empty(), self.next_wake().is_none());
        assert!(self.next_wake() <= self.earliest(), "it never wakes up late");
    }

    /// Checks, and returns whether it did: after as many steps as timeouts wait, in long runs after
    /// each step while at most 32 wait.
    fn check_step(&self) -> bool {
        let is_due = self.left.get() == 0;
        if is_due {
            self.check();
        }
        self.left.set(if is_due { self.len() / long(1, 32) } else { self.left.get() - 1 });
        is_due
    }

    /// The earliest deadline, by a search. To ask the wheel can change it, so it is asked where
    /// that is to be tested.
    fn earliest(&self) -> Option<u64> {
        self.iter().map(|(_, deadline, _)| deadline).min()
    }

    /// The next deadline, which is what a search finds.
    pub(crate) fn next_deadline(&mut self) -> Option<u64> {
        let next = self.wheel.next_deadline();
        if self.check_step() {
            assert_eq!(next, self.earliest(), "the next deadline is exact");
        }
        next
    }

    pub(crate) fn schedule(&mut self, deadline: u64, value: T) -> Key {
        let len = self.len();
        let key = self.wheel.schedule(deadline, value);
        self.check_step();
        assert_eq!(self.len(), len + 1);
        assert_eq!(self.deadline(key), Some(deadline.max(self.now())));
        key
    }

    pub(crate) fn cancel(&mut self, key: Key) -> Option<T> {
        let len = self.len();
        let value = self.wheel.cancel(key);
        self.check_step();
        assert_eq!(self.len() + usize::from(value.is_some()), len);
        assert!(self.get(key).is_none());
        assert_eq!(self.deadline(key), None);
        value
    }

    pub(crate) fn reschedule(&mut self, key: Key, deadline: u64) -> bool {
        let len = self.len();
        let moved = self.wheel.reschedule(key, deadline);
        self.check_step();
        assert_eq!(self.len(), len);
        assert_eq!(self.deadline(key), moved.then_some(deadline.max(self.now())));
        moved
    }

    pub(crate) fn schedule_within(&mut self, range: RangeInclusive<u64>, value: T) -> Key {
        let key = self.wheel.schedule_within(range, value);
        self.check_step();
        key
    }

    pub(crate) fn reschedule_within(&mut self, key: Key, range: RangeInclusive<u64>) -> bool {
        let moved = self.wheel.reschedule_within(key, range);
        self.check_step();
        moved
    }

    pub(crate) fn expire(&mut self, now: u64) -> Option<Expired<T>> {
        self.handed_out(now, |wheel| (wheel.expire(now), true))
    }

    /// As `expire`, with so much work at most.
    pub(crate) fn expire_bounded(&mut self, now: u64, work: &mut usize) -> Option<Expired<T>> {
        let given = *work;
        let expired = self.handed_out(now, |wheel| {
            let expired = wheel.expire_bounded(now, work);
            (expired, 0 < *work)
        });
        assert!(*work <= given && (expired.is_none() || *work < given), "work is used up");
        expired
    }

    /// Makes a call, which says whether it would have handed out all that is due.
    fn handed_out(
        &mut self,
        now: u64,
        call: impl FnOnce(&mut Wheel<T>) -> (Option<Expired<T>>, bool),
    ) -> Option<Expired<T>> {
        let (before, len) = (self.now(), self.len());
        let (expired, is_all) = call(&mut self.wheel);
        let is_checked = self.check_step();
        assert_eq!(self.now(), before.max(now), "time goes on to `now`, and never back");
        assert_eq!(self.len() + usize::from(expired.is_some()), len);
        if let Some(expired) = &expired {
            assert!(expired.deadline <= now, "never early");
            assert!(self.get(expired.key).is_none(), "its key is stale");
        } else if is_all && is_checked {
            assert!(self.earliest().is_none_or(|deadline| now < deadline), "never late");
            assert!(self.next_wake().is_none_or(|wake| now < wake), "it woke up for nothing");
        }
        expired
    }

    /// Drives to `now` in calls of so much work each: what comes out, with the deadlines. Checks
    /// after some of the steps only.
    pub(crate) fn jump_in_steps(&mut self, now: u64, work: usize) -> Vec<(u64, T)> {
        let mut out = Vec::new();
        for step in 0.. {
            let mut left = work;
            while let Some(expired) = self.wheel.expire_bounded(now, &mut left) {
                out.push((expired.deadline, expired.value));
            }
            if step < 4 || step % 256 == 0 || 0 < left {
                self.check();
            }
            if 0 < left {
                break;
            }
        }
        out
    }

    /// Drives straight to `now`: what comes out, with the deadlines.
    pub(crate) fn jump(&mut self, now: u64) -> Vec<(u64, T)> {
        let mut out = Vec::new();
        while let Some(expired) = self.expire(now) {
            out.push((expired.deadline, expired.value));
        }
        out
    }

    /// Drives tick by tick, from the present one to `end`: what comes out, with the ticks at
    /// which it did. Of a long walk it checks the beginning, and some of the other ticks.
    pub(crate) fn walk(&mut self, end: u64) -> Vec<(u64, T)> {
        let mut out = Vec::new();
        for (step, tick) in (self.now()..=end).enumerate() {
            let is_checked = step < 64 || step % 16 == 0;
            while let Some(expired) =
                if is_checked { self.expire(tick) } else { self.wheel.expire(tick) }
            {
                out.push((tick, expired.value));
            }
        }
        out
    }

    /// Drives to `end` by way of the ticks that the wheel asks to be woken at: what comes out,
    /// with the ticks at which it did.
    pub(crate) fn wake_up_until(&mut self, end: u64) -> Vec<(u64, T)> {
        let mut out = Vec::new();
        while let Some(wake) = self.next_wake().filter(|&wake| wake <= end) {
            let tick = wake.max(self.now());
            while let Some(expired) = self.expire(tick) {
                out.push((tick, expired.value));
            }
        }
        assert!(self.expire(end).is_none(), "it asked to be woken for everything");
        out
    }

    pub(crate) fn drain(&mut self) -> Drain<'_, T> {
        self.wheel.drain()
    }

    pub(crate) fn clear(&mut self) {
        self.wheel.clear();
        self.check();
        assert!(self.is_empty());
    }

    pub(crate) fn reserve(&mut self, additional: usize) {
        self.wheel.reserve(additional);
        self.check();
    }

    pub(crate) fn shrink_to_fit(&mut self) {
        let len = self.len();
        self.wheel.shrink_to_fit();
        self.check();
        assert_eq!(self.len(), len);
    }

    /// The wheel itself, for so many steps that checking each would take too long.
    pub(crate) fn unchecked(&mut self) -> &mut Wheel<T> {
        &mut self.wheel
    }

    /// Buckets visited and timeouts demoted since the wheel was made.
    pub(crate) fn work(&self) -> (u64, u64) {
        let stats = self.stats();
        (stats.buckets_visited, stats.demotions)
    }
}

impl<T> Deref for Checked<T> {
    type Target = Wheel<T>;

    fn deref(&self) -> &Wheel<T> {
        &self.wheel
    }
}

/// A wheel with room for so many holds its timeouts in buckets, however few they are.
pub(crate) const MANY: usize = 1_057;
