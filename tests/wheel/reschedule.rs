//! Moving timeouts: later, earlier, into the past, again and again.

use crate::checked::Checked;
use tickwheel::Mode;

in_each_mode! {
    moved_later_is_silent_at_its_old_tick: "a@5; walk 3; a>10; next 10; walk 20: a@10",
    moved_earlier_comes_earlier:
        "a@200; a>10; next 10; wakes 10; walk 9; to 10: a@10; to 200; anew; a@200; a>199; "
        "next 199; walk 198; to 199: a@199; anew; a@5000; a>64; next 64; walk 63; to 64: a@64; "
        "to 5000; anew; a@2^40; a>3; next 3; walk 2; to 3: a@3; to 2^40; anew; a@max; a>1; "
        "next 1; wakes 1; to 1: a@1; to max",
    moved_to_where_it_was_still_comes_once: "a@77; a>77; a>77; a>77; walk 200: a@77",
    moved_twice_comes_where_it_was_moved_last: "a@200; a>50; walk 20; a>40; walk 300: a@40",
    moved_into_the_past_comes_at_once:
        "to 100; a@1000; to 100; a>20; next 100; wakes 100; to 100: a@100",
    moved_after_it_came_due_comes_later:
        "to 100; a@50; a>120; waits 1; next 120; a>110; walk 200: a@110; b@210 c@220; "
        "take 300: b@210; c>900; waits 1; walk 1000: c@900",
    moved_within_a_due_batch_comes_after_the_rest_of_it:
        "a@40 b@40 c@40 d@40; take 50: a@40; b>0; to 50: c@40 d@40 b@50",
    moved_between_due_and_pending_again_and_again,
    moved_after_it_came_out_is_not_moved: "a@5; to 5: a@5; !a; b@10; !a; walk 20: b@10",
    two_moved_thrice_come_by_their_final_deadlines:
        "a@200 b@250; a>300 b>350; a>90 b>70; a>400 b>20; walk 500: b@20 a@400",
    first_moved_earlier_comes_earlier: "a@10 b@20; a>5; wakes 5; walk 30: a@5 b@20",
    second_moved_before_the_first_comes_first: "a@10 b@200; b>5; wakes 5; walk 300: b@5 a@10",
    first_moved_later_lets_the_second_come_on_time: "a@6 b@11; a>15; next 11; walk 30: b@11 a@15",
    moved_later_while_its_bucket_is_under_way: "a@100; to 80; a>120; to 119; to 120: a@120",
    moved_earlier_while_its_bucket_is_under_way:
        "a@200; to 80; a>120; to 119; to 120: a@120; to 200",
    moved_across_levels_keeps_key_value_and_count,
    moved_far_away_is_gone_from_the_near:
        "a@900_000; a>7_200_000; to 900_000; to 86_400_000: a@7_200_000; waits 0",
    scheduling_again_is_a_move_by_cancel_and_schedule:
        "a@10 b@20 c@30; -b; d@25; !b; waits 3; walk 100: a@10 d@25 c@30; waits 0",
    a_thousand_moves_do_not_drift,
    refused_extends_its_deadline_and_stays:
        "a@10 b@11; take 20: a@10; a@510; to 20: b@11; walk 600: a@510",
}

fn moved_between_due_and_pending_again_and_again(mode: Mode) {
    let mut wheel = Checked::at(mode, 100);
    let key = wheel.schedule(0, "only");
    for later in 101..200 {
        assert!(wheel.reschedule(key, later * later));
        assert_eq!(wheel.next_deadline(), Some(later * later));
        assert!(wheel.reschedule(key, 0));
        assert_eq!(wheel.next_deadline(), Some(100));
    }
    assert_eq!(wheel.jump(100), [(100, "only")]);
}

fn moved_across_levels_keeps_key_value_and_count(mode: Mode) {
    let mut wheel = Checked::at(mode, 1);
    let key = wheel.schedule(2, "moved");
    wheel.schedule(u64::MAX, "company");
    for bit in (1..64).chain((1..64).rev()) {
        assert!(wheel.reschedule(key, 1 << bit));
        assert_eq!((wheel.get(key), wheel.len()), (Some(&"moved"), 2));
        assert_eq!(wheel.next_deadline(), Some(1 << bit));
        let stats = wheel.stats();
        assert_eq!(stats.timeouts_per_level.iter().sum::<usize>() - stats.stale, 2);
    }
    assert_eq!(wheel.jump(2), [(2, "moved")]);
}

fn a_thousand_moves_do_not_drift(mode: Mode) {
    let mut wheel = Checked::new(mode);
    wheel.schedule(1, 0);
    for tick in 1..=1000 {
        let expired = wheel.expire(tick).expect("it comes every tick");
        assert_eq!((expired.deadline, expired.value), (tick, tick - 1));
        wheel.schedule(expired.deadline + 1, tick);
        assert!(wheel.expire(tick).is_none());
    }
}
