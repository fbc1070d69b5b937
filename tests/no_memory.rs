//! Room that cannot be had, under an allocator that fails beyond a limit: `reserve` makes less of
//! it, or none, at each step of it that can fail, and the timeouts stay.
//!
//! Alone in its file, because nobody else gets memory meanwhile.

use cap::Cap;
use std::alloc::System;
use std::iter::successors;
use tickwheel::{Mode, Wheel, WheelMap};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Runs `reserve` with each limit at which one more of its steps fails, and with those at which the
/// step before has taken all there was.
fn with_limits<W>(made: impl Fn() -> W, reserve: impl Fn(&mut W), check: impl Fn(W)) {
    let reserved = |bytes: usize| {
        let mut made = made();
        let before = ALLOCATOR.allocated();
        ALLOCATOR.set_limit(before + bytes.max(LEAST)).expect("more than is allocated");
        reserve(&mut made);
        ALLOCATOR.set_limit(usize::MAX).expect("it is no limit");
        let grown = ALLOCATOR.allocated().saturating_sub(before);
        check(made);
        grown
    };
    let all = reserved(usize::MAX / 2);
    let steps = successors(Some(all), |&taken| (LEAST < taken).then(|| reserved(taken - 1)));
    let steps = steps.inspect(|&taken| _ = reserved(taken)).count();
    assert!(3 <= steps, "they fail one by one: {steps}");
}

#[test]
fn room_that_an_allocator_refuses_is_not_made_and_nothing_is_lost() {
    for mode in ["hierarchical", "hashed:512"].map(|mode| mode.parse::<Mode>().expect("a mode")) {
        // Few; one group of slots, and one more; arrays that move; many, of which most have left.
        for (pending, left) in [(0, 0), (3, 3), (64, 64), (65, 65), (8_250, 8_250), (9_900, 100)] {
            let deadline = |number: u64| number.wrapping_mul(0x9E37_79B9) % 1_000_000;
            let due = || (0..left).map(|number| (deadline(number), number));
            let sorted = |mut list: Vec<_>| {
                list.sort_unstable();
                list
            };
            let wheel = || {
                let mut wheel = Wheel::<u64>::new(mode);
                let keys = (0..pending).map(|number| wheel.schedule(deadline(number), number));
                let keys: Vec<_> = keys.collect();
                keys.into_iter().skip(left as usize).for_each(|key| _ = wheel.cancel(key));
                wheel
            };
            let check = |mut wheel: Wheel<u64>| {
                wheel.check();
                (0..1_000).for_each(|_| _ = wheel.schedule(2_000_000, u64::MAX));
                wheel.check();
                let mut came = Vec::new();
                while let Some(expired) = wheel.expire(1_000_000) {
                    came.push((expired.deadline, expired.value));
                }
                assert!(came.is_sorted_by_key(|&(deadline, _)| deadline), "{mode}");
                assert_eq!(sorted(came), sorted(due().collect()), "{mode}, {left} of {pending}");
                assert_eq!(wheel.len(), 1_000);
            };
            with_limits(wheel, |wheel| wheel.reserve(50_000), check);
            let map = || {
                let mut map = WheelMap::new(mode);
                due().for_each(|(deadline, number)| _ = map.insert(number, number, deadline));
                map
            };
            let check = |mut map: WheelMap<u64, u64>| {
                map.check();
                due().for_each(|(_, number)| assert_eq!(map.remove(&number), Some(number)));
                map.check();
            };
            with_limits(map, |map| map.reserve(50_000), check);
        }
    }
}

/// Bytes that there always are. With less, no timeout could be scheduled either.
const LEAST: usize = 512;
