//! The texts of modes and ticks.

use allocation_counter::measure;
use std::str::FromStr;
use tickwheel::{Mode, ModeError, Wheel};
use tickwheel_cli::tick::Tick;

/// Parses text as a mode and as a tick. What is accepted prints as it parses, and a wheel of the
/// mode works.
pub fn mode(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match Mode::from_str(&text) {
        Ok(mode) => {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            works(mode);
        }
        Err(ModeError::Buckets { requested, least }) => {
            assert!(text.contains(':'), "{text:?} asks for {requested}, at least {least}");
        }
        Err(error) => assert!(error.to_string().contains(&format!("{text:?}"))),
    }
    match Tick::from_str(&text) {
        Ok(tick) => {
            assert_eq!(Tick::new(tick.length()), Ok(tick));
            assert!(!tick.to_string().is_empty());
            assert!(tick.present(MS) <= tick.deadline(MS), "the present rounds down");
        }
        Err(error) => assert!(!error.is_empty()),
    }
}

/// Panics unless timeouts at all distances come in order, in a wheel that takes little memory.
fn works(mode: Mode) {
    let mut wheel = Wheel::new(mode);
    let measured = measure(|| {
        for number in 0..TIMEOUTS {
            wheel.schedule(number << (number % 60), number);
        }
    });
    let most = TIMEOUTS * MOST_BYTES;
    assert!(measured.bytes_max <= most, "{mode} takes {} bytes", measured.bytes_max);
    let mut wanted: Vec<_> =
        (0..TIMEOUTS).map(|number| (number << (number % 60), number)).collect();
    wanted.sort_unstable();
    for wanted in wanted {
        assert_eq!(wheel.next_deadline(), Some(wanted.0));
        if let Some(before) = wanted.0.checked_sub(1).filter(|&before| wheel.now() <= before) {
            assert!(wheel.expire(before).is_none(), "none is early");
        }
        let due = wheel.expire(wanted.0).expect("it is due");
        assert_eq!((due.deadline, due.value), wanted);
    }
    assert!(wheel.is_empty());
    wheel.check();
}

/// More than a wheel holds without buckets.
const TIMEOUTS: u64 = 200;
/// A timeout may need a row of buckets, and the nodes above it.
const MOST_BYTES: u64 = 4_096;
/// A moment of a trace.
const MS: u64 = 123_456_789;
