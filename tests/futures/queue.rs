//! The delay queue: when values come out, in which order, and which task wakes.

use crate::help::{Hand, Manual, ms, wait_until};
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{DelayQueue, Key, Mode, ScheduleErrorKind, Timer};

in_each_mode! {
    what_is_due_at_once_comes_once,
    one_comes_at_its_deadline_and_not_before,
    many_come_each_at_its_own_tick,
    inserted_in_the_past_it_comes_at_once,
    removed_it_comes_back_and_never_again,
    moved_later_it_comes_later,
    moved_into_the_past_it_wakes_who_waits,
    moved_much_earlier_it_comes_then,
    moved_twice_it_comes_at_the_last,
    what_is_due_can_be_moved_again_and_again,
    what_is_due_can_be_removed,
    a_sibling_at_the_edge_of_a_level_can_be_removed,
    an_earlier_one_inserted_later_comes_first,
    several_moved_come_by_their_last_deadlines,
    either_of_two_moved_earlier_comes_first,
    the_first_moved_later_lets_the_second_come_in_time,
    inserted_before_the_first_it_comes_first,
    inserting_while_draining_delays_nothing,
    moved_when_its_bucket_has_begun_it_comes_at_its_tick,
    inserted_in_the_past_while_somebody_waits_it_wakes_him,
    inserted_earlier_while_somebody_waits_it_wakes_him_then,
    emptied_it_says_so,
    emptied_and_shrunk_it_holds_nothing,
    keys_stay_good_when_it_shrinks,
    after_a_long_time_it_goes_on,
    stale_keys_find_nothing,
    peek_shows_what_comes_next,
    peek_is_right_for_two_in_one_bucket,
    peek_is_right_in_a_crowd_and_after_a_jump,
    peek_is_right_while_a_bucket_is_taken_apart,
    removing_the_last_wakes_who_waits,
    clearing_wakes_who_waits,
    a_far_one_does_not_hide_nearer_ones,
    equal_deadlines_come_as_inserted,
    the_longest_delay_is_accepted_and_does_not_come,
    values_are_seen_and_changed_in_place,
    one_timeout_in_the_timer_whatever_is_in_it,
    another_task_that_waits_is_woken_instead,
    a_wait_that_is_dropped_loses_nothing,
    a_stopped_timer_says_so,
    a_full_timer_says_so_and_has_room_later,
    dropped_it_drops_what_it_holds,
    after_a_jump_all_come_by_deadline,
    a_thread_waits_for_it,
    a_thread_waits_for_so_long_and_no_longer,
}

/// A queue on a clock that is moved by hand, and the task that waits for it.
struct Queue {
    queue: DelayQueue<u32>,
    hand: Hand,
    manual: Manual,
}

impl Queue {
    fn new(mode: Mode) -> Self {
        let manual = Manual::new(mode);
        Self { queue: DelayQueue::with_timer(&manual.timer), hand: Hand::new(), manual }
    }

    fn insert(&mut self, value: u32, delay: u64) -> Key {
        let deadline = self.manual.clock.now() + ms(delay);
        let key = self.queue.insert(value, ms(delay));
        assert_eq!(self.queue.deadline(key), Some(deadline));
        key
    }

    fn reset(&mut self, key: Key, delay: u64) {
        assert!(self.queue.reset(key, ms(delay)));
    }

    fn now(&self) -> u64 {
        self.manual.clock.now().duration_since(self.manual.at(0)).as_millis() as u64
    }

    fn advance(&self, millis: u64) {
        self.manual.advance(millis);
    }

    /// What a poll gives: a value, that the queue is empty, or that there is nothing yet.
    fn poll(&mut self) -> Poll<Option<u32>> {
        let due = self.queue.poll_expired(&mut self.hand.context());
        due.map(|due| {
            due.map(|due| {
                let due = due.expect("the timer runs");
                assert!(due.deadline <= self.manual.clock.now(), "never early");
                assert_eq!(self.queue.get(due.key), None, "its key is stale");
                due.value
            })
        })
    }

    /// All that is due.
    fn take(&mut self) -> Vec<u32> {
        let mut values = Vec::new();
        while let Poll::Ready(Some(value)) = self.poll() {
            values.push(value);
        }
        values
    }

