//! What a delay queue, a delay map and a delay channel have in common: when values come out, in
//! which order, and which task wakes. Each of their files takes these situations for its `Kind`.

use super::{EMPTY, Kind, KindKey, check, on, replace};
use crate::common::long;
use crate::help::{BoxedTask, Hand, Manual, ms, returns, wait_until};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;
use tickwheel::{Mode, Next, Run, ScheduleErrorKind};

in_each_mode! {
    random_operations_give_what_a_sorted_map_gives,
    what_is_due_at_once_comes_once,
    many_come_each_at_its_own_tick,
    in_the_past_it_comes_at_once_and_wakes_who_waits,
    removed_it_comes_back_and_never_again,
    moved_it_comes_then_and_not_before,
    what_is_due_can_be_moved_again_and_again,
    what_is_due_can_be_removed_at_the_edge_of_a_level_too,
    whatever_was_inserted_and_moved_comes_by_its_last_deadline,
    an_earlier_one_wakes_who_waits_in_time,
    inserting_while_draining_delays_nothing,
    moved_when_its_bucket_has_begun_it_comes_at_its_tick,
    emptied_and_shrunk_it_holds_nothing,
    keys_stay_good_when_it_shrinks,
    shrunk_with_one_of_many_left_it_holds_little,
    a_batch_of_none_gives_way_to_others,
    a_thread_waits_for_no_batch_of_none,
    after_a_long_time_it_goes_on,
    stale_keys_find_nothing,
    a_far_one_does_not_hide_nearer_ones,
    equal_deadlines_come_as_inserted,
    the_longest_delay_is_accepted_and_does_not_come,
    one_timeout_in_the_timer_whatever_is_in_it,
    a_task_that_got_its_value_is_not_woken,
    a_wait_that_is_given_up_leaves_nothing_behind_and_loses_nothing,
    idle_ones_leave_a_timer_with_a_limit_its_room,
    always_ready_it_gives_way_to_others,
    a_waker_that_panics_fails_no_change,
    the_next_due_waits_while_it_is_empty,
    a_batch_has_what_is_due_and_no_more,
    a_batch_that_is_dropped_loses_nothing,
    a_stopped_timer_says_so,
    a_full_timer_says_so_and_has_room_later,
    after_an_error_a_wait_ends_though_its_polls_give_way,
    after_an_error_a_call_without_time_ends_once,
    without_time_a_stopped_timer_says_so_inside_its_task_too,
    after_a_jump_all_come_by_deadline,
    a_thread_waits_for_it,
    a_thread_waits_for_so_long_and_no_longer,
    with_no_time_a_call_does_not_block,
    a_call_that_blocks_the_worker_is_an_error_unless_a_value_is_due,
}

/// One of a kind on a clock that is moved by hand, and the task that waits for it.
pub(super) struct Held {
    pub(super) kind: Kind,
    pub(super) hand: Hand,
    pub(super) manual: Manual,
}

impl Held {
    pub(super) fn new(mode: Mode) -> Self {
        Self::on(Manual::new(mode))
    }

    fn on(manual: Manual) -> Self {
        Self { kind: on(&manual.timer), hand: Hand::new(), manual }
    }

    pub(super) fn insert(&mut self, value: u32, delay: u64) -> KindKey {
        self.kind.insert(value, ms(delay))
    }

    fn insert_all<const N: usize>(&mut self, values: [(u32, u64); N]) -> [KindKey; N] {
        values.map(|(value, delay)| self.insert(value, delay))
    }

    fn reset(&mut self, key: KindKey, delay: u64) {
        assert!(self.kind.reset(key, ms(delay)));
    }

    fn now(&self) -> u64 {
        self.manual.now()
    }

    fn advance(&self, millis: u64) {
        self.manual.advance(millis);
    }

    fn jump(&self, millis: u64) {
        self.manual.jump(millis);
    }

    fn outcome(&mut self) -> Poll<Option<Result<u32, ScheduleErrorKind>>> {
        self.kind.poll_expired(&mut self.hand.context()).map_ok(|due| {
            assert!(due.deadline <= self.manual.clock.now(), "never early");
            due.value
        })
    }

    /// What a poll gives: a value, that it is empty, or that there is nothing yet.
    pub(super) fn poll(&mut self) -> Poll<Option<u32>> {
        self.outcome().map(|value| value.map(|value| value.expect("the timer runs")))
    }

    /// The same, of the stream.
    #[cfg(feature = "stream")]
    fn poll_next(&mut self) -> Poll<Option<u32>> {
        use futures::StreamExt;

        let due = self.kind.poll_next_unpin(&mut self.hand.context());
        due.map(|due| due.map(|due| due.expect("the timer runs").value))
    }

    /// The task waits for what is not there yet.
    #[track_caller]
    fn wait(&mut self) {
        assert_eq!(self.poll(), Poll::Pending);
        self.hand.woken();
    }

    /// The task looks if it was woken: a channel wakes it for each value that is earlier.
    #[track_caller]
    fn look(&mut self) {
        if self.hand.woken() > 0 {
            self.wait();
        }
    }

    /// The task is woken once, and then takes these values, and no others.
    #[track_caller]
    fn assert_wakes_for<const N: usize>(&mut self, values: [u32; N]) {
        assert_eq!(self.hand.woken(), 1);
        assert_eq!(self.take(), values);
    }

