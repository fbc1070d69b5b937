//! The delay map: what comes out under which key, and which task wakes. What it shares with the
//! delay queue is tested there.

use crate::help::{Hand, Manual, ms, wait_until};
use fastrand::Rng;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use std::thread;
use tickwheel::{DelayMap, DelayQueue, Mode, ScheduleErrorKind, Timer};

in_each_mode! {
    random_operations_give_what_a_sorted_map_gives,
    replaced_earlier_it_wakes_who_waits,
    replaced_later_it_is_not_early,
    in_the_past_it_comes_at_once,
    emptied_in_any_way_it_wakes_who_waits,
    a_key_that_panics_in_drop_hides_no_wake_up,
    a_hasher_may_call_the_timer,
    the_next_due_waits_while_it_is_empty,
    the_next_due_gives_each_error_anew,
    a_batch_has_what_is_due_and_no_more,
    a_batch_that_is_dropped_loses_nothing,
    a_stopped_timer_says_so,
    a_thread_waits_for_it,
    one_timeout_in_the_timer_whatever_is_in_it,
    it_allocates_a_wheel_and_a_table_alone,
    dropped_it_drops_what_it_holds,
}

type Map = DelayMap<u32, u32>;

/// What a poll gives, as key and value.
fn poll<S>(map: &mut DelayMap<u32, u32, S>, hand: &Hand) -> Poll<Option<(u32, u32)>> {
    map.poll_expired(&mut hand.context())
        .map(|due| due.map(|due| due.expect("the timer runs")).map(|due| (due.key, due.value)))
}

/// By deadline, then by the order of inserting.
fn random_operations_give_what_a_sorted_map_gives(mode: Mode) {
    for seed in 0..20 {
        let mut rng = Rng::with_seed(seed);
        let (manual, hand) = (Manual::new(mode), Hand::new());
        let mut map = Map::with_timer(&manual.timer);
        let (mut pending, mut places) = (BTreeMap::new(), HashMap::<u32, (u64, u64)>::new());
        let (mut now, mut waits) = (0, false);
        for order in 0..400_u64 {
            let most = [5, 100, 5_000][rng.usize(..3)];
            let (key, delay) = (rng.u32(..30), rng.u64(..most));
            let value = u32::try_from(order).expect("few");
            match rng.u32(..10) {
                0..3 => {
                    let before = places.insert(key, (now + delay, order));
                    let before = before.and_then(|place| pending.remove(&place));
                    pending.insert((now + delay, order), (key, value));
                    let replaced = match rng.bool() {
                        true => map.insert(key, value, ms(delay)),
                        false => map.insert_at(key, value, manual.at(now + delay)),
                    };
                    assert_eq!(replaced, before.map(|(_, value)| value));
                }
                3..5 => {
                    let is_there = match rng.bool() {
                        true => map.reset(&key, ms(delay)),
                        false => map.reset_at(&key, manual.at(now + delay)),
                    };
                    assert_eq!(is_there, places.contains_key(&key));
                    if let Some(place) = places.get_mut(&key) {
                        let held = pending.remove(place).expect("it is pending");
                        *place = (now + delay, order);
                        pending.insert(*place, held);
                    }
                }
                5 => {
                    let held = places.remove(&key).and_then(|place| pending.remove(&place));
                    assert_eq!(map.remove(&key), held.map(|(_, value)| value));
                }
                6 => {
                    let place = places.get(&key);
                    let held = place.and_then(|place| pending.get(place));
                    assert_eq!(map.get(&key), held.map(|(_, value)| value));
                    assert_eq!(map.contains_key(&key), held.is_some());
                    assert_eq!(map.deadline(&key), place.map(|place| manual.at(place.0)));
                    let next = pending.first_key_value().map(|(place, _)| manual.at(place.0));
                    assert_eq!(map.next_deadline(), next);
                }
                7 => {
                    let mut all: Vec<_> = map.iter().map(|(key, value)| (*key, *value)).collect();
                    let mut wanted: Vec<_> = pending.values().copied().collect();
                    all.sort_unstable();
                    wanted.sort_unstable();
                    assert_eq!(all, wanted);
                }
                _ => {
                    let pass = rng.u64(..50);
                    now += pass;
                    manual.advance(pass);
                    let is_due = pending.first_key_value().is_some_and(|(place, _)| place.0 <= now);
                    // A task that waits is woken in time, without another poll.
                    assert!(!is_due || !waits || hand.woken() > 0);
                    loop {
                        let due = pending.first_key_value().filter(|(place, _)| place.0 <= now);
                        let Some((&place, &(key, value))) = due else { break };
                        assert_eq!(poll(&mut map, &hand), Poll::Ready(Some((key, value))));
                        pending.remove(&place);
                        places.remove(&key);
                    }
                    let rest = poll(&mut map, &hand);
                    assert_eq!(rest.is_ready(), pending.is_empty());
                    waits = rest.is_pending();
                    hand.woken();
                }
            }
            assert_eq!(map.len(), pending.len());
        }
    }
}

