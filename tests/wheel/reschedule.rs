//! Moving timeouts: later, earlier, into the past, again and again.

use crate::checked::Checked;
use tickwheel::Mode;

in_each_mode! {
    moved_later_is_silent_at_its_old_tick,
    moved_earlier_comes_earlier,
    moved_twice_comes_where_it_was_moved_last,
    moved_into_the_past_comes_at_once,
    moved_after_it_came_due_comes_later,
    moved_within_a_due_batch_comes_after_the_rest_of_it,
    moved_between_due_and_pending_again_and_again,
    moved_after_it_came_out_is_not_moved,
    two_moved_thrice_come_by_their_final_deadlines,
    first_moved_earlier_comes_earlier,
    second_moved_before_the_first_comes_first,
    first_moved_later_lets_the_second_come_on_time,
    moved_later_while_its_bucket_is_under_way,
    moved_earlier_while_its_bucket_is_under_way,
    moved_across_levels_keeps_key_value_and_count,
    moved_to_where_it_was_still_comes_once,
    moved_far_away_is_gone_from_the_near,
    scheduling_again_is_a_move_by_cancel_and_schedule,
    a_thousand_moves_do_not_drift,
    refused_extends_its_deadline_and_stays,
}

fn moved_later_is_silent_at_its_old_tick(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let key = wheel.schedule(5, "only");
    assert_eq!(wheel.walk(3), []);
    assert!(wheel.reschedule(key, 10));
    assert_eq!(wheel.next_deadline(), Some(10));
    assert_eq!(wheel.walk(20), [(10, "only")]);
}

fn moved_earlier_comes_earlier(mode: Mode) {
    for (from, to) in [(200, 10), (200, 199), (5000, 64), (1 << 40, 3), (u64::MAX, 1)] {
        let mut wheel = Checked::new(mode);
        let key = wheel.schedule(from, "only");
        assert!(wheel.reschedule(key, to));
        assert_eq!((wheel.next_deadline(), wheel.next_wake()), (Some(to), Some(to)));
        assert_eq!(wheel.walk(to - 1), []);
        assert_eq!(wheel.jump(to), [(to, "only")]);
        assert_eq!(wheel.jump(from), []);
    }
}

fn moved_twice_comes_where_it_was_moved_last(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let key = wheel.schedule(200, "only");
    assert!(wheel.reschedule(key, 50));
    assert_eq!(wheel.walk(20), []);
    assert!(wheel.reschedule(key, 40));
    assert_eq!(wheel.walk(300), [(40, "only")]);
}

fn moved_into_the_past_comes_at_once(mode: Mode) {
    let mut wheel = Checked::at(mode, 100);
    let key = wheel.schedule(1000, "only");
    assert_eq!(wheel.jump(100), []);
    assert!(wheel.reschedule(key, 20));
    assert_eq!(wheel.deadline(key), Some(100));
    assert_eq!((wheel.next_deadline(), wheel.next_wake()), (Some(100), Some(100)));
    assert_eq!(wheel.jump(100), [(100, "only")]);
}

fn moved_after_it_came_due_comes_later(mode: Mode) {
    let mut wheel = Checked::at(mode, 100);
    // Due from the start, and moved twice.
    let key = wheel.schedule(50, "due");
    assert!(wheel.reschedule(key, 120));
    assert_eq!((wheel.len(), wheel.next_deadline()), (1, Some(120)));
    assert!(wheel.reschedule(key, 110));
    assert_eq!(wheel.walk(200), [(110, "due")]);

    // Come due in a jump, beside another one.
    let keys = [210, 220].map(|deadline| wheel.schedule(deadline, "came due"));
    assert_eq!(wheel.expire(300).map(|expired| expired.key), Some(keys[0]));
    assert!(wheel.reschedule(keys[1], 900));
    assert_eq!(wheel.len(), 1);
    assert_eq!(wheel.walk(1000), [(900, "came due")]);
}