    /// Goes on tick by tick, and polls only when woken. Returns the values, and when they came.
    fn run(&mut self, until: u64) -> Vec<(u64, u32)> {
        let mut seen: Vec<_> = self.take().into_iter().map(|value| (self.now(), value)).collect();
        self.hand.woken();
        while self.now() < until {
            self.advance(1);
            if self.hand.woken() > 0 {
                let now = self.now();
                seen.extend(self.take().into_iter().map(|value| (now, value)));
            }
        }
        seen
    }
}

const EMPTY: Poll<Option<u32>> = Poll::Ready(None);

fn some(value: u32) -> Poll<Option<u32>> {
    Poll::Ready(Some(value))
}

fn what_is_due_at_once_comes_once(mode: Mode) {
    let mut queue = Queue::new(mode);
    queue.insert(1, 0);
    assert_eq!((queue.poll(), queue.poll()), (some(1), EMPTY));
    for value in 0..3 {
        queue.insert(value, 0);
    }
    assert_eq!((queue.take(), queue.poll()), (vec![0, 1, 2], EMPTY));
    // Between two ticks it is the next.
    queue.manual.clock.advance(Duration::from_micros(1));
    queue.queue.insert(7, Duration::ZERO);
    assert_eq!(queue.poll(), Poll::Pending);
    queue.advance(1);
    assert_eq!((queue.hand.woken(), queue.poll(), queue.poll()), (1, some(7), EMPTY));
}

fn one_comes_at_its_deadline_and_not_before(mode: Mode) {
    let mut queue = Queue::new(mode);
    queue.insert(1, 5);
    assert_eq!(queue.poll(), Poll::Pending);
    queue.advance(1);
    assert_eq!((queue.hand.woken(), queue.poll()), (0, Poll::Pending));
    queue.advance(3);
    assert_eq!((queue.hand.woken(), queue.poll()), (0, Poll::Pending));
    queue.advance(1);
    assert_eq!((queue.hand.woken(), queue.poll(), queue.poll()), (1, some(1), EMPTY));
}

fn many_come_each_at_its_own_tick(mode: Mode) {
    let mut queue = Queue::new(mode);
    let near = [1_000, 2, 234, 60, 10, 64, 128, 4_095, 4_096];
    for (value, delay) in near.into_iter().enumerate() {
        queue.insert(value as u32, delay);
    }
    let mut expected: Vec<_> = near.into_iter().zip(0..).collect();
    expected.sort();
    assert_eq!(queue.run(4_100), expected);
    // Those further away with jumps in between.
    let now = queue.now();
    for delay in [300_000, 65_536, 262_144, 100_000] {
        queue.insert(delay as u32, delay);
    }
    for delay in [65_536, 100_000, 262_144, 300_000] {
        queue.manual.clock.jump(ms(now + delay - 1 - queue.now()));
        assert_eq!(queue.poll(), Poll::Pending);
        queue.advance(1);
        assert_eq!(queue.poll(), some(delay as u32));
    }
    assert_eq!(queue.poll(), EMPTY);
}

fn inserted_in_the_past_it_comes_at_once(mode: Mode) {
    let mut queue = Queue::new(mode);
    queue.advance(100);
    for millis in [60, 20, 40] {
        queue.queue.insert_at(millis as u32, queue.manual.at(millis));
    }
    assert_eq!((queue.take(), queue.poll()), (vec![20, 40, 60], EMPTY));
}

fn removed_it_comes_back_and_never_again(mode: Mode) {
    let mut queue = Queue::new(mode);
    let key = queue.insert(1, 5);
    assert_eq!(queue.queue.remove(key), Some(1));
    assert_eq!((queue.queue.remove(key), queue.queue.len()), (None, 0));
    assert_eq!(queue.run(10), []);
    assert_eq!(queue.poll(), EMPTY);
}

fn moved_later_it_comes_later(mode: Mode) {
    let mut queue = Queue::new(mode);
    let key = queue.insert(1, 5);
    assert_eq!(queue.poll(), Poll::Pending);
    queue.reset(key, 10);
    queue.advance(7);
    assert_eq!(queue.poll(), Poll::Pending);
    assert_eq!(queue.run(20), [(10, 1)]);
}

fn moved_into_the_past_it_wakes_who_waits(mode: Mode) {
    let mut queue = Queue::new(mode);
    let key = queue.insert(1, 100);
    queue.advance(50);
    assert_eq!(queue.poll(), Poll::Pending);
    assert!(queue.queue.reset_at(key, queue.manual.at(40)));
    // Here and now, with no help of the timer.
    assert_eq!((queue.hand.woken(), queue.poll(), queue.poll()), (1, some(1), EMPTY));
}

