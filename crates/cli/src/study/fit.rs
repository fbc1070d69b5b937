//! Whether a trace says enough about the program that it was recorded from.

use super::delays::Delays;
use super::plan::{Kind, Plan};
use crate::trace::Gaps;
use crate::units;
use std::fmt;

/// Why a trace cannot tell configurations apart.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unfit {
    /// It has few operations.
    Few {
        /// How many.
        operations: u64,
        /// Whether the trace has no others.
        is_whole: bool,
    },
    /// It ends while the number of pending timeouts still grows.
    Short {
        /// The time from the first operation to the last, or to the end of the recording, in ms.
        span_ms: u64,
        /// Most delays are not longer, in ms.
        delay_ms: u64,
        /// The share of all timeouts that are pending at its end, in percent.
        percent: u64,
        /// How many operations were read, if the trace has others.
        cut: Option<u64>,
    },
    /// The recorder could not write all operations.
    Lossy {
        /// How many are missing.
        missing: u64,
        /// How many are there.
        operations: u64,
    },
}

/// Returns all reasons against the trace of `plan`, and the number of timeouts that are pending at
/// its end, if this number still grows.
///
/// A wheel under the trace handles the ends of these timeouts after the trace, when nothing is
/// scheduled any more. If such ends are few beside the operations, the trace has most of what the
/// program does, even if it is shorter than every delay.
pub(super) fn look(
    plan: &Plan,
    span_ms: u64,
    delays: &Delays,
    gaps: Gaps,
    is_whole: bool,
) -> (Vec<Unfit>, Option<u64>) {
    let operations = plan.counts.operations();
    let mut found = Vec::new();
    if operations < FEWEST_OPERATIONS {
        found.push(Unfit::Few { operations, is_whole });
    }
    if operations < gaps.missing.saturating_mul(MOST_MISSING) {
        found.push(Unfit::Lossy { missing: gaps.missing, operations });
    }
    let Some((first, last)) = plan.calls.first().zip(plan.calls.last()) else {
        return (found, None);
    };
    let calls = plan.calls.len();
    let before = match first.now + (last.now - first.now) / 4 * 3 {
        tick if first.now < tick => {
            pending(plan, plan.calls.partition_point(|call| call.now <= tick), tick)
        }
        // In so few ticks, the order of the calls is all the time there is.
        _ => {
            let most = calls - calls / 4;
            pending(plan, most, plan.calls[most - 1].now)
        }
    };
    let at_end = pending(plan, calls, plan.end.unwrap_or(last.now));
    let is_growing = before * MOST_GROWTH.1 < at_end * MOST_GROWTH.0;
    let timeouts = plan.counts.timeouts();
    if FEWEST_OPERATIONS <= operations && operations < at_end * MOST_PENDING && is_growing {
        let delay_ms = delays.quantile(0.9).unwrap_or(0);
        let percent = at_end * 100 / timeouts.max(1);
        found.push(Unfit::Short {
            span_ms,
            delay_ms,
            percent,
            cut: (!is_whole).then_some(operations),
        });
    }
    (found, (is_growing && timeouts < at_end * MOST_PENDING).then_some(at_end))
}

/// Returns the number of timeouts that are pending at `tick`, after so many calls.
fn pending(plan: &Plan, calls: usize, tick: u64) -> u64 {
    let mut deadlines = vec![None; plan.places];
    for call in &plan.calls[..calls] {
        match call.kind {
            Kind::Schedule | Kind::Reschedule => {
                deadlines[call.place as usize] = Some(call.deadline);
            }
            Kind::Cancel => deadlines[call.place as usize] = None,
            Kind::Nothing => {}
        }
    }
    deadlines.into_iter().flatten().filter(|&deadline| tick < deadline).count() as u64
}

impl Unfit {
    /// What is wrong, in a few words.
    pub(super) fn name(&self) -> String {
        match *self {
            Self::Few { operations, is_whole: true } => {
                format!("the trace has only {}", units::count(operations, "operation"))
            }
            Self::Few { operations, .. } => {
                format!("only {} read", units::were(operations, "operation"))
            }
            Self::Short { cut: None, .. } => "the trace is too short for its delays".into(),
            Self::Short { cut: Some(operations), .. } => format!(
                "the first {} of the trace are too few for its delays",
                units::count(operations, "operation")
            ),
            Self::Lossy { .. } => "the trace has lost too many operations".into(),
        }
    }

    /// What the figures are, and what to record instead.
    pub(super) fn advice(&self) -> String {
        let fewest = units::number(FEWEST_OPERATIONS);
        match *self {
            Self::Few { is_whole, .. } => {
                let more = if is_whole { "Record" } else { "`--operations` reads more:" };
                format!("{more} at least {fewest}, and better a million")
            }
            Self::Short { span_ms, delay_ms, percent, cut } => {
                let [its, end, lasts] = match cut {
                    None => ["its", "its end", "It lasts"],
                    Some(_) => ["their", "their end", "They last"],
                };
                let longer = delay_ms.saturating_mul(2).max(span_ms.saturating_mul(4));
                let more = match cut {
                    Some(_) => "`--operations` reads more".into(),
                    None => format!(
                        "Record until as many timeouts end as begin, {} or longer",
                        units::milliseconds(longer)
                    ),
                };
                format!(
                    "{percent} % of {its} timeouts are pending at {end}, and their number still \
                     grows. {lasts} {}, and most delays are up to {}. {more}",
                    units::milliseconds(span_ms),
                    units::milliseconds(delay_ms),
                )
            }
            Self::Lossy { missing, operations } => format!(
                "{} missing, beside {} that {} there. Record to a faster disk, or with more room \
                 for the recorder",
                units::are(missing, "operation"),
                units::number(operations),
                if operations == 1 { "is" } else { "are" },
            ),
        }
    }
}

/// What is wrong, and what to record instead.
impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.name(), self.advice())
    }
}

/// With fewer, costs are those of a wheel that begins.
const FEWEST_OPERATIONS: u64 = 1000;

/// One operation in so many may be missing.
const MOST_MISSING: u64 = 100;

/// One timeout for so many operations may be pending at the end, if their number still grows; and
/// one for so many timeouts without a word about it.
const MOST_PENDING: u64 = 4;

/// In the last quarter of the trace, the number of pending timeouts may grow by this factor.
const MOST_GROWTH: (u64, u64) = (9, 10);