fn replaced_earlier_it_wakes_who_waits(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut map = Map::with_timer(&manual.timer);
    map.insert(1, 1, ms(1_000));
    assert_eq!(poll(&mut map, &hand), Poll::Pending);
    assert_eq!(map.insert(1, 2, ms(10)), Some(1));
    manual.advance(9);
    assert_eq!((hand.woken(), poll(&mut map, &hand)), (0, Poll::Pending));
    manual.advance(1);
    assert_eq!((hand.woken(), poll(&mut map, &hand)), (1, Poll::Ready(Some((1, 2)))));
    assert_eq!(poll(&mut map, &hand), Poll::Ready(None));
}

fn replaced_later_it_is_not_early(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut map = Map::with_timer(&manual.timer);
    map.insert(1, 1, ms(10));
    assert_eq!(poll(&mut map, &hand), Poll::Pending);
    assert_eq!(map.insert(1, 2, ms(20)), Some(1));
    manual.advance(19);
    assert_eq!(poll(&mut map, &hand), Poll::Pending);
    manual.advance(1);
    assert_eq!(poll(&mut map, &hand), Poll::Ready(Some((1, 2))));
}

fn in_the_past_it_comes_at_once(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut map = Map::with_timer(&manual.timer);
    manual.advance(100);
    map.insert(1, 1, ms(50));
    assert_eq!(poll(&mut map, &hand), Poll::Pending);
    map.insert_at(2, 2, manual.at(60));
    assert_eq!((hand.woken(), poll(&mut map, &hand)), (1, Poll::Ready(Some((2, 2)))));
    assert_eq!(poll(&mut map, &hand), Poll::Pending);
    assert!(map.reset_at(&1, manual.at(70)));
    assert_eq!((hand.woken(), poll(&mut map, &hand)), (1, Poll::Ready(Some((1, 1)))));
}

fn emptied_in_any_way_it_wakes_who_waits(mode: Mode) {
    let ways: [fn(&mut Map); 5] = [
        |map| assert_eq!(map.remove_entry(&1), Some((1, 1))),
        |map| assert_eq!(map.remove(&1), Some(1)),
        |map| map.clear(),
        |map| map.retain(|_, _| false),
        |map| assert_eq!(map.drain().collect::<Vec<_>>(), [(1, 1)]),
    ];
    for empty in ways {
        let (manual, hand) = (Manual::new(mode), Hand::new());
        let mut map = Map::with_timer(&manual.timer);
        map.insert(1, 1, ms(10));
        assert_eq!(poll(&mut map, &hand), Poll::Pending);
        empty(&mut map);
        assert_eq!((hand.woken(), poll(&mut map, &hand)), (1, Poll::Ready(None)));
        assert!(map.is_empty() && !map.contains_key(&1));
    }
}

/// Panics when it is dropped, if it is told to.
#[derive(Debug)]
struct Bomb(u32, bool);

impl PartialEq for Bomb {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Bomb {}

impl Hash for Bomb {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.1 || thread::panicking(), "as it should");
    }
}

fn a_key_that_panics_in_drop_hides_no_wake_up(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut map = DelayMap::with_timer(&manual.timer);
    map.insert(Bomb(1, false), 1, ms(1_000));
    assert!(map.poll_expired(&mut hand.context()).is_pending());
    let call = AssertUnwindSafe(|| map.insert(Bomb(1, true), 2, ms(10)));
    assert!(catch_unwind(call).is_err());
    manual.advance(10);
    assert_eq!(hand.woken(), 1);
    let due = map.recv().expect("there is one").expect("it runs");
    assert_eq!((due.key.0, due.value), (1, 2));
    // The last one goes with a panic, and who waits learns that it went.
    map.insert(Bomb(2, true), 1, ms(10));
    assert!(map.poll_expired(&mut hand.context()).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| map.remove(&Bomb(2, false)))).is_err());
    assert_eq!((hand.woken(), map.len()), (1, 0));
}

/// A hasher that uses the timer of its own map.
struct Calls(Timer, RandomState);

impl BuildHasher for Calls {
    type Hasher = <RandomState as BuildHasher>::Hasher;

    fn build_hasher(&self) -> Self::Hasher {
        let timeout = self.0.schedule(ms(1_000_000), || {}).expect("it runs");
        assert!(self.0.next_deadline().is_some() && timeout.cancel());
        self.1.build_hasher()
    }
}