fn moved_much_earlier_it_comes_then(mode: Mode) {
    let mut queue = Queue::new(mode);
    let key = queue.insert(1, 200);
    assert_eq!(queue.poll(), Poll::Pending);
    queue.advance(3);
    queue.reset(key, 10);
    assert_eq!(queue.hand.woken(), 0);
    queue.advance(9);
    assert_eq!(queue.hand.woken(), 0);
    queue.advance(1);
    assert_eq!((queue.hand.woken(), queue.poll()), (1, some(1)));
}

fn moved_twice_it_comes_at_the_last(mode: Mode) {
    let mut queue = Queue::new(mode);
    let key = queue.insert(1, 200);
    assert_eq!(queue.poll(), Poll::Pending);
    queue.reset(key, 50);
    queue.advance(20);
    queue.reset(key, 40);
    queue.advance(39);
    assert_eq!(queue.poll(), Poll::Pending);
    queue.advance(1);
    assert_eq!((queue.hand.woken() > 0, queue.poll()), (true, some(1)));
}

fn what_is_due_can_be_moved_again_and_again(mode: Mode) {
    let mut queue = Queue::new(mode);
    queue.advance(100);
    let key = queue.queue.insert_at(1, queue.manual.at(50));
    for delay in [100, 50, 0, 60] {
        queue.reset(key, delay);
        assert_eq!(queue.queue.len(), 1);
    }
    assert_eq!(queue.poll(), Poll::Pending);
    assert!(queue.queue.reset_at(key, queue.manual.at(10)));
    queue.reset(key, 20);
    assert_eq!(queue.run(200), [(120, 1)]);
    assert_eq!(queue.poll(), EMPTY);
}

fn what_is_due_can_be_removed(mode: Mode) {
    let mut queue = Queue::new(mode);
    let (key, other) = (queue.insert(1, 10), queue.insert(2, 10));
    assert_eq!(queue.poll(), Poll::Pending);
    queue.advance(10);
    assert_eq!((queue.hand.woken(), queue.queue.remove(key)), (1, Some(1)));
    assert_eq!((queue.poll(), queue.poll()), (some(2), EMPTY));
    assert_eq!(queue.queue.remove(other), None);
}

fn a_sibling_at_the_edge_of_a_level_can_be_removed(mode: Mode) {
    for edge in [64, 128, 4_096] {
        let mut queue = Queue::new(mode);
        queue.insert(1, edge);
        let sibling = queue.insert(2, edge);
        assert_eq!(queue.poll(), Poll::Pending);
        queue.advance(edge);
        assert_eq!(queue.poll(), some(1));
        assert_eq!(queue.queue.remove(sibling), Some(2));
        assert_eq!(queue.poll(), EMPTY);
    }
}

fn an_earlier_one_inserted_later_comes_first(mode: Mode) {
    let mut queue = Queue::new(mode);
    queue.insert(1, 10_000);
    assert_eq!(queue.poll(), Poll::Pending);
    queue.insert(2, 600);
    queue.insert(3, 8);
    assert_eq!(queue.run(700), [(8, 3), (600, 2)]);
}

fn several_moved_come_by_their_last_deadlines(mode: Mode) {
    let mut queue = Queue::new(mode);
    let (first, second) = (queue.insert(1, 200), queue.insert(2, 250));
    assert_eq!(queue.poll(), Poll::Pending);
    queue.reset(first, 300);
    queue.reset(second, 350);
    queue.reset(first, 400);
    assert_eq!(queue.run(500), [(350, 2), (400, 1)]);
}

fn either_of_two_moved_earlier_comes_first(mode: Mode) {
    for is_first in [true, false] {
        let mut queue = Queue::new(mode);
        let (first, second) = (queue.insert(1, 200), queue.insert(2, 250));
        assert_eq!(queue.poll(), Poll::Pending);
        queue.reset(if is_first { first } else { second }, 100);
        let expected = if is_first { [(100, 1), (250, 2)] } else { [(100, 2), (200, 1)] };
        assert_eq!(queue.run(300), expected);
    }
}

fn the_first_moved_later_lets_the_second_come_in_time(mode: Mode) {
    let mut queue = Queue::new(mode);
    let first = queue.insert(1, 200);
    queue.insert(2, 250);
    assert_eq!(queue.poll(), Poll::Pending);
    queue.reset(first, 300);
    assert_eq!(queue.run(400), [(250, 2), (300, 1)]);
}