    /// All that is due.
    fn take(&mut self) -> Vec<u32> {
        let mut values = Vec::new();
        loop {
            match self.poll() {
                Poll::Ready(Some(value)) => values.push(value),
                // It gives way to others now and then.
                Poll::Pending if self.hand.woken() > 0 => {}
                _ => return values,
            }
        }
    }

    /// Goes on tick by tick, and polls only when woken. Returns when the values came, and these.
    fn run(&mut self, until: u64) -> Vec<(u64, u32)> {
        let mut seen: Vec<_> = self.take().into_iter().map(|value| (self.now(), value)).collect();
        self.hand.woken();
        while self.now() < until {
            // Straight to the tick before the next deadline; in long runs tick by tick.
            let next = self.manual.timer.next_deadline().map_or(until, |at| self.manual.millis(at));
            let far = next.min(until).saturating_sub(self.now() + 1);
            self.advance(long(far, 0).max(1));
            if self.hand.woken() > 0 {
                let now = self.now();
                seen.extend(self.take().into_iter().map(|value| (now, value)));
            }
        }
        seen
    }
}

pub(super) fn some(value: u32) -> Poll<Option<u32>> {
    Poll::Ready(Some(value))
}

/// By deadline, then by the order of inserting, replacing and moving.
fn random_operations_give_what_a_sorted_map_gives(mode: Mode) {
    for seed in 0..long(4, 20) {
        let mut rng = Rng::with_seed(seed);
        let mut held = Held::new(mode);
        let mut pending = BTreeMap::new();
        let (mut keys, mut waits) = (Vec::new(), false);
        for order in 0..400_u32 {
            let most = [5, 100, 5_000][rng.usize(..3)];
            let delay = rng.u64(..most);
            let place = (held.now() + delay, order);
            let at = held.manual.at(place.0);
            let which = rng.usize(..keys.len().max(1));
            match (rng.u32(..10), keys.get_mut(which)) {
                (0, Some((key, old_place))) => {
                    let (replaced, new_key) = replace(&mut held.kind, *key, order, ms(delay));
                    assert_eq!(replaced, pending.remove(old_place));
                    pending.insert(place, order);
                    (*key, *old_place) = (new_key, place);
                }
                (1, Some((key, place))) => {
                    assert_eq!(held.kind.remove(*key), pending.remove(place));
                }
                (kind @ 2..4, Some((key, old_place))) => {
                    let value = pending.remove(old_place);
                    let is_there = match kind {
                        2 => held.kind.reset(*key, ms(delay)),
                        _ => held.kind.reset_at(*key, at),
                    };
                    assert_eq!(is_there, value.is_some());
                    if let Some(value) = value {
                        pending.insert(place, value);
                        *old_place = place;
                    }
                }
                (4, Some((key, place))) => {
                    let value = pending.get(place).map(|value| (*value, held.manual.at(place.0)));
                    let next = pending.first_key_value().map(|next| held.manual.at(next.0.0));
                    check(&mut held.kind, *key, value, next);
                }
                (kind @ 5..8, _) => {
                    let key = match kind {
                        5 => held.kind.insert_at(order, at),
                        _ => held.insert(order, delay),
                    };
                    keys.push((key, place));
                    pending.insert(place, order);
                }
                _ => {
                    held.advance(rng.u64(..50));
                    let later = pending.split_off(&(held.now() + 1, 0));
                    let due = std::mem::replace(&mut pending, later);
                    assert!(due.is_empty() || !waits || held.hand.woken() > 0, "woken in time");
                    assert!(held.take().into_iter().eq(due.into_values()));
                    let rest = if pending.is_empty() { EMPTY } else { Poll::Pending };
                    assert_eq!(held.poll(), rest);
                    waits = rest.is_pending();
                    held.hand.woken();
                }
            }
            assert_eq!(held.kind.len(), pending.len());
        }
    }
}

fn what_is_due_at_once_comes_once(mode: Mode) {
    let mut held = Held::new(mode);
    held.insert(1, 0);
    assert_eq!((held.poll(), held.poll()), (some(1), EMPTY));
    held.insert_all([(0, 0), (1, 0), (2, 0)]);
    assert_eq!((held.take(), held.poll()), (vec![0, 1, 2], EMPTY));
    // Between two ticks it is the next.
    held.manual.clock.advance(Duration::from_micros(1));
    held.insert(7, 0);
    held.wait();
    held.advance(1);
    held.assert_wakes_for([7]);
    assert_eq!(held.poll(), EMPTY);
}

fn many_come_each_at_its_own_tick(mode: Mode) {
    let mut held = Held::new(mode);
    let mut near =
        [1_000, 2, 234, 60, 10, 64, 128, 4_095, 4_096].map(|delay| (delay as u32, delay));
    held.insert_all(near);
    near.sort_unstable();
    assert_eq!(held.run(4_100), near.map(|(value, delay)| (delay, value)));
    // Those further away with jumps in between.
    let now = held.now();
    held.insert_all([300_000, 65_536, 262_144, 100_000].map(|delay| (delay as u32, delay)));
    for delay in [65_536, 100_000, 262_144, 300_000] {
        held.jump(now + delay - 1 - held.now());
        assert_eq!(held.poll(), Poll::Pending);
        held.advance(1);
        assert_eq!(held.poll(), some(delay as u32));
    }
    assert_eq!(held.poll(), EMPTY);
}

