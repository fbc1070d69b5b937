//! Cron expressions in time zones.

use crate::bytes::Bytes;
use std::time::{Duration, SystemTime};
use tickwheel::MissedTick;
use tickwheel_durable::{Error, Recurring};

/// Reads a present time, then a line with a time zone and one with a cron expression. What is
/// accepted is due after the present, each time later.
pub fn recurring(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let now = bytes.duration();
    let before = bytes.byte() & 1 == 1;
    let text = String::from_utf8_lossy(bytes.rest());
    let (zone, expression) = text.split_once('\n').unwrap_or(("UTC", &text));
    let now = if before {
        SystemTime::UNIX_EPOCH.checked_sub(now)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(now)
    };
    let Some(now) = now else { return };
    let recurring = match Recurring::cron(expression, zone) {
        Ok(recurring) => recurring,
        Err(Error::Cron { what, why }) => {
            assert!((what == expression || what == zone) && !why.is_empty());
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let mut due = now;
    for _ in 0..RUNS {
        let Some(next) = recurring.next(due, due) else { break };
        assert!(due < next, "{next:?} is not after {due:?}");
        due = next;
    }
    let late = due + Duration::from_nanos(1);
    for missed in [MissedTick::Skip, MissedTick::Delay, MissedTick::Burst] {
        let from = if missed == MissedTick::Burst { now } else { late };
        let next = recurring.clone().missed(missed).next(now, late);
        assert_eq!(next, recurring.first(from), "{missed:?}");
    }
}

const RUNS: usize = 20;