fn inserted_before_the_first_it_comes_first(mode: Mode) {
    let mut queue = Queue::new(mode);
    queue.insert(1, 200);
    assert_eq!(queue.poll(), Poll::Pending);
    queue.insert(2, 100);
    queue.advance(99);
    assert_eq!(queue.poll(), Poll::Pending);
    queue.advance(1);
    assert_eq!((queue.hand.woken(), queue.poll()), (1, some(2)));
}

fn inserting_while_draining_delays_nothing(mode: Mode) {
    let mut queue = Queue::new(mode);
    for value in 1..=3 {
        queue.insert(value, 100);
    }
    assert_eq!(queue.poll(), Poll::Pending);
    queue.advance(100);
    assert_eq!(queue.hand.woken(), 1);
    assert_eq!(queue.poll(), some(1));
    queue.insert(4, 500);
    queue.insert(5, 0);
    assert_eq!(queue.take(), [2, 3, 5]);
    assert_eq!(queue.poll(), Poll::Pending);
    queue.advance(500);
    assert_eq!((queue.hand.woken(), queue.poll()), (1, some(4)));
}

fn moved_when_its_bucket_has_begun_it_comes_at_its_tick(mode: Mode) {
    for (from, to) in [(100, 120), (200, 120), (70, 127), (127, 81)] {
        let mut queue = Queue::new(mode);
        let key = queue.insert(1, from);
        assert_eq!(queue.poll(), Poll::Pending);
        let early = from.min(80);
        queue.advance(early);
        if from <= 80 {
            // It is due, and no task polled.
            assert_eq!(queue.hand.woken(), 1);
        }
        assert!(queue.queue.reset_at(key, queue.manual.at(to)));
        queue.advance(to - early - 1);
        assert_eq!(queue.poll(), Poll::Pending);
        queue.advance(1);
        assert_eq!(queue.poll(), some(1), "{from} {to}");
    }
}

fn inserted_in_the_past_while_somebody_waits_it_wakes_him(mode: Mode) {
    let mut queue = Queue::new(mode);
    queue.advance(200);
    queue.insert(1, 100);
    assert_eq!(queue.poll(), Poll::Pending);
    queue.advance(50);
    queue.queue.insert_at(2, queue.manual.at(220));
    assert_eq!((queue.hand.woken(), queue.poll()), (1, some(2)));
    assert_eq!(queue.poll(), Poll::Pending);
}

fn inserted_earlier_while_somebody_waits_it_wakes_him_then(mode: Mode) {
    let mut queue = Queue::new(mode);
    queue.insert(1, 300);
    assert_eq!(queue.poll(), Poll::Pending);
    for (value, delay) in [(2, 200), (3, 250), (4, 90), (5, 100)] {
        queue.insert(value, delay);
    }
    queue.advance(89);
    assert_eq!(queue.hand.woken(), 0);
    queue.advance(1);
    assert_eq!((queue.hand.woken(), queue.poll()), (1, some(4)));
}

fn emptied_it_says_so(mode: Mode) {
    let mut queue = Queue::new(mode);
    assert_eq!(queue.poll(), EMPTY);
    let key = queue.insert(1, 10);
    assert_eq!(queue.poll(), Poll::Pending);
    assert_eq!(queue.queue.remove(key), Some(1));
    assert_eq!((queue.poll(), queue.queue.is_empty()), (EMPTY, true));
    queue.insert(2, 0);
    assert_eq!((queue.poll(), queue.poll()), (some(2), EMPTY));
}

fn emptied_and_shrunk_it_holds_nothing(mode: Mode) {
    for is_removed in [true, false] {
        let mut queue = Queue::new(mode);
        let held = allocation_counter::measure(|| {
            let keys: Vec<_> = (0..1_000).map(|value| queue.insert(value, 10)).collect();
            if is_removed {
                assert!(keys.into_iter().all(|key| queue.queue.remove(key).is_some()));
            } else {
                queue.advance(10);
                assert_eq!(queue.take().len(), 1_000);
            }
            queue.queue.shrink_to_fit();
        });
        assert!(held.bytes_max > 16_000);
        assert_eq!((held.bytes_current, queue.poll()), (0, EMPTY));
        queue.queue.reserve(1_000);
        queue.insert(1, 10);
        assert_eq!(queue.run(20).len(), 1);
    }
}

