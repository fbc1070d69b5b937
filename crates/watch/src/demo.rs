//! `Demo`: a program that is made up, to have something to look at.

use fastrand::Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tickwheel_cli::trace::{Action, Operation};

/// A server's timeouts: requests that are nearly all answered in time, idle connections that each
/// packet moves, pauses between retries, which fire, and jobs. It never ends.
#[derive(Debug)]
pub struct Demo {
    random: Rng,
    time_us: u64,
    /// The next key that nothing was scheduled under.
    key: u32,
    /// What is to be done, and when: microseconds, key, and for a connection the packets to come.
    ahead: BinaryHeap<Reverse<(u64, u32, u32)>>,
}

impl Demo {
    /// Returns the operations that belong to `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let random = Rng::with_seed(seed);
        Self { random, time_us: 0, key: 0, ahead: BinaryHeap::new() }
    }
}

impl Iterator for Demo {
    type Item = Operation;

    fn next(&mut self) -> Option<Operation> {
        let next_new_us = self.time_us + self.random.u64(..2 * BETWEEN_NEW_US);
        if let Some(&Reverse((time_us, key, packets))) = self.ahead.peek()
            && time_us <= next_new_us
        {
            self.ahead.pop();
            self.time_us = time_us;
            let action = match packets.checked_sub(1) {
                Some(packets) => {
                    let next_us = time_us + self.random.u64(..2 * BETWEEN_PACKETS_US);
                    self.ahead.push(Reverse((next_us, key, packets)));
                    Action::Reschedule { delay_ms: IDLE_MS }
                }
                None => Action::Cancel,
            };
            return Some(Operation { time_ms: time_us / 1000, key, action });
        }
        self.time_us = next_new_us;
        self.key = self.key.wrapping_add(1);
        let key = self.key;
        let delay_ms = match self.random.u32(..100) {
            // A retry.
            0..30 => 1 << self.random.u32(3..13),
            // A request, which is answered within a second if at all.
            30..80 => {
                if self.random.u32(..100) < 90 {
                    let answer_us = next_new_us + self.random.u64(..1_000_000);
                    self.ahead.push(Reverse((answer_us, key, 0)));
                }
                [5_000, 30_000][self.random.usize(..2)]
            }
            // A connection.
            80..97 => {
                let packet_us = next_new_us + self.random.u64(..2 * BETWEEN_PACKETS_US);
                self.ahead.push(Reverse((packet_us, key, self.random.u32(..8))));
                IDLE_MS
            }
            // A job.
            _ => self.random.u64(60_000..3_600_000),
        };
        Some(Operation { time_ms: next_new_us / 1000, key, action: Action::Schedule { delay_ms } })
    }
}

/// The mean time between two new timeouts.
const BETWEEN_NEW_US: u64 = 2_000;

/// The mean time between two packets of a connection.
const BETWEEN_PACKETS_US: u64 = 8_000_000;

/// When a connection without packets is closed.
const IDLE_MS: u64 = 60_000;
