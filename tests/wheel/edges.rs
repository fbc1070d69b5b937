//! Costs that no history makes dearer, counted in steps; and what was found where two rare things
//! meet.

use crate::checked::Checked;
use crate::common::{SameHashes, long, under_ci};
use crate::zoo::values::{Herd, Odd};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use tickwheel::{Mode, Wheel, WheelMap, steps};

in_each_mode! {
    the_next_deadline_is_known_while_the_earliest_is_pending,
    cancelling_the_earliest_and_asking_does_not_look_at_all,
    the_next_deadline_is_found_in_short_steps,
    no_ask_looks_at_more_than_its_work_and_one_step,
    a_range_does_not_go_to_ticks_of_what_was_cancelled,
    scheduled_for_now_after_a_jump_it_comes_last,
    a_key_that_panics_in_its_drop_takes_the_value_along,
}

/// The steps that a call takes.
fn taken(work: impl FnOnce()) -> u64 {
    let before = steps();
    work();
    steps() - before
}

/// In one bucket of a hierarchical wheel.
fn far(number: u64) -> u64 {
    (1 << 40) + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1 << 30)
}

fn filled(mode: Mode, many: u64) -> Wheel<u64> {
    let mut wheel = Wheel::new(mode);
    (0..many).for_each(|number| _ = wheel.schedule(far(number), number));
    wheel
}

/// Whatever is scheduled, moved and cancelled beside it, and at whatever tick before it one asks
/// for what is due.
fn the_next_deadline_is_known_while_the_earliest_is_pending(mode: Mode) {
    let mut wheel = Wheel::new(mode);
    let mut pending: Vec<_> = (0..MANY).map(|at| (far(at), wheel.schedule(far(at), at))).collect();
    pending.sort_unstable();
    let (mut earliest, key) = pending[0];
    let mut first = key;
    assert_eq!(wheel.next_deadline(), Some(earliest));
    let mut others = pending.split_off(1).into_iter();
    for number in MANY..2 * MANY {
        let tick = far(number);
        let mut other = None;
        match number % 4 {
            0 => other = Some(wheel.schedule(tick, number)),
            1 => {
                other = others.next().map(|(_, key)| key);
                assert!(other.is_some_and(|key| wheel.reschedule(key, tick)));
            }
            2 => {
                let last = others.next_back().filter(|&(_, key)| key != first);
                assert!(last.is_none_or(|(_, key)| wheel.cancel(key).is_some()));
            }
            _ => assert!(wheel.expire((number - MANY) << 25).is_none()),
        }
        if let Some(key) = other.filter(|_| tick < earliest) {
            (earliest, first) = (tick, key);
        }
        let mut next = None;
        assert!(taken(|| next = wheel.next_deadline()) <= 4, "it is known");
        assert_eq!(next, Some(earliest));
    }
    wheel.check();
}

fn cancelling_the_earliest_and_asking_does_not_look_at_all(mode: Mode) {
    // Some leave hundreds in each bucket of a hashed wheel, in one chunk.
    for &many in long(&[MANY, 1 << 16][..], &[MANY, 1 << 16, 1 << 18, 1 << 20]) {
        let mut wheel = filled(mode, many);
        assert!(wheel.next_deadline().is_some());
        let all = taken(|| {
            for number in 0..TURNS {
                let (key, ..) = wheel.peek().expect("many are pending");
                assert!(wheel.cancel(key).is_some());
                wheel.schedule(far(many + number), number);
            }
        });
        // Each entry is looked at once, whatever the number of turns.
        let again = all.saturating_sub(many);
        println!("{mode}, {many}: {} more steps per cancel and ask", again / TURNS);
        assert!(again <= TURNS * BLOCKS, "{again} steps");
        wheel.check();
    }
}

/// As above, where a bucket holds few.
#[test]
fn in_many_buckets_neither() {
    cancelling_the_earliest_and_asking_does_not_look_at_all(Mode::hashed(1 << 16).expect("a mode"));
}

fn the_next_deadline_is_found_in_short_steps(mode: Mode) {
    let mut wheel = filled(mode, MANY);
    let earliest = wheel.iter().map(|(_, deadline, _)| deadline).min();
    let key = wheel.schedule(5, 0);
    wheel.cancel(key);
    let mut found = None;
    let mut calls = 0;
    while found.is_none() {
        let mut work = 1;
        let steps = taken(|| found = wheel.next_deadline_bounded(&mut work));
        assert!(steps <= LAST_LOOK, "{steps} steps");
        assert!(found.is_some() || work == 0, "it is not over");
        calls += 1;
        assert!(calls <= MANY, "each step gets on");
    }
    assert_eq!(found, earliest);
}

