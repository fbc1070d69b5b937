//! Jumps in time: what they cost, what they must not lose, and time that stands still.

use crate::checked::Checked;
use crate::common::Numbers;
use tickwheel::Mode;

in_each_hierarchical_mode! {
    a_far_crowd_is_demoted_once_a_level_at_most,
    a_jump_past_a_crowd_visits_no_more_buckets_than_it_is_on_levels,
    demotion_goes_down_and_keeps_one_copy,
}

in_each_hashed_mode! {
    a_far_crowd_is_never_demoted,
    a_jump_past_a_crowd_visits_each_bucket_once,
    buckets_of_one_jump_are_counted_one_by_one,
    each_wait_of_a_timeout_for_another_round_is_counted,
}

in_each_mode! {
    jumping_an_empty_wheel_looks_at_nothing,
    jumping_to_the_end_of_time_and_going_on:
        "a@2^62; to max: a@2^62; b@3; to max: b@max; c@3; to max: c@max",
    a_jump_to_one_timeout_looks_at_each_level_at_most,
    an_idle_wheel_looks_at_nothing_tick_by_tick,
    a_jump_short_of_a_far_crowd_looks_at_nothing,
    a_jump_past_a_crowd_costs_the_crowd_and_not_the_distance,
    what_is_near_is_placed_near_however_long_nothing_happened,
    a_jump_of_many_rounds_hands_out_everything_once,
    a_jump_hands_out_what_a_walk_does,
    a_jump_leaves_what_is_not_due:
        "a@25_000 b@90_000 c@240_000; to 10_000; to 25_000: a@25_000; to 60_000; "
        "to 239_999: b@90_000; to 240_000: c@240_000",
    a_far_timeout_survives_a_jump_that_ends_short_of_it:
        "for x in 2^1..59; a@10x; to x; waits 1; to 13x: a@10x",
    demotion_keeps_the_deadline:
        "a@15_000 b@80_000; to 45_000: a@15_000; to 70_000; to 79_999; to 90_000: b@80_000",
    overdue_by_any_time_comes_once:
        "for x in 13 832 31_536_000_000_000_000 2^63-1 max; a@1; to x: a@1; to x",
    time_does_not_go_back,
    back_in_time_hands_out_only_what_was_due_then:
        "a@10 b@20 c@30 d@40 e@5000; take 35: a@10; to 19; to 25: b@20; f@12; to 34: c@30; "
        "to 35: f@35; take 6000: d@40; to 39; next 5000; to 4999; to 6000: e@5000",
    jumps_of_every_size_end_where_they_should,
    waking_up_is_enough:
        "k@max j@2^48 i@2^32 h@2^24 g@2^16 f@2^10 e@16 d@4 c@2 b@1 a@0; "
        "wake max: a@0 b@1 c@2 d@4 e@16 f@2^10 g@2^16 h@2^24 i@2^32 j@2^48 k@max; waits 0",
}

fn jumping_an_empty_wheel_looks_at_nothing(mode: Mode) {
    let mut wheel = Checked::<()>::of_few(mode);
    for now in [1, 1 << 20, 1 << 60, u64::MAX] {
        assert!(wheel.expire(now).is_none());
        assert_eq!(wheel.now(), now);
    }
    assert_eq!(wheel.work(), (0, 0));
    assert_eq!(wheel.stats().memory, 0);
}

fn a_jump_to_one_timeout_looks_at_each_level_at_most(mode: Mode) {
    for bit in 0..64 {
        for deadline in [1_u64 << bit, (1 << bit) + (1 << bit >> 1), u64::MAX >> (63 - bit)] {
            let mut wheel = Checked::new(mode);
            wheel.schedule(deadline, ());
            assert_eq!(wheel.jump(deadline - 1), []);
            assert_eq!(wheel.jump(deadline), [(deadline, ())]);
            let (visits, demotions) = wheel.work();
            assert!(visits <= mode.levels() as u64, "{visits} visits for {deadline}");
            assert!(demotions < mode.levels() as u64);
        }
    }
}

fn an_idle_wheel_looks_at_nothing_tick_by_tick(mode: Mode) {
    const HOUR: u64 = 3_600_000;
    let mut wheel = Checked::new(mode);
    wheel.schedule(HOUR, "an hour away");
    for tick in 0..HOUR / 10 {
        assert!(wheel.unchecked().expire(10 * tick).is_none());
    }
    assert_eq!(wheel.work(), (0, 0));
    assert_eq!(wheel.jump(HOUR), [(HOUR, "an hour away")]);
    assert!(wheel.work().0 <= mode.levels() as u64);
}

