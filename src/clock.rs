//! Converts instants to ticks: deadlines round up, the present rounds down.

use core::time::Duration;
use std::time::Instant;

/// Numbers instants: tick `n` is the instant `n` tick lengths after the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    start: Instant,
    /// In nanoseconds, at least 1.
    length: u64,
}

impl Ticks {
    /// Numbers ticks of `length` from `start`. A length under a nanosecond counts as a nanosecond,
    /// and one over 584 years as 584 years.
    pub(crate) fn new(start: Instant, length: Duration) -> Self {
        Self { start, length: u64::try_from(length.as_nanos()).unwrap_or(u64::MAX).max(1) }
    }

    /// Returns the first tick that is not before `instant`.
    #[inline]
    pub(crate) fn deadline(&self, instant: Instant) -> u64 {
        let nanos = instant.saturating_duration_since(self.start).as_nanos();
        match u64::try_from(nanos) {
            Ok(nanos) => nanos.div_ceil(self.length),
            Err(_) => u64::try_from(nanos.div_ceil(self.length.into())).unwrap_or(NEVER),
        }
    }

    /// Returns the length of a tick.
    pub(crate) fn length(&self) -> Duration {
        Duration::from_nanos(self.length)
    }

    /// Returns the first tick that is not before `instant`; [`NEVER`] if there is no instant.
    #[inline]
    pub(crate) fn deadline_of(&self, instant: Option<Instant>) -> u64 {
        instant.map_or(NEVER, |instant| self.deadline(instant))
    }

    /// Returns the first tick that is not before the end of `delay`; [`NEVER`] if an [`Instant`]
    /// cannot hold that end.
    #[inline]
    pub(crate) fn after(&self, now: Instant, delay: Duration) -> u64 {
        self.deadline_of(now.checked_add(delay))
    }

    /// Returns the last tick that is not after `now`. It is before [`NEVER`].
    #[inline]
    pub(crate) fn present(&self, now: Instant) -> u64 {
        let nanos = now.saturating_duration_since(self.start).as_nanos();
        match u64::try_from(nanos) {
            Ok(nanos) => (nanos / self.length).min(NEVER - 1),
            Err(_) => u64::try_from(nanos / u128::from(self.length))
                .map_or(NEVER - 1, |tick| tick.min(NEVER - 1)),
        }
    }

    /// Returns how long ago tick `deadline` was.
    #[inline]
    pub(crate) fn late(&self, now: Instant, deadline: u64) -> Duration {
        let passed = u64::try_from(now.saturating_duration_since(self.start).as_nanos());
        let due = deadline.saturating_mul(self.length);
        Duration::from_nanos(passed.unwrap_or(u64::MAX).saturating_sub(due))
    }

    /// Returns the instant of `tick`, or None if `tick` is [`NEVER`] or an [`Instant`] cannot hold
    /// it.
    pub(crate) fn instant(&self, tick: u64) -> Option<Instant> {
        if tick == NEVER {
            return None;
        }
        let nanos = u128::from(tick) * u128::from(self.length);
        let seconds = u64::try_from(nanos / NANOS_PER_SECOND).ok()?;
        let nanos = u32::try_from(nanos % NANOS_PER_SECOND).ok()?;
        self.start.checked_add(Duration::new(seconds, nanos))
    }
}

/// The deadline of a timeout that never fires: the present never gets there.
pub(crate) const NEVER: u64 = u64::MAX;

const NANOS_PER_SECOND: u128 = 1_000_000_000;
