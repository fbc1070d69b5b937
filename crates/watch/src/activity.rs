//! `Activity`: what happens to the timeouts, by time.

use super::player::Player;
use indicatif::HumanFloatCount;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tickwheel_cli::study::Counts;
use tickwheel_cli::units;

/// How things were at some moments, the latest of which is the last.
pub(super) struct Activity {
    samples: VecDeque<Sample>,
    taken: Instant,
}

struct Sample {
    at_ns: f64,
    counts: Counts,
    fired: u64,
    pending: u64,
}

impl Activity {
    pub(super) fn new(player: &Player) -> Self {
        Self { samples: [Sample::of(player)].into(), taken: Instant::now() }
    }

    /// Looks at the player now and then.
    pub(super) fn look(&mut self, player: &Player) {
        if self.taken.elapsed() < BETWEEN_SAMPLES {
            return;
        }
        self.taken = Instant::now();
        self.add(player);
    }

    pub(super) fn add(&mut self, player: &Player) {
        if self.samples.len() == MOST_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample::of(player));
    }

    /// The timeouts that were pending at the last moments, the latest in front.
    pub(super) fn pending(&self) -> impl Iterator<Item = u64> {
        self.samples.iter().rev().map(|sample| sample.pending)
    }

    /// Says what happened of late, per second of the trace.
    pub(super) fn rates(&self) -> String {
        let from = self.samples.len().saturating_sub(SAMPLES_PER_RATE + 1);
        let Some((first, last)) = self.samples.get(from).zip(self.samples.back()) else {
            return String::new();
        };
        let seconds = (last.at_ns - first.at_ns) / 1e9;
        let rate = |count: fn(&Sample) -> u64| {
            let number = (count(last) - count(first)) as f64;
            HumanFloatCount(units::three_digits(number / seconds.max(1e-3)))
        };
        format!(
            "per second: {} scheduled, {} moved, {} cancelled, {} fired",
            rate(|sample| sample.counts.scheduled),
            rate(|sample| sample.counts.rescheduled),
            rate(|sample| sample.counts.cancelled),
            rate(|sample| sample.fired),
        )
    }
}

/// Says how late timeouts fire by the tick, and how many operations came too late for theirs.
pub(super) fn lateness(player: &Player) -> String {
    let counts = player.planner.counts;
    format!(
        "late by the tick: mean {}, most {}; too late: {}, {}",
        units::time(player.lateness.mean()),
        units::time(player.lateness.most()),
        units::count(counts.late_cancels, "cancel"),
        units::count(counts.late_reschedules, "move"),
    )
}

impl Sample {
    fn of(player: &Player) -> Self {
        let wheel = player.wheels.first();
        Self {
            at_ns: player.now_ns(),
            counts: player.planner.counts,
            fired: wheel.map_or(0, |wheel| wheel.see().fired),
            pending: wheel.map_or(0, |wheel| wheel.wheel().len() as u64),
        }
    }
}

const BETWEEN_SAMPLES: Duration = Duration::from_millis(250);

/// A rate is that of three seconds: a recorder writes once a second.
const SAMPLES_PER_RATE: usize = 12;

const MOST_SAMPLES: usize = 1000;
