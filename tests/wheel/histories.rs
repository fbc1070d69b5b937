//! What a wheel holds and what a call costs go by what is pending, not by what ever was: long
//! histories in which few timeouts are live.
//!
//! Each history is judged by the bytes that the allocator counts, by the stale entries, and by what
//! one call clears away afterwards. `HISTORY_OPERATIONS=10000000 cargo test --release --test wheel
//! histories` goes on for longer; 172800000 makes `an_ordinary_day` one of 24 h, at 1 ms ticks.

use crate::common::{asked_or_long, under_ci};
use allocation_counter::measure;
use fastrand::Rng;
use tickwheel::{Key, Mode, Wheel, WheelStats};

in_each_mode_and_large! {
    an_ordinary_day,
    a_heartbeat_before_one_that_was_sorted_with_another,
    cancelled_before_one_that_was_sorted_with_another,
    moved_before_one_that_was_sorted_with_another,
    heartbeats_of_several_periods_and_far_jobs,
    timeouts_moved_with_every_request,
    scheduled_and_cancelled_beside_one_that_is_far,
    scheduled_and_cancelled_at_the_tick_of_one_that_is_far,
    due_and_cancelled_beside_one_that_is_far,
    far_jobs_each_scheduled_again,
    jumps_in_steps_with_moves_in_between,
    short_jumps_in_steps_with_moves_in_between,
    short_programs_one_after_the_other,
}

/// Operations that each history takes.
fn operations() -> usize {
    let [few, many] = if cfg!(debug_assertions) { [2_000, 10_000] } else { [1_000_000, 1_000_000] };
    asked_or_long("HISTORY_OPERATIONS", few, many) as usize
}

/// Bytes that the wheel may hold, with so few live.
fn most_bytes(mode: Mode) -> usize {
    if mode.buckets() < 1 << 16 { 64 << 10 } else { 1 << 20 }
}

/// Takes turns for ever, as far as that goes. `begin` and `turn` must keep to `LIVE` timeouts; a
/// turn returns how many operations it was.
fn goes_on<S>(
    mode: Mode,
    begin: impl FnOnce(&mut Wheel<usize>) -> S,
    mut turn: impl FnMut(&mut Wheel<usize>, &mut S) -> usize,
) {
    let mut wheel = Wheel::new(mode);
    let mut most_stale = 0;
    let mut go_on = |wheel: &mut Wheel<usize>, state: &mut S, operations| {
        let (mut done, mut turns) = (0, 0);
        while done < operations {
            done += turn(wheel, state);
            turns += 1;
            if turns % 64 > 0 {
                continue;
            }
            // Not in the end only: what has gone wrong can take for ever.
            let WheelStats { stale, memory, .. } = wheel.stats();
            most_stale = most_stale.max(stale);
            assert!(wheel.len() <= LIVE, "{} live", wheel.len());
            assert!(stale <= STALE, "{stale} are stale after {done}");
            assert!(memory <= most_bytes(mode), "{memory} bytes after {done}");
        }
    };
    let mut state = None;
    let quarter = operations() / 4;
    let first = measure(|| {
        let state = state.insert(begin(&mut wheel));
        go_on(&mut wheel, state, quarter);
    });
    let mut state = state.expect("it began");
    let rest = measure(|| go_on(&mut wheel, &mut state, 3 * quarter));
    let soon = first.bytes_max as usize;
    let late = (first.bytes_current + rest.bytes_max as i64) as usize;

    wheel.check();
    let at_once = cleared_at_once(&mut wheel);
    let found = format!("{soon} bytes, then {late}; {most_stale} stale; {at_once} cleared at once");
    println!("{mode}: {found}");
    // While an array is copied because it grows, there are two.
    assert!(soon.max(late) <= most_bytes(mode) * 3 / 2, "much memory: {found}");
    // What goes by operations has become four times as much; an array may have doubled. While there
    // is little, it is by chance how many rows were needed at once.
    assert!(late <= (3 * soon).max(most_bytes(mode) / 4), "it grows: {found}");
    assert!(at_once <= AT_ONCE, "a long call: {found}");
}

/// Schedules a crowd and cancels it: the most stale entries that went in one call.
fn cleared_at_once(wheel: &mut Wheel<usize>) -> usize {
    let crowd = if cfg!(debug_assertions) { under_ci(1_500, 3_000) } else { 20_000 };
    let far = wheel.now() + (1 << 20);
    let keys: Vec<_> = (0..crowd).map(|value| wheel.schedule(far, value)).collect();
    let mut stale = wheel.stats().stale;
    let cancel = |key| {
        assert!(wheel.cancel(key).is_some());
        let before = std::mem::replace(&mut stale, wheel.stats().stale);
        (before + 1).checked_sub(stale).expect("one more is stale at most")
    };
    keys.into_iter().map(cancel).max().expect("a crowd")
}