fn keys_stay_good_when_it_shrinks(mode: Mode) {
    let mut queue = Queue::new(mode);
    let keys: Vec<_> = (0..100).map(|value| queue.insert(value, 100)).collect();
    for key in &keys[..90] {
        assert!(queue.queue.remove(*key).is_some());
    }
    queue.queue.shrink_to_fit();
    assert_eq!(queue.queue.deadline(keys[95]), Some(queue.manual.at(100)));
    queue.reset(keys[95], 50);
    assert_eq!(queue.queue.remove(keys[96]), Some(96));
    let others: Vec<_> = (200..210).map(|value| queue.insert(value, 10)).collect();
    queue.queue.shrink_to_fit();
    assert_eq!(queue.queue.remove(others[3]), Some(203));
    let seen = queue.run(200);
    assert_eq!(seen.len(), 9 + 9);
    assert!(seen.contains(&(50, 95)) && seen.contains(&(100, 99)) && seen.contains(&(10, 209)));
}

fn after_a_long_time_it_goes_on(mode: Mode) {
    let mut queue = Queue::new(mode);
    for millis in [1 << 36, (1 << 36) + 5, 1 << 40] {
        queue.manual.clock.jump(ms(millis));
        queue.insert(1, 10);
        queue.insert(2, 1 << 36);
        assert_eq!(queue.poll(), Poll::Pending);
        queue.advance(10);
        assert_eq!((queue.hand.woken(), queue.poll(), queue.poll()), (1, some(1), Poll::Pending));
        queue.manual.clock.jump(ms(1 << 36));
        assert_eq!((queue.poll(), queue.poll()), (some(2), EMPTY));
        queue.hand.woken();
    }
}

fn stale_keys_find_nothing(mode: Mode) {
    let mut queue = Queue::new(mode);
    let (removed, due) = (queue.insert(1, 10), queue.insert(2, 5));
    assert_eq!(queue.queue.remove(removed), Some(1));
    queue.advance(5);
    assert_eq!(queue.poll(), some(2));
    // Their places are taken, before and after shrinking.
    for _ in 0..2 {
        queue.insert(3, 50);
        queue.insert(4, 50);
        for key in [removed, due] {
            assert_eq!((queue.queue.remove(key), queue.queue.get(key)), (None, None));
            assert!(queue.queue.get_mut(key).is_none());
            assert_eq!(queue.queue.deadline(key), None);
            assert!(!queue.queue.reset(key, ms(1)) && !queue.queue.reset_at(key, Instant::now()));
        }
        queue.queue.shrink_to_fit();
    }
    assert_eq!(queue.queue.len(), 4);
    assert_eq!(queue.run(100).len(), 4);
}

fn peek_shows_what_comes_next(mode: Mode) {
    let mut queue = Queue::new(mode);
    assert_eq!((queue.queue.peek(), queue.queue.next_deadline()), (None, None));
    let mut keys: Vec<_> = [30, 10, 20].map(|delay| (delay, queue.insert(0, delay))).into();
    keys.sort();
    for (delay, key) in keys {
        assert_eq!(queue.queue.peek(), Some(key));
        assert_eq!(queue.queue.next_deadline(), Some(queue.manual.at(delay)));
        assert_eq!(queue.poll(), Poll::Pending);
        queue.advance(10);
        assert_eq!(queue.queue.peek(), Some(key));
        assert_eq!(queue.poll(), some(0));
    }
    assert_eq!(queue.queue.peek(), None);
}

fn peek_is_right_for_two_in_one_bucket(mode: Mode) {
    let mut queue = Queue::new(mode);
    let (late, early) = (queue.insert(1, 6_000), queue.insert(2, 5_990));
    assert_eq!(queue.queue.peek(), Some(early));
    assert_eq!(queue.poll(), Poll::Pending);
    assert_eq!(queue.queue.next_deadline(), Some(queue.manual.at(5_990)));
    queue.advance(5_990);
    assert_eq!((queue.poll(), queue.queue.peek()), (some(2), Some(late)));
}

/// All that there is comes out by key as peek has said.
#[track_caller]
fn assert_peek_names_what_comes(queue: &mut Queue) {
    while let Some(next) = queue.queue.peek() {
        assert_eq!(queue.queue.deadline(next), queue.queue.next_deadline());
        match queue.queue.poll_expired(&mut queue.hand.context()) {
            Poll::Ready(due) => {
                assert_eq!(due.map(|due| due.expect("the timer runs").key), Some(next));
            }
            Poll::Pending => queue.advance(1),
        }
    }
    assert!(queue.queue.is_empty());
}