/// Here and now, with no help of the timer.
fn in_the_past_it_comes_at_once_and_wakes_who_waits(mode: Mode) {
    let mut held = Held::new(mode);
    held.advance(50);
    for value in [40, 20, 30] {
        held.kind.insert_at(value, held.manual.at(value.into()));
    }
    assert_eq!(held.take(), [20, 30, 40]);
    held.hand.woken();
    let key = held.insert(1, 100);
    held.wait();
    assert!(held.kind.reset_at(key, held.manual.at(40)));
    held.assert_wakes_for([1]);
    held.insert(2, 100);
    held.wait();
    held.kind.insert_at(3, held.manual.at(20));
    held.assert_wakes_for([3]);
    assert_eq!(held.poll(), Poll::Pending);
}

fn removed_it_comes_back_and_never_again(mode: Mode) {
    let mut held = Held::new(mode);
    let [key, _] = held.insert_all([(1, 5), (2, 10)]);
    held.wait();
    assert_eq!(held.kind.remove(key), Some(1));
    assert_eq!((held.kind.remove(key), held.kind.len()), (None, 1));
    assert_eq!((held.run(20), held.poll()), (vec![(10, 2)], EMPTY));
}

fn moved_it_comes_then_and_not_before(mode: Mode) {
    let mut held = Held::new(mode);
    let key = held.insert(1, 200);
    held.wait();
    held.advance(3);
    // Later, and then earlier and earlier.
    for (delay, passes) in [(500, 400), (50, 20), (20, 9), (5, 4)] {
        held.reset(key, delay);
        held.look();
        held.advance(passes);
        // It may be woken at the time that it was moved from.
        held.look();
        assert_eq!(held.poll(), Poll::Pending);
    }
    assert_eq!(held.hand.woken(), 0);
    held.advance(1);
    held.assert_wakes_for([1]);
    assert_eq!(held.poll(), EMPTY);
}

fn what_is_due_can_be_moved_again_and_again(mode: Mode) {
    let mut held = Held::new(mode);
    held.advance(100);
    let key = held.kind.insert_at(1, held.manual.at(50));
    for delay in [100, 50, 0, 60] {
        held.reset(key, delay);
        assert_eq!(held.kind.len(), 1);
    }
    held.wait();
    assert!(held.kind.reset_at(key, held.manual.at(10)));
    held.reset(key, 20);
    assert_eq!((held.run(200), held.poll()), (vec![(120, 1)], EMPTY));
}

fn what_is_due_can_be_removed_at_the_edge_of_a_level_too(mode: Mode) {
    for edge in [10, 64, 128, 4_096] {
        for is_first in [true, false] {
            let mut held = Held::new(mode);
            let [first, last] = held.insert_all([(1, edge), (2, edge)]);
            held.wait();
            held.advance(edge);
            let key = if is_first {
                first
            } else {
                assert_eq!(held.poll(), some(1));
                last
            };
            assert_eq!(held.kind.remove(key), Some(if is_first { 1 } else { 2 }));
            assert_eq!(held.take(), Vec::from_iter(is_first.then_some(2)));
            assert_eq!((held.poll(), held.kind.remove(last)), (EMPTY, None));
        }
    }
}

fn whatever_was_inserted_and_moved_comes_by_its_last_deadline(mode: Mode) {
    let two = [(1, 200), (2, 250)];
    // Which are moved, to when, and what comes then.
    let cases: [(&[(usize, u64)], _); 5] = [
        (&[(0, 300), (1, 350), (0, 400)], [(350, 2), (400, 1)]),
        (&[(0, 100)], [(100, 1), (250, 2)]),
        (&[(1, 100)], [(100, 2), (200, 1)]),
        (&[(0, 300)], [(250, 2), (300, 1)]),
        (&[(0, 250)], [(250, 2), (250, 1)]),
    ];
    for (moves, expected) in cases {
        let mut held = Held::new(mode);
        let keys = held.insert_all(two);
        held.wait();
        for &(which, delay) in moves {
            held.reset(keys[which], delay);
            held.look();
        }
        assert_eq!(held.run(500), expected);
    }
}

fn an_earlier_one_wakes_who_waits_in_time(mode: Mode) {
    let mut held = Held::new(mode);
    held.insert(1, 10_000);
    held.wait();
    for (value, delay) in [(2, 600), (3, 8), (4, 250), (5, 7), (6, 100)] {
        held.insert(value, delay);
        held.look();
    }
    held.advance(6);
    assert_eq!(held.hand.woken(), 0);
    assert_eq!(held.run(700), [(7, 5), (8, 3), (100, 6), (250, 4), (600, 2)]);
}

fn inserting_while_draining_delays_nothing(mode: Mode) {
    let mut held = Held::new(mode);
    held.insert_all([(1, 100), (2, 100), (3, 100)]);
    held.wait();
    held.advance(100);
    assert_eq!((held.hand.woken(), held.poll()), (1, some(1)));
    held.insert_all([(4, 500), (5, 0)]);
    assert_eq!(held.take(), [2, 3, 5]);
    held.wait();
    held.advance(500);
    held.assert_wakes_for([4]);
}

