//! The delay queue: what it has in common with a map and a channel, and what it alone has.

use crate::common::long;
use crate::help::{Hand, Manual, ms};
use shared::Held;
use std::sync::mpsc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tickwheel::{DelayQueue, Key, Mode, Timer};

#[path = "shared.rs"]
mod shared;

in_each_mode! {
    peek_shows_what_comes_next,
    peek_is_right_for_two_in_one_bucket,
    peek_is_right_in_a_crowd_and_after_a_jump,
    peek_is_right_while_a_bucket_is_taken_apart,
    emptied_it_wakes_who_waits,
    while_it_is_empty_nobody_waits_on_the_worker_either,
    values_are_seen_and_changed_in_place,
    values_are_listed_and_taken_out_with_their_deadlines,
    room_is_made_once_and_not_beyond_memory,
}

type Kind = DelayQueue<u32>;
type KindKey = Key;

fn on(timer: &Timer) -> Kind {
    DelayQueue::with_timer(timer)
}

fn replace(queue: &mut Kind, key: Key, value: u32, delay: Duration) -> (Option<u32>, Key) {
    (queue.remove(key), queue.insert(value, delay))
}

/// What can be asked about a value, and about the next, is true.
fn check(queue: &mut Kind, key: Key, held: Option<(u32, Instant)>, next: Option<Instant>) {
    assert_eq!((queue.get(key).copied(), queue.deadline(key)), held.unzip());
    assert_eq!(queue.next_deadline(), next);
    assert_eq!(queue.peek().and_then(|key| queue.deadline(key)), next);
}

/// All that there is comes out by key as peek has said.
#[track_caller]
fn assert_peek_names_what_comes(Held { kind: mut queue, hand, manual }: Held) {
    while let Some(next) = queue.peek() {
        assert_eq!(queue.deadline(next), queue.next_deadline());
        match queue.poll_expired(&mut hand.context()) {
            Poll::Ready(due) => {
                assert_eq!(due.map(|due| due.expect("the timer runs").key), Some(next));
            }
            Poll::Pending => drop(manual.advance(1)),
        }
    }
    assert!(queue.is_empty());
}

fn room_is_made_once_and_not_beyond_memory(mode: Mode) {
    let timer = &Manual::new(mode).timer;
    let mut queue = DelayQueue::<u64>::with_timer(timer);
    let mut bytes = |room| allocation_counter::measure(|| queue.reserve(room)).bytes_current;
    let each = size_of::<u64>() as i64;
    assert!(each * 10_000 <= bytes(10_000));
    assert_eq!((bytes(10_000), bytes(usize::MAX)), (0, 0));
    queue.insert(7, ms(10));
    assert_eq!(queue.len(), 1);
}

fn peek_shows_what_comes_next(mode: Mode) {
    let mut held = Held::new(mode);
    assert_eq!((held.kind.peek(), held.kind.next_deadline()), (None, None));
    let mut keys = [30, 10, 20].map(|delay| (delay, held.insert(0, delay)));
    keys.sort();
    for (delay, key) in keys {
        assert_eq!(held.kind.peek(), Some(key));
        assert_eq!(held.kind.next_deadline(), Some(held.manual.at(delay)));
        assert!(held.poll().is_pending());
        held.manual.advance(10);
        assert_eq!(held.kind.peek(), Some(key));
        assert!(held.poll().is_ready());
    }
    assert_eq!(held.kind.peek(), None);
    held.kind.insert(1, Duration::MAX);
    assert_eq!(held.kind.next_deadline(), None);
}

fn peek_is_right_for_two_in_one_bucket(mode: Mode) {
    let mut held = Held::new(mode);
    let (_, early) = (held.insert(1, 6_000), held.insert(2, 5_990));
    assert_eq!(held.kind.peek(), Some(early));
    held.manual.advance(5_990);
    assert_peek_names_what_comes(held);
}

fn peek_is_right_in_a_crowd_and_after_a_jump(mode: Mode) {
    // All at once, many of each deadline, all different.
    for deadlines in [1, 7, 5_000] {
        let mut held = Held::new(mode);
        let insert = |value| held.insert(value, 100 + u64::from(value) * 7_919 % deadlines);
        let keys: Vec<_> = (0..long(1_000, 3_000)).map(insert).collect();
        for key in keys.into_iter().step_by(3) {
            assert!(held.kind.remove(key).is_some());
        }
        held.manual.jump(4_000);
        assert_peek_names_what_comes(held);
    }
}