/// Timeouts whose values are their places here.
struct Slots([Option<Key>; LIVE]);

impl Slots {
    fn new() -> Self {
        Self([None; LIVE])
    }

    /// Schedules the timeout of a slot, or moves the one there is.
    fn set(&mut self, wheel: &mut Wheel<usize>, at: usize, deadline: u64) {
        match self.0[at] {
            Some(key) => assert!(wheel.reschedule(key, deadline)),
            None => self.0[at] = Some(wheel.schedule(deadline, at)),
        }
    }

    fn cancel(&mut self, wheel: &mut Wheel<usize>, at: usize) {
        if let Some(key) = self.0[at].take() {
            assert_eq!(wheel.cancel(key), Some(at));
        }
    }

    /// Drives the wheel with so much work at most.
    fn expire(&mut self, wheel: &mut Wheel<usize>, now: u64, mut work: usize) {
        while let Some(expired) = wheel.expire_bounded(now, &mut work) {
            assert_eq!(self.0[expired.value].take(), Some(expired.key));
        }
    }
}

/// Hands out what is due at `now`, and schedules each again, its period later.
fn arm_again(wheel: &mut Wheel<usize>, now: u64, periods: &[u64]) {
    while let Some(expired) = wheel.expire(now) {
        wheel.schedule(expired.deadline + periods[expired.value], expired.value);
    }
}

fn begin(wheel: &mut Wheel<usize>, periods: &[u64]) {
    for (value, period) in periods.iter().enumerate() {
        wheel.schedule(wheel.now() + period, value);
    }
}

/// A heartbeat at every tick, and five jobs of 1 to 11 h, for 24 h.
fn an_ordinary_day(mode: Mode) {
    let hour = operations() as u64 / 2 / 24 + 1;
    let periods = [1, hour, 7 * hour / 2, 6 * hour, 17 * hour / 2, 11 * hour];
    goes_on(
        mode,
        |wheel| begin(wheel, &periods),
        |wheel, ()| {
            arm_again(wheel, wheel.now() + 1, &periods);
            2
        },
    );
}

/// Two that are sorted together, of which the first comes out.
fn sorted_together(wheel: &mut Wheel<usize>) -> u64 {
    wheel.schedule(START + 5, 0);
    wheel.schedule(START + (1 << 29), 1);
    assert!(wheel.expire(START + 5).is_some());
    START + 5
}

fn a_heartbeat_before_one_that_was_sorted_with_another(mode: Mode) {
    goes_on(mode, sorted_together, |wheel, now| {
        wheel.schedule(*now + 1, 2);
        *now += 1;
        assert!(wheel.expire(*now).is_some());
        2
    });
}

fn cancelled_before_one_that_was_sorted_with_another(mode: Mode) {
    goes_on(mode, sorted_together, |wheel, now| {
        let keys = [5, 3].map(|after| wheel.schedule(*now + after, 2));
        *now += 1;
        assert!(wheel.expire(*now).is_none());
        assert_eq!(keys.map(|key| wheel.cancel(key)), [Some(2); 2]);
        5
    });
}

fn moved_before_one_that_was_sorted_with_another(mode: Mode) {
    let begin = |wheel: &mut Wheel<usize>| {
        let now = sorted_together(wheel);
        (now, wheel.schedule(now + 9, 2))
    };
    goes_on(mode, begin, |wheel, (now, key)| {
        *now += 1;
        assert!(wheel.reschedule(*key, *now + 9));
        assert!(wheel.expire(*now).is_none());
        2
    });
}

fn heartbeats_of_several_periods_and_far_jobs(mode: Mode) {
    let periods = [1, 7, 10, 64, 100, 1000, 4096, 10_007, 77_777, 1 << 17, (1 << 30) + 1, 1 << 40];
    goes_on(
        mode,
        |wheel| begin(wheel, &periods),
        |wheel, ()| {
            arm_again(wheel, wheel.now() + 1, &periods);
            2
        },
    );
}

/// None of them ever comes due.
fn timeouts_moved_with_every_request(mode: Mode) {
    let begin = |_: &mut Wheel<usize>| (Slots::new(), Rng::with_seed(1));
    goes_on(mode, begin, |wheel, (slots, rng)| {
        for _ in 0..8 {
            slots.set(wheel, rng.usize(..LIVE), wheel.now() + 30_000);
        }
        slots.expire(wheel, wheel.now() + 1, usize::MAX);
        9
    });
}