/// Where blocks, pieces and whole buckets are stale, some of them not looked at before.
fn no_ask_looks_at_more_than_its_work_and_one_step(mode: Mode) {
    // In one bucket, or in as many as there are.
    for (many, span) in [(1_000, 1 << 16), (4_000, 1 << 16), (20_000, 1)] {
        let tick = |number| (1 << 45) + span * (far(number) % (1 << 20));
        for (work, left) in [(1, 3), (400, 5)] {
            let mut wheel = Wheel::with_capacity(mode, 2_000);
            let mut keys = Vec::new();
            for number in 0..many + 100 {
                if number == many {
                    assert!(wheel.next_deadline().is_some());
                }
                keys.push((tick(number), wheel.schedule(tick(number), number)));
            }
            keys.sort_by_key(|&(deadline, _)| deadline);
            for &(_, key) in &keys[..keys.len() - keys.len() / left] {
                assert!(wheel.cancel(key).is_some());
            }
            let expected = wheel.iter().map(|(_, deadline, _)| deadline).min();
            let (mut found, mut calls) = (None, 0);
            while found.is_none() {
                let steps = taken(|| found = wheel.next_deadline_bounded(&mut { work }));
                let beyond = steps.saturating_sub(work as u64 * 3 / 2);
                assert!(beyond <= LAST_LOOK, "{beyond} steps too many with {many}, {work}");
                calls += 1;
                assert!(calls <= 2 * many, "each call gets on");
            }
            assert_eq!(found, expected);
            wheel.check();
        }
    }
}

/// Where hundreds of timeouts leave something for the nodes of the tree, no call clears all away.
#[test]
fn no_step_puts_right_what_many_have_left() {
    for &bits in long(&[12, 16][..], &[12, 16, 18]) {
        let mut wheel = Wheel::with_capacity(Mode::hashed(1 << bits).expect("a mode"), 2_000);
        let (round, rows) = (1_u64 << bits, 1_u64 << (bits - 4));
        for row in 0..rows {
            wheel.schedule(16 * row + 1, 0);
            wheel.schedule(1_000 * round + 16 * row + 5, 1);
        }
        let mut due = 0;
        for now in (0..round + 64).step_by(8) {
            loop {
                let (mut work, mut is_some) = (1, false);
                let steps = taken(|| is_some = wheel.expire_bounded(now, &mut work).is_some());
                assert!(steps <= 64, "{steps} steps with {rows} rows");
                due += u64::from(is_some);
                if !is_some && work > 0 {
                    break;
                }
            }
        }
        assert_eq!(due, rows);
        wheel.check();
    }
}

fn a_range_does_not_go_to_ticks_of_what_was_cancelled(mode: Mode) {
    for start in [990_u64, 5_000, 1 << 20, 1 << 40] {
        let range = start..=start + start / 32;
        let mut alone = Wheel::new(mode);
        let key = alone.schedule_within(range.clone(), 0);
        let expected = alone.deadline(key);

        let mut wheel = Checked::new(mode);
        // Far, so that the wheel is not empty, and between, so that none is taken back.
        for far in 0..40 {
            wheel.schedule((1 << 60) + far * 1_009, 0);
        }
        // Two at a tick, because one that is alone could be taken for cancelled.
        let step = usize::try_from(1 + start / 1_000).expect("it is small");
        let ticks = range.clone().step_by(step).flat_map(|tick| [tick; 2]);
        let keys: Vec<_> = ticks.map(|tick| wheel.unchecked().schedule(tick, 1)).collect();
        keys.into_iter().for_each(|key| _ = wheel.unchecked().cancel(key));
        let key = wheel.unchecked().schedule_within(range, 2);
        assert_eq!(wheel.deadline(key), expected);
    }
}

