//! What holds timeouts and is driven by its caller, as the workloads see it.

use crate::log::Log;

/// One way to hold timeouts, with values that are numbers.
///
/// A tick means a millisecond to subjects that know of time. What is measured is what its users
/// would call; an adapter adds only what they would have to add.
pub(crate) trait Subject: Sized {
    /// Names one timeout.
    type Key;

    /// Whether what was not cancelled comes out.
    const FIRES: bool = true;

    /// Whether each pass has a new subject, which is made and dropped in the time of the pass.
    const IS_NEW: bool = false;

    fn new(setup: &Setup) -> Self;

    fn schedule(&mut self, deadline: u64, value: u64) -> Self::Key;

    /// Schedules what will never be cancelled.
    fn schedule_for_good(&mut self, deadline: u64, value: u64) {
        let key = self.schedule(deadline, value);
        self.retire(key);
    }

    /// Cancels the pending timeout of `value`. Returns false if the subject found none, or gave
    /// another value back. Not called of a subject that only fires.
    fn cancel(&mut self, _key: Self::Key, _value: u64) -> bool {
        false
    }

    /// Moves a timeout that is pending. Its value stays; it is known to the caller anyway, for
    /// subjects that have to schedule it anew.
    fn reschedule(&mut self, key: Self::Key, deadline: u64, value: u64) -> Self::Key {
        self.cancel(key, value);
        self.schedule(deadline, value)
    }

    /// Forgets the key of a timeout that has come out, or never will be cancelled.
    fn retire(&mut self, _key: Self::Key) {}

    /// Takes out all that is due.
    fn expire(&mut self, now: u64, log: &mut Log) {
        while self.expire_some(now, log) {}
    }

    /// Does as little as one call can to take out what is due, and returns whether there may be
    /// more to do.
    fn expire_some(&mut self, now: u64, log: &mut Log) -> bool;

    /// When to call `expire` again; None if nothing is pending.
    fn next_wake(&mut self) -> Option<u64>;

    /// Time has come to `now`, for subjects that have a clock of their own to move.
    fn pass_time(&mut self, _now: u64) {}

    /// Sleeps until the next wake and takes out all that is due then, as an event loop would that
    /// has nothing else to do, and returns when that was; None if nothing is pending.
    fn wait(&mut self, now: u64, log: &mut Log) -> Option<u64> {
        let now = self.next_wake()?.max(now + 1);
        self.expire(now, log);
        log.end_batch(now, now);
        Some(now)
    }

    /// Waits until nothing is pending, and returns when that was.
    fn drive(&mut self, mut now: u64, log: &mut Log) -> u64 {
        while let Some(later) = self.wait(now, log) {
            now = later;
        }
        now
    }
}

/// What a user who builds the subject for a workload would know about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// The longest delay, in the caller's unit of time.
    pub(crate) longest: u64,
    /// The most timeouts at once.
    pub(crate) timeouts: usize,
    /// Of a hashed wheel, if the workload says so.
    pub(crate) buckets: Option<usize>,
    /// Whether no single call is to take long.
    pub(crate) short_calls: bool,
    /// How many of the caller's units of time a tick has, a power of two. More than one only for
    /// subjects that take times and not ticks.
    pub(crate) units_a_tick: u64,
}

impl Setup {
    pub(crate) fn new(longest: u64, timeouts: usize) -> Self {
        Self { longest, timeouts, buckets: None, short_calls: false, units_a_tick: 1 }
    }

    /// The buckets that a hashed wheel does well with: one round for all delays, if that takes no
    /// more of them than there are timeouts.
    pub(crate) fn buckets(&self) -> usize {
        let most = self.timeouts.next_power_of_two().clamp(1 << 12, 1 << 20);
        let round = usize::try_from(self.longest).unwrap_or(most).min(most);
        self.buckets.unwrap_or_else(|| round.next_power_of_two().max(512))
    }
}

/// What is known of a subject beforehand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    /// As on the command line and in tables.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) fires: bool,
    /// Whether it cancels, and so reschedules.
    pub(crate) cancels: bool,
    /// Whether it is a [`Threaded`] timer, and not a [`Subject`].
    ///
    /// [`Threaded`]: crate::threaded::Threaded
    pub(crate) has_threads: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ours,
    /// A crate that does the same, or what std has for it.
    Peer,
    /// Another way in which ours could be built, or used.
    Design,
    /// Does less than is asked for, which no subject that does all of it can be expected to beat.
    Limit,
}

impl Profile {
    /// Of a subject that does all that is asked for.
    pub(crate) const fn new(kind: Kind, name: &'static str) -> Self {
        Self { name, kind, fires: true, cancels: true, has_threads: false }
    }
}
