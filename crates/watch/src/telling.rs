//! Says in a sentence what happened.

use super::player::{Applied, Change, Event, Player};
use indicatif::HumanCount;
use tickwheel::WheelStats;
use tickwheel_cli::trace::Action;
use tickwheel_cli::units;

/// Says what an event was, in each wheel.
pub(super) fn event(event: &Event, player: &Player) -> String {
    match event.operation {
        Some(Applied { operation, found, place }) => {
            let key = operation.key;
            let delay = |delay_ms| units::milliseconds(delay_ms);
            match operation.action {
                Action::Cancel if found => format!("Timeout {key} is cancelled."),
                Action::Cancel => format!("Timeout {key} is to be cancelled, but it is gone."),
                Action::Schedule { delay_ms } => format!(
                    "Timeout {key} is scheduled for {} from now{}.{}",
                    delay(delay_ms),
                    places(place, player),
                    put_back(event),
                ),
                Action::Reschedule { delay_ms } => format!(
                    "Timeout {key} is moved to {} from now{}.{}",
                    delay(delay_ms),
                    places(place, player),
                    put_back(event),
                ),
            }
        }
        None => {
            let changes = event.changes.iter();
            let told: Vec<_> = changes.filter_map(|change| change.told(event.tick)).collect();
            told.join(" ")
        }
    }
}

/// An operation in a line.
pub(super) fn line(applied: &Applied) -> String {
    let Applied { operation, found, .. } = *applied;
    let (act, delay_ms) = match operation.action {
        Action::Schedule { delay_ms } => ("schedule", Some(delay_ms)),
        Action::Reschedule { delay_ms } => ("move", Some(delay_ms)),
        Action::Cancel => ("cancel", None),
    };
    let delay = delay_ms.map_or_else(String::new, |ms| format!("in {}", units::milliseconds(ms)));
    let gone = if !found && act != "schedule" { "too late" } else { "" };
    format!("{act:8} {} {delay}{gone}", operation.key)
}

/// Says where a timeout was put.
fn places(place: u32, player: &Player) -> String {
    let places = player.wheels.iter().map(|wheel| match wheel.place(place) {
        None if on_levels(&wheel.see().stats) == 0 => {
            format!("{} has all in one array", wheel.mode())
        }
        None => format!("{} sorts it among those that come next", wheel.mode()),
        Some((_, bucket, 0)) if wheel.mode().is_hashed() => {
            format!("bucket {bucket} of {}, for this round", wheel.mode())
        }
        Some((_, bucket, rounds)) if wheel.mode().is_hashed() => {
            format!("bucket {bucket} of {}, after {}", wheel.mode(), units::count(rounds, "round"))
        }
        Some((level, bucket, _)) => {
            format!("bucket {bucket} of level {level} of {}", wheel.mode())
        }
    });
    places.fold(String::new(), |told, place| format!("{told}{} {place}", mark(&told)))
}

fn mark(told: &str) -> &'static str {
    if told.is_empty() { ":" } else { ";" }
}

fn on_levels(stats: &WheelStats) -> usize {
    stats.timeouts_per_level.iter().sum()
}

/// Says that sorted timeouts went back into buckets, or few into buckets for the first time.
fn put_back(event: &Event) -> String {
    let back = event.changes.iter().find_map(|change| {
        let (before, after) = (&change.before.stats, &change.after.stats);
        let sorted = before.sorted.checked_sub(after.sorted)?;
        // A sweep drops stale ones, and puts none into a bucket.
        let is_back = 1 < sorted && on_levels(before) + 1 < on_levels(after);
        is_back.then(|| {
            let (mode, sorted) = (change.mode, HumanCount(sorted as u64));
            match on_levels(before) {
                0 => format!(" They are many now: {mode} puts {sorted} into buckets."),
                _ => {
                    format!(" It comes before many of the sorted, so {mode} puts {sorted} back.")
                }
            }
        })
    });
    back.unwrap_or_default()
}

impl Change {
    pub(super) fn fired(&self) -> u64 {
        self.after.fired - self.before.fired
    }

    pub(super) fn demoted(&self) -> u64 {
        self.after.stats.demotions - self.before.stats.demotions
    }

    pub(super) fn waited(&self) -> u64 {
        self.after.stats.rounds_waited - self.before.stats.rounds_waited
    }

    /// Says what the wheel did when it woke up; None if it did not.
    fn told(&self, tick: u64) -> Option<String> {
        let (before, after) = (&self.before.stats, &self.after.stats);
        let mut acts = Vec::new();
        // The coarsest level that lost something is that of the bucket that came up.
        let pairs = before.timeouts_per_level.iter().zip(&after.timeouts_per_level);
        let level = pairs.clone().rposition(|(before, after)| after < before);
        if let Some(level) = level.filter(|&level| 0 < level) {
            let bits = level as u32 * self.mode.buckets().trailing_zeros();
            let bucket = (tick >> bits) as usize % self.mode.buckets();
            let left = before.timeouts_per_level[level] - after.timeouts_per_level[level];
            let fate = match self.demoted() {
                0 => "are few enough to be sorted at once",
                _ => "are demoted",
            };
            let left = HumanCount(left as u64);
            let stale = if 0 < before.stale { ", cancelled ones included," } else { "" };
            acts.push(format!(
                "the cursor comes to bucket {bucket} of level {level}, whose {left} entries{stale} \
                 {fate}"
            ));
        }
        match self.fired() {
            0 => {}
            1 => acts.push("1 timeout fires".into()),
            fired => acts.push(format!("{} timeouts fire", HumanCount(fired))),
        }
        if 0 < self.waited() {
            let bucket = tick as usize % self.mode.buckets();
            let waited = HumanCount(self.waited());
            acts.push(format!("{waited} in bucket {bucket} wait for a later round"));
        }
        if acts.is_empty() {
            let has_looked = before.buckets_visited < after.buckets_visited;
            let is_awake = has_looked || before.stale != after.stale;
            let vain = "it wakes in vain, because what was due was cancelled or moved";
            return is_awake.then(|| format!("{}: {vain}.", self.mode));
        }
        Some(format!("{}: {}.", self.mode, acts.join("; ")))
    }
}
