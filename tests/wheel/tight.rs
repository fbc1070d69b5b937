//! Each bound with a number is real: a call comes within a factor of two of it, and none above.
//!
//! "By a unit test" are bounds of parts that no caller sees.
//!
//! | bound of a wheel, and where it stands | held and met by |
//! |---|---|
//! | 1056 entries in one array: `Wheel` | `tight::an_array_holds_1056_timeouts_and_not_one_more` |
//! | a step takes 1024, or 8192 if it sorts them: `expire_bounded` | `tight::a_step_sorts_8192_timeouts_and_takes_1024_of_one_more` |
//! | a step looks at 512, sorts 1536 and takes 512 out: `expire_bounded` | `tight::a_step_that_ends_a_jump_looks_at_512_and_sorts_1536` |
//! | one piece moves up for each 512 timeouts, 16 are a unit: `expire_bounded` | by a unit test, `visit::chunks_that_move_up_are_work`; `tight::what_a_scan_leaves_of_many_pieces_closes_up` |
//! | 8 looks find a bucket: `expire_bounded` | `tight::a_step_finds_its_bucket_with_up_to_8_looks` |
//! | a step that passes emptied pieces is 512: `expire_bounded` | by a unit test, `ready::a_refill_passes_few_of_the_runs_that_were_emptied` |
//! | a step looks at 1168: `next_deadline_bounded` | `tight::a_step_that_looks_for_the_next_looks_at_two_pieces` |
//! | a call sweeps 512 entries: `expire_bounded` | `tight::what_is_handed_out_pays_for_a_sweep_of_512_entries` |
//! | 256 looks: `schedule_within`, `reschedule_within` | `tight::a_range_costs_up_to_256_looks` |
//! | a word for each 4096 places: `iter`, `drain` and their like | `tight::iterating_looks_at_a_word_for_each_4096_places` |
//! | a timeout is demoted once per level: `Mode` | `tight::a_timeout_is_demoted_once_per_level_at_most` |
//! | room doubles: `reserve` | by a unit test, `growing::a_push_moves_few_and_gives_back_little` |
//! | 32 MB, from which the allocator moves: `reserve` | by a unit test, `growing::whole_pages_are_left_to_the_allocator` |
//! | 2^31 reuses of a place: `Key` | by a unit test, `arena::a_place_past_half_of_its_generations_is_not_given_back` |
//! | 2 to 2^30 buckets: `Mode` | `modes::too_few_or_too_many_buckets_are_an_error` |
//! | stale entries: 8 and 3 for each timeout: `sweep.rs` | `tight::stale_entries_are_three_for_each_timeout` |
//! | 2^32 - 1 timeouts: `Wheel` | not met: they take more than 100 GB |
//! | memory per place and row: `check.rs` | not met: they are for what the allocator rounds up, too |
//!
//! | bound of a test | held and met by |
//! |---|---|
//! | 160 bytes for one timeout, 192 for each of the most that were live | `memory::at_rest_it_is_a_few_kilobytes` |
//! | 1 KB whatever a wheel holds | `memory::one_timeout_moved_through_a_million_buckets_stays_one` |
//! | 36 to 44 bytes for each of many | `memory::many_pending_cost_little_more_than_their_values`: 32 are the least |
//! | 512 bytes for four | `few::four_timeouts_take_at_most_512_bytes_the_wheel_included` |
//! | `SORTED`, `ONE_CALL`, `GROWS`, `MOVED_WHOLE`, `MOST` | `tests/held/tight.rs` |

use crate::common::long;
use tickwheel::{Mode, Wheel, steps};

in_each_mode! {
    an_array_holds_1056_timeouts_and_not_one_more,
    a_range_costs_up_to_256_looks,
    stale_entries_are_three_for_each_timeout,
    what_is_handed_out_pays_for_a_sweep_of_512_entries,
}

in_each_hierarchical_mode! {
    a_step_sorts_8192_timeouts_and_takes_1024_of_one_more,
    a_step_that_looks_for_the_next_looks_at_two_pieces,
    a_timeout_is_demoted_once_per_level_at_most,
}

in_each_hashed_mode! {
    a_step_that_ends_a_jump_looks_at_512_and_sorts_1536,
    what_a_scan_leaves_of_many_pieces_closes_up,
    what_a_sweep_leaves_of_a_bucket_under_way_closes_up,
}

/// Panics unless the most that a call took is at most `bound`, and at least half of it. Steps are
/// counted with debug assertions only.
#[track_caller]
fn assert_tight(most: u64, bound: u64) {
    let is_tight = most <= bound && bound <= 2 * most;
    assert!(is_tight || !cfg!(debug_assertions), "{most}, and the bound is {bound}");
}

/// Makes a call, and returns what it does and its steps.
fn counted<R>(call: impl FnOnce() -> R) -> (R, u64) {
    let before = steps();
    let result = call();
    (result, steps() - before)
}

fn an_array_holds_1056_timeouts_and_not_one_more(mode: Mode) {
    let mut wheel = Wheel::new(mode);
    (0..1_056).for_each(|value| _ = wheel.schedule(1 + value, value));
    assert_eq!(wheel.stats().sorted, 1_056);
    wheel.schedule(2_000, 1_056);
    assert_eq!(wheel.stats().sorted, 0);
}