fn peek_is_right_in_a_crowd_and_after_a_jump(mode: Mode) {
    // All at once, many of each deadline, all different.
    for deadlines in [1, 7, 5_000] {
        let mut queue = Queue::new(mode);
        let insert = |value| queue.insert(value, 100 + u64::from(value) * 7_919 % deadlines);
        let keys: Vec<_> = (0..3_000).map(insert).collect();
        for key in keys.into_iter().step_by(3) {
            assert!(queue.queue.remove(key).is_some());
        }
        queue.manual.clock.jump(ms(4_000));
        assert_peek_names_what_comes(&mut queue);
    }
}

fn peek_is_right_while_a_bucket_is_taken_apart(mode: Mode) {
    const FAR: u64 = 1 << 20;
    let mut queue = Queue::new(mode);
    let mut value = 0;
    let mut insert = |deadline, values| {
        for _ in 0..values {
            queue.insert(value, deadline);
            value += 1;
        }
    };
    insert(FAR, 1);
    insert(FAR + 1, 1);
    insert(FAR + 2, 4_000);
    insert(FAR + 1, 1);
    queue.manual.clock.jump(ms(FAR + 5));
    assert_peek_names_what_comes(&mut queue);
}

fn removing_the_last_wakes_who_waits(mode: Mode) {
    let mut queue = Queue::new(mode);
    let (first, last) = (queue.insert(1, 10), queue.insert(2, 20));
    assert_eq!(queue.poll(), Poll::Pending);
    assert_eq!((queue.queue.remove(first), queue.hand.woken()), (Some(1), 0));
    assert_eq!((queue.queue.remove(last), queue.hand.woken()), (Some(2), 1));
    assert_eq!((queue.poll(), queue.hand.wakers(), queue.manual.timer.pending()), (EMPTY, 0, 0));
}

fn clearing_wakes_who_waits(mode: Mode) {
    let mut queue = Queue::new(mode);
    queue.insert(1, 10);
    queue.insert(2, 20);
    assert_eq!(queue.poll(), Poll::Pending);
    queue.queue.clear();
    assert_eq!((queue.hand.woken(), queue.poll()), (1, EMPTY));
    queue.advance(100);
    assert_eq!(queue.hand.woken(), 0);
}

fn a_far_one_does_not_hide_nearer_ones(mode: Mode) {
    let mut queue = Queue::new(mode);
    queue.manual.clock.jump(ms((1 << 24) - 100));
    let now = queue.now();
    for delay in [1 << 40, 1 << 36, (1 << 24) + 5, 5_000, 70, 3] {
        queue.insert(delay as u32, delay);
    }
    assert_eq!(queue.run(now + 5_100), [(now + 3, 3), (now + 70, 70), (now + 5_000, 5_000)]);
}

fn equal_deadlines_come_as_inserted(mode: Mode) {
    let mut queue = Queue::new(mode);
    // From far and from near: with a demotion between and without.
    for (value, delay) in [(1, 5_000), (2, 5_000)] {
        queue.insert(value, delay);
    }
    assert_eq!(queue.poll(), Poll::Pending);
    queue.advance(4_900);
    queue.take();
    queue.insert(3, 100);
    queue.advance(90);
    queue.take();
    let moved = queue.insert(9, 5);
    queue.insert(4, 10);
    queue.reset(moved, 10);
    assert_eq!(queue.run(5_010), [1, 2, 3, 4, 9].map(|value| (5_000, value)));
}

fn the_longest_delay_is_accepted_and_does_not_come(mode: Mode) {
    let mut queue = Queue::new(mode);
    let longest = queue.queue.insert(1, Duration::MAX);
    queue.queue.insert(2, Duration::from_secs(u64::MAX / 10));
    assert_eq!((queue.queue.deadline(longest), queue.queue.next_deadline()), (None, None));
    queue.insert(3, 5);
    assert_eq!(queue.run(10), [(5, 3)]);
    queue.manual.clock.jump(ms(1 << 50));
    assert_eq!((queue.poll(), queue.queue.len()), (Poll::Pending, 2));
    queue.reset(longest, 5);
    queue.advance(5);
    assert_eq!((queue.hand.woken(), queue.poll()), (1, some(1)));
}

fn values_are_seen_and_changed_in_place(mode: Mode) {
    let mut queue = Queue::new(mode);
    let key = queue.insert(1, 10);
    *queue.queue.get_mut(key).expect("it waits") += 1;
    assert_eq!(queue.queue.get(key), Some(&2));
    assert!(format!("{:?}", queue.queue).contains('2'));
    assert_eq!(queue.run(10), [(10, 2)]);
}

