//! What a wheel can be made of.

use crate::checked::Checked;
use crate::common::long;
use crate::stamps::modes;
use tickwheel::{Mode, ModeError, Wheel};

in_each_mode! {
    a_new_wheel_is_empty_and_at_tick_zero,
    room_made_beforehand_changes_nothing,
}

fn a_new_wheel_is_empty_and_at_tick_zero(mode: Mode) {
    let wheel = Checked::<u64>::of_few(mode);
    assert_eq!((wheel.mode(), wheel.now(), wheel.len()), (mode, 0, 0));
    assert!(wheel.is_empty());
    let stats = wheel.stats();
    assert_eq!(stats.timeouts_per_level, vec![0; mode.levels()]);
    assert_eq!((stats.buckets_visited, stats.demotions, stats.rounds_waited), (0, 0, 0));
    assert_eq!(stats.memory, 0);
}

fn room_made_beforehand_changes_nothing(mode: Mode) {
    let mut roomy = Wheel::with_capacity(mode, 2000);
    let mut bare = Wheel::new(mode);
    for value in 0..1000 {
        assert_eq!(roomy.schedule(value * 3, value), bare.schedule(value * 3, value));
    }
    while let Some(expired) = roomy.expire(5000) {
        assert_eq!(bare.expire(5000), Some(expired));
    }
    assert_eq!(bare.expire(5000), None);
    roomy.check();
}

#[test]
fn too_few_or_too_many_buckets_are_an_error() {
    const MOST: usize = 1 << 30;
    let error = |requested, least| Err(ModeError::Buckets { requested, least });
    assert_eq!(Mode::hashed(0), error(0, 1));
    assert_eq!(Mode::hierarchical_with(0), error(0, 2));
    assert_eq!(Mode::hierarchical_with(1), error(1, 2));
    for requested in [MOST + 1, usize::MAX] {
        assert_eq!(Mode::hashed(requested), error(requested, 1));
        assert_eq!(Mode::hierarchical_with(requested), error(requested, 2));
    }
}

#[test]
fn a_number_of_buckets_is_rounded_up_to_a_power_of_two() {
    for (requested, buckets) in [(2, 2), (3, 4), (100, 128), (513, 1024), (1 << 30, 1 << 30)] {
        assert_eq!(Mode::hashed(requested).map(|mode| mode.buckets()), Ok(buckets));
        assert_eq!(Mode::hierarchical_with(requested).map(|mode| mode.buckets()), Ok(buckets));
    }
}

#[test]
fn text_that_names_no_mode_is_an_error() {
    for text in ["", "hashed", "hashed:", "hashed:-1", "hashed:x", "calendar:8", "hierarchical:64:"]
    {
        assert_eq!(text.parse::<Mode>(), Err(ModeError::Syntax { text: text.into() }));
    }
    assert!(matches!("hashed:0".parse::<Mode>(), Err(ModeError::Buckets { .. })));
    for mode in modes() {
        assert_eq!(mode.to_string().parse(), Ok(mode));
        assert_eq!(format!("{mode:?}"), format!("Mode({mode})"));
    }
    assert_eq!("hierarchical".parse(), Ok(Mode::hierarchical()));
}

#[test]
fn what_is_no_mode_is_told_with_what_would_be() {
    let told = |text: &str| text.parse::<Mode>().expect_err("it is no mode").to_string();
    assert_eq!(told("hierarchical:1"), "1 buckets asked for: expected 2 to 1073741824");
    let syntax = "\"calendar\" is no mode: expected `hierarchical`, `hierarchical:BUCKETS` or \
                  `hashed:BUCKETS`, with a number of buckets up to 1073741824";
    assert_eq!(told("calendar"), syntax);
}

#[test]
fn the_default_is_hierarchical_of_64() {
    assert_eq!(Wheel::<()>::default().mode().to_string(), "hierarchical:64");
    assert_eq!(Mode::default(), Mode::hierarchical());
}

/// Every size there is, as far as it can be reached: one timeout at every power of two.
#[test]
fn any_number_of_buckets_does() {
    let sizes = (0..=30).step_by(long(5, 1)).map(|bits| 1 << bits);
    let hashed = sizes.clone().map(Mode::hashed);
    let hierarchical = sizes.skip(1).map(Mode::hierarchical_with);
    for mode in hashed.chain(hierarchical) {
        let mut wheel = Wheel::new(mode.expect("it is in range"));
        for bit in 0..64_u64 {
            wheel.schedule(1 << bit, bit);
        }
        wheel.check();
        for bit in 0..64 {
            if 1 < bit {
                assert!(wheel.expire((1 << bit) - 1).is_none());
            }
            assert_eq!(wheel.next_deadline(), Some(1 << bit));
            assert_eq!(wheel.expire(1 << bit).map(|expired| expired.value), Some(bit));
            wheel.check();
        }
        assert!(wheel.is_empty());
    }
}