fn scheduled_and_cancelled_beside_one_that_is_far(mode: Mode) {
    let begin = |wheel: &mut Wheel<usize>| {
        wheel.schedule(1 << 50, 0);
        Rng::with_seed(2)
    };
    goes_on(mode, begin, |wheel, rng| {
        let key = wheel.schedule(wheel.now() + 2 + rng.u64(..60_000), 1);
        assert!(wheel.expire(wheel.now() + rng.u64(..2)).is_none());
        assert_eq!(wheel.cancel(key), Some(1));
        3
    });
}

fn scheduled_and_cancelled_at_the_tick_of_one_that_is_far(mode: Mode) {
    goes_on(
        mode,
        |wheel| wheel.schedule(1 << 50, 0),
        |wheel, _| {
            let key = wheel.schedule(1 << 50, 1);
            assert_eq!(wheel.cancel(key), Some(1));
            2
        },
    );
}

fn due_and_cancelled_beside_one_that_is_far(mode: Mode) {
    goes_on(
        mode,
        |wheel| wheel.schedule(1 << 50, 0),
        |wheel, _| {
            let key = wheel.schedule(0, 1);
            assert_eq!(wheel.cancel(key), Some(1));
            2
        },
    );
}

/// Delays of all sizes; the wheel says when to drive it.
fn far_jobs_each_scheduled_again(mode: Mode) {
    let start = |wheel: &mut Wheel<usize>| {
        begin(wheel, &[1; LIVE]);
        Rng::with_seed(3)
    };
    goes_on(mode, start, |wheel, rng| {
        let now = wheel.next_wake().expect("all are pending").max(wheel.now());
        let mut done = 0;
        while let Some(expired) = wheel.expire(now) {
            wheel.schedule(now + (rng.u64(..) >> rng.u32(30..63)), expired.value);
            done += 2;
        }
        done + 1
    });
}

/// Seven pending and 48 moves a frame, then a jump of up to `longest`, of which 16 units are done.
fn jumps_in_steps(mode: Mode, longest: u64) {
    let begin = |_: &mut Wheel<usize>| (Slots::new(), Rng::with_seed(4), 0);
    goes_on(mode, begin, |wheel, (slots, rng, now)| {
        for _ in 0..48 {
            slots.set(wheel, rng.usize(..7), *now + rng.u64(..longest));
        }
        *now += rng.u64(..longest);
        slots.expire(wheel, *now, 16);
        49
    });
}

fn jumps_in_steps_with_moves_in_between(mode: Mode) {
    jumps_in_steps(mode, 1 << 33);
}

fn short_jumps_in_steps_with_moves_in_between(mode: Mode) {
    jumps_in_steps(mode, 1 << 12);
}

/// What a program does for some time.
#[derive(Clone, Copy)]
struct Program {
    live: usize,
    /// Delays and jumps are as long as these shifts leave.
    delays: u32,
    jumps: u32,
    /// Of sixteen operations, how many schedule or move, and how many cancel; the others drive.
    sets: u8,
    cancels: u8,
    work: usize,
    ends: usize,
}

impl Program {
    fn draw(rng: &mut Rng) -> Self {
        let sets = rng.u8(1..14);
        Self {
            live: rng.usize(1..=12),
            delays: rng.u32(20..63),
            jumps: rng.u32(30..64),
            sets,
            cancels: rng.u8(..15 - sets),
            work: 1 << rng.u32(..12),
            ends: 1 << rng.u32(4..14),
        }
    }
}

/// Any of them can leave something behind for the others.
fn short_programs_one_after_the_other(mode: Mode) {
    let begin = |_: &mut Wheel<usize>| {
        let mut rng = Rng::with_seed(5);
        (Slots::new(), Program::draw(&mut rng), rng)
    };
    goes_on(mode, begin, |wheel, (slots, program, rng)| {
        let at = rng.usize(..program.live);
        match rng.u8(..16) {
            turn if turn < program.sets => {
                let delay = rng.u64(..) >> program.delays >> rng.u32(..20);
                slots.set(wheel, at, wheel.now() + delay);
            }
            turn if turn < program.sets + program.cancels => slots.cancel(wheel, at),
            _ => {
                let jump = rng.u64(..) >> program.jumps >> rng.u32(..20);
                slots.expire(wheel, wheel.now() + jump, program.work);
            }
        }
        program.ends -= 1;
        if program.ends == 0 {
            *program = Program::draw(rng);
        }
        1
    });
}

/// The most timeouts that are live.
const LIVE: usize = 20;
/// Entries that may be stale, with so few live: a few for each, and some that are cleared away
/// together.
const STALE: usize = 512;
/// Stale entries that one call may clear away: some microseconds of work.
const AT_ONCE: usize = 1024;

const START: u64 = 1 << 30;