fn a_hasher_may_call_the_timer(mode: Mode) {
    let (manual, hand) = (Manual::built(mode, |builder| builder.shards(1)), Hand::new());
    let hasher = Calls(manual.timer.clone(), RandomState::new());
    let mut map = DelayMap::with_hasher(&manual.timer, hasher);
    map.insert(1, 1, ms(10));
    assert_eq!(poll(&mut map, &hand), Poll::Pending);
    assert_eq!(map.insert(1, 2, ms(5)), Some(1));
    assert!(map.reset(&1, ms(7)) && map.contains_key(&1));
    manual.advance(7);
    assert_eq!((hand.woken(), poll(&mut map, &hand)), (1, Poll::Ready(Some((1, 2)))));
}

/// Of the queue and of the map, which share it.
fn the_next_due_waits_while_it_is_empty(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut queue = DelayQueue::with_timer(&manual.timer);
    let mut map = Map::with_timer(&manual.timer);
    assert!(hand.poll_once(queue.next_due()).is_pending());
    assert!(hand.poll_once(map.next_due()).is_pending());
    manual.advance(1_000_000);
    assert_eq!(hand.woken(), 0);
    // The task that waited is woken for what is inserted.
    queue.insert(1, ms(10));
    map.insert(1, 1, ms(20));
    manual.advance(10);
    assert_eq!(hand.woken(), 1);
    let Poll::Ready(Ok(due)) = hand.poll_once(queue.next_due()) else { panic!("it is due") };
    assert_eq!(due.value, 1);
    assert!(hand.poll_once(queue.next_due()).is_pending());
    manual.advance(10);
    assert_eq!(hand.woken(), 1);
    assert!(matches!(hand.poll_once(map.next_due()), Poll::Ready(Ok(_))));
    // Emptied, it waits on, and `next` ends.
    map.insert(1, 1, ms(20));
    assert!(hand.poll_once(map.next_due()).is_pending());
    assert_eq!(map.remove(&1), Some(1));
    assert!(hand.poll_once(map.next_due()).is_pending());
    assert_eq!(poll(&mut map, &hand), Poll::Ready(None));
    map.insert_at(1, 1, manual.at(0));
    assert!(matches!(hand.poll_once(map.next_due()), Poll::Ready(Ok(_))));
}

fn the_next_due_gives_each_error_anew(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut map = Map::with_timer(&manual.timer);
    assert!(hand.poll_once(map.next_due()).is_pending());
    assert!(manual.timer.stop().expect("outside").is_empty());
    assert_eq!(hand.woken(), 1);
    for _ in 0..3 {
        let stopped = Poll::Ready(Err(ScheduleErrorKind::Stopped));
        assert_eq!(hand.poll_once(map.next_due()), stopped);
    }
}

fn a_batch_has_what_is_due_and_no_more(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut queue = DelayQueue::with_timer(&manual.timer);
    let mut batch = Vec::new();
    assert_eq!(hand.poll_once(queue.next_batch(&mut batch, 9)), Poll::Ready(Ok(0)));
    for value in 0..10 {
        queue.insert(value, ms(10 + value / 7));
    }
    assert_eq!(hand.poll_once(queue.next_batch(&mut batch, 0)), Poll::Ready(Ok(0)));
    assert!(hand.poll_once(queue.next_batch(&mut batch, 9)).is_pending());
    manual.advance(10);
    assert_eq!(hand.woken(), 1);
    assert_eq!(hand.poll_once(queue.next_batch(&mut batch, 5)), Poll::Ready(Ok(5)));
    assert_eq!(queue.recv_batch(&mut batch, 5), Ok(2));
    assert!(hand.poll_once(queue.next_batch(&mut batch, usize::MAX)).is_pending());
    manual.advance(1);
    assert_eq!(hand.poll_once(queue.next_batch(&mut batch, usize::MAX)), Poll::Ready(Ok(3)));
    assert!(batch.iter().map(|due| due.value).eq(0..10));
    assert_eq!(queue.recv_batch(&mut batch, 5), Ok(0));
    // Of a map, with the caller's keys.
    let mut map = Map::with_timer(&manual.timer);
    map.insert_at(7, 8, manual.at(0));
    let mut batch = Vec::new();
    assert_eq!(hand.poll_once(map.next_batch(&mut batch, 5)), Poll::Ready(Ok(1)));
    map.insert_at(9, 10, manual.at(0));
    assert_eq!(map.recv_batch(&mut batch, 5), Ok(1));
    assert!(batch.iter().map(|due| (due.key, due.value)).eq([(7, 8), (9, 10)]));
}