fn moved_when_its_bucket_has_begun_it_comes_at_its_tick(mode: Mode) {
    for (from, to) in [(100, 120), (200, 120), (70, 127), (127, 81)] {
        let mut held = Held::new(mode);
        let key = held.insert(1, from);
        held.wait();
        let early = from.min(80);
        held.advance(early);
        // It may be due, and no task polled.
        assert_eq!(held.hand.woken(), usize::from(from <= 80));
        assert!(held.kind.reset_at(key, held.manual.at(to)));
        held.advance(to - early - 1);
        assert_eq!(held.poll(), Poll::Pending);
        held.advance(1);
        assert_eq!(held.poll(), some(1), "{from} {to}");
    }
}

fn emptied_and_shrunk_it_holds_nothing(mode: Mode) {
    for is_removed in [true, false] {
        let mut held = Held::new(mode);
        let bytes = allocation_counter::measure(|| {
            let keys: Vec<_> = (0..1_000).map(|value| held.insert(value, 10)).collect();
            if is_removed {
                assert!(keys.into_iter().all(|key| held.kind.remove(key).is_some()));
            } else {
                held.advance(10);
                assert_eq!(held.kind.recv_batch(&mut Vec::new(), 1_000), Ok(1_000));
            }
            held.kind.shrink_to_fit();
        });
        assert!(bytes.bytes_max > 16_000);
        assert_eq!(bytes.bytes_current, 0);
        assert_eq!(held.poll(), EMPTY);
        held.insert(1, 10);
        held.look();
        assert_eq!(held.run(20).len(), 1);
    }
}

fn shrunk_with_one_of_many_left_it_holds_little(mode: Mode) {
    for left in [0, 4_999] {
        let mut held = Held::new(mode);
        let bytes = allocation_counter::measure(|| {
            let mut keys: Vec<_> = (0..5_000).map(|value| held.insert(value, 1_000)).collect();
            let last = keys.swap_remove(left);
            assert!(keys.into_iter().all(|key| held.kind.remove(key).is_some()));
            held.kind.shrink_to_fit();
            // A key is a place: so the last may keep those before it.
            if left > 0 {
                held.reset(last, 10);
                assert_eq!(held.run(10).len(), 1);
                held.kind.shrink_to_fit();
                held.insert(1, 10);
            }
        });
        assert!(bytes.bytes_max > 80_000 && bytes.bytes_current < 10_000, "{left}: {bytes:?}");
        assert_eq!(held.kind.len(), 1);
    }
}

fn keys_stay_good_when_it_shrinks(mode: Mode) {
    let mut held = Held::new(mode);
    let keys: Vec<_> = (0..100).map(|value| held.insert(value, 100)).collect();
    for key in &keys[..90] {
        assert!(held.kind.remove(*key).is_some());
    }
    held.kind.shrink_to_fit();
    held.reset(keys[95], 50);
    assert_eq!(held.kind.remove(keys[96]), Some(96));
    let others: Vec<_> = (200..210).map(|value| held.insert(value, 10)).collect();
    held.kind.shrink_to_fit();
    assert_eq!(held.kind.remove(others[3]), Some(203));
    let seen = held.run(200);
    assert_eq!(seen.len(), 9 + 9);
    assert!(seen.contains(&(50, 95)) && seen.contains(&(100, 99)) && seen.contains(&(10, 209)));
}

fn after_a_long_time_it_goes_on(mode: Mode) {
    let mut held = Held::new(mode);
    for millis in [1 << 36, (1 << 36) + 5, 1 << 40] {
        held.jump(millis);
        held.insert_all([(1, 10), (2, 1 << 36)]);
        held.wait();
        held.advance(10);
        held.assert_wakes_for([1]);
        held.jump(1 << 36);
        assert_eq!((held.poll(), held.poll()), (some(2), EMPTY));
        held.hand.woken();
    }
}

fn stale_keys_find_nothing(mode: Mode) {
    let mut held = Held::new(mode);
    let [removed, due] = held.insert_all([(1, 10), (2, 5)]);
    assert_eq!(held.kind.remove(removed), Some(1));
    held.advance(5);
    assert_eq!(held.poll(), some(2));
    // Their places are taken, before and after shrinking.
    for value in [3, 5] {
        held.insert_all([(value, 50), (value + 1, 50)]);
        held.wait();
        for key in [removed, due] {
            check(&mut held.kind, key, None, Some(held.manual.at(55)));
            assert_eq!(held.kind.remove(key), None);
            assert!(!held.kind.reset(key, ms(1)) && !held.kind.reset_at(key, held.manual.at(0)));
        }
        assert_eq!(held.hand.woken(), 0);
        held.kind.shrink_to_fit();
    }
    assert_eq!(held.kind.len(), 4);
    assert_eq!(held.run(100).len(), 4);
}

fn a_far_one_does_not_hide_nearer_ones(mode: Mode) {
    let mut held = Held::new(mode);
    held.jump((1 << 24) - 100);
    let now = held.now();
    held.insert_all([(1, 1 << 40), (2, 1 << 36), (4, (1 << 24) + 5), (5, 5_000), (6, 70), (7, 3)]);
    assert_eq!(held.run(now + 5_100), [(now + 3, 7), (now + 70, 6), (now + 5_000, 5)]);
}

