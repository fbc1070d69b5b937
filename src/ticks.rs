//! Converts instants to ticks: deadlines round up, the present rounds down.

#[cfg(feature = "std")]
use crate::platform::Instant;
use core::num::NonZeroU64;
use core::time::Duration;

/// Numbers instants by ticks, so that no timeout of a [`Wheel`](crate::Wheel) is early.
///
/// Tick `n` is the instant `n` tick lengths after the start. A deadline rounds up to a tick, and
/// the present rounds down. So a timeout at [`deadline(instant)`](Self::deadline) never comes out
/// of `wheel.expire(ticks.now(present))` while `present` is before `instant`. The timeout is late
/// by less than one tick, plus the time until that call.
///
/// The type `I` of an instant is `std::time::Instant`, or, also without std, a [`Duration`] since a
/// start that the caller chooses: when the machine booted, for example.
///
/// Nothing overflows and nothing panics. An instant before the start counts as the start. An
/// instant that no tick can hold is at the last tick, `u64::MAX`, which never comes:
/// [`now`](Self::now) stops at the tick before.
///
/// ```
/// use std::time::{Duration, Instant};
/// use tickwheel::{Ticks, Wheel};
///
/// let start = Instant::now();
/// let ticks = Ticks::new(start, Duration::from_millis(1));
/// let mut wheel = Wheel::default();
///
/// // In the middle of a tick, for 30 ms from then:
/// let called = start + Duration::from_micros(700);
/// let deadline = ticks.after(called, Duration::from_millis(30));
/// wheel.schedule(deadline, "request");
///
/// // 30 ms after the start only 29.3 ms have passed since the call.
/// assert!(wheel.expire(ticks.now(start + Duration::from_millis(30))).is_none());
/// assert!(wheel.expire(ticks.now(start + Duration::from_millis(31))).is_some());
/// assert_eq!(ticks.instant(deadline), Some(start + Duration::from_millis(31)));
/// ```
///
/// Without std, the time since the machine booted serves as the instant:
///
/// ```
/// use core::time::Duration;
/// use tickwheel::Ticks;
///
/// let ticks = Ticks::new(Duration::ZERO, Duration::from_millis(10));
/// let uptime = Duration::from_nanos(123_456_789);
/// assert_eq!((ticks.now(uptime), ticks.deadline(uptime)), (12, 13));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticks<I> {
    start: I,
    /// In nanoseconds.
    length: NonZeroU64,
}

impl<I: Moment> Ticks<I> {
    /// Numbers ticks of length `tick` from `start`. A tick under a nanosecond counts as a
    /// nanosecond, and one over 584 years as 584 years.
    #[must_use]
    pub fn new(start: I, tick: Duration) -> Self {
        let nanos = u64::try_from(tick.as_nanos()).unwrap_or(u64::MAX);
        Self { start, length: NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN) }
    }

    /// Returns the last tick that is not after `instant`: the present, for
    /// [`Wheel::expire`](crate::Wheel::expire). The tick is never `u64::MAX`.
    #[inline]
    #[must_use]
    pub fn now(&self, instant: I) -> u64 {
        let nanos = instant.since(self.start).as_nanos();
        match u64::try_from(nanos) {
            Ok(nanos) => self.tick_at(nanos),
            Err(_) => u64::try_from(nanos / u128::from(self.length.get()))
                .map_or(NEVER - 1, |tick| tick.min(NEVER - 1)),
        }
    }

    /// Returns the first tick that is not before `instant`: a deadline, for
    /// [`Wheel::schedule`](crate::Wheel::schedule).
    #[inline]
    #[must_use]
    pub fn deadline(&self, instant: I) -> u64 {
        let nanos = instant.since(self.start).as_nanos();
        match u64::try_from(nanos) {
            Ok(nanos) => self.deadline_at(nanos),
            Err(_) => u64::try_from(nanos.div_ceil(self.length.get().into())).unwrap_or(NEVER),
        }
    }

    /// Returns the first tick that is not before the end of `delay`, counted from `now`: a deadline
    /// again. Returns `u64::MAX` if an instant cannot hold that end.
    #[inline]
    #[must_use]
    pub fn after(&self, now: I, delay: Duration) -> u64 {
        self.deadline_of(now.after(delay))
    }

    /// Returns the instant of `tick`. Returns None if `tick` is `u64::MAX`, which never comes, or
    /// if an instant cannot hold it.
    #[must_use]
    pub fn instant(&self, tick: u64) -> Option<I> {
        if tick == NEVER {
            return None;
        }
        // Dividing 128 bits takes longer than all else that is done for a value that is due.
        if let Some(nanos) = tick.checked_mul(self.length.get()) {
            return self.start.after(Duration::from_nanos(nanos));
        }
        self.start.after(duration_of(u128::from(tick) * u128::from(self.length.get()))?)
    }

    /// Returns the length of a tick.
    #[must_use]
    pub fn tick(&self) -> Duration {
        Duration::from_nanos(self.length.get())
    }

    /// Returns `period`, or one tick for a period of zero.
    #[cfg(feature = "std")]
    pub(crate) fn not_zero(&self, period: Duration) -> Duration {
        if period.is_zero() { self.tick() } else { period }
    }

    /// Returns the first tick that is not before `instant`; [`NEVER`] if there is no instant.
    #[inline]
    pub(crate) fn deadline_of(&self, instant: Option<I>) -> u64 {
        instant.map_or(NEVER, |instant| self.deadline(instant))
    }

    /// Returns the last tick that is not after `nanos`, which count from the start.
    #[inline]
    pub(crate) fn tick_at(&self, nanos: u64) -> u64 {
        (nanos / self.length).min(NEVER - 1)
    }

    /// Returns the first tick that is not before `nanos`, which count from the start.
    #[inline]
    pub(crate) fn deadline_at(&self, nanos: u64) -> u64 {
        nanos.div_ceil(self.length.get())
    }

    /// Returns the nanoseconds from the start to `tick`, or `u64::MAX` if they are more.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn nanos_to(&self, tick: u64) -> u64 {
        tick.saturating_mul(self.length.get())
    }

    /// Returns the nanoseconds from the start to `instant`, or `u64::MAX` if they are more.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn nanos(&self, instant: I) -> u64 {
        let passed = instant.since(self.start);
        if passed.as_secs() < u64::MAX / NANOS_PER_SECOND as u64 {
            passed.as_secs() * NANOS_PER_SECOND as u64 + u64::from(passed.subsec_nanos())
        } else {
            u64::MAX
        }
    }
}

