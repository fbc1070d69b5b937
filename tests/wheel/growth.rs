//! No call costs more after a history than after the same one with a tenth of the timeouts.

use crate::common::{Numbers, long, under_ci};
use allocation_counter::measure;
use std::collections::BTreeMap;
use tickwheel::{Wheel, steps};

/// For each operation, the most that one call took: steps, and bytes moved to a larger array.
#[derive(Default)]
struct Dearest(BTreeMap<&'static str, [u64; 2]>);

impl Dearest {
    fn call<R>(&mut self, name: &'static str, call: impl FnOnce() -> R) -> R {
        let before = steps();
        let mut result = None;
        let measured = measure(|| result = Some(call()));
        // The allocator of these tests moves an array that it makes larger or smaller. An array
        // that grows in steps is made smaller, which other allocators do in place.
        let freed = measured.bytes_total.wrapping_sub(measured.bytes_current as u64);
        let moved = if 0 < measured.bytes_current { freed } else { 0 };
        let dearest = self.0.entry(name).or_default();
        *dearest = [dearest[0].max(steps() - before), dearest[1].max(moved)];
        result.expect("it was called")
    }
}

type History = fn(&mut Wheel<u64>, &mut Dearest, u64);

#[track_caller]
fn assert_no_call_goes_by_what_there_is(modes: &[&str], few: u64, history: History) {
    for mode in modes {
        let [small, large] = [few, 10 * few].map(|peak| {
            let mut dearest = Dearest::default();
            history(&mut Wheel::new(mode.parse().expect("a mode")), &mut dearest, peak);
            dearest.0
        });
        for (name, [steps, moved]) in &large {
            let [few_steps, few_moved] = small[name];
            assert!(*steps <= few_steps + STEPS, "{mode}, {name}: {few_steps} to {steps} steps");
            assert!(*moved <= few_moved + MOVED, "{mode}, {name}: {few_moved} to {moved} bytes");
        }
    }
}

/// Asks in small pieces for what is due, until some were handed out.
fn hand_out_some(wheel: &mut Wheel<u64>, dearest: &mut Dearest, now: u64) {
    let mut left = wheel.len().min(1_000);
    while 0 < left {
        let expired = dearest.call("expire_bounded", || wheel.expire_bounded(now, &mut 1));
        left -= usize::from(expired.is_some());
    }
}

#[test]
fn no_call_looks_at_all_chunks_of_a_bucket() {
    let modes = ["hashed:1", "hierarchical:64"];
    assert_no_call_goes_by_what_there_is(&modes, FEW, |wheel, dearest, peak| {
        for number in 0..peak {
            wheel.schedule(FAR, number);
        }
        hand_out_some(wheel, dearest, FAR);
    });
    assert_no_call_goes_by_what_there_is(&modes, FEW, |wheel, dearest, peak| {
        for number in 0..peak {
            wheel.schedule(FAR + ((number / 512 % 2) << 40), number);
        }
        hand_out_some(wheel, dearest, FAR);
    });
}

#[test]
fn no_call_passes_all_runs_that_a_sweep_has_emptied() {
    assert_no_call_goes_by_what_there_is(
        &["hashed:8"],
        long(40_000, 160_000),
        |wheel, dearest, peak| {
            let deadline = |number| 1_000 + (number * 7_919 + 8 * peak - 1) % (8 * peak);
            let mut keys: Vec<_> = (0..peak)
                .map(|number| (deadline(number), wheel.schedule(deadline(number), number)))
                .collect();
            while wheel.expire_bounded(FAR, &mut 1).is_none() {}
            // Those that come next are sorted, and stay. So does the last. The others go bucket by
            // bucket, as they were gathered, and a sweep empties nearly all runs.
            keys.sort_by_key(|&(deadline, _)| deadline % 8);
            for (deadline, key) in keys {
                if (5_000..999 + 8 * peak).contains(&deadline) {
                    dearest.call("cancel", || wheel.cancel(key));
                }
            }
            hand_out_some(wheel, dearest, FAR);
        },
    );
}

/// All that comes next is stale, and the runs behind it are empty, but for the last.
#[test]
fn behind_runs_that_a_sweep_has_emptied_the_last_is_found() {
    const LAST: u64 = 40_000;
    for shrinks in [false, true] {
        let mut wheel = Wheel::new("hashed:8".parse().expect("a mode"));
        let mut keys: Vec<_> = (1..=LAST).map(|tick| wheel.schedule(tick, tick)).collect();
        keys.pop();
        while wheel.expire_bounded(FAR, &mut 1).is_none() {}
        for key in keys.into_iter().rev() {
            wheel.cancel(key);
        }
        if shrinks {
            wheel.shrink_to_fit();
        }
        wheel.check();
        assert_eq!(wheel.next_deadline(), Some(LAST));
        assert_eq!(wheel.expire(FAR).map(|expired| expired.value), Some(LAST));
    }
}

#[test]
fn no_call_moves_what_there_is() {
    let modes = ["hashed:1048576", "hierarchical:1048576", "hashed:512", "hierarchical:64"];
    let modes = under_ci(&modes[..1], long(&modes[..2], &modes[..]));
    assert_no_call_goes_by_what_there_is(modes, under_ci(9_000, FEW), |wheel, dearest, peak| {
        let mut numbers = Numbers(23);
        let mut tick = || 1 + numbers.below(1 << 20);
        let keys: Vec<_> = (0..peak)
            .map(|number| dearest.call("schedule", || wheel.schedule(tick(), number)))
            .collect();
        for (at, &key) in keys.iter().enumerate() {
            match at % 3 {
                0 => _ = dearest.call("cancel", || wheel.cancel(key)),
                1 => _ = dearest.call("reschedule", || wheel.reschedule(key, tick())),
                _ => _ = dearest.call("schedule", || wheel.schedule(tick(), 0)),
            }
        }
    });
}

const FAR: u64 = 1 << 45;
/// The timeouts of the smaller history: several pieces of whatever is taken apart in pieces.
const FEW: u64 = 16_000;
/// Steps and bytes by which the dearest call may differ: two arrays may grow at once, or one may be
/// given back as another is laid out.
const STEPS: u64 = 100;
const MOVED: u64 = 1 << 20;