fn moved_within_a_due_batch_comes_after_the_rest_of_it(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let keys = ["a", "b", "c", "d"].map(|value| wheel.schedule(40, value));
    assert_eq!(wheel.expire(50).map(|expired| expired.value), Some("a"));
    assert!(wheel.reschedule(keys[1], 0));
    assert_eq!(wheel.deadline(keys[1]), Some(50));
    assert_eq!(wheel.jump(50), [(40, "c"), (40, "d"), (50, "b")]);
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

fn moved_after_it_came_out_is_not_moved(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let key = wheel.schedule(5, "first");
    assert_eq!(wheel.jump(5), [(5, "first")]);
    assert!(!wheel.reschedule(key, 10));
    let again = wheel.schedule(10, "again");
    assert!(!wheel.reschedule(key, 7), "also when its place is taken");
    assert_eq!(wheel.deadline(again), Some(10));
    assert_eq!(wheel.walk(20), [(10, "again")]);
}

fn two_moved_thrice_come_by_their_final_deadlines(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let one = wheel.schedule(200, "one");
    let two = wheel.schedule(250, "two");
    for (first, second) in [(300, 350), (90, 70), (400, 20)] {
        assert!(wheel.reschedule(one, first));
        assert!(wheel.reschedule(two, second));
    }
    assert_eq!(wheel.walk(500), [(20, "two"), (400, "one")]);
}

fn first_moved_earlier_comes_earlier(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let one = wheel.schedule(10, "one");
    wheel.schedule(20, "two");
    assert!(wheel.reschedule(one, 5));
    assert_eq!(wheel.next_wake(), Some(5));
    assert_eq!(wheel.walk(30), [(5, "one"), (20, "two")]);
}

fn second_moved_before_the_first_comes_first(mode: Mode) {
    let mut wheel = Checked::new(mode);
    wheel.schedule(10, "one");
    let two = wheel.schedule(200, "two");
    assert!(wheel.reschedule(two, 5));
    assert_eq!(wheel.next_wake(), Some(5));
    assert_eq!(wheel.walk(300), [(5, "two"), (10, "one")]);
}

fn first_moved_later_lets_the_second_come_on_time(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let one = wheel.schedule(6, "one");
    wheel.schedule(11, "two");
    assert!(wheel.reschedule(one, 15));
    assert_eq!(wheel.next_deadline(), Some(11));
    assert_eq!(wheel.walk(30), [(11, "two"), (15, "one")]);
}

fn moved_later_while_its_bucket_is_under_way(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let key = wheel.schedule(100, "only");
    assert_eq!(wheel.jump(80), []);
    assert!(wheel.reschedule(key, 120));
    assert_eq!(wheel.jump(119), []);
    assert_eq!(wheel.jump(120), [(120, "only")]);
}

fn moved_earlier_while_its_bucket_is_under_way(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let key = wheel.schedule(200, "only");
    assert_eq!(wheel.jump(80), []);
    assert!(wheel.reschedule(key, 120));
    assert_eq!(wheel.jump(119), []);
    assert_eq!(wheel.jump(120), [(120, "only")]);
    assert_eq!(wheel.jump(200), []);
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

fn moved_to_where_it_was_still_comes_once(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let key = wheel.schedule(77, "only");
    for _ in 0..100 {
        assert!(wheel.reschedule(key, 77));
    }
    assert_eq!(wheel.walk(200), [(77, "only")]);
}

fn moved_far_away_is_gone_from_the_near(mode: Mode) {
    const MINUTE: u64 = 60_000;
    let mut wheel = Checked::new(mode);
    let key = wheel.schedule(15 * MINUTE, "only");
    assert!(wheel.reschedule(key, 120 * MINUTE));
    assert_eq!(wheel.jump(15 * MINUTE), []);
    assert_eq!(wheel.jump(24 * 60 * MINUTE), [(120 * MINUTE, "only")]);
    assert!(wheel.is_empty());
}

fn scheduling_again_is_a_move_by_cancel_and_schedule(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let keys = [10, 20, 30].map(|deadline| wheel.schedule(deadline, "armed"));
    let value = wheel.cancel(keys[1]).expect("it is armed");
    let again = wheel.schedule(25, value);
    assert_eq!(wheel.cancel(keys[1]), None, "the former key is stale");
    assert_eq!(wheel.get(again), Some(&"armed"));
    assert_eq!(wheel.len(), 3);
    assert_eq!(wheel.walk(100), [(10, "armed"), (25, "armed"), (30, "armed")]);
    assert_eq!(wheel.len(), 0);
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

fn refused_extends_its_deadline_and_stays(mode: Mode) {
    let mut wheel = Checked::new(mode);
    wheel.schedule(10, "extended");
    wheel.schedule(11, "other");
    let expired = wheel.expire(20).expect("both are due");
    let key = wheel.schedule(expired.deadline + 500, expired.value);
    assert_eq!(wheel.jump(20), [(11, "other")]);
    assert_eq!(wheel.get(key), Some(&"extended"));
    assert_eq!(wheel.walk(600), [(510, "extended")]);
}