/// From far and from near: with a demotion between and without.
fn equal_deadlines_come_as_inserted(mode: Mode) {
    let mut held = Held::new(mode);
    held.insert_all([(1, 5_000), (2, 5_000)]);
    held.wait();
    held.advance(4_900);
    held.take();
    held.insert(3, 100);
    held.advance(90);
    held.take();
    let [moved, _] = held.insert_all([(9, 5), (4, 10)]);
    held.reset(moved, 10);
    assert_eq!(held.run(5_010), [1, 2, 3, 4, 9].map(|value| (5_000, value)));
}

fn the_longest_delay_is_accepted_and_does_not_come(mode: Mode) {
    let mut held = Held::new(mode);
    let longest = held.kind.insert(1, Duration::MAX);
    held.kind.insert(2, Duration::from_secs(u64::MAX / 10));
    held.insert(3, 5);
    assert_eq!(held.run(10), [(5, 3)]);
    held.jump(1 << 50);
    assert_eq!((held.poll(), held.kind.len()), (Poll::Pending, 2));
    held.reset(longest, 5);
    held.look();
    held.advance(5);
    held.assert_wakes_for([1]);
}

fn one_timeout_in_the_timer_whatever_is_in_it(mode: Mode) {
    let mut held = Held::new(mode);
    let many = long(100, 1_000);
    for value in 0..many {
        held.insert(value, u64::from(many - value));
    }
    assert_eq!(held.manual.timer.pending(), 0);
    held.wait();
    assert_eq!(held.manual.timer.pending(), 1);
    assert_eq!(held.run(2 * u64::from(many)).len(), many as usize);
    held.insert(1, 10);
    held.look();
    let Held { kind, hand, manual } = held;
    drop(kind);
    assert_eq!((manual.timer.pending(), hand.wakers()), (0, 0));
}

fn a_task_that_got_its_value_is_not_woken(mode: Mode) {
    let mut held = Held::new(mode);
    held.insert(1, 10);
    held.wait();
    held.advance(10);
    assert_eq!((held.hand.woken(), held.poll(), held.hand.wakers()), (1, some(1), 0));
    held.kind.insert_at(2, held.manual.at(0));
    assert_eq!((held.hand.woken(), held.poll()), (0, some(2)));
}

fn a_wait_that_is_given_up_leaves_nothing_behind_and_loses_nothing(mode: Mode) {
    let mut held = Held::new(mode);
    held.insert(1, 10);
    assert!(held.hand.poll_once(held.kind.next()).is_pending());
    assert_eq!((held.manual.timer.pending(), held.hand.wakers()), (0, 0));
    assert!(held.hand.poll_once(held.kind.next_due()).is_pending());
    assert_eq!((held.manual.timer.pending(), held.hand.wakers()), (0, 0));
    assert!(held.hand.poll_once(held.kind.next_batch(&mut Vec::new(), 5)).is_pending());
    assert_eq!((held.manual.timer.pending(), held.hand.wakers()), (0, 0));
    let elapsed = held.kind.recv_timeout(Duration::ZERO).expect("not empty");
    assert_eq!(elapsed.expect_err("too early").error(), None);
    assert_eq!(held.manual.timer.pending(), 0);
    drop(held.kind.next());
    held.advance(10);
    assert_eq!(held.hand.woken(), 0);
    let Poll::Ready(Some(Ok(due))) = held.hand.poll_once(held.kind.next()) else {
        panic!("it is due")
    };
    assert_eq!((due.value, due.deadline), (1, held.manual.at(10)));
}

/// Idle because a wait was given up, or because a value came and nobody waits for the next.
fn idle_ones_leave_a_timer_with_a_limit_its_room(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.max_pending(10));
    let mut context = Context::from_waker(Waker::noop());
    let mut kinds: Vec<_> = (0..20).map(|_| on(&manual.timer)).collect();
    for kind in &mut kinds[..10] {
        kind.insert(1, ms(1_000));
        assert!(pin!(kind.next()).poll(&mut context).is_pending());
    }
    for kind in &mut kinds[10..] {
        kind.insert(1, ms(1_000));
        assert!(kind.poll_expired(&mut context).is_pending());
        kind.insert_at(2, manual.at(0));
        assert!(kind.poll_expired(&mut context).is_ready());
    }
    assert_eq!(manual.timer.pending(), 0);
    for _ in 0..10 {
        manual.timer.schedule(ms(5), || {}).expect("there is room");
    }
}

fn always_ready_it_gives_way_to_others(mode: Mode) {
    assert_gives_way(mode, Held::poll);
    #[cfg(feature = "stream")]
    assert_gives_way(mode, Held::poll_next);
}

/// Polls, not time: whatever a poll does after a value, others have their turn after a few.
fn assert_gives_way(mode: Mode, poll: fn(&mut Held) -> Poll<Option<u32>>) {
    let mut held = Held::new(mode);
    for value in 0..1_000 {
        held.insert(value, 0);
    }
    let (mut values, mut in_a_row) = (0..1_000, 0);
    while !values.is_empty() {
        match poll(&mut held) {
            Poll::Ready(value) => {
                assert_eq!(value, values.next());
                in_a_row += 1;
                assert!(in_a_row <= 32, "others never have their turn");
            }
            Poll::Pending => {
                assert_eq!((held.hand.woken(), in_a_row), (1, 32), "it is to be polled again");
                in_a_row = 0;
            }
        }
    }
}