/// Heartbeats meet at hardly more ticks beside requests that are cancelled than without these.
#[test]
fn cancelled_requests_cost_heartbeats_few_wake_ups() {
    for text in ["hierarchical:64", "hashed:512", "hashed:65536"] {
        let beats = long([[3_000, 100], [300, 100]], [[30_000, 1_000], [300, 100]]);
        for &beat in under_ci(&beats[1..], &beats) {
            let alone = wake_ups(text, beat, Requests { each_tick: 0, limit: None, answered: 5 });
            for each_tick in [1, 20] {
                let requests = Requests { each_tick, limit: None, answered: 5 };
                let beside = wake_ups(text, beat, requests);
                println!("{text}, {beat:?}: {alone} alone, {beside} beside {each_tick} a tick");
                assert!(beside <= alone + alone / 8 + 3, "{text}: {beside} instead of {alone}");
            }
        }
    }
}

/// Nor beside requests of one time limit, which share a tick in each range until they are answered.
#[test]
fn requests_of_one_time_limit_cost_heartbeats_twice_as_many_wake_ups_at_most() {
    let texts = ["hierarchical:64", "hierarchical:4096", "hashed:8", "hashed:512", "hashed:65536"];
    let beats = long(&[[300, 100]][..], &[[30_000, 1_000], [3_000, 100], [300, 100]]);
    for (text, &[period, slack]) in
        texts.iter().flat_map(|text| beats.iter().map(move |beat| (text, beat)))
    {
        let beside = |each_tick, limit, answered| {
            wake_ups(text, [period, slack], Requests { each_tick, limit: Some(limit), answered })
        };
        let alone = beside(0, 1, 1);
        for limit in [period + 1, period + slack / 2, period + slack] {
            for (each_tick, answered) in [(1, 5), (2, 5), (20, slack / 2)] {
                let found = beside(each_tick, limit, answered);
                let what =
                    format!("{each_tick} a tick, of {limit} ticks, answered after {answered}");
                println!("{text}, {period}: {alone} alone, {found} beside {what}");
                assert!(found <= 2 * alone + 3, "{text}: {found} instead of {alone} beside {what}");
            }
        }
    }
}

/// Requests beside heartbeats.
#[derive(Clone, Copy)]
struct Requests {
    each_tick: u64,
    /// The time limit that all have. If there is none, each has its own, at random.
    limit: Option<u64>,
    /// After so many ticks they are cancelled.
    answered: u64,
}

