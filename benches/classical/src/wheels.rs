//! Schemes 5, 6 and 7.

use crate::Scheme;
use crate::lists::Lists;

/// Scheme 5: a hashed wheel, in whose buckets timers are sorted by the tick of expiry.
#[derive(Debug)]
pub struct HashedSorted {
    buckets: Lists,
    table_size: u64,
    now: u64,
}

impl HashedSorted {
    /// Makes room for the requests below `requests`, in `table_size` buckets.
    #[must_use]
    pub fn new(requests: u32, table_size: u32) -> Self {
        Self { buckets: Lists::new(requests, table_size), table_size: table_size.into(), now: 0 }
    }
}

impl Scheme for HashedSorted {
    fn start_timer(&mut self, request: u32, interval: u64) {
        let expiry = self.now + interval;
        self.buckets.insert((expiry % self.table_size) as u32, request, expiry);
    }

    fn stop_timer(&mut self, request: u32) {
        self.buckets.unlink(request);
    }

    fn per_tick_bookkeeping(&mut self, expired: &mut Vec<u32>) {
        self.now += 1;
        self.buckets.take_due((self.now % self.table_size) as u32, self.now, expired);
    }
}

/// Scheme 6: a hashed wheel, in whose buckets timers count down their rounds.
#[derive(Debug)]
pub struct HashedRounds {
    buckets: Lists,
    table_size: u64,
    now: u64,
}

impl HashedRounds {
    /// Makes room for the requests below `requests`, in `table_size` buckets.
    #[must_use]
    pub fn new(requests: u32, table_size: u32) -> Self {
        Self { buckets: Lists::new(requests, table_size), table_size: table_size.into(), now: 0 }
    }
}

impl Scheme for HashedRounds {
    fn start_timer(&mut self, request: u32, interval: u64) {
        let bucket = ((self.now + interval) % self.table_size) as u32;
        self.buckets.push(bucket, request, (interval - 1) / self.table_size);
    }

    fn stop_timer(&mut self, request: u32) {
        self.buckets.unlink(request);
    }

    fn per_tick_bookkeeping(&mut self, expired: &mut Vec<u32>) {
        self.now += 1;
        let mut timer = self.buckets.first((self.now % self.table_size) as u32);
        while !self.buckets.is_end(timer) {
            let next = self.buckets.next(timer);
            if self.buckets.time(timer) == 0 {
                self.buckets.unlink(timer);
                expired.push(timer);
            } else {
                *self.buckets.time_mut(timer) -= 1;
            }
            timer = next;
        }
    }
}

/// Scheme 7: levels of 64 buckets, for intervals below 2^36. A bucket that comes up on a coarse
/// level has its timers started again, on finer ones.
#[derive(Debug)]
pub struct Hierarchical {
    buckets: Lists,
    now: u64,
}

impl Hierarchical {
    /// Makes room for the requests below `requests`.
    #[must_use]
    pub fn new(requests: u32) -> Self {
        Self { buckets: Lists::new(requests, LEVELS << BITS), now: 0 }
    }

    /// Puts the timer on the level of the highest digit in which `expiry` and now differ.
    fn place(&mut self, timer: u32, expiry: u64) {
        let level = (expiry ^ self.now).checked_ilog2().unwrap_or(0) / BITS;
        self.buckets.push(bucket(level, expiry), timer, expiry);
    }
}

/// The bucket of a tick on a level.
fn bucket(level: u32, tick: u64) -> u32 {
    (level << BITS) + ((tick >> (level * BITS)) % (1 << BITS)) as u32
}

impl Scheme for Hierarchical {
    fn start_timer(&mut self, request: u32, interval: u64) {
        self.place(request, self.now + interval);
    }

    fn stop_timer(&mut self, request: u32) {
        self.buckets.unlink(request);
    }

    fn per_tick_bookkeeping(&mut self, expired: &mut Vec<u32>) {
        self.now += 1;
        // The levels on which a bucket begins with this tick, the coarsest first.
        let coarsest = (self.now.trailing_zeros() / BITS).min(LEVELS - 1);
        for level in (1..=coarsest).rev() {
            let from = bucket(level, self.now);
            let mut timer = self.buckets.first(from);
            while !self.buckets.is_end(timer) {
                self.buckets.unlink(timer);
                self.place(timer, self.buckets.time(timer));
                timer = self.buckets.first(from);
            }
        }
        self.buckets.take_due(bucket(0, self.now), self.now, expired);
    }
}

const BITS: u32 = 6;
const LEVELS: u32 = 6;