fn a_batch_of_none_gives_way_to_others(mode: Mode) {
    let mut held = Held::new(mode);
    held.insert(1, 0);
    let mut in_a_row = 0;
    let mut batch = Vec::new();
    while held.hand.poll_once(held.kind.next_batch(&mut batch, 0)).is_ready() {
        in_a_row += 1;
        assert!(in_a_row <= 32, "others never have their turn");
    }
    assert_eq!((held.hand.woken(), batch.len()), (1, 0), "it is to be polled again");
    assert_eq!(held.poll(), some(1));
}

fn a_thread_waits_for_no_batch_of_none(mode: Mode) {
    let mut held = Held::new(mode);
    let mut batch = Vec::new();
    for (value, delay) in [(1, 10), (2, 0)] {
        held.insert(value, delay);
        assert_eq!((held.kind.recv_batch(&mut batch, 0), batch.len()), (Ok(0), 0));
    }
    assert_eq!(held.kind.recv_batch(&mut batch, 1), Ok(1), "it was not taken");
}

fn a_waker_that_panics_fails_no_change(mode: Mode) {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("as it should");
        }
    }
    let waker = Waker::from(Arc::new(Panics));
    let mut held = Held::new(mode);
    let key = held.insert(1, 100);
    for panics in 1..=2 {
        assert!(held.kind.poll_expired(&mut Context::from_waker(&waker)).is_pending());
        let other = held.kind.insert_at(2, held.manual.at(0));
        assert_eq!(held.manual.timer.stats().panics, panics);
        assert_eq!(held.kind.remove(other), Some(2));
    }
    held.reset(key, 0);
    assert_eq!(held.poll(), some(1));
}

fn the_next_due_waits_while_it_is_empty(mode: Mode) {
    let mut held = Held::new(mode);
    assert!(held.hand.poll_once(held.kind.next_due()).is_pending());
    held.advance(1_000_000);
    assert_eq!(held.hand.woken(), 0);
    let key = held.insert(1, 10);
    held.hand.woken();
    assert!(held.hand.poll_once(held.kind.next_due()).is_pending());
    held.advance(10);
    let due = held.hand.poll_once(held.kind.next_due());
    assert_eq!(due.map_ok(|due| due.value), Poll::Ready(Ok(1)));
    assert!(held.hand.poll_once(held.kind.next_due()).is_pending());
    // Emptied, it waits on, and `next` ends.
    let other = held.insert(2, 20);
    assert!(held.hand.poll_once(held.kind.next_due()).is_pending());
    assert_eq!((held.kind.remove(key), held.kind.remove(other)), (None, Some(2)));
    assert!(held.hand.poll_once(held.kind.next_due()).is_pending());
    assert_eq!(held.poll(), EMPTY);
}

fn a_batch_has_what_is_due_and_no_more(mode: Mode) {
    let Held { mut kind, hand, manual } = Held::new(mode);
    let mut batch = Vec::new();
    let empty = hand.poll_once(kind.next_batch(&mut batch, 9));
    assert_eq!(empty, EMPTY.map(|_| Ok(0)));
    for value in 0..1_000 {
        kind.insert(value, ms(10 + u64::from(value / 700)));
    }
    hand.woken();
    assert_eq!(hand.poll_once(kind.next_batch(&mut batch, 0)), Poll::Ready(Ok(0)));
    assert!(hand.poll_once(kind.next_batch(&mut batch, 9)).is_pending());
    manual.advance(10);
    assert_eq!(hand.poll_once(kind.next_batch(&mut batch, 500)), Poll::Ready(Ok(500)));
    assert_eq!(kind.recv_batch(&mut batch, 500), Ok(200));
    assert!(hand.poll_once(kind.next_batch(&mut batch, usize::MAX)).is_pending());
    manual.advance(1);
    assert_eq!(hand.poll_once(kind.next_batch(&mut batch, usize::MAX)), Poll::Ready(Ok(300)));
    assert!(batch.iter().map(|due| due.value).eq(0..1_000));
}

fn a_batch_that_is_dropped_loses_nothing(mode: Mode) {
    let Held { mut kind, hand, manual } = Held::new(mode);
    let mut batch = Vec::new();
    for value in 0..10 {
        kind.insert(value, ms(value.into()));
        assert_eq!(hand.poll_once(kind.next_batch(&mut batch, 100)).is_ready(), value == 0);
    }
    manual.advance(100);
    assert_eq!(hand.poll_once(kind.next_batch(&mut batch, 100)), Poll::Ready(Ok(9)));
    assert!(batch.iter().map(|due| due.value).eq(0..10));
}