/// Returns the ticks of three periods at which heartbeats came, and nothing else.
fn wake_ups(text: &str, [period, slack]: [u64; 2], requests: Requests) -> u64 {
    const REQUEST: u64 = u64::MAX;
    let heartbeats = under_ci(2_000, 10_000);
    let Requests { each_tick, limit, answered } = requests;
    let mut wheel = Wheel::new(text.parse().expect("a mode"));
    let ahead = |now: u64| now + period..=now + period + slack;
    let (mut asked, mut sent, mut count) = (VecDeque::new(), 0, 0);
    for now in 1..=6 * period {
        let (mut came, mut is_shared) = (false, false);
        while let Some(expired) = wheel.expire(now) {
            if expired.value == REQUEST {
                is_shared = true;
            } else {
                came = true;
                wheel.schedule_within(ahead(now), expired.value);
            }
        }
        count += u64::from(came && !is_shared && 3 * period < now);
        while sent < heartbeats && sent * period < now * heartbeats {
            wheel.schedule_within(ahead(now), sent);
            sent += 1;
        }
        for number in 0..each_tick {
            let random = (now * each_tick + number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            let delay = limit.unwrap_or(random % (2 * period));
            asked.push_back(wheel.schedule(now + delay, REQUEST));
        }
        while answered * each_tick < asked.len() as u64 {
            asked.pop_front().map(|key| wheel.cancel(key));
        }
    }
    count
}

/// A jump sorts what it gathers in parts. What is scheduled for now comes after all parts, though
/// the first of them is nearly used up.
fn scheduled_for_now_after_a_jump_it_comes_last(mode: Mode) {
    let mut wheel = Wheel::new(mode);
    let keys: Vec<_> = (0..3_000).map(|value| wheel.schedule(1 + value, value)).collect();
    let mut came = vec![wheel.expire(4_000).expect("it is due").value];
    for (value, key) in keys.into_iter().enumerate().skip(1) {
        if value % 20 != 0 {
            wheel.cancel(key);
        }
    }
    wheel.schedule(4_000, 4_000);
    wheel.check();
    came.extend(wheel.extract_due(4_000).map(|expired| expired.value));
    assert!(came.into_iter().eq((0..3_000).step_by(20).chain([4_000])));
}

fn a_key_that_panics_in_its_drop_takes_the_value_along(mode: Mode) {
    let (herd, value) = (Herd::default(), Rc::new(()));
    let mut map = WheelMap::new(mode);
    type Map = WheelMap<Odd, Rc<()>>;
    let calls: [&dyn Fn(&mut Map); 5] = [
        &|map| _ = map.remove(&herd.make(1)),
        &|map| _ = map.insert(herd.bomb(1), value.clone(), 7),
        &|map| map.retain(|_, _| false),
        &|map| map.clear(),
        &|map| drop(map.drain()),
    ];
    for call in calls {
        map.insert(herd.bomb(1), value.clone(), 5);
        assert!(catch_unwind(AssertUnwindSafe(|| call(&mut map))).is_err());
        map.check();
        if !map.is_empty() {
            assert!(catch_unwind(AssertUnwindSafe(|| map.clear())).is_err());
        }
        assert_eq!((map.len(), Rc::strong_count(&value)), (0, 1));
    }
}

#[test]
fn no_insertion_makes_a_map_anew() {
    let mut map = WheelMap::with_hasher(Mode::hierarchical(), SameHashes::default());
    for key in 0..4 * MANY {
        let mut bytes = 0;
        let steps = taken(|| {
            let measured = allocation_counter::measure(|| _ = map.insert(key, key, far(key)));
            bytes = measured.bytes_total;
        });
        // One insertion puts all that were few into buckets.
        assert!(steps <= if key == 1_056 { 1_100 } else { 300 }, "{steps} steps");
        // The arrays of the wheel are laid out at once, and filled little by little.
        assert!(bytes <= 400 * (1_000 + key), "{bytes} bytes");
    }
    map.check();
}

/// One timeout is left of many, wherever its place is, and the calls go by that.
#[test]
fn one_that_is_left_of_many_is_found_in_few_looks() {
    const PLACES: u64 = 1 << 17;
    for (mode, left) in [("hierarchical:64", PLACES - 1), ("hashed:512", PLACES / 2 - 7)] {
        let mut wheel = Wheel::new(mode.parse().expect("a mode"));
        let keys: Vec<_> = (0..PLACES).map(|at| wheel.schedule(far(at), at)).collect();
        let others = (0..PLACES).filter(|&at| at != left);
        others.for_each(|at| _ = wheel.cancel(keys[at as usize]));
        // A look at one word for each 4096 places, and some more.
        let most = PLACES / 4096 + 8;
        let steps = taken(|| assert!(wheel.iter().map(|(_, _, &at)| at).eq([left])));
        assert!(steps <= most, "{mode}, iter: {steps} steps");
        let steps = taken(|| assert_eq!(wheel.iter_mut().count(), 1));
        assert!(steps <= most, "{mode}, iter_mut: {steps} steps");
        let steps = taken(|| wheel.retain(|_, _, &mut at| at == left));
        assert!(steps <= most, "{mode}, retain: {steps} steps");
        let steps = taken(|| wheel.retain(|_, _, _| false));
        assert!(steps <= 2 * most, "{mode}, retain none: {steps} steps");
        wheel.schedule(far(7), 7);
        let steps = taken(|| assert_eq!(wheel.drain().count(), 1));
        assert!(steps <= 2 * most, "{mode}, drain: {steps} steps");
        wheel.check();
    }
}

#[test]
fn in_modes_of_many_buckets_memory_goes_by_what_is_pending() {
    for mode in ["hashed:1073741824", "hierarchical:1073741824"] {
        let mut wheel = Wheel::new(mode.parse().expect("a mode"));
        let keys: Vec<_> = (0..1_000).map(|number| wheel.schedule(far(number), number)).collect();
        for turn in 1..20 {
            for (number, &key) in (0..).zip(&keys) {
                wheel.reschedule(key, far(turn * 1_000 + number));
            }
            let memory = wheel.stats().memory;
            assert!(memory <= 5_000 * keys.len(), "{memory} bytes");
        }
        wheel.check();
    }
}

const MANY: u64 = 20_000;
const TURNS: u64 = MANY / 4;
/// Steps of a look at a chunk of 512, at two of its blocks of 32 and at those that say which block
/// comes next, and of finding the bucket.
const LAST_LOOK: u64 = 512 + 16 + 2 * (32 + 16) + 8;
/// Steps of looks at a few blocks of chunks, and at what was put in since the last look.
const BLOCKS: u64 = 120;