/// In a bucket of the second level.
fn a_step_sorts_8192_timeouts_and_takes_1024_of_one_more(mode: Mode) {
    let span = mode.buckets() as u64;
    for (crowd, taken) in [(8_192, 8_192), (8_193, 1_024)] {
        let mut wheel = Wheel::new(mode);
        (0..crowd).for_each(|value| _ = wheel.schedule(span + value * 7 % span, value));
        let (expired, steps) = counted(|| wheel.expire_bounded(2 * span - 1, &mut 1));
        assert!(expired.is_none());
        let stats = wheel.stats();
        assert_eq!(stats.sorted as u64 + stats.demotions, taken, "of {crowd}");
        assert!(steps <= taken + 17 + LOOKS, "{steps} steps for {taken}");
    }
}

/// One of the first piece is not due, so that those that are due fill a run but for one. Then the
/// last piece fills that run and half of another, both are sorted, and a piece of them is taken out.
fn a_step_that_ends_a_jump_looks_at_512_and_sorts_1536(mode: Mode) {
    let round = mode.buckets() as u64;
    let mut wheel = Wheel::new(mode);
    wheel.schedule(FAR, 0);
    (1..3 * PIECE).for_each(|value| _ = wheel.schedule(value * round, value));
    let mut most = 0;
    for _ in 0..3 {
        let (expired, steps) = counted(|| wheel.expire_bounded(4 * PIECE * round, &mut 1));
        assert!(expired.is_none());
        most = most.max(steps);
    }
    assert_eq!(wheel.expire(4 * PIECE * round).map(|expired| expired.value), Some(1));
    assert_tight(most, 512 + 1536 + 512 + LOOKS);
}

/// One in each piece stays. Where each keeps a piece for itself, a scan takes a step for each, and a
/// piece that goes moves half as many up.
fn what_a_scan_leaves_of_many_pieces_closes_up(mode: Mode) {
    let round = mode.buckets() as u64;
    let mut wheel = Wheel::new(mode);
    for value in 0..PIECES * PIECE {
        wheel.schedule(if value % PIECE == 0 { FAR } else { round }, value);
    }
    while wheel.expire(round).is_some() {}
    assert_eq!(wheel.len() as u64, PIECES);
    wheel.check();
    assert!(scans(&mut wheel, 2 * round) <= PIECES.div_ceil(PIECE / 2) + 1);
    wheel.check();
}

/// One in each piece is left of a bucket that a step has begun to take apart.
fn what_a_sweep_leaves_of_a_bucket_under_way_closes_up(mode: Mode) {
    let round = mode.buckets() as u64;
    let mut wheel = Wheel::new(mode);
    wheel.schedule(round, 0);
    let keys: Vec<_> = (1..PIECES * PIECE).map(|value| wheel.schedule(FAR, value)).collect();
    wheel.schedule(round, PIECES * PIECE);
    // Half of its pieces are looked at.
    let due = (0..PIECES / 2).filter_map(|_| wheel.expire_bounded(round, &mut 1));
    assert!(due.map(|expired| expired.value).eq([0]));
    for (at, &key) in (0..).zip(&keys) {
        if at % PIECE != 0 {
            wheel.cancel(key);
        }
    }
    wheel.check();
    // With those that no sweep has found yet.
    let most = (wheel.len() + wheel.stats().stale) as u64 / (PIECE / 2) + 2;
    let mut calls = 0;
    while wheel.expire_bounded(round, &mut 1).is_none() {
        calls += 1;
    }
    assert!(calls <= most, "{calls} calls, and {most} are enough");
    assert!(scans(&mut wheel, 2 * round) <= most);
    wheel.check();
}

/// Scans the bucket in which all wait, because one is due there at `now`. Returns in how many steps.
fn scans(wheel: &mut Wheel<u64>, now: u64) -> u64 {
    wheel.schedule(now, 0);
    let mut calls = 0;
    while wheel.expire_bounded(now, &mut 1).is_none() {
        calls += 1;
    }
    calls
}

#[test]
fn a_step_finds_its_bucket_with_up_to_8_looks() {
    let mut most = 0;
    for mode in ["hierarchical:64", "hierarchical:1073741824", "hashed:1073741824"] {
        let mut wheel = Wheel::with_capacity(mode.parse().expect("a mode"), 2_000);
        (1..100).for_each(|tick| _ = wheel.schedule(tick << 20, tick));
        while let Some(now) = wheel.next_wake() {
            let mut work = 1_000;
            let (_, steps) = counted(|| wheel.expire_bounded(now, &mut work));
            most = most.max(steps.saturating_sub(1_000 - work as u64));
        }
    }
    assert_tight(most, LOOKS);
}