fn one_timeout_in_the_timer_whatever_is_in_it(mode: Mode) {
    let mut queue = Queue::new(mode);
    for value in 0..1_000 {
        queue.insert(value, 10 + u64::from(value) % 100);
    }
    assert_eq!(queue.manual.timer.pending(), 0);
    assert_eq!(queue.poll(), Poll::Pending);
    assert_eq!((queue.manual.timer.pending(), queue.hand.wakers()), (1, 1));
    assert_eq!(queue.run(200).len(), 1_000);
    assert_eq!(queue.manual.timer.pending(), 0);
}

fn another_task_that_waits_is_woken_instead(mode: Mode) {
    let (mut queue, other) = (Queue::new(mode), Hand::new());
    queue.insert(1, 10);
    assert_eq!(queue.poll(), Poll::Pending);
    assert!(queue.queue.poll_expired(&mut other.context()).is_pending());
    queue.advance(10);
    assert_eq!((queue.hand.woken(), other.woken()), (0, 1));
}

fn a_wait_that_is_dropped_loses_nothing(mode: Mode) {
    let mut queue = Queue::new(mode);
    queue.insert(1, 10);
    assert!(queue.hand.poll_once(queue.queue.next()).is_pending());
    drop(queue.queue.next());
    queue.advance(10);
    assert_eq!(queue.hand.woken(), 1);
    let Poll::Ready(Some(Ok(due))) = queue.hand.poll_once(queue.queue.next()) else {
        panic!("it is due")
    };
    assert_eq!((due.value, due.deadline), (1, queue.manual.at(10)));
}

fn a_stopped_timer_says_so(mode: Mode) {
    let mut queue = Queue::new(mode);
    queue.insert(1, 10);
    let late = queue.insert(2, 20);
    assert_eq!(queue.poll(), Poll::Pending);
    assert!(queue.manual.timer.stop().expect("outside").is_empty());
    assert_eq!(queue.hand.woken(), 1);
    let stopped = Err(ScheduleErrorKind::Stopped);
    for _ in 0..2 {
        let poll = |queue: &mut Queue| queue.queue.poll_expired(&mut queue.hand.context());
        assert_eq!(poll(&mut queue), Poll::Ready(Some(stopped)));
        assert_eq!(poll(&mut queue), Poll::Ready(None));
    }
    assert_eq!(queue.queue.recv(), Some(stopped));
    assert_eq!(queue.queue.recv(), None);
    let elapsed = queue.queue.recv_timeout(ms(5)).expect("not empty").expect_err("it is stopped");
    assert_eq!(elapsed.error(), Some(ScheduleErrorKind::Stopped));
    // What is due comes out, and the rest can be removed.
    queue.manual.clock.jump(ms(10));
    assert_eq!(queue.poll(), some(1));
    assert_eq!(queue.queue.remove(late), Some(2));
    assert_eq!((queue.poll(), queue.queue.recv().iter().count()), (EMPTY, 0));
}

fn a_full_timer_says_so_and_has_room_later(mode: Mode) {
    let (manual, hand) = (Manual::built(mode, |builder| builder.max_pending(1)), Hand::new());
    let mut queue = DelayQueue::with_timer(&manual.timer);
    queue.insert(1, ms(10));
    let kept = manual.timer.schedule(ms(100), || {}).expect("there is room");
    let full = Some(Err(ScheduleErrorKind::Full));
    assert_eq!(queue.poll_expired(&mut hand.context()), Poll::Ready(full));
    assert_eq!(queue.poll_expired(&mut hand.context()), Poll::Ready(None));
    assert!(kept.cancel());
    assert!(queue.poll_expired(&mut hand.context()).is_pending());
    manual.advance(10);
    assert!(queue.poll_expired(&mut hand.context()).is_ready());
}

fn dropped_it_drops_what_it_holds(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut queue = DelayQueue::with_timer(&manual.timer);
    let value = std::sync::Arc::new(());
    queue.insert(std::sync::Arc::clone(&value), ms(10));
    assert!(queue.poll_expired(&mut hand.context()).is_pending());
    drop(queue);
    assert_eq!((std::sync::Arc::strong_count(&value), hand.wakers()), (1, 0));
    assert_eq!(manual.timer.pending(), 0);
}