fn a_stopped_timer_says_so(mode: Mode) {
    let mut held = Held::new(mode);
    let [_, late] = held.insert_all([(1, 10), (2, 20)]);
    held.wait();
    assert!(held.manual.timer.stop().expect("outside").is_empty());
    assert_eq!(held.hand.woken(), 1);
    let stopped = ScheduleErrorKind::Stopped;
    for _ in 0..2 {
        let next_due = held.hand.poll_once(held.kind.next_due());
        assert_eq!(next_due, Poll::Ready(Err(stopped)), "each time anew");
        assert_eq!(held.outcome(), Poll::Ready(Some(Err(stopped))));
        assert_eq!(held.outcome(), Poll::Ready(None));
        assert_eq!((held.kind.recv(), held.kind.recv()), (Some(Err(stopped)), None));
        // A loop ends, whether or not it heeds errors.
        assert_eq!(held.kind.recv_batch(&mut Vec::new(), 5), Err(stopped));
        assert_eq!(held.kind.recv_batch(&mut Vec::new(), 5), Ok(0));
        let batched = held.hand.poll_once(held.kind.next_batch(&mut Vec::new(), 5));
        assert_eq!(batched, Poll::Ready(Err(stopped)));
        let batched = held.hand.poll_once(held.kind.next_batch(&mut Vec::new(), 5));
        assert_eq!(batched, Poll::Ready(Ok(0)));
        assert_eq!(held.kind.try_recv(), None);
    }
    let elapsed = held.kind.recv_timeout(ms(5)).expect("not empty").expect_err("it is stopped");
    assert_eq!(elapsed.error(), Some(stopped));
    // What is due comes out, and the rest can be removed.
    held.jump(10);
    assert_eq!(held.kind.try_recv().map(|due| due.value), Some(1));
    assert_eq!((held.kind.remove(late), held.kind.len()), (Some(2), 0));
}

/// Only the poll right after an error says None.
fn a_full_timer_says_so_and_has_room_later(mode: Mode) {
    let mut held = Held::on(Manual::built(mode, |builder| builder.max_pending(1)));
    held.insert_all([(1, 10), (2, 20)]);
    let kept = held.manual.timer.schedule(ms(100), || {}).expect("there is room");
    let full = Poll::Ready(Some(Err(ScheduleErrorKind::Full)));
    assert_eq!((held.outcome(), held.outcome()), (full, Poll::Ready(None)));
    assert_eq!(held.outcome(), full);
    held.advance(10);
    // A value takes the place of the end, and so does another error.
    assert_eq!(held.kind.recv().expect("not empty").expect("it is due").value, 1);
    assert_eq!(held.outcome(), full);
    assert_eq!(held.kind.recv_batch(&mut Vec::new(), 5), Ok(0));
    assert_eq!(held.kind.recv_batch(&mut Vec::new(), 5), Err(ScheduleErrorKind::Full));
    assert_eq!(held.outcome(), Poll::Ready(None));
    // In a batch, too.
    held.insert(3, 5);
    assert_eq!(held.outcome(), full);
    held.advance(5);
    assert_eq!(held.kind.recv_batch(&mut Vec::new(), 5), Ok(1));
    assert!(kept.cancel());
    held.wait();
    held.advance(5);
    held.assert_wakes_for([2]);
}

/// A poll takes a bucket of many apart, and is not ready.
fn after_an_error_a_wait_ends_though_its_polls_give_way(mode: Mode) {
    let mut held = Held::new(mode);
    for value in 0..5_000 {
        held.insert(value, 100_352);
    }
    let nearer = held.insert(5_000, 98_304);
    assert_eq!(held.kind.remove(nearer), Some(5_000));
    held.manual.timer.stop().expect("outside");
    assert_eq!(held.outcome(), Poll::Ready(Some(Err(ScheduleErrorKind::Stopped))));
    held.jump(98_310);
    let mut outcome = held.outcome();
    while outcome.is_pending() {
        assert_eq!(held.hand.woken(), 1);
        outcome = held.outcome();
    }
    assert_eq!(outcome, Poll::Ready(None));
}

fn after_an_error_a_call_without_time_ends_once(mode: Mode) {
    let mut held = Held::on(Manual::built(mode, |builder| builder.max_pending(1)));
    held.insert(1, 10);
    let _kept = held.manual.timer.schedule(ms(100), || {}).expect("there is room");
    let mut wait = |timeout| {
        let due = held.kind.recv_timeout(ms(timeout));
        due.map(|due| due.expect_err("it is not due").error())
    };
    let full = ScheduleErrorKind::Full;
    assert_eq!([wait(5), wait(0), wait(0)], [Some(Some(full)), None, Some(None)]);
    assert_eq!(held.outcome(), Poll::Ready(Some(Err(full))));
}

fn without_time_a_stopped_timer_says_so_inside_its_task_too(mode: Mode) {
    let Held { mut kind, manual: Manual { timer, clock, .. }, .. } = Held::new(mode);
    kind.insert(1, ms(100));
    let last = Mutex::new(Some(timer.clone()));
    let (tells, told) = mpsc::channel();
    let task = move || {
        drop(last.lock().unwrap().take());
        let errors = [(); 3].map(|()| {
            let due = kind.recv_timeout(Duration::ZERO);
            due.map(|due| due.expect_err("it is not due").error())
        });
        tells.send(errors).unwrap();
    };
    timer.schedule(ms(1), task).expect("it runs");
    drop(timer);
    clock.advance(ms(1));
    let stopped = Some(Some(ScheduleErrorKind::Stopped));
    assert_eq!(told.recv(), Ok([stopped, None, stopped]));
}