fn a_batch_that_is_dropped_loses_nothing(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut map = Map::with_timer(&manual.timer);
    let mut batch = Vec::new();
    for key in 0..10 {
        map.insert(key, key, ms(u64::from(key)));
        assert!(!hand.poll_once(map.next_batch(&mut batch, 100)).is_ready() || key == 0);
    }
    manual.advance(100);
    assert_eq!(hand.poll_once(map.next_batch(&mut batch, 100)), Poll::Ready(Ok(9)));
    assert!(batch.iter().map(|due| due.value).eq(0..10));
}

fn a_stopped_timer_says_so(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut map = Map::with_timer(&manual.timer);
    map.insert(1, 1, ms(10));
    map.insert(2, 2, ms(20));
    assert_eq!(poll(&mut map, &hand), Poll::Pending);
    assert!(manual.timer.stop().expect("outside").is_empty());
    assert_eq!(hand.woken(), 1);
    let stopped = Some(Err(ScheduleErrorKind::Stopped));
    assert_eq!((map.recv(), map.recv()), (stopped, None));
    let mut batch = Vec::new();
    for _ in 0..2 {
        assert_eq!(map.recv_batch(&mut batch, 5), Err(ScheduleErrorKind::Stopped));
    }
    assert!(map.recv_timeout(ms(5)).expect("not empty").is_err());
    // What is due comes out, and the rest can be removed.
    manual.clock.jump(ms(10));
    assert_eq!(poll(&mut map, &hand), Poll::Ready(Some((1, 1))));
    assert_eq!((map.remove(&2), map.recv().iter().count()), (Some(2), 0));
}

fn a_thread_waits_for_it(mode: Mode) {
    let manual = Manual::new(mode);
    let mut map = Map::with_timer(&manual.timer);
    assert!(map.recv().is_none());
    for key in [9, 3, 6] {
        map.insert(key, key + 1, ms(key.into()));
    }
    let waiting = thread::spawn(move || {
        let mut batch = Vec::new();
        let due = map.recv().expect("there is one").expect("it runs");
        assert_eq!(map.recv_batch(&mut batch, 10), Ok(1));
        let rest: Vec<_> =
            std::iter::from_fn(|| map.recv()).map(|due| due.expect("it runs").key).collect();
        (due.key, batch[0].key, rest)
    });
    for _ in 0..3 {
        wait_until(|| manual.timer.pending() == 1);
        manual.advance(3);
    }
    assert_eq!(waiting.join().expect("no panic"), (3, 6, vec![9]));
}

fn one_timeout_in_the_timer_whatever_is_in_it(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut map = Map::with_timer(&manual.timer);
    for key in 0..100 {
        map.insert(key, key, ms(100 - u64::from(key) / 2));
        assert_eq!(poll(&mut map, &hand), Poll::Pending);
    }
    assert_eq!((manual.timer.pending(), hand.wakers(), hand.woken()), (1, 1, 0));
    drop(map);
    assert_eq!((manual.timer.pending(), hand.wakers()), (0, 0));
}

fn it_allocates_a_wheel_and_a_table_alone(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let held = allocation_counter::measure(|| {
        let mut map = Map::with_timer(&manual.timer);
        for key in 0..1_000 {
            map.insert(key, key, ms(1_000_000));
        }
        let rounds = |map: &mut Map| {
            for key in 1_000..5_000 {
                map.insert(key, key, ms(50));
                assert_eq!(poll(map, &hand), Poll::Pending);
                assert!(map.reset(&key, ms(10)));
                assert_eq!(map.remove(&key), Some(key));
            }
        };
        rounds(&mut map);
        let allocations = allocation_counter::measure(|| rounds(&mut map)).count_total;
        assert!(allocations < 200, "{allocations} allocations");
        map.clear();
        map.shrink_to_fit();
        std::mem::forget(map);
    });
    // What the timer has of its own for one timeout.
    assert!(held.bytes_current < 20_000, "{} bytes", held.bytes_current);
}

fn dropped_it_drops_what_it_holds(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut map = DelayMap::with_timer(&manual.timer);
    let value = std::sync::Arc::new(7);
    map.insert(std::sync::Arc::clone(&value), std::sync::Arc::clone(&value), ms(10));
    assert!(map.poll_expired(&mut hand.context()).is_pending());
    drop(map);
    assert_eq!((std::sync::Arc::strong_count(&value), hand.wakers()), (1, 0));
}

#[cfg(feature = "stream")]
#[test]
fn as_a_stream_it_ends_when_it_is_empty() {
    use futures::StreamExt;

    let mut map = DelayMap::new();
    let start = std::time::Instant::now();
    for number in [3_u64, 1, 2] {
        map.insert_at(number, number, start + ms(number));
    }
    let keys = (&mut map).map(|due| due.expect("it runs").key).collect::<Vec<_>>();
    assert_eq!(futures::executor::block_on(keys), [1, 2, 3]);
}
