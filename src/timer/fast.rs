//! A clock that reads the counter of the processor.

use super::clock::Clock;
use crate::sync::{AtomicU64, Mutex, Ordering, try_lock};
use core::fmt;
use core::time::Duration;
use std::time::Instant;

/// The system's monotonic clock, read with the counter of the processor: in less than half of the
/// time. It needs the feature `fast-clock`.
///
/// [`Instant::now`] takes 20 to 30 ns, which is a quarter of scheduling and cancelling a timeout.
/// This clock counts from the last look at the system's clock with the processor's counter, by the
/// crate `quanta`: the TSC on x86-64, the system counter on ARM. At a reading a millisecond or more
/// after the last look, the clock looks again.
///
/// It is never ahead of [`Instant::now`], and behind by at most about 2 microseconds: so a timeout
/// at an [`Instant`] is not early by the system's clock either, and a delay is shorter by at most
/// those. It does in a suspend what the system's clock does.
///
/// # What it trusts
///
/// Between two looks, the counters of all cores are to run alike, and not 0.04 % faster than they
/// did when the first `FastClock` of the process was made: that takes about a millisecond, at most
/// 200. A processor whose counter is not constant does not say that it is, and then the clock reads
/// the system's clock only. A counter may still run differently on each core, or too fast, as in a
/// virtual machine that moved. At the first look that finds the clock ahead of the system's, it
/// gives up the counter for good. Until then it was ahead by less than a millisecond.
///
/// ```
/// use std::time::{Duration, Instant};
/// use tickwheel::{FastClock, Timer};
///
/// let timer = Timer::builder().clock(FastClock::new()).build()?;
/// let (sender, receiver) = std::sync::mpsc::channel();
/// let deadline = Instant::now() + Duration::from_millis(5);
/// timer.schedule_at(deadline, move || sender.send(Instant::now()).unwrap())?;
/// assert!(deadline <= receiver.recv()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FastClock {
    counter: quanta::Clock,
    /// What the system's clock showed when this clock was made.
    start: Instant,
    anchor: Anchor,
}

impl FastClock {
    /// Makes a clock that shows what [`Instant::now`] does. The first one of a process measures for
    /// about a millisecond how fast the counter is.
    #[must_use]
    pub fn new() -> Self {
        Self { counter: quanta::Clock::new(), start: Instant::now(), anchor: Anchor::new() }
    }

    /// Returns the nanoseconds since this clock was made.
    #[inline]
    fn passed(&self) -> u64 {
        self.anchor.nanos(
            // From 0, so that a counter that begins anew goes on.
            || self.counter.delta_as_nanos(0, self.counter.raw()),
            || u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX),
        )
    }
}

impl Default for FastClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for FastClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastClock").field("passed", &self.passed()).finish_non_exhaustive()
    }
}

impl Clock for FastClock {
    fn now(&self) -> Instant {
        self.start + Duration::from_nanos(self.passed())
    }

    #[inline]
    fn nanos(&self) -> Option<u64> {
        Some(self.passed())
    }

    fn wait(&self, duration: Duration) -> Option<Duration> {
        // A thread that sleeps by the system's clock does not wake up too early to find it due.
        Some(duration.saturating_add(MOST_BEHIND))
    }
}

/// The last look at the system's clock: counted nanoseconds become the system's by it.
///
/// A counted time is made slower by a 1024th, so that it falls behind the system's, and each look
/// moves it forward: then it neither is ahead nor goes back.
struct Anchor {
    /// What the counter showed at the last look. Written after `offset`: a thread that reads this
    /// first has an offset that is not older.
    counted: AtomicU64,
    /// What is added to a counted time, and may wrap around.
    offset: AtomicU64,
    /// How long after a look the clock counts: 0 when it has given up the counter.
    longest: AtomicU64,
    /// Held by the thread that looks.
    looks: Mutex<()>,
}

impl Anchor {
    /// Makes one whose first reading is a look.
    fn new() -> Self {
        Self {
            counted: AtomicU64::new(0_u64.wrapping_sub(PAUSE)),
            offset: AtomicU64::new(0),
            longest: AtomicU64::new(LONGEST),
            looks: Mutex::new(()),
        }
    }

    /// Returns the nanoseconds of the present, by both clocks.
    #[inline]
    fn nanos(&self, counter: impl Fn() -> u64, system: impl Fn() -> u64) -> u64 {
        let counted = self.counted.load(Ordering::Acquire);
        let offset = self.offset.load(Ordering::Relaxed);
        // After these two: if the machine is suspended in between, a long time has passed.
        let count = counter();
        if count.wrapping_sub(counted) < self.longest.load(Ordering::Relaxed) {
            return slowed(count).wrapping_add(offset);
        }
        self.look(counter, system)
    }

    #[cold]
    fn look(&self, counter: impl Fn() -> u64, system: impl Fn() -> u64) -> u64 {
        let before = system();
        let count = counter();
        let after = system();
        let Some(_looks) = try_lock(&self.looks) else { return after };
        // No other thread has looked since then.
        let passed = count.wrapping_sub(self.counted.load(Ordering::Relaxed));
        let longest = self.longest.load(Ordering::Relaxed);
        if passed < longest || longest == 0 || after.wrapping_sub(before) > LONGEST_LOOK {
            return after;
        }
        let mut offset = before.wrapping_sub(slowed(count));
        if passed < PAUSE {
            let counted_on = slowed(count).wrapping_add(self.offset.load(Ordering::Relaxed));
            if after < counted_on {
                self.longest.store(0, Ordering::Relaxed);
                return after;
            }
            if before < counted_on {
                offset = self.offset.load(Ordering::Relaxed);
            }
        }
        self.offset.store(offset, Ordering::Relaxed);
        self.counted.store(count, Ordering::Release);
        slowed(count).wrapping_add(offset)
    }
}

