//! Bytes that are read as numbers, ticks and modes: small and extreme ones take few bytes.

use std::time::Duration;
use tickwheel::Mode;

/// The rest of an input.
pub(crate) struct Bytes<'a>(&'a [u8]);

/// A point in time, relative to what a wheel holds when it is used.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tick {
    At(u64),
    After(u64),
    Before(u64),
    /// The first tick of the next block of 2^bits ticks, plus an offset.
    Boundary(u32, i8),
    /// The tick at which the wheel asks to be woken, plus an offset.
    Wake(i8),
    /// The deadline of a timeout, plus an offset.
    Deadline(u64, i8),
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Reads operations, each of which begins with a code. One code is for all: it means the last
    /// few operations again, so many times.
    pub(crate) fn program<Op: Clone>(&mut self, read: impl Fn(&mut Self, u8) -> Op) -> Vec<Op> {
        let mut ops = Vec::new();
        while let Some(code) = self.next().filter(|_| ops.len() < MOST_OPS) {
            if code < AGAIN {
                ops.push(read(self, code));
                continue;
            }
            let last = self.count().min(ops.len());
            for _ in 0..self.count() {
                if ops.len() < MOST_OPS {
                    ops.extend_from_within(ops.len() - last..);
                }
            }
        }
        ops
    }

    /// All bytes that were not read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// The next byte, or None at the end.
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next byte, or 0 at the end.
    pub(crate) fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    pub(crate) fn offset(&mut self) -> i8 {
        i8::from_ne_bytes([self.byte()])
    }

    /// A number of any size: a small one takes a byte, one near a power of two takes two.
    pub(crate) fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=159 => small.into(),
            power @ 160..=223 => {
                (1_u64 << (power - 160)).saturating_add_signed(self.offset().into())
            }
            224..=239 => u64::from(self.byte()) << 8 | u64::from(self.byte()),
            240..=247 => u64::MAX - u64::from(self.byte()),
            _ => (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte())),
        }
    }

    /// A number that is not too large to do something so often: one byte, to some thousands.
    pub(crate) fn count(&mut self) -> usize {
        match usize::from(self.byte()) {
            few @ 0..=127 => few,
            many => 128 + (many - 128) * (many - 128) / 2,
        }
    }

    pub(crate) fn tick(&mut self) -> Tick {
        match self.byte() {
            after @ 0..=127 => Tick::After(after.into()),
            form => match form % 8 {
                0 => Tick::At(self.number()),
                1 => Tick::Before(self.number()),
                2 => Tick::Wake(self.offset()),
                3 => Tick::Deadline(self.number(), self.offset()),
                4 | 5 => Tick::Boundary(u32::from(self.byte()) % 64, self.offset()),
                _ => Tick::After(self.number()),
            },
        }
    }

    /// A duration of any size.
    pub(crate) fn duration(&mut self) -> Duration {
        match self.byte() {
            millis @ 0..=127 => Duration::from_millis(millis.into()),
            form => match form % 4 {
                0 => Duration::from_micros(self.number()),
                1 => Duration::from_nanos(self.number()),
                2 => Duration::from_millis(self.number()),
                _ => Duration::from_secs(self.number()),
            },
        }
    }

    pub(crate) fn mode(&mut self) -> Mode {
        let kind = self.byte();
        let bits = match kind / 2 {
            bits @ 0..=30 => bits,
            other => [1, 3, 6, 9][usize::from(other) % 4],
        };
        let buckets = 1 << bits;
        let mode = if kind & 1 == 0 {
            Mode::hashed(buckets)
        } else {
            Mode::hierarchical_with(buckets.max(2))
        };
        mode.expect("it is in range")
    }
}

/// Returns the first tick of the next block of 2^bits ticks, plus an offset, or the last tick.
pub(crate) fn boundary(now: u64, bits: u32, offset: i8) -> u64 {
    let next = (now >> bits).saturating_add(1);
    let tick = if next.leading_zeros() < bits { u64::MAX } else { next << bits };
    tick.saturating_add_signed(offset.into())
}

/// The codes from here on mean the last few operations again.
const AGAIN: u8 = 248;
/// The operations after which a program ends.
const MOST_OPS: usize = 4_000;
