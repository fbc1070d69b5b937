//! How long what has failed waits before it comes again.

use std::time::Duration;

use super::due::Due;
use crate::values::milliseconds;

/// How long a timeout waits before it comes again, by how often it was handed out; for
/// [`Due::back_off`].
///
/// ```
/// use std::time::Duration;
/// use tickwheel_durable::Backoff;
///
/// let backoff = Backoff::exponential(Duration::from_secs(2), Duration::from_secs(60));
/// let delays = [1, 2, 3, 9].map(|attempt| backoff.delay("order-17", attempt).as_secs());
/// assert_eq!(delays, [2, 4, 8, 60]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    growth: Growth,
    /// The part of a delay that is at random, in percent.
    spread: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    Doubles,
    Adds,
}

impl Backoff {
    /// Returns delays that double: `first`, then twice that, and so on, at most `most`.
    pub const fn exponential(first: Duration, most: Duration) -> Self {
        Self { first, most, growth: Growth::Doubles, spread: 0 }
    }

    /// Returns delays that grow by `first` each time, at most `most`.
    pub const fn linear(first: Duration, most: Duration) -> Self {
        Self { first, most, growth: Growth::Adds, spread: 0 }
    }

    /// Returns the same delay each time.
    pub const fn fixed(delay: Duration) -> Self {
        Self { first: delay, most: delay, growth: Growth::Adds, spread: 0 }
    }

    /// Makes each delay shorter by up to so many percent, at most by all of it, so that those that
    /// failed together do not come again together.
    ///
    /// By how much depends on the name and the attempt alone, so it is the same in each process.
    pub const fn spread(mut self, percent: u32) -> Self {
        self.spread = if percent < 100 { percent } else { 100 };
        self
    }

    /// Returns how long the timeout of this name waits after it was handed out so often.
    pub fn delay(&self, name: &str, attempt: u32) -> Duration {
        let times = match self.growth {
            Growth::Doubles => 2_u32.saturating_pow(attempt.saturating_sub(1)),
            Growth::Adds => attempt.max(1),
        };
        let delay = self.first.saturating_mul(times).min(self.most);
        if self.spread == 0 {
            return delay;
        }
        let random = crc32c::crc32c_append(crc32c::crc32c(name.as_bytes()), &attempt.to_le_bytes());
        // In milliseconds, as the timer counts.
        let widest = u128::from(milliseconds(delay)) * u128::from(self.spread) / 100;
        let shorter = widest * u128::from(random) / u128::from(u32::MAX);
        delay.saturating_sub(Duration::from_millis(u64::try_from(shorter).unwrap_or(u64::MAX)))
    }
}

impl Due {
    /// Schedules it again, after a delay by this policy; else as [`retry`](Self::retry).
    pub fn back_off(self, backoff: &Backoff) {
        let delay = backoff.delay(self.name(), self.attempt());
        self.retry(delay);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_most_and_no_further_for_any_attempt() {
        let seconds = |backoff: Backoff| {
            [0, 1, 2, 3, 4, 33, u32::MAX].map(|attempt| backoff.delay("a", attempt).as_secs())
        };
        let (first, most) = (Duration::from_secs(3), Duration::from_secs(20));
        assert_eq!(seconds(Backoff::exponential(first, most)), [3, 3, 6, 12, 20, 20, 20]);
        assert_eq!(seconds(Backoff::linear(first, most)), [3, 3, 6, 9, 12, 20, 20]);
        assert_eq!(seconds(Backoff::fixed(first)), [3; 7]);
        assert_eq!(seconds(Backoff::exponential(most, first)), [3; 7]);
        let longest = Backoff::exponential(Duration::MAX, Duration::MAX);
        for attempt in [0, 1, u32::MAX] {
            assert_eq!(longest.delay("a", attempt), Duration::MAX);
            let _ = longest.spread(100).delay("a", attempt);
        }
        assert_eq!(Backoff::fixed(Duration::ZERO).spread(100).delay("a", 1), Duration::ZERO);
    }

    #[test]
    fn those_that_failed_together_are_spread_and_none_waits_longer() {
        let whole = Backoff::fixed(Duration::from_secs(1));
        let spread = whole.spread(40);
        let mut delays: Vec<u128> =
            (0..1_000).map(|n| spread.delay(&format!("order-{n}"), 3).as_millis()).collect();
        delays.sort_unstable();
        assert!(600 <= delays[0] && delays[0] < 620, "{}", delays[0]);
        assert!(980 < delays[999] && delays[999] <= 1_000, "{}", delays[999]);
        assert!((770..830).contains(&delays[500]), "{}", delays[500]);
        assert_ne!(spread.delay("a", 1), spread.delay("a", 2));
        assert_eq!(spread.delay("a", 1), spread.delay("a", 1));
        assert!(whole.spread(1_000).delay("a", 1) <= Duration::from_secs(1));
    }
}
