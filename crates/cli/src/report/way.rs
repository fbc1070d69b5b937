//! The way of a timeout through a wheel: its levels, or its rounds.

use crate::chart::Way;
use crate::tick::Tick;
use crate::units;
use tickwheel::Mode;

/// Returns the way of a timeout that is scheduled at tick `now` and due `delay_ms` later, as far as
/// nothing moves or cancels it and no few timeouts are sorted at once.
pub(super) fn way(mode: Mode, tick: Tick, now: u64, delay_ms: u64) -> Way {
    let delay = tick.deadline(delay_ms);
    let deadline = now.saturating_add(delay);
    let time = |ticks: u64| units::duration(ticks as f64 * tick.length().as_nanos() as f64);
    let (boxes, text) = match mode.is_hashed() {
        true => {
            let buckets = mode.buckets() as u64;
            let rounds = delay.saturating_sub(1) / buckets;
            let round =
                |number: u64| (0, format!("round {}", units::number(number)), time(buckets));
            let mut steps: Vec<_> = match rounds {
                0..=3 => (1..=rounds).map(round).collect(),
                _ => vec![round(1), (0, "...".into(), String::new()), round(rounds)],
            };
            steps.push((0, "then".into(), time(delay - rounds * buckets)));
            (steps, units::count(rounds, "round"))
        }
        false => {
            let mut steps: Vec<_> = levels(mode, now, deadline)
                .map(|(level, ticks)| (level, format!("level {level}"), time(ticks)))
                .collect();
            let moves = steps.len().saturating_sub(1);
            if MOST_BOXES < steps.len() {
                // Leaves out the middle.
                let middle = MOST_BOXES - 3..steps.len() - 2;
                steps.splice(middle, [(0, "...".into(), String::new())]);
            }
            (steps, units::count(moves as u64, "move"))
        }
    };
    Way { label: format!("{} in {mode}", units::milliseconds(delay_ms)), text, boxes }
}

/// The levels on which a timeout waits, the coarsest first, with the ticks on each.
fn levels(mode: Mode, now: u64, deadline: u64) -> impl Iterator<Item = (usize, u64)> {
    let bits = mode.buckets().trailing_zeros().max(1);
    let mut at = now;
    std::iter::from_fn(move || {
        let level = (at ^ deadline).checked_ilog2()? / bits;
        // The beginning of its bucket on this level.
        let next = deadline >> (level * bits) << (level * bits);
        let waits = next - at;
        at = next;
        Some((level as usize, waits))
    })
}

/// As many boxes with text have room beside each other.
const MOST_BOXES: usize = 5;