fn after_a_jump_all_come_by_deadline(mode: Mode) {
    let mut queue = Queue::new(mode);
    for value in 0..500 {
        queue.insert(value, u64::from(value) * 7_919 % 5_000);
    }
    queue.manual.clock.jump(ms(10_000));
    let values = queue.take();
    assert_eq!(values.len(), 500);
    assert!(values.is_sorted_by_key(|value| u64::from(*value) * 7_919 % 5_000));
}

fn a_thread_waits_for_it(mode: Mode) {
    let timer = Timer::builder().mode(mode).build().expect("in range");
    let start = Instant::now();
    let mut queue = DelayQueue::with_timer(&timer);
    assert!(queue.recv().is_none());
    for delay in [9_u64, 3, 6] {
        queue.insert_at(delay, start + ms(delay));
    }
    let due = queue.recv().expect("there is one").expect("it runs");
    assert_eq!(due.value, 3);
    assert!(start + ms(3) <= due.deadline && due.deadline <= Instant::now());
    let rest: Vec<_> =
        std::iter::from_fn(|| queue.recv()).map(|due| due.expect("it runs").value).collect();
    assert_eq!(rest, [6, 9]);
    assert!(ms(9) <= start.elapsed());
    // With a waker that is not its own in the timer.
    let hand = Hand::new();
    queue.insert(1, ms(5));
    assert!(queue.poll_expired(&mut hand.context()).is_pending());
    assert_eq!(queue.recv().expect("there is one").expect("it runs").value, 1);
}

fn a_thread_waits_for_so_long_and_no_longer(mode: Mode) {
    let manual = Manual::new(mode);
    let mut queue = DelayQueue::with_timer(&manual.timer);
    assert!(queue.recv_timeout(ms(5)).is_none());
    queue.insert(1, ms(100));
    let (sender, receiver) = mpsc::channel();
    let waiting = thread::spawn(move || {
        for timeout in [5, 200, 5] {
            sender.send(queue.recv_timeout(ms(timeout))).unwrap();
        }
    });
    // By the timer's clock, whatever that is.
    wait_until(|| manual.timer.pending() == 2);
    manual.advance(5);
    let elapsed = receiver.recv().unwrap().expect("not empty").expect_err("too late");
    assert_eq!(elapsed.error(), None);
    wait_until(|| manual.timer.pending() == 2);
    manual.advance(95);
    assert_eq!(receiver.recv().unwrap().expect("not empty").expect("in time").value, 1);
    assert!(receiver.recv().unwrap().is_none());
    waiting.join().unwrap();
}

#[cfg(feature = "stream")]
#[test]
fn as_a_stream_it_ends_when_it_is_empty() {
    use futures::StreamExt;

    let mut queue = DelayQueue::new();
    // From one instant: a thread that is held up between two inserts does not change the order.
    let start = Instant::now();
    for number in [3_u64, 1, 2] {
        queue.insert_at(number, start + ms(number));
    }
    let values = futures::executor::block_on(
        (&mut queue).map(|due| due.expect("it runs").value).collect::<Vec<_>>(),
    );
    assert_eq!(values, [1, 2, 3]);
    queue.insert(4, ms(1));
    let next = futures::executor::block_on(StreamExt::next(&mut queue));
    assert_eq!(next.expect("there is one").expect("it runs").value, 4);
}

/// Only the poll right after an error says None.
#[test]
fn a_value_after_an_error_takes_the_place_of_the_end() {
    let manual = Manual::built(Mode::default(), |builder| builder.max_pending(1));
    let hand = Hand::new();
    let mut queue = DelayQueue::with_timer(&manual.timer);
    queue.insert("a", ms(10));
    queue.insert("b", ms(20));
    let only = manual.timer.schedule(ms(1_000), || {}).expect("there is room");
    let error = Poll::Ready(Some(Err(ScheduleErrorKind::Full)));
    assert_eq!(queue.poll_expired(&mut hand.context()), error);
    manual.advance(10);
    let value =
        queue.poll_expired(&mut hand.context()).map(|due| due.map(|due| due.map(|d| d.value)));
    assert_eq!(value, Poll::Ready(Some(Ok("a"))));
    assert!(only.cancel());
    assert_eq!(queue.poll_expired(&mut hand.context()), Poll::Pending);
    manual.advance(10);
    assert!(matches!(queue.poll_expired(&mut hand.context()), Poll::Ready(Some(Ok(_)))));
    assert_eq!(queue.poll_expired(&mut hand.context()), Poll::Ready(None));
}