/// The first piece was looked at, and a sweep made that void. What comes first there is gone, and so
/// are two that the last piece had before it.
fn a_step_that_looks_for_the_next_looks_at_two_pieces(mode: Mode) {
    let mut wheel = Wheel::with_capacity(mode, 10_000);
    let deadline = |at| match at {
        0 => NEAR + 3_000,
        1 | 80 => NEAR + 10,
        PIECE => NEAR + 1,
        at if at == PIECE + 40 => NEAR + 2,
        at => NEAR + 500 + at,
    };
    let keys: Vec<_> = (0..2 * PIECE).map(|at| wheel.schedule(deadline(at), at)).collect();
    assert_eq!(wheel.next_deadline(), Some(NEAR + 1));
    // With one here that a sweep looks for, which begins with the others.
    wheel.cancel(keys[0]);
    let others: Vec<_> = (0..20_000).map(|at| wheel.schedule(FAR, at)).collect();
    others.into_iter().for_each(|key| _ = wheel.cancel(key));
    [PIECE, PIECE + 40, 1].into_iter().for_each(|at| _ = wheel.cancel(keys[at as usize]));
    let mut most = 0;
    let next = loop {
        let (next, steps) = counted(|| wheel.next_deadline_bounded(&mut 1));
        most = most.max(steps);
        if next.is_some() {
            break next;
        }
    };
    assert_eq!(next, Some(NEAR + 10));
    wheel.check();
    assert_tight(most, 1168 + LOOKS);
}

/// In each bucket that is looked at, none of the first can be taken, or one that may be cancelled.
fn a_range_costs_up_to_256_looks(mode: Mode) {
    let mut wheel = Wheel::with_capacity(mode, 2_000);
    let (range, before, after) = match mode.is_hashed() {
        true => (5..=6, 5 + FAR, 6 + FAR),
        false => (NEAR - 10..=NEAR + 10, NEAR - 100, NEAR + 100),
    };
    wheel.schedule(*range.start(), 0);
    (1..64).for_each(|value| _ = wheel.schedule(before, value));
    (0..64).for_each(|value| _ = wheel.schedule(after, value));
    let (_, steps) = counted(|| wheel.schedule_within(range, 0));
    assert_tight(steps, 256);
}

#[test]
fn iterating_looks_at_a_word_for_each_4096_places() {
    let places = 1 << 17;
    let mut wheel = Wheel::new(Mode::hierarchical());
    let keys: Vec<_> = (0..places).map(|value| wheel.schedule(1 + value, value)).collect();
    keys.iter().rev().skip(1).rev().for_each(|&key| _ = wheel.cancel(key));
    let (found, steps) = counted(|| wheel.iter().count());
    assert_eq!(found, 1);
    assert_tight(steps, places / 4096 + 4);
}

/// A crowd is too many to be sorted on any level. It goes down to the next one, because something is
/// due there before.
fn a_timeout_is_demoted_once_per_level_at_most(mode: Mode) {
    let (crowd, bits) = (long(8_193, 100_000), mode.buckets().ilog2());
    let mut wheel = Wheel::new(mode);
    let tick = (1 << (4 * bits)) - 1;
    for shift in [bits, 2 * bits, 3 * bits] {
        wheel.schedule(tick >> shift << shift, 0);
    }
    (0..crowd).for_each(|value| _ = wheel.schedule(tick, value));
    while wheel.expire(tick).is_some() {}
    assert_eq!(wheel.stats().demotions / crowd, 3, "to each level below its own");
}

/// So many are stale just before a sweep begins.
fn stale_entries_are_three_for_each_timeout(mode: Mode) {
    let mut wheel = Wheel::with_capacity(mode, 10_000);
    let live = 1_000;
    (0..live).for_each(|value| _ = wheel.schedule(FAR, value));
    let mut most = 0;
    let keys: Vec<_> = (0..4 * live).map(|value| wheel.schedule(FAR, value)).collect();
    for key in keys {
        wheel.cancel(key);
        most = most.max(wheel.stats().stale as u64);
    }
    // A sweep pays for a piece with each 32 that leave, and twice for what has become stale since.
    let bound = 2 * (8 + 3 * live);
    assert!(most <= bound && bound <= 2 * most, "{most}, and the bound is {bound}");
}

/// As many are stale as begin no sweep.
fn what_is_handed_out_pays_for_a_sweep_of_512_entries(mode: Mode) {
    let mut wheel = Wheel::with_capacity(mode, 10_000);
    (0..300).for_each(|value| _ = wheel.schedule(1, value));
    let keys: Vec<_> = (0..900).map(|value| wheel.schedule(FAR, value)).collect();
    keys.into_iter().for_each(|key| _ = wheel.cancel(key));
    let mut most = 0;
    while !wheel.is_empty() {
        let (expired, steps) = counted(|| wheel.expire_bounded(1, &mut 1));
        most = most.max(if expired.is_some() { steps } else { 0 });
    }
    assert_tight(most, 512 + 2 * LOOKS);
}

/// A tick at which a bucket of a coarse level begins, and one that is far from it.
const NEAR: u64 = 1 << 20;
const FAR: u64 = 1 << 40;
/// Entries of a piece of a bucket.
const PIECE: u64 = 512;
/// More pieces than a few steps take.
const PIECES: u64 = 60;
/// Looks that find the bucket for a step, as documented.
const LOOKS: u64 = 8;