/// Returns the duration of `nanos`, or None if there are too many for one.
pub(crate) fn duration_of(nanos: u128) -> Option<Duration> {
    let seconds = u64::try_from(nanos / NANOS_PER_SECOND).ok()?;
    let nanos = u32::try_from(nanos % NANOS_PER_SECOND).ok()?;
    Some(Duration::new(seconds, nanos))
}

/// A point in time, as [`Ticks`] numbers them: `std::time::Instant`, or a [`Duration`] since a
/// start that the caller chooses. An instant type of your own can be one, too.
pub trait Moment: Copy {
    /// Returns how long after `earlier` this moment is; zero if it is before.
    fn since(self, earlier: Self) -> Duration;

    /// Returns the moment `delay` later, or None if this type cannot hold it.
    fn after(self, delay: Duration) -> Option<Self>;
}

impl Moment for Duration {
    #[inline]
    fn since(self, earlier: Self) -> Duration {
        self.saturating_sub(earlier)
    }

    #[inline]
    fn after(self, delay: Duration) -> Option<Self> {
        self.checked_add(delay)
    }
}

#[cfg(feature = "std")]
impl Moment for Instant {
    #[inline]
    fn since(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }

    #[inline]
    fn after(self, delay: Duration) -> Option<Self> {
        self.checked_add(delay)
    }
}

/// The deadline of a timeout that never fires: the present never gets there.
pub(crate) const NEVER: u64 = u64::MAX;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::Ticks;
    use core::time::Duration;

    #[test]
    fn nanoseconds_are_exact_and_end_with_the_largest_number() {
        let ticks = Ticks::new(Duration::from_secs(5), Duration::from_millis(3));
        let nanos = |seconds: u64, nanos| ticks.nanos(Duration::new(5 + seconds, nanos));
        assert_eq!([nanos(0, 0), nanos(0, 7), nanos(2, 7)], [0, 7, 2_000_000_007]);
        assert_eq!(nanos(18_446_744_072, 999_999_999), 18_446_744_072_999_999_999);
        assert_eq!(nanos(18_446_744_073, 999_999_999), u64::MAX);
        assert_eq!(nanos(1 << 40, 0), u64::MAX);
        assert_eq!(ticks.nanos(Duration::ZERO), 0, "before the start");
        assert_eq!([0, 1, 1_000].map(|tick| ticks.nanos_to(tick)), [0, 3_000_000, 3_000_000_000]);
        assert_eq!(ticks.nanos_to(u64::MAX / 2), u64::MAX);
    }
}