fn a_jump_short_of_a_far_crowd_looks_at_nothing(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for value in 0..1000 {
        wheel.unchecked().schedule((1 << 40) + value, value);
    }
    for now in [1, 1000, 1 << 20, 1 << 39, (1 << 40) - 1] {
        assert_eq!(wheel.jump(now), []);
    }
    assert_eq!(wheel.work(), (0, 0));
    assert_eq!(
        wheel.walk((1 << 40) + 5),
        (0..6).map(|at| ((1 << 40) + at, at)).collect::<Vec<_>>()
    );
}

fn a_jump_past_a_crowd_costs_the_crowd_and_not_the_distance(mode: Mode) {
    let at_once = jumped_past(mode, 1 << 12);
    for distance in [1 << 30, 1 << 60, u64::MAX] {
        let jumped = jumped_past(mode, distance);
        assert_eq!((jumped.work(), jumped.stats()), (at_once.work(), at_once.stats()));
    }
}

fn jumped_past(mode: Mode, distance: u64) -> Checked<u64> {
    let mut wheel = Checked::new(mode);
    for value in 0..PAST {
        wheel.unchecked().schedule(1 + value * 11, value);
    }
    let expected: Vec<_> = (0..PAST).map(|value| (1 + value * 11, value)).collect();
    assert_eq!(wheel.jump_in_steps(distance, usize::MAX), expected);
    wheel
}

fn buckets_of_one_jump_are_counted_one_by_one(mode: Mode) {
    let mut wheel = Checked::new(mode);
    (1..=3).for_each(|value| _ = wheel.schedule(value, value));
    assert_eq!(wheel.jump(3 * mode.buckets() as u64 + 5).len(), 3);
    assert_eq!(wheel.stats().buckets_visited, mode.buckets().min(3) as u64);
}

fn each_wait_of_a_timeout_for_another_round_is_counted(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let tick = |round| round * mode.buckets() as u64;
    (1..=10).for_each(|round| _ = wheel.schedule(tick(round), round));
    for round in 1..=10 {
        assert_eq!(wheel.jump(tick(round)).len(), 1);
    }
    assert_eq!(wheel.stats().rounds_waited, (0..10).sum::<u64>());
}

fn a_jump_past_a_crowd_visits_each_bucket_once(mode: Mode) {
    let wheel = jumped_past(mode, 1 << 30);
    let (visits, demotions) = wheel.work();
    assert!(visits <= PAST.min(mode.buckets() as u64), "each bucket once: {visits}");
    assert_eq!((demotions, wheel.stats().rounds_waited), (0, 0));
}

fn a_jump_past_a_crowd_visits_no_more_buckets_than_it_is_on_levels(mode: Mode) {
    let (visits, demotions) = jumped_past(mode, 1 << 30).work();
    let levels_in_use = u64::from(4096_u64.ilog2() / mode.buckets().ilog2()) + 1;
    assert!(visits <= PAST * levels_in_use);
    assert!(demotions <= PAST * (levels_in_use - 1));
}

fn a_far_crowd_is_demoted_once_a_level_at_most(mode: Mode) {
    let demotions = demotions_of_a_far_crowd(mode, 500);
    assert!((1..=500 * (mode.levels() as u64 - 1)).contains(&demotions), "{demotions}");
}

fn a_far_crowd_is_never_demoted(mode: Mode) {
    assert_eq!(demotions_of_a_far_crowd(mode, 500), 0);
}

fn demotions_of_a_far_crowd(mode: Mode, crowd: u64) -> u64 {
    let mut numbers = Numbers(5);
    let mut wheel = Checked::new(mode);
    for _ in 0..crowd {
        wheel.unchecked().schedule((1 << 44) + numbers.below(1 << 12), ());
    }
    let mut out = 0;
    for tick in 0..1 << 12 {
        while wheel.unchecked().expire((1 << 44) + tick).is_some() {
            out += 1;
        }
    }
    assert_eq!(out, crowd);
    wheel.work().1
}

fn what_is_near_is_placed_near_however_long_nothing_happened(mode: Mode) {
    const LONG: u64 = (1 << 40) - 100;
    let mut wheel = Checked::new(mode);
    for (turn, now) in (1..).zip([LONG, 2 * LONG]) {
        assert_eq!(wheel.jump(now), []);
        wheel.schedule(now + 1, ());
        assert_eq!(wheel.stats().timeouts_per_level[0], 1);
        assert_eq!(wheel.jump(now + 1), [(now + 1, ())]);
        assert_eq!(wheel.work(), (turn, 0), "one bucket, and nothing demoted");
    }
    // Also in company, when time went on since the last timeout came out.
    wheel.schedule(u64::MAX, ());
    wheel.schedule(2 * LONG + 1, ());
    assert_eq!(wheel.jump(4 * LONG).len(), 1);
    let (_, demotions) = wheel.work();
    wheel.schedule(4 * LONG + 1, ());
    assert_eq!(wheel.jump(4 * LONG + 1), [(4 * LONG + 1, ())]);
    assert_eq!(wheel.work().1, demotions);
}