/// Returns counted nanoseconds, slower than they were counted.
#[inline]
fn slowed(count: u64) -> u64 {
    count - (count >> SLOWER)
}

/// A counted time is slower by one part in 2^10: more than the system's clock is slowed to follow
/// a time server, which is 500 parts in a million, and what was measured wrong.
const SLOWER: u32 = 10;

/// How long the clock counts between two looks at the system's clock, in nanoseconds.
const LONGEST: u64 = 1_000_000;

/// A look may take so long, in nanoseconds: otherwise other work came in between.
const LONGEST_LOOK: u64 = 1_000;

/// After such a time without a look, in nanoseconds, the counter may show another time than the
/// system's clock: the machine may have been suspended.
const PAUSE: u64 = 1_000_000_000;

/// By how much the clock is behind the system's clock at most: what it is slower by between two
/// looks, and how long a look takes.
const MOST_BEHIND: Duration = Duration::from_nanos((LONGEST >> SLOWER) + LONGEST_LOOK);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::cell::Cell;

    /// A counter and a system's clock that a test moves.
    struct Moved {
        anchor: Anchor,
        counter: Cell<u64>,
        system: Cell<u64>,
    }

    impl Moved {
        fn new() -> Self {
            Self { anchor: Anchor::new(), counter: Cell::new(0), system: Cell::new(0) }
        }

        fn pass(&self, counter: u64, system: u64) {
            self.counter.set(self.counter.get().wrapping_add(counter));
            self.system.set(self.system.get() + system);
        }

        fn nanos(&self) -> u64 {
            self.anchor.nanos(|| self.counter.get(), || self.system.get())
        }

        fn counts(&self) -> bool {
            self.anchor.longest.load(Ordering::Relaxed) > 0
        }
    }

    #[test]
    fn it_is_behind_by_two_microseconds_at_most_and_never_ahead_nor_goes_back() {
        // The system's clock is slowed or hurried by 500 parts in a million.
        for (counter, system) in [(10_000, 10_000), (10_000, 9_995), (10_000, 10_005)] {
            for steps in [1, 7, 99, 250] {
                let moved = Moved::new();
                let mut before = moved.nanos();
                for _ in 0..100_000 / steps {
                    moved.pass(counter * steps, system * steps);
                    let (nanos, system) = (moved.nanos(), moved.system.get());
                    assert!(nanos <= system && system - nanos <= 2_000, "{nanos} at {system}");
                    assert!(before <= nanos);
                    before = nanos;
                }
                assert!(moved.counts());
            }
        }
    }

    #[test]
    fn a_look_in_which_other_work_came_in_does_not_count() {
        let moved = Moved::new();
        let other_work = Cell::new(5_000_000);
        let busy = || {
            let system = moved.system.get();
            let passed = other_work.take();
            moved.pass(passed, passed);
            system
        };
        moved.anchor.nanos(|| moved.counter.get(), busy);
        assert_eq!(moved.nanos(), moved.system.get());
    }

    #[test]
    fn it_counts_between_two_looks() {
        let moved = Moved::new();
        moved.nanos();
        moved.pass(900_000, 0);
        assert_eq!(moved.nanos(), slowed(900_000));
    }

    #[test]
    fn a_counter_that_is_too_fast_is_given_up() {
        let moved = Moved::new();
        for _ in 0..100 {
            moved.nanos();
            moved.pass(100_000, 99_000);
        }
        assert!(!moved.counts());
        for _ in 0..100 {
            moved.pass(10, 7);
            assert_eq!(moved.nanos(), moved.system.get());
        }
    }

    #[test]
    fn after_a_suspend_it_shows_what_the_systems_clock_does() {
        const HOUR: u64 = 3_600_000_000_000;
        // The counter goes on, stands still, or begins anew.
        for jump in [HOUR, 0, 0_u64.wrapping_sub(HOUR)] {
            let moved = Moved::new();
            moved.pass(HOUR, 0);
            for _ in 0..100 {
                moved.pass(10_000, 10_000);
                moved.nanos();
            }
            moved.pass(jump, 10_000);
            let system = moved.system.get();
            let nanos = moved.nanos();
            assert!(nanos <= system && system - nanos <= 12_000, "{nanos} at {system}");
            assert!(moved.counts());
        }
    }

    #[test]
    fn the_cores_may_show_different_counts() {
        let moved = Moved::new();
        // One core's counter is half a millisecond ahead, or more than that.
        for ahead in [500_000, 2_000_000, 5_000_000_000] {
            for _ in 0..1_000 {
                moved.pass(ahead, 0);
                let nanos = moved.nanos();
                assert!(nanos <= moved.system.get() + LONGEST, "{nanos}");
                moved.pass(10_000_u64.wrapping_sub(ahead), 10_000);
                assert!(moved.nanos() <= moved.system.get() + LONGEST);
            }
        }
    }
}