#[cfg(feature = "stream")]
#[test]
fn as_a_stream_it_gives_what_next_gives() {
    let mut held = Held::new(Mode::default());
    held.insert_all([(3, 3), (1, 1), (2, 2)]);
    let mut next = |millis| {
        held.manual.advance(millis);
        held.poll_next()
    };
    assert_eq!(next(0), Poll::Pending);
    assert_eq!([next(3), next(0), next(0), next(0)], [some(1), some(2), some(3), EMPTY]);
}

fn after_a_jump_all_come_by_deadline(mode: Mode) {
    let mut held = Held::new(mode);
    for value in 0..500 {
        held.insert(value, u64::from(value) * 7_919 % 5_000);
    }
    held.jump(10_000);
    let values = held.take();
    assert_eq!(values.len(), 500);
    assert!(values.is_sorted_by_key(|value| u64::from(*value) * 7_919 % 5_000));
}

fn a_thread_waits_for_it(mode: Mode) {
    let Held { mut kind, manual, hand } = Held::new(mode);
    for value in [9, 3, 6] {
        kind.insert(value, ms(value.into()));
    }
    // The timer has the waker of another task.
    assert!(kind.poll_expired(&mut hand.context()).is_pending());
    let waiting = thread::spawn(move || {
        let mut batch = Vec::new();
        let due = kind.recv().expect("there is one").expect("it runs");
        assert_eq!(kind.recv_batch(&mut batch, 10), Ok(1));
        (due.value, batch[0].value, kind.recv().expect("there is one").expect("it runs").value)
    });
    for _ in 0..3 {
        wait_until(|| manual.timer.pending() == 1);
        manual.advance(3);
    }
    assert_eq!(waiting.join().expect("no panic"), (3, 6, 9));
}

fn a_thread_waits_for_so_long_and_no_longer(mode: Mode) {
    let Held { mut kind, manual, .. } = Held::new(mode);
    kind.insert(1, ms(100));
    let (sender, receiver) = mpsc::channel();
    let waiting = thread::spawn(move || {
        for timeout in [5, 200] {
            sender.send(kind.recv_timeout(ms(timeout))).unwrap();
        }
    });
    // By the timer's clock, whatever that is.
    wait_until(|| manual.timer.pending() == 1);
    manual.advance(5);
    let elapsed = receiver.recv().unwrap().expect("not empty").expect_err("too late");
    assert_eq!(elapsed.error(), None);
    wait_until(|| manual.timer.pending() == 1);
    manual.advance(95);
    assert_eq!(receiver.recv().unwrap().expect("not empty").expect("in time").value, 1);
    waiting.join().unwrap();
}

fn with_no_time_a_call_does_not_block(mode: Mode) {
    let Held { mut kind, manual, .. } = Held::new(mode);
    kind.insert(1, ms(100));
    // Between two ticks, and on the worker.
    manual.clock.advance(Duration::from_micros(500));
    let mut kind = returns("a call without time", move || {
        let elapsed = kind.recv_timeout(Duration::ZERO).expect("not empty");
        assert_eq!(elapsed.expect_err("too early").error(), None);
        kind
    });
    let (sender, receiver) = mpsc::channel();
    let task = move || sender.send(kind.recv_timeout(Duration::ZERO)).unwrap();
    let _timeout = manual.timer.schedule(ms(5), task).expect("it runs");
    manual.advance(6);
    let elapsed = receiver.recv().unwrap().expect("not empty");
    assert_eq!(elapsed.expect_err("too early").error(), None);
}

/// The worker would wait for itself, also with an executor that runs tasks where it is called.
fn a_call_that_blocks_the_worker_is_an_error_unless_a_value_is_due(mode: Mode) {
    for is_inline in [false, true] {
        let manual = Manual::built(mode, |builder| match is_inline {
            true => builder.executor(|task: BoxedTask| task()),
            false => builder,
        });
        let Held { mut kind, manual, .. } = Held::on(manual);
        kind.insert(1, ms(10));
        kind.insert(4, ms(1_000));
        let (sender, receiver) = mpsc::channel();
        let task = move |_: &Run| {
            assert_eq!(kind.recv_batch(&mut Vec::new(), 0), Ok(0));
            let one = kind.recv().map(|due| due.map(|due| due.value));
            let batched = kind.recv_batch(&mut Vec::new(), 5);
            // So that a loop ends.
            if one.as_ref().is_some_and(Result::is_err) {
                let again = kind.recv_batch(&mut Vec::new(), 5);
                assert_eq!((again, kind.recv()), (Err(ScheduleErrorKind::Deadlock), None));
            }
            let timed = kind.recv_timeout(ms(5)).and_then(Result::err);
            sender.send((one, batched, timed.map(|elapsed| elapsed.error()))).unwrap();
            kind.insert(2, ms(10));
            kind.insert(3, ms(10));
            Next::After(ms(10))
        };
        manual.timer.schedule_with(ms(5), task).expect("it runs");
        manual.advance(5);
        let deadlock = ScheduleErrorKind::Deadlock;
        let refused = (Some(Err(deadlock)), Ok(0), Some(Some(deadlock)));
        assert_eq!(receiver.recv(), Ok(refused));
        manual.advance(10);
        assert_eq!(receiver.recv(), Ok((Some(Ok(1)), Ok(2), Some(Some(deadlock)))));
    }
}