fn peek_is_right_while_a_bucket_is_taken_apart(mode: Mode) {
    const FAR: u64 = 1 << 20;
    let mut held = Held::new(mode);
    for (deadline, values) in [(FAR, 1), (FAR + 1, 1), (FAR + 2, 4_000), (FAR + 1, 1)] {
        for value in 0..values {
            held.insert(value, deadline);
        }
    }
    held.manual.jump(FAR + 5);
    assert_peek_names_what_comes(held);
}

fn emptied_it_wakes_who_waits(mode: Mode) {
    let ways: [fn(&mut Kind); 2] = [Kind::clear, |queue| queue.retain(|_, _, _| false)];
    for empty in ways.map(Some).into_iter().chain([None]) {
        let mut held = Held::new(mode);
        let keys = [held.insert(1, 10), held.insert(2, 20)];
        assert!(held.poll().is_pending());
        if let Some(empty) = empty {
            empty(&mut held.kind);
        } else {
            assert_eq!((held.kind.remove(keys[0]), held.hand.woken()), (Some(1), 0));
            assert_eq!(held.kind.remove(keys[1]), Some(2));
        }
        assert_eq!(held.hand.woken(), 1);
        assert_eq!(held.poll(), EMPTY);
        held.manual.advance(100);
        assert_eq!((held.hand.woken(), held.hand.wakers(), held.manual.timer.pending()), (0, 0, 0));
    }
}

fn while_it_is_empty_nobody_waits_on_the_worker_either(mode: Mode) {
    let manual = Manual::new(mode);
    let mut queue = DelayQueue::<u32>::with_timer(&manual.timer);
    let (answers, answer) = mpsc::channel();
    let task = move || {
        let batch = queue.recv_batch(&mut Vec::new(), 5);
        answers.send((queue.recv(), batch, queue.recv_timeout(ms(5)))).unwrap();
    };
    manual.timer.schedule(ms(5), task).expect("it runs");
    manual.advance(5);
    assert_eq!(answer.recv(), Ok((None, Ok(0), None)));
}

fn values_are_seen_and_changed_in_place(mode: Mode) {
    let mut held = Held::new(mode);
    let key = held.insert(1, 10);
    *held.kind.get_mut(key).expect("it waits") += 1;
    assert_eq!(held.kind.get(key), Some(&2));
    assert!(format!("{:?}", held.kind).contains('2'));
    assert_eq!(held.kind.remove(key), Some(2));
    assert!(held.kind.get(key).is_none() && held.kind.get_mut(key).is_none());
}

fn values_are_listed_and_taken_out_with_their_deadlines(mode: Mode) {
    let mut held = Held::new(mode);
    let delays =
        [30, 0, 5_000].map(|delay| (held.insert(1, delay), Some(held.manual.at(delay)), 1));
    let never = (held.kind.insert(2, Duration::MAX), None, 2);
    let mut all = Vec::from_iter(delays.into_iter().chain([never]));
    all.sort_unstable();
    let mut listed: Vec<_> = held.kind.iter().map(|(key, at, value)| (key, at, *value)).collect();
    listed.sort_unstable();
    assert_eq!(listed, all);
    for (key, at, value) in held.kind.iter_mut() {
        *value += u32::from((key, at, *value) == never);
    }
    all.iter_mut().filter(|one| **one == never).for_each(|one| one.2 = 3);
    let late = held.insert(4, 7);
    held.kind.retain(|key, at, value| {
        let is_in = all.contains(&(key, at, *value));
        assert_eq!(is_in, key != late);
        is_in
    });
    let mut drained: Vec<_> = held.kind.drain().collect();
    drained.sort_unstable();
    assert_eq!((drained, held.kind.len(), held.poll()), (all, 0, EMPTY));
}

#[test]
fn with_a_limit_a_later_value_makes_an_earlier_one_not_late() {
    let (manual, hand) = (Manual::with(|it| it.max_pending(1)), Hand::new());
    let mut queue = DelayQueue::with_timer(&manual.timer);
    queue.insert(1, ms(10));
    assert!(queue.poll_expired(&mut hand.context()).is_pending());
    queue.insert(2, ms(20));
    manual.advance(10);
    assert_eq!(hand.woken(), 1);
}

const EMPTY: Poll<Option<u32>> = Poll::Ready(None);