fn a_jump_of_many_rounds_hands_out_everything_once(mode: Mode) {
    let round = mode.buckets() as u64;
    for rounds in [1, 3, 5, 1000] {
        let mut wheel = Checked::new(mode);
        let mut expected = Vec::new();
        for value in 0..40 {
            let deadline = (value * 7919) % (rounds * round);
            wheel.schedule(deadline, value);
            expected.push((deadline, value));
        }
        let beyond = rounds * round + 1;
        wheel.schedule(beyond, 40);
        expected.sort_unstable();
        assert_eq!(wheel.jump(rounds * round), expected);
        assert_eq!(wheel.jump(rounds * round), []);
        assert_eq!(wheel.jump(beyond), [(beyond, 40)]);
    }
}

fn a_jump_hands_out_what_a_walk_does(mode: Mode) {
    let mut numbers = Numbers(6);
    let deadlines: Vec<_> = (0..200).map(|_| numbers.below(3000)).collect();
    let fill = || {
        let mut wheel = Checked::new(mode);
        for (value, &deadline) in deadlines.iter().enumerate() {
            wheel.unchecked().schedule(deadline, value);
        }
        wheel
    };
    let walked = fill().walk(3000);
    assert_eq!(fill().jump(3000), walked);
    assert_eq!(fill().jump(1 << 50), walked);
    assert_eq!(fill().wake_up_until(3000), walked);
    let mut stepped = fill();
    let steps = (0..=30).flat_map(|step| stepped.jump(step * 100)).collect::<Vec<_>>();
    assert_eq!(steps, walked);
}

fn demotion_goes_down_and_keeps_one_copy(mode: Mode) {
    // More than are sorted at once.
    const CROWD: usize = 200;
    const DEADLINE: u64 = (1 << 30) + (1 << 20) + (1 << 10) + 1;
    let level = |wheel: &Checked<&str>| {
        let stats = wheel.stats();
        let on_levels: usize = stats.timeouts_per_level.iter().sum();
        assert_eq!(on_levels + stats.sorted, CROWD);
        stats.timeouts_per_level.iter().rposition(|&timeouts| timeouts > 0)
    };
    let mut wheel = Checked::new(mode);
    for _ in 0..CROWD {
        wheel.schedule(DEADLINE, "far");
    }
    let mut coarsest = level(&wheel);
    assert!(coarsest > Some(0));
    for tick in [1 << 30, (1 << 30) + (1 << 20), DEADLINE - 1] {
        wheel.schedule(tick, "near");
        assert_eq!(wheel.jump(tick), [(tick, "near")]);
        assert!(level(&wheel) <= coarsest);
        coarsest = level(&wheel);
    }
    assert!(coarsest <= Some(0));
    assert_eq!(wheel.jump(DEADLINE), [(DEADLINE, "far"); CROWD]);
}

fn time_does_not_go_back(mode: Mode) {
    let mut wheel = Checked::at(mode, 1 << 30);
    let deadlines = [(1 << 30) + 1, (1 << 30) + 700, 1 << 40];
    for deadline in deadlines {
        wheel.schedule(deadline, deadline);
    }
    for bit in 0..30 {
        assert_eq!(wheel.jump((1 << 30) - (3 << bit >> 2)), []);
        assert_eq!((wheel.now(), wheel.len()), (1 << 30, 3));
    }
    let key = wheel.schedule((1 << 30) - 5, 0);
    assert_eq!(wheel.deadline(key), Some(1 << 30), "now is what it was");
    assert_eq!(wheel.jump((1 << 30) - 1), []);
    assert_eq!(wheel.jump(1 << 30), [(1 << 30, 0)]);
    assert_eq!(wheel.jump(1 << 41), deadlines.map(|deadline| (deadline, deadline)));
}

fn jumps_of_every_size_end_where_they_should(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let mut now = 0_u64;
    for bit in 0..63 {
        let deadlines = [now, now + (1 << bit >> 1), now + (1 << bit)];
        for deadline in deadlines {
            wheel.schedule(deadline, bit);
        }
        wheel.schedule(now + (1 << bit) + 1, 100 + bit);
        now += 1 << bit;
        assert_eq!(wheel.jump(now), deadlines.map(|deadline| (deadline, bit)));
        now += 1;
        assert_eq!(wheel.jump(now), [(now, 100 + bit)]);
        assert!(wheel.is_empty());
    }
}

/// The timeouts that are jumped past, the last of them due before tick 4096.
const PAST: u64 = 300;
