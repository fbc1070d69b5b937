//! The map that threads share. Races are in `tests/loom.rs`.

use crate::common::{Numbers, SameHashes, long};
use crate::help::{
    Count, CountsDrop, Gate, Hand, Kept, Manual, a_thread_each, ms, returns, taken, threads_named,
    wait_until,
};
use crate::zoo::clocks::OddClock;
use crate::zoo::values::{Act, Herd, Odd};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::{BuildHasher, DefaultHasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{
    DelayQueue, Due, ExpiredReceiver, ExpiringMap, ExpiringMapBuilder, InsertError,
    InsertErrorKind::{self, Full, Occupied},
    ManualClock, Mode, ScheduleErrorKind, Timer, delay_channel,
};

in_each_mode! {
    a_value_is_there_until_its_deadline,
    however_late_the_worker_is_no_passed_value_comes,
    what_a_caller_finds_expired_goes_to_the_hook_once,
    replaced_it_ends_at_its_new_deadline,
    moved_earlier_it_expires_then,
    moved_later_it_expires_then,
    read_again_and_again_it_stays_until_its_deadline,
    idle_it_expires,
    the_hook_gets_the_deadline_at_which_a_value_ended,
    a_drain_and_an_iteration_tell_the_deadlines,
    a_map_is_like_a_sorted_one,
    the_worker_takes_many_out_in_turns,
    on_an_executor_each_value_is_handed_over_once,
    a_receiver_gets_each_value_that_expires,
    a_receiver_that_does_not_wait_has_no_waker,
    what_a_caller_finds_expired_goes_to_the_receiver_at_once,
    dropped_it_leaves_nothing_in_the_timer,
    many_threads_and_each_value_has_one_end,
}

/// Why a value was not stored, with its key and the value.
fn refused<K: Debug, V: Debug, R: Debug>(
    stored: Result<R, InsertError<K, V>>,
) -> (InsertErrorKind, K, V) {
    let error = stored.expect_err("it is refused");
    let kind = error.kind();
    let (key, value) = error.into_entry();
    (kind, key, value)
}

fn the_hook_gets_the_deadline_at_which_a_value_ended(mode: Mode) {
    let manual = Manual::new(mode);
    let (ended, start) = (Arc::<Mutex<Vec<_>>>::default(), manual.timer.now());
    let ends = Arc::clone(&ended);
    let builder = ExpiringMap::builder().time_to_idle(ms(30));
    let map = builder.on_expired(move |due| ends.lock().unwrap().push(due)).build(&manual.timer);
    map.insert("idle", 1, ms(1_000)).unwrap();
    map.insert("over", 2, ms(20)).unwrap();
    manual.jump(500);
    let mut ended = std::mem::take(&mut *ended.lock().unwrap());
    ended.sort_by_key(|due| due.deadline);
    let wanted = [("over", 20, 2), ("idle", 30, 1)];
    assert_eq!(ended, wanted.map(|(key, at, value)| Due { key, deadline: start + ms(at), value }));
}

type Gone = Arc<Mutex<Vec<(u64, u32, u32)>>>;

/// A map of one shard whose hook writes when it got what.
fn logged(
    manual: &Manual,
    with: impl FnOnce(ExpiringMapBuilder<u32, u32>) -> ExpiringMapBuilder<u32, u32>,
) -> (ExpiringMap<u32, u32>, Gone) {
    let (gone, log) = (Gone::default(), manual.log.clone());
    let entries = Arc::clone(&gone);
    let hook = move |Due { key, value, .. }| entries.lock().unwrap().push((log.now(), key, value));
    (with(ExpiringMap::builder().shards(1)).on_expired(hook).build(&manual.timer), gone)
}

fn came(gone: &Gone) -> Vec<(u64, u32, u32)> {
    std::mem::take(&mut *gone.lock().unwrap())
}

/// Returns what has been left to the receiver, as key, deadline and value, sorted.
fn received(manual: &Manual, receiver: &mut ExpiredReceiver<u32, u32>) -> Vec<(u32, u64, u32)> {
    let (mut batch, all) = (Vec::new(), receiver.len());
    if 0 < all {
        assert_eq!(receiver.recv_batch(&mut batch, all + 1), Ok(all));
    }
    let entries = batch.into_iter().map(|due| (due.key, manual.millis(due.deadline), due.value));
    let mut entries: Vec<_> = entries.collect();
    entries.sort_unstable();
    entries
}

fn a_value_is_there_until_its_deadline(mode: Mode) {
    for delay in [1, 2, 63, 64, 65, 511, 512, 513, 4_096, 100_000] {
        let manual = Manual::new(mode);
        let (map, gone) = logged(&manual, |builder| builder);
        assert_eq!(map.insert(1, 10, ms(delay)).ok(), Some(None));
        assert_eq!(map.deadline(&1), Some(manual.at(delay)));
        manual.advance(delay - 1);
        assert_eq!((map.get(&1), map.contains_key(&1), map.len()), (Some(10), true, 1));
        assert!(!map.is_empty());
        manual.advance(1);
        assert_eq!((map.get(&1), map.contains_key(&1), map.len()), (None, false, 0));
        assert_eq!((map.deadline(&1), map.remove(&1)), (None, None));
        assert_eq!(came(&gone), [(delay, 1, 10)]);
        assert_eq!(manual.timer.pending(), 0);
    }
}

/// Runs `test` while the worker is held up and the clock stands at 100 ms.
fn while_the_worker_is_held_up(manual: &Manual, test: impl FnOnce(&Gate)) {
    let gate = Gate::default();
    manual.after(1, gate.task());
    thread::scope(|scope| {
        scope.spawn(|| manual.clock.jump(ms(100)));
        gate.reached();
        // Also if the test fails.
        let _opens = OpensInDrop(&gate);
        test(&gate);
    });
}

struct OpensInDrop<'a>(&'a Gate);

impl Drop for OpensInDrop<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

fn however_late_the_worker_is_no_passed_value_comes(mode: Mode) {
    let manual = Manual::new(mode);
    let (map, gone) = logged(&manual, |builder| builder.time_to_idle(ms(90)));
    map.insert(1, 10, ms(50)).unwrap();
    map.insert(2, 20, ms(100)).unwrap();
    map.insert(3, 30, ms(101)).unwrap();
    map.insert(4, 40, ms(101)).unwrap();
    manual.advance(1);
    while_the_worker_is_held_up(&manual, |_| {
        // The third has been idle for too long.
        for key in [1, 2, 3] {
            assert_eq!(
                (map.get(&key).or_else(|| map.peek(&key)), map.get_and_reset(&key, ms(50))),
                (None, None)
            );
            assert_eq!((map.with(&key, |value| *value), map.touch(&key)), (None, false));
            assert_eq!((map.remove_entry(&key), map.contains_key(&key)), (None, false));
            assert!(!map.reset(&key, ms(50)));
        }
        assert_eq!((map.iter().count(), map.len()), (0, 4));
        map.retain(|_, _| unreachable!("their time is over"));
        assert_eq!(map.len(), 4);
    });
    let mut gone = came(&gone);
    gone.sort_unstable();
    assert_eq!(gone, [(101, 1, 10), (101, 2, 20), (101, 3, 30), (101, 4, 40)]);
}

fn what_a_caller_finds_expired_goes_to_the_hook_once(mode: Mode) {
    let manual = Manual::new(mode);
    let (map, gone) = logged(&manual, |builder| builder);
    for key in 0..100 {
        map.insert(key, key, ms(50)).unwrap();
    }
    while_the_worker_is_held_up(&manual, |_| {
        for key in 0..100 {
            let stored = match key % 3 {
                0 => map.insert(key, 1_000 + key, ms(50)).map(|replaced| replaced.is_none()),
                1 => map.insert_if_absent(key, 1_000 + key, ms(50)).map(|()| true),
                _ => map
                    .get_or_insert_with(key, ms(50), || 1_000 + key)
                    .map(|value| value == 1_000 + key),
            };
            assert_eq!((stored.ok(), map.get(&key)), (Some(true), Some(1_000 + key)));
        }
        assert_eq!((map.len(), map.iter().count()), (200, 100));
    });
    let mut handed_out = came(&gone);
    handed_out.sort_unstable();
    assert!(handed_out.into_iter().eq((0..100).map(|key| (100, key, key))));
    manual.advance(50);
    assert_eq!((came(&gone).len(), map.len()), (100, 0));
}

fn replaced_it_ends_at_its_new_deadline(mode: Mode) {
    let manual = Manual::new(mode);
    let (map, gone) = logged(&manual, |builder| builder);
    map.insert(1, 10, ms(50)).unwrap();
    assert_eq!(map.insert(1, 11, ms(100)).ok(), Some(Some(10)));
    assert_eq!(refused(map.insert_if_absent(1, 12, ms(9))), (Occupied, 1, 12));
    manual.advance(99);
    assert_eq!((map.get(&1), map.len()), (Some(11), 1));
    assert_eq!(map.insert_at(1, 13, manual.at(140)).ok(), Some(Some(11)));
    assert_eq!(map.insert(1, 14, ms(20)).ok(), Some(Some(13)));
    manual.advance(100);
    assert_eq!(came(&gone), [(119, 1, 14)]);
}

fn moved_earlier_it_expires_then(mode: Mode) {
    let manual = Manual::new(mode);
    let (map, gone) = logged(&manual, |builder| builder);
    map.insert(1, 10, ms(100_000)).unwrap();
    manual.advance(10);
    assert!(map.reset(&1, ms(5)));
    manual.advance(4);
    assert_eq!(map.get(&1), Some(10));
    manual.advance(1);
    assert_eq!(came(&gone), [(15, 1, 10)]);
    map.insert(2, 20, ms(100_000)).unwrap();
    assert!(map.reset_at(&2, manual.at(3)));
    assert_eq!(map.get(&2), None);
    manual.settle();
    assert_eq!(came(&gone), [(15, 2, 20)]);
}

fn moved_later_it_expires_then(mode: Mode) {
    let manual = Manual::new(mode);
    let (map, gone) = logged(&manual, |builder| builder);
    map.insert(1, 10, ms(10)).unwrap();
    for _ in 0..100 {
        assert_eq!(map.get_and_reset(&1, ms(10)), Some(10));
        manual.advance(9);
    }
    assert_eq!((came(&gone), map.deadline(&1)), (vec![], Some(manual.at(901))));
    manual.advance(1);
    assert_eq!(came(&gone), [(901, 1, 10)]);
    // Moved far away, and back.
    map.insert(2, 20, ms(10)).unwrap();
    assert!(map.reset(&2, Duration::MAX) && map.deadline(&2).is_none());
    manual.advance(1_000_000);
    assert!(map.reset(&2, ms(7)));
    manual.advance(6);
    assert_eq!(map.get(&2), Some(20));
    manual.advance(1);
    assert_eq!(came(&gone), [(1_000_908, 2, 20)]);
}

fn read_again_and_again_it_stays_until_its_deadline(mode: Mode) {
    let manual = Manual::new(mode);
    let (map, gone) = logged(&manual, |builder| builder.time_to_idle(ms(10)));
    map.insert(1, 10, ms(95)).unwrap();
    for _ in 0..10 {
        assert_eq!(map.get(&1), Some(10));
        manual.advance(9);
    }
    assert_eq!(map.deadline(&1), Some(manual.at(91)));
    assert!(map.touch(&1));
    assert_eq!(map.deadline(&1), Some(manual.at(95)));
    manual.advance(5);
    assert_eq!((came(&gone), map.get(&1)), (vec![(95, 1, 10)], None));
}

fn idle_it_expires(mode: Mode) {
    let manual = Manual::new(mode);
    let (map, gone) = logged(&manual, |builder| builder.time_to_idle(ms(100)));
    for key in 0..5 {
        map.insert(key, key, Duration::MAX).unwrap();
    }
    manual.advance(60);
    assert_eq!((map.get(&0), map.touch(&1)), (Some(0), true));
    assert_eq!(map.update(&2, |value| *value += 1), Some(()));
    // These do not read it.
    assert!(map.contains_key(&3) && map.deadline(&3).is_some() && map.iter().count() == 5);
    assert_eq!((map.peek(&4), map.peek(&5)), (Some(4), None));
    manual.advance(40);
    let mut first = came(&gone);
    first.sort_unstable();
    assert_eq!(first, [(100, 3, 3), (100, 4, 4)]);
    manual.advance(60);
    let mut second = came(&gone);
    second.sort_unstable();
    assert_eq!(second, [(160, 0, 0), (160, 1, 1), (160, 2, 3)]);
}

fn a_drain_and_an_iteration_tell_the_deadlines(mode: Mode) {
    let manual = Manual::new(mode);
    let map = ExpiringMap::with_timer(&manual.timer);
    for key in 0..1_000_u32 {
        map.insert(key, key, ms(u64::from(key) + 1)).unwrap();
    }
    map.insert(1_000, 1_000, Duration::MAX).unwrap();
    manual.advance(500);
    let at = |key: u32| (key < 1_000).then(|| manual.at(u64::from(key) + 1));
    let mut all: Vec<_> = map.iter().collect();
    all.sort_unstable();
    assert!(all.iter().copied().eq((500..=1_000).map(|key| (key, at(key), key))));
    let mut drained: Vec<_> = map.drain().collect();
    drained.sort_unstable();
    assert!(drained == all && map.is_empty());
    assert_eq!(map.insert(7, 8, ms(1)).ok(), Some(None));
    manual.advance(1);
    assert!(map.is_empty());
    // The worker looks once more for those that were drained.
    manual.advance(500);
    assert_eq!(manual.timer.pending(), 0);
    // What is left of a drain goes with it.
    let count = Count::default();
    let map = ExpiringMap::with_timer(&manual.timer);
    for key in 0..100 {
        map.insert(key, CountsDrop(count.clone()), ms(9)).unwrap();
    }
    let mut drain = map.drain();
    drop(drain.next());
    assert_eq!((count.get(), map.len()), (1, 0));
    drop(drain);
    assert_eq!(count.get(), 100);
}

/// A value of the model: value, deadline and when it was read last.
type Plain = BTreeMap<u32, (u32, u64, u64)>;

fn a_map_is_like_a_sorted_one(mode: Mode) {
    let cases = [(1, None, false), (2, Some(40), false), (3, Some(5), true), (4, None, true)];
    for (seed, idle, has_receiver) in cases {
        let manual = Manual::new(mode);
        let with = |builder: ExpiringMapBuilder<u32, u32>| {
            idle.into_iter().fold(builder, |builder, idle| builder.time_to_idle(ms(idle)))
        };
        let (mut map, gone) = logged(&manual, with);
        let mut receiver = None;
        if has_receiver {
            let builder = with(ExpiringMap::builder().shards(1));
            let built = builder.build_with_receiver(&manual.timer);
            (map, receiver) = (built.0, Some(built.1));
        }
        let mut ended = || match &mut receiver {
            Some(receiver) => received(&manual, receiver),
            None => {
                let mut ended: Vec<_> =
                    came(&gone).into_iter().map(|(at, key, value)| (key, at, value)).collect();
                ended.sort_unstable();
                ended
            }
        };
        let (mut numbers, mut model, mut now) = (Numbers(seed), Plain::new(), 0_u64);
        let end = |&(_, deadline, read): &(u32, u64, u64)| {
            idle.map_or(deadline, |idle| deadline.min(read + idle))
        };
        for step in 0..long(2_000, 50_000) {
            let key = numbers.below(20) as u32;
            let most = 1 << numbers.below(9);
            let delay = numbers.below(most) + 1;
            let known = model.get(&key).map(|known| known.0);
            match numbers.below(12) {
                0..3 => {
                    assert_eq!(map.insert(key, step, ms(delay)).ok(), Some(known));
                    model.insert(key, (step, now + delay, now));
                }
                3 => {
                    let stored = map.insert_if_absent(key, step, ms(delay));
                    assert_eq!(stored.is_ok(), known.is_none());
                    model.entry(key).or_insert((step, now + delay, now));
                }
                4 => {
                    let value = map.get_or_insert_with(key, ms(delay), || step);
                    assert_eq!(value.ok(), Some(known.unwrap_or(step)));
                    model.entry(key).or_insert((step, now + delay, now)).2 = now;
                }
                5 => {
                    assert_eq!(map.get(&key), known);
                    model.entry(key).and_modify(|known| known.2 = now);
                }
                6 => {
                    let is_it = |value: &u32| value % 3 > 0;
                    let mut is_moved = known.is_some();
                    if numbers.below(2) == 0 {
                        assert_eq!(map.get_and_reset(&key, ms(delay)), known);
                    } else {
                        is_moved = known.is_some_and(|value| is_it(&value));
                        assert_eq!(map.reset_if(&key, ms(delay), is_it), is_moved);
                    }
                    if let Some(known) = model.get_mut(&key).filter(|_| is_moved) {
                        (known.1, known.2) = (now + delay, now);
                    }
                }
                7 => {
                    assert_eq!(map.update(&key, |value| *value += 1), known.map(drop));
                    model.entry(key).and_modify(|known| (known.0, known.2) = (known.0 + 1, now));
                }
                8 => {
                    let is_it = |value: &u32| value % 3 > 0;
                    let mut is_removed = known.is_some();
                    if numbers.below(2) == 0 {
                        assert_eq!(map.remove_entry(&key), known.map(|value| (key, value)));
                    } else {
                        is_removed = known.is_some_and(|value| is_it(&value));
                        assert_eq!(map.remove_if(&key, is_it), known.filter(is_it));
                    }
                    if is_removed {
                        model.remove(&key);
                    }
                }
                9 => {
                    let end = model.get(&key).map(|known| manual.at(end(known)));
                    assert_eq!((map.deadline(&key), map.contains_key(&key)), (end, end.is_some()));
                }
                10 if numbers.below(20) == 0 => {
                    map.retain(|key, _| key % 2 == 0);
                    model.retain(|key, _| key % 2 == 0);
                }
                _ => {
                    let most = 1 << numbers.below(7);
                    let millis = numbers.below(most);
                    if numbers.below(2) == 0 {
                        manual.advance(millis)
                    } else {
                        manual.jump(millis)
                    };
                    now += millis;
                    let mut expected: Vec<_> = Vec::new();
                    model.retain(|&key, known| {
                        let is_live = now < end(known);
                        if !is_live {
                            // In a jump the hook runs at its end.
                            expected.push((key, end(known), known.0));
                        }
                        is_live
                    });
                    let mut found = ended();
                    if !has_receiver {
                        for (found, expected) in found.iter_mut().zip(&expected) {
                            assert!(expected.1 <= found.1 && found.1 <= now);
                            found.1 = expected.1;
                        }
                    }
                    assert_eq!(found, expected, "at {now}");
                }
            }
            assert_eq!((map.len(), ended()), (model.len(), vec![]));
        }
        let mut left: Vec<_> = map.drain().collect();
        left.sort_unstable();
        let expected =
            model.iter().map(|(&key, known)| (key, Some(manual.at(end(known))), known.0));
        assert!(left.into_iter().eq(expected));
    }
}

fn the_worker_takes_many_out_in_turns(mode: Mode) {
    const MANY: u32 = 10_000;
    let manual = Manual::new(mode);
    let (map, gone) = logged(&manual, |builder| builder);
    let at_half = Arc::new(OnceLock::new());
    for key in 0..MANY {
        map.insert(key, key, ms(10)).unwrap();
    }
    assert_eq!(manual.timer.pending(), 1);
    // A timeout that is due when the first of them has gone fires before the last.
    let timer = manual.timer.clone();
    let (half, seen) = (Arc::clone(&at_half), Arc::clone(&gone));
    manual.after(10, move || {
        let task = move || half.set(seen.lock().unwrap().len()).unwrap();
        timer.schedule(Duration::ZERO, task).expect("it runs");
    });
    manual.advance(10);
    assert_eq!((came(&gone).len(), map.len(), manual.timer.pending()), (MANY as usize, 0, 0));
    assert!(*at_half.get().expect("it ran") < MANY as usize / 2);
}

fn on_an_executor_each_value_is_handed_over_once(mode: Mode) {
    let kept = Kept::default();
    let manual = Manual::built(mode, |builder| builder.executor(kept.executor()));
    let (map, gone) = logged(&manual, |builder| builder);
    for key in 0..100 {
        map.insert(key, key, ms(10)).unwrap();
    }
    manual.advance(10);
    assert_eq!((map.len(), came(&gone).len()), (0, 0));
    let mut handed_over = Vec::new();
    while 0 < kept.len() {
        taken(&kept)();
        handed_over.append(&mut came(&gone));
    }
    handed_over.sort_unstable();
    assert!(handed_over.into_iter().eq((0..100).map(|key| (10, key, key))));
    // What the executor leaves out is dropped.
    let value = Arc::new(());
    let map = ExpiringMap::builder().on_expired(|_| unreachable!()).build(&manual.timer);
    map.insert(1, Arc::clone(&value), ms(10)).unwrap();
    manual.advance(10);
    assert_eq!((map.len(), Arc::strong_count(&value)), (0, 2));
    drop(taken(&kept));
    assert_eq!(Arc::strong_count(&value), 1);
    // A panic as one is dropped joins no other.
    let herd = Herd::default();
    let map = ExpiringMap::builder().shards(1).on_expired(|_| unreachable!()).build(&manual.timer);
    for key in 0..3 {
        map.insert(key, herd.bomb(1), ms(10)).unwrap();
    }
    manual.advance(10);
    drop(taken(&kept));
    assert_eq!((herd.dropped(), manual.timer.stats().panics), (3, 3));
}

fn a_receiver_gets_each_value_that_expires(mode: Mode) {
    let manual = Manual::new(mode);
    let (map, mut receiver) =
        ExpiringMap::builder().on_expired(|_| unreachable!()).build_with_receiver(&manual.timer);
    let hand = Hand::new();
    for key in 0..1_000 {
        map.insert(key, 2 * key, ms(u64::from(key) + 1)).unwrap();
    }
    assert_eq!(map.remove(&7), Some(14));
    manual.advance(10);
    assert_eq!((map.len(), receiver.len(), manual.timer.stats().panics), (990, 9, 0));
    let mut entries = received(&manual, &mut receiver);
    manual.jump(990);
    entries.append(&mut received(&manual, &mut receiver));
    let each = (0..1_000).filter(|&key| key != 7);
    assert!(entries.into_iter().eq(each.map(|key| (key, u64::from(key) + 1, 2 * key))));
    // A task that waits, and then a thread; and the map is gone.
    map.insert(1, 10, ms(5)).unwrap();
    map.insert(2, 20, ms(100)).unwrap();
    map.insert(3, 30, ms(1_000)).unwrap();
    assert!(receiver.poll_expired(&mut hand.context()).is_pending());
    manual.advance(5);
    assert_eq!(hand.woken(), 1);
    let Poll::Ready(Some(Ok(due))) = receiver.poll_expired(&mut hand.context()) else {
        panic!("it was woken");
    };
    assert_eq!((due.key, due.deadline, due.value), (1, manual.at(1_005), 10));
    thread::scope(|scope| {
        let blocked = scope.spawn(|| {
            let value = receiver.recv().map(|due| due.unwrap().value);
            (value, receiver.recv().is_none(), receiver)
        });
        manual.advance(95);
        drop(map);
        let (value, is_over, receiver) = blocked.join().unwrap();
        assert_eq!((value, is_over, receiver.len()), (Some(20), true, 0));
    });
    assert_eq!(manual.timer.pending(), 0);
}

fn a_receiver_that_does_not_wait_has_no_waker(mode: Mode) {
    let manual = Manual::new(mode);
    let (map, mut receiver) = ExpiringMap::builder().build_with_receiver(&manual.timer);
    let hand = Hand::new();
    map.insert(1, 10, ms(5)).unwrap();
    assert!(hand.poll_once(receiver.next()).is_pending());
    assert_eq!((hand.wakers(), receiver.try_recv()), (0, None));
    assert!(hand.poll_once(receiver.next()).is_pending());
    manual.advance(5);
    assert_eq!((hand.woken(), hand.wakers(), receiver.len()), (0, 0, 1));
}

fn what_a_caller_finds_expired_goes_to_the_receiver_at_once(mode: Mode) {
    let manual = Manual::new(mode);
    let builder = ExpiringMap::builder().shards(1);
    let (map, mut receiver) = builder.build_with_receiver(&manual.timer);
    for key in 0..100 {
        map.insert(key, key, ms(50)).unwrap();
    }
    while_the_worker_is_held_up(&manual, |_| {
        for key in 0..100 {
            assert_eq!(map.insert(key, 1_000 + key, ms(50)).ok(), Some(None));
        }
        assert_eq!((map.len(), receiver.len()), (100, 100));
    });
    let first = received(&manual, &mut receiver);
    assert!(first.into_iter().eq((0..100).map(|key| (key, 50, key))));
    // Without the timer no worker takes them out, but callers do.
    manual.timer.stop().unwrap();
    manual.advance(50);
    assert_eq!((map.len(), receiver.len()), (100, 0));
    assert_eq!(map.insert(3, 7, ms(50)).ok(), Some(None));
    assert_eq!(received(&manual, &mut receiver), [(3, 150, 1_003)]);
    assert_eq!(receiver.recv(), Some(Err(ScheduleErrorKind::Stopped)));
    assert_eq!((receiver.recv(), map.drain().count()), (None, 100));
}

fn dropped_it_leaves_nothing_in_the_timer(mode: Mode) {
    let (manual, count) = (Manual::new(mode), Count::default());
    let map = ExpiringMap::builder().shards(4).build(&manual.timer);
    for key in 0..1_000 {
        map.insert(key, CountsDrop(count.clone()), ms(10 + key)).unwrap();
    }
    // One place for each shard, however many values there are.
    assert_eq!(manual.timer.pending(), 4);
    let other = map.clone();
    drop(map);
    assert_eq!((other.len(), count.get()), (1_000, 0));
    drop(other);
    assert_eq!((manual.timer.pending(), count.get()), (0, 1_000));
}

fn many_threads_and_each_value_has_one_end(mode: Mode) {
    let manual = Manual::new(mode);
    let ends = Arc::new(Mutex::new(Vec::new()));
    let builder = || ExpiringMap::builder().shards(2).time_to_idle(ms(30));
    let expired = Arc::clone(&ends);
    let hooked = builder().on_expired(move |due| expired.lock().unwrap().push(due.value));
    each_value_has_one_end(&manual, hooked.build(&manual.timer), &ends);
    // The same with three receivers.
    let (map, receiver) = builder().build_with_receiver(&manual.timer);
    let receivers = [(); 3].map(|()| {
        let (mut receiver, ends) = (receiver.clone(), Arc::clone(&ends));
        thread::spawn(move || {
            while let Some(due) = receiver.recv() {
                ends.lock().unwrap().push(due.expect("the timer runs").value);
            }
        })
    });
    drop(receiver);
    each_value_has_one_end(&manual, map, &ends);
    for receiver in receivers {
        receiver.join().expect("no panic");
    }
}

/// Uses a map whose expired values go to `ends`, and drops it.
fn each_value_has_one_end(manual: &Manual, map: ExpiringMap<u64, u32>, ends: &Mutex<Vec<u32>>) {
    const THREADS: u32 = 4;
    let each = long(2_000, 100_000);
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let (map, mut numbers) = (map.clone(), Numbers(u64::from(number) + 1));
            thread::spawn(move || {
                let mut ends: Vec<u32> = Vec::new();
                for value in number * each..(number + 1) * each {
                    let (key, delay) = (numbers.below(50), ms(numbers.below(50)));
                    match numbers.below(4) {
                        0 => match map.insert_if_absent(key, value, delay) {
                            Ok(()) => {}
                            Err(refused) => ends.push(refused.into_entry().1),
                        },
                        _ => ends.extend(map.insert(key, value, delay).unwrap()),
                    }
                    let key = numbers.below(50);
                    match numbers.below(8) {
                        0 => ends.extend(map.remove(&key)),
                        1 => _ = map.get_and_reset(&key, ms(numbers.below(50))),
                        2 => _ = map.reset(&key, ms(numbers.below(50))),
                        3 => _ = map.get(&key),
                        _ => {}
                    }
                }
                ends
            })
        })
        .collect();
    wait_until(|| {
        manual.advance(3);
        threads.iter().all(thread::JoinHandle::is_finished)
    });
    manual.advance(100);
    assert_eq!(map.len(), 0);
    drop(map);
    let by_calls = threads.into_iter().flat_map(|thread| thread.join().expect("no panic"));
    ends.lock().unwrap().extend(by_calls);
    wait_until(|| ends.lock().unwrap().len() == (THREADS * each) as usize);
    let mut ends = std::mem::take(&mut *ends.lock().unwrap());
    ends.sort_unstable();
    assert!(ends.into_iter().eq(0..THREADS * each));
    wait_until(|| manual.timer.pending() == 0);
}

#[test]
fn on_the_systems_clock_values_expire_by_themselves() {
    let timer = Timer::new();
    let (map, count) = (ExpiringMap::with_timer(&timer), Count::default());
    for key in 0..100 {
        map.insert(key, CountsDrop(count.clone()), ms(key % 7)).unwrap();
    }
    count.wait_for(100);
    assert!(map.is_empty());
}

#[test]
fn the_kind_of_a_refusal_is_an_error_that_says_the_same() {
    let map = ExpiringMap::builder().max_len(1).build(&Timer::new());
    map.insert(1, 1, ms(1_000)).unwrap();
    let refused = [map.insert_if_absent(1, 2, ms(1)).err(), map.insert(2, 2, ms(1)).err()];
    for (refused, says) in refused.into_iter().zip(["the key has", "as its limit allows"]) {
        let refused = refused.expect("there is no room, or a value");
        let kind: Box<dyn std::error::Error + Send + Sync> = refused.kind().into();
        assert_eq!(kind.to_string(), refused.to_string());
        assert!(kind.to_string().contains(says), "{kind}");
    }
}

#[test]
fn beyond_its_limit_a_map_gives_key_and_value_back() {
    for has_hook in [false, true] {
        let (manual, gone) = (Manual::with(|builder| builder), Count::default());
        let mut builder = ExpiringMap::builder().shards(4).max_len(10);
        if has_hook {
            let count = gone.clone();
            builder = builder.on_expired(move |_| count.add());
        }
        let map = builder.build(&manual.timer);
        for key in 0..10 {
            assert_eq!(map.insert(key, key, ms(10)).ok(), Some(None));
        }
        assert_eq!(refused(map.insert(10, 10, ms(10))), (Full, 10, 10));
        assert_eq!(refused(map.insert_if_absent(10, 10, ms(10))), (Full, 10, 10));
        assert_eq!(refused(map.get_or_insert_with(10, ms(1), || 10)), (Full, 10, 10));
        assert_eq!(map.insert(9, 99, ms(10)).ok(), Some(Some(9)));
        assert_eq!((map.remove(&0), map.insert(10, 10, ms(10)).ok()), (Some(0), Some(None)));
        assert_eq!(refused(map.insert(11, 11, ms(10))), (Full, 11, 11));
        map.retain(|key, _| 5 <= *key);
        assert_eq!(map.len(), 6);
        for key in 100..104 {
            assert_eq!(map.insert(key, key, ms(10)).ok(), Some(None));
        }
        assert!(map.insert(11, 11, ms(10)).is_err());
        assert!(map.drain().next().is_some());
        for key in 0..10 {
            assert_eq!(map.insert(key, key, ms(10)).ok(), Some(None));
        }
        assert!(map.insert(11, 11, ms(10)).is_err());
        while_the_worker_is_held_up(&manual, |_| {
            // What is dropped makes room. What the hook has not got yet does not.
            for key in 20..30 {
                assert_eq!(map.insert(key, key, ms(10)).is_ok(), !has_hook);
            }
            assert!(map.insert(40, 40, ms(10)).is_err());
        });
        assert_eq!(gone.get(), if has_hook { 10 } else { 0 });
        manual.advance(10);
        for key in 0..10 {
            assert_eq!(map.insert(key, key, ms(10)).ok(), Some(None));
        }
        assert!(map.insert(11, 11, ms(10)).is_err());
    }
}

#[test]
fn a_value_counts_for_the_limit_until_it_is_received() {
    let (manual, dropped) = (Manual::with(|builder| builder), Count::default());
    let builder = ExpiringMap::builder().max_len(10);
    let (map, mut receiver) = builder.build_with_receiver(&manual.timer);
    let fill = |keys: std::ops::Range<u32>| {
        keys.filter(|&key| map.insert(key, CountsDrop(dropped.clone()), ms(10)).is_ok()).count()
    };
    assert_eq!(fill(0..20), 10);
    manual.advance(10);
    assert_eq!((map.len(), receiver.len(), fill(20..30)), (0, 10, 0));
    for received in 1..=4 {
        drop(receiver.recv().expect("there is one").expect("it is due"));
        assert_eq!((dropped.get(), receiver.len()), (20 + received, 10 - received));
    }
    assert_eq!((fill(30..40), map.len()), (4, 4));
    // A clone gets the rest. When it is gone, values are dropped.
    let other = receiver.clone();
    drop(receiver);
    assert_eq!((other.len(), fill(40..50)), (6, 0));
    drop(other);
    assert_eq!((dropped.get(), fill(50..60)), (46, 6));
    manual.advance(10);
    assert_eq!((dropped.get(), map.len(), fill(60..80)), (60, 0, 10));
    while_the_worker_is_held_up(&manual, |_| assert_eq!(fill(80..100), 10));
}

/// The worker may wait for that thread, and brings the value.
#[test]
fn a_thread_that_holds_up_the_timer_does_not_block_for_a_value_of_a_map() {
    for has_executor in [false, true] {
        returns("receiving where the timer's tasks run", move || {
            let manual = Manual::with(|builder| match has_executor {
                false => builder,
                true => builder.executor(a_thread_each),
            });
            let (map, mut receiver) = ExpiringMap::builder().build_with_receiver(&manual.timer);
            map.insert(1, 10, ms(10)).unwrap();
            let (results, result) = mpsc::channel();
            let mut inside = receiver.clone();
            manual.after(1, move || results.send(inside.recv()).unwrap());
            manual.advance(1);
            assert_eq!(result.recv().unwrap(), Some(Err(ScheduleErrorKind::Deadlock)));
            manual.advance(9);
            assert_eq!(receiver.recv().unwrap().map(|due| due.value), Ok(10));
        });
    }
}

/// The executor gets nothing any more. At each look at the clock, another thread might stop the
/// timer: here the clock does so.
#[test]
fn the_hook_gets_a_value_though_the_timer_is_stopped_in_that_turn() {
    let mut called = 0;
    for stops_at in 0.. {
        let (kept, told, start) = (Kept::default(), Count::default(), Instant::now());
        let state = Arc::new(Mutex::new((start, 0, None::<Timer>)));
        let read = Arc::clone(&state);
        let clock = OddClock::new(move || {
            let (now, last) = {
                let (now, looks, last) = &mut *read.lock().unwrap();
                *looks += 1;
                (*now, last.take_if(|_| stops_at < *looks))
            };
            drop(last);
            now
        });
        let builder = Timer::builder().clock(clock).shards(1).executor(kept.executor());
        let (timer, mut driver) = builder.build_driven().expect("in range");
        let count = told.clone();
        let map = ExpiringMap::builder().on_expired(move |_| count.add()).build(&timer);
        map.insert(1, 10, ms(10)).unwrap();
        *state.lock().unwrap() = (start + ms(11), 0, Some(timer));
        while driver.turn().is_some() {}
        called += told.get();
        kept.next().into_iter().for_each(|task| task());
        // The call may be dropped with the timer.
        assert!(told.get() + map.len() <= 1, "it is stopped at look {stops_at}");
        if state.lock().unwrap().2.is_some() {
            break;
        }
    }
    assert_eq!(called, 1, "once it was between the look for what is due and the executor");
}

/// A thread may lose its core when it has read the clock. What others do meanwhile, the clock does
/// here.
#[test]
fn what_one_call_has_found_expired_no_other_finds() {
    type Map = ExpiringMap<u32, u32>;
    type Finds = fn(&Map) -> bool;
    let calls: [(&str, Finds); 17] = [
        ("get", |map| map.get(&1).is_some()),
        ("peek", |map| map.peek(&1).is_some()),
        ("get_and_reset", |map| map.get_and_reset(&1, ms(50)).is_some()),
        ("update", |map| map.update(&1, |value| *value += 1).is_some()),
        ("touch", |map| map.touch(&1)),
        ("reset", |map| map.reset(&1, ms(50))),
        ("reset_if", |map| map.reset_if(&1, ms(50), |_| true)),
        ("reset_at", |map| map.reset_at(&1, Instant::now() + ms(3_600_000))),
        ("remove", |map| map.remove(&1).is_some()),
        ("remove_if", |map| map.remove_if(&1, |_| true).is_some()),
        ("contains_key", |map| map.contains_key(&1)),
        ("deadline", |map| map.deadline(&1).is_some()),
        ("insert", |map| map.insert(1, 11, ms(50)).unwrap().is_some()),
        ("insert_if_absent", |map| map.insert_if_absent(1, 11, ms(50)).is_err()),
        ("get_or_insert_with", |map| map.get_or_insert_with(1, ms(50), || 11).unwrap() == 10),
        ("iter", |map| map.iter().next().is_some()),
        ("retain", |map| {
            let mut is_asked = false;
            map.retain(|_, _| {
                is_asked = true;
                true
            });
            is_asked
        }),
    ];
    for (name, finds) in calls {
        let state = Arc::new(Mutex::new((Instant::now(), None::<Map>)));
        let read = Arc::clone(&state);
        let clock = OddClock::new(move || {
            let (now, map) = {
                let (now, map) = &mut *read.lock().unwrap();
                let passed = if map.is_some() { ms(10) } else { ms(0) };
                (std::mem::replace(now, *now + passed), map.take())
            };
            assert!(map.is_none_or(|map| !map.contains_key(&1)));
            now
        });
        let (timer, _driver) = Timer::builder().clock(clock).build_driven().unwrap();
        let map = ExpiringMap::builder().shards(1).build(&timer);
        map.insert(1, 10, ms(10)).unwrap();
        state.lock().unwrap().1 = Some(map.clone());
        assert!(!finds(&map), "{name} finds it");
    }
}

#[test]
fn a_map_hashes_as_it_is_told_and_keeps_its_other_settings() {
    #[derive(Clone, Default)]
    struct Counts(Count, SameHashes);

    impl BuildHasher for Counts {
        type Hasher = DefaultHasher;

        fn build_hasher(&self) -> DefaultHasher {
            self.0.add();
            self.1.build_hasher()
        }
    }

    let (manual, hasher, told) =
        (Manual::with(|builder| builder), Counts::default(), Count::default());
    let count = told.clone();
    let builder = ExpiringMap::builder().max_len(1).time_to_idle(ms(10)).shards(1);
    let map = builder.on_expired(move |_| count.add()).hasher(hasher.clone()).build(&manual.timer);
    map.insert(1, 10, ms(1_000)).unwrap();
    assert_eq!((map.get(&1), hasher.0.get()), (Some(10), 2));
    assert_eq!(refused(map.insert(2, 20, ms(1_000))).0, Full);
    manual.advance(11);
    assert_eq!((told.get(), map.len()), (1, 0));
}

#[test]
fn the_limit_of_the_timer_does_not_refuse_a_map() {
    let manual = Manual::with(|builder| builder.max_pending(1));
    let task = manual.idle(1_000);
    let (map, gone) = logged(&manual, |builder| builder);
    for key in 0..100 {
        map.insert(key, key, ms(10)).unwrap();
    }
    manual.advance(10);
    assert_eq!((came(&gone).len(), map.len()), (100, 0));
    assert!(manual.timer.schedule(ms(1), || {}).is_err());
    assert!(task.cancel());
    assert!(manual.timer.schedule(ms(1), || {}).is_ok());
}

#[test]
fn after_the_timer_was_stopped_a_map_works_on_and_shows_no_passed_value() {
    for is_dropped in [false, true] {
        let Manual { clock, timer, .. } = Manual::with(|builder| builder);
        let map = ExpiringMap::builder().on_expired(|_| unreachable!()).build(&timer);
        for key in 0..100 {
            map.insert(key, key, ms(10)).unwrap();
        }
        map.insert(100, 100, ms(1_000)).unwrap();
        if is_dropped {
            drop(timer)
        } else {
            assert!(timer.stop().unwrap().is_empty())
        };
        assert_eq!((map.get(&1), map.len()), (Some(1), 101));
        assert_eq!(map.insert(1, 11, ms(20)).ok(), Some(Some(1)));
        clock.advance(ms(10));
        assert_eq!((map.get(&2), map.get(&1), map.get(&100)), (None, Some(11), Some(100)));
        assert_eq!(map.insert(2, 22, ms(20)).ok(), Some(None));
        assert_eq!((map.get(&2), map.len()), (Some(22), 101));
        clock.advance(ms(20));
        assert_eq!((map.get(&2), map.remove(&1), map.iter().count()), (None, None, 1));
        assert_eq!(map.drain().count(), 101);
    }
}

#[test]
fn values_that_have_expired_make_room_behind_many_that_were_moved_to_later() {
    let clock = ManualClock::new();
    let (timer, _driver) = Timer::builder().clock(clock.clone()).build_driven().unwrap();
    let map = ExpiringMap::builder().shards(1).max_len(600).build(&timer);
    for key in 0..500 {
        map.insert(key, key, ms(10)).unwrap();
        assert!(map.reset(&key, ms(3_600_000)));
    }
    for key in 500..600 {
        map.insert(key, key, ms(10)).unwrap();
    }
    clock.advance(ms(10));
    for key in 1_000..1_100 {
        assert_eq!(map.insert(key, key, ms(10)).ok(), Some(None));
    }
    assert_eq!(refused(map.insert(2_000, 0, ms(10))), (Full, 2_000, 0));
}

#[test]
fn after_a_map_is_emptied_the_worker_looks_when_the_next_value_ends_and_not_before() {
    let clock = ManualClock::new();
    let (timer, mut driver) = Timer::builder().clock(clock.clone()).build_driven().unwrap();
    let map = ExpiringMap::builder().shards(1).build(&timer);
    map.insert(1, 1, ms(2)).unwrap();
    clock.advance(ms(2));
    driver.turn();
    assert_eq!((map.len(), timer.stats().fired), (0, 1));
    clock.advance(ms(2_000));
    map.insert(2, 2, ms(60_000)).unwrap();
    let next = driver.turn();
    assert_eq!((next, timer.stats().fired), (map.deadline(&2), 1));
    clock.advance(ms(60_000));
    driver.turn();
    assert_eq!((map.len(), timer.stats().fired), (0, 2));
}

#[test]
fn after_the_timer_was_stopped_expired_values_make_room() {
    let manual = Manual::with(|builder| builder);
    let map = ExpiringMap::builder().max_len(10).on_expired(|_| {}).build(&manual.timer);
    for key in 0..10 {
        map.insert(key, key, ms(10)).unwrap();
    }
    assert!(manual.timer.stop().unwrap().is_empty());
    assert!(map.insert(10, 10, ms(10)).is_err());
    manual.advance(10);
    for key in 10..20 {
        assert_eq!(map.insert(key, key, ms(10)).ok(), Some(None));
    }
    assert!(map.insert(20, 20, ms(10)).is_err());
}

/// A map of one shard that is full with `count` values, which end at 50 ms.
fn full(manual: &Manual, count: u32) -> (ExpiringMap<u32, u32>, Gone) {
    let (map, gone) = logged(manual, |builder| builder.max_len(count as usize));
    for key in 0..count {
        map.insert(key, key, ms(50)).unwrap();
    }
    (map, gone)
}

/// More than a turn of the worker takes, and the map has no other values.
#[test]
fn all_that_callers_had_found_expired_goes_to_the_hook_though_the_map_is_empty() {
    let manual = Manual::with(|builder| builder);
    let (map, gone) = full(&manual, 1_000);
    while_the_worker_is_held_up(&manual, |_| {
        for key in 0..1_000 {
            assert!(map.insert(key, 0, ms(50)).is_err());
        }
        assert_eq!((map.len(), map.iter().count()), (1_000, 0));
    });
    assert_eq!((came(&gone).len(), map.len()), (1_000, 0));
}

#[test]
fn a_drain_makes_room_for_what_it_found_and_for_what_callers_had_found_expired() {
    let manual = Manual::with(|builder| builder);
    let (map, gone) = full(&manual, 10);
    map.remove(&9);
    map.insert(20, 20, ms(500)).unwrap();
    while_the_worker_is_held_up(&manual, |_| {
        for key in 0..9 {
            assert!(map.insert(key, 0, ms(50)).is_err());
        }
        assert_eq!((map.len(), map.drain().count()), (10, 10));
        for key in 0..10 {
            assert_eq!(map.insert(key, 1, ms(50)).ok(), Some(None));
        }
        assert!(map.insert(10, 1, ms(50)).is_err());
    });
    assert_eq!(came(&gone), []);
}

/// They wait for the hook when the timer is stopped.
#[test]
fn after_the_timer_was_stopped_what_callers_had_found_expired_makes_room() {
    let manual = Manual::with(|builder| builder);
    let map = ExpiringMap::builder()
        .shards(1)
        .max_len(10)
        .on_expired(|_| unreachable!())
        .build(&manual.timer);
    for key in 0..10 {
        map.insert(key, key, ms(50)).unwrap();
    }
    while_the_worker_is_held_up(&manual, |gate| {
        for key in 0..10 {
            assert!(map.insert(key, 0, ms(50)).is_err());
        }
        assert_eq!((map.len(), map.iter().count()), (10, 0));
        thread::scope(|scope| {
            scope.spawn(|| manual.timer.stop());
            wait_until(|| map.insert(10, 10, ms(50)).is_ok());
            for key in 11..20 {
                assert_eq!(map.insert(key, key, ms(50)).ok(), Some(None));
            }
            gate.open();
        });
    });
    assert_eq!(map.len(), 10);
}

#[test]
fn a_timer_that_is_stopped_takes_no_turn_of_a_map() {
    let (manual, told) = (Manual::with(|builder| builder), Count::default());
    let count = told.clone();
    let map = ExpiringMap::builder().on_expired(move |_| count.add()).build(&manual.timer);
    map.insert(1, 1, ms(50)).unwrap();
    thread::scope(|scope| {
        while_the_worker_is_held_up(&manual, |_| {
            scope.spawn(|| manual.timer.stop());
            wait_until(|| manual.timer.is_stopped());
        });
    });
    assert_eq!((told.get(), map.len(), map.get(&1)), (0, 1, None));
}

#[test]
fn a_timer_is_stopped_inside_a_hook() {
    let manual = Manual::with(|builder| builder);
    let (timer, count) = (manual.timer.clone(), Count::default());
    let seen = count.clone();
    let hook = move |_| {
        assert!(timer.stop().is_err());
        seen.add();
    };
    let map = ExpiringMap::builder().on_expired(hook).build(&manual.timer);
    map.insert(1, (), ms(10)).unwrap();
    manual.advance(10);
    assert_eq!((count.get(), manual.timer.stats().panics), (1, 0));
}

#[test]
fn a_driver_takes_the_turns_of_a_map() {
    let clock = ManualClock::new();
    let (timer, mut driver) = Timer::builder().clock(clock.clone()).build_driven().unwrap();
    let told = Count::default();
    let woken = told.clone();
    driver.on_wake(move |_| woken.add());
    let map = ExpiringMap::builder().shards(1).build(&timer);
    assert_eq!(driver.turn(), None);
    map.insert(1, 1, ms(20)).unwrap();
    map.insert(2, 2, ms(30)).unwrap();
    assert_eq!((told.get(), driver.turn()), (1, map.deadline(&1)));
    map.insert(3, 3, ms(10)).unwrap();
    assert_eq!((told.get(), driver.turn()), (2, map.deadline(&3)));
    clock.jump(ms(20));
    assert_eq!((map.len(), map.iter().count()), (3, 1));
    assert_eq!((driver.turn(), map.len()), (map.deadline(&2), 1));
}

#[test]
fn a_hook_and_a_drop_may_call_the_map_and_panic() {
    struct Calls(ExpiringMap<u32, Option<Self>>, Count);

    impl Drop for Calls {
        fn drop(&mut self) {
            self.0.insert(1_000 + self.0.len() as u32, None, ms(1_000)).unwrap();
            assert!(self.0.get_or_insert_none(7));
            self.1.add();
            panic!("as it was meant to be");
        }
    }

    trait GetOrInsertNone {
        fn get_or_insert_none(&self, key: u32) -> bool;
    }

    impl GetOrInsertNone for ExpiringMap<u32, Option<Calls>> {
        fn get_or_insert_none(&self, key: u32) -> bool {
            self.insert(key, None, ms(1_000)).is_ok() && self.contains_key(&key)
        }
    }

    let (manual, count) = (Manual::with(|builder| builder), Count::default());
    let map = ExpiringMap::builder().shards(1).build(&manual.timer);
    let calls = || Some(Calls(map.clone(), count.clone()));
    for key in 100..110 {
        map.insert(key, calls(), ms(10)).unwrap();
    }
    manual.advance(10);
    assert_eq!((count.get(), manual.timer.stats().panics), (10, 10));
    map.insert(100, calls(), ms(10)).unwrap();
    map.insert(101, calls(), ms(10)).unwrap();
    map.insert(102, calls(), ms(10)).unwrap();
    let replaces = || map.insert(100, None, ms(10)).map(drop);
    assert!(catch_unwind(AssertUnwindSafe(replaces)).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(map.remove(&101)))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| map.retain(|key, _| *key != 102))).is_err());
    assert_eq!((count.get(), map.contains_key(&102)), (13, false));
    while_the_worker_is_held_up(&manual, |_| {
        map.clear();
        map.insert(100, calls(), Duration::ZERO).unwrap();
        // It finds that one expired, and drops it.
        map.insert(100, None, ms(10)).unwrap();
        assert_eq!((count.get(), manual.timer.stats().panics), (14, 11));
    });
    // The hook is told of each, though each panics.
    let told = Count::default();
    let hook_map: Arc<OnceLock<ExpiringMap<u32, Odd>>> = Arc::default();
    let (seen, inner) = (told.clone(), Arc::clone(&hook_map));
    let hook = move |due: Due<_, u32>| {
        seen.add();
        assert!(!inner.get().unwrap().contains_key(&due.key));
        panic!("as it was meant to be");
    };
    let map = ExpiringMap::builder().on_expired(hook).build(&manual.timer);
    hook_map.set(map.clone()).unwrap();
    let herd = Herd::default();
    for key in 0..200 {
        map.insert(key, herd.bomb(1), ms(10)).unwrap();
    }
    manual.advance(10);
    assert_eq!((told.get(), herd.dropped(), map.len()), (200, 200, 0));
}

/// Two panics at once would end the process.
#[test]
fn of_keys_and_values_that_all_panic_as_one_call_drops_them_each_is_dropped() {
    type Map = ExpiringMap<Odd, Odd>;
    type Call = fn(&Map, &Herd);
    let calls: [(&str, Call, u64); 8] = [
        ("retain", |map, _| map.retain(|_, _| false), 4),
        ("clear", |map, _| map.clear(), 4),
        ("the rest of a drain", |map, _| drop(map.drain()), 4),
        ("insert", |map, herd| drop(map.insert(herd.bomb(1), herd.make(1), ms(10))), 2),
        ("remove", |map, herd| drop(map.remove(&herd.make(1))), 2),
        ("remove_if", |map, herd| drop(map.remove_if(&herd.make(1), |_| true)), 2),
        (
            "get_or_insert_with",
            |map, herd| {
                let captured = herd.bomb(3);
                drop(map.get_or_insert_with(herd.bomb(1), ms(10), || captured));
            },
            2,
        ),
        (
            "get_or_insert_with, another was faster",
            |map, herd| {
                let makes = || {
                    drop(map.insert(herd.make(3), herd.make(3), ms(10)));
                    herd.bomb(3)
                };
                drop(map.get_or_insert_with(herd.bomb(3), ms(10), makes));
            },
            2,
        ),
    ];
    for (name, call, panics) in calls {
        let (manual, herd) = (Manual::with(|builder| builder), Herd::default());
        let map = ExpiringMap::builder().shards(1).build(&manual.timer);
        for number in 1..=2 {
            assert!(map.insert(herd.bomb(number), herd.bomb(number), ms(10)).is_ok());
        }
        assert!(catch_unwind(AssertUnwindSafe(|| call(&map, &herd))).is_err(), "{name}");
        // The caller has the first one.
        assert_eq!(manual.timer.stats().panics, panics - 1, "{name}");
        manual.advance(10);
        assert_eq!((herd.alive(), map.len()), (0, 0), "{name}");
    }
}

#[test]
fn values_that_panic_as_a_panic_drops_a_drain_do_not_end_the_process() {
    struct Bomb(Count);

    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.add();
            panic!("as it was meant to be");
        }
    }

    let (manual, count) = (Manual::with(|builder| builder), Count::default());
    let map = ExpiringMap::with_timer(&manual.timer);
    for key in 0..3 {
        assert!(map.insert(key, Bomb(count.clone()), ms(10)).is_ok());
    }
    let panics = || {
        let _rest = map.drain();
        panic!("as it was meant to be");
    };
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!((count.get(), manual.timer.stats().panics), (3, 3));
}

/// A clone of the value, its key and itself.
#[test]
fn what_a_full_map_refuses_is_dropped_though_each_panics() {
    let (manual, herd) = (Manual::new(Mode::default()), Herd::default());
    let map = ExpiringMap::builder().shards(1).max_len(1).build(&manual.timer);
    assert!(map.insert(herd.make(1), herd.make(1), ms(10)).is_ok());
    let (key, value) = (herd.bomb(2), herd.bomb(3));
    herd.panic_at(Some(Act::Drop), 0);
    let call = || drop(map.get_or_insert_with(key, ms(10), || value));
    assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    assert!(!herd.disarm());
    assert_eq!(manual.timer.stats().panics, 2);
    drop(map);
    assert_eq!(herd.alive(), 0);
}

#[test]
fn of_keys_and_values_that_all_panic_as_they_expire_each_is_dropped() {
    let kept = Kept::default();
    let manual = Manual::built(Mode::default(), |builder| builder.executor(kept.executor()));
    let (herd, builder) = (Herd::default(), || ExpiringMap::builder().shards(1));
    let (received, receiver) = builder().build_with_receiver(&manual.timer);
    drop(receiver);
    let hooked = builder().on_expired(|_| unreachable!()).build(&manual.timer);
    for map in [builder().build(&manual.timer), received, hooked] {
        for number in 0..2 {
            assert!(map.insert(herd.bomb(number), herd.bomb(number), ms(10)).is_ok());
        }
        manual.advance(10);
        // The executor leaves the hook out.
        kept.next().into_iter().for_each(drop);
        assert_eq!((herd.alive(), map.len()), (0, 0));
    }
    assert_eq!(manual.timer.stats().panics, 12);
}

#[test]
fn clones_that_a_panic_leaves_are_dropped_with_no_lock_held() {
    for clones in 0..4 {
        returns("an iteration in which a clone panics", move || {
            let slot = Arc::new(OnceLock::<ExpiringMap<Odd, Odd>>::new());
            let inner = Arc::clone(&slot);
            let herd = Herd::that_calls(move |act, _| {
                if act == Act::Drop {
                    _ = inner.get().map(ExpiringMap::len);
                }
            });
            let manual = Manual::with(|builder| builder);
            let map = slot.get_or_init(|| ExpiringMap::builder().shards(1).build(&manual.timer));
            for number in 0..2 {
                assert!(map.insert(herd.make(number), herd.make(number), ms(10)).is_ok());
            }
            herd.panic_at(Some(Act::Clone), clones);
            assert!(catch_unwind(AssertUnwindSafe(|| map.iter().count())).is_err());
            assert_eq!(map.iter().count(), 2);
            map.clear();
        });
    }
}

#[test]
fn keys_whose_comparison_panics_leave_a_map_as_it_was() {
    let manual = Manual::with(|builder| builder);
    let (herd, value) = (Herd::default(), Arc::new(()));
    let map = ExpiringMap::builder().max_len(2).build(&manual.timer);
    map.insert(herd.make(1), Arc::clone(&value), ms(10)).unwrap();
    let calls: [&dyn Fn(); 6] = [
        &|| drop(map.insert(herd.make(1), Arc::clone(&value), ms(90))),
        &|| drop(map.insert_if_absent(herd.make(1), Arc::clone(&value), ms(90))),
        &|| drop(map.get(&herd.make(1))),
        &|| drop(map.get_and_reset(&herd.make(1), ms(90))),
        &|| drop(map.remove(&herd.make(1))),
        &|| assert!(map.touch(&herd.make(1))),
    ];
    for call in calls {
        herd.panic_always(Act::Eq);
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
        herd.tame();
        assert_eq!((map.len(), Arc::strong_count(&value)), (1, 2));
        assert_eq!(map.deadline(&herd.make(1)), Some(manual.at(10)));
    }
    // A clone and a change that panic.
    let panics = || map.update(&herd.make(1), |_| panic!("as it should"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    map.insert(herd.make(2), Arc::clone(&value), ms(10)).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| map.retain(|_, _| panic!("as it should")))).is_err());
    assert_eq!(map.len(), 2);
    manual.advance(10);
    assert_eq!((map.len(), Arc::strong_count(&value)), (0, 1));
}

#[test]
fn what_runs_under_a_lock_may_use_other_maps_channels_and_timers() {
    let manual = Manual::with(|builder| builder);
    let (first, second) =
        (ExpiringMap::with_timer(&manual.timer), ExpiringMap::with_timer(&manual.timer));
    let (sender, mut receiver) = delay_channel(&manual.timer);
    first.insert("key", 1, ms(10)).unwrap();
    let timeout = first.update("key", |value| {
        second.insert("copy", *value, ms(10)).unwrap();
        *value += second.get("copy").unwrap();
        sender.insert(*value, ms(5)).unwrap();
        manual.idle(5)
    });
    assert!(timeout.unwrap().cancel());
    manual.advance(5);
    assert_eq!((first.get("key"), receiver.recv().unwrap().unwrap().value), (Some(2), 2));
}

#[test]
fn no_clock_is_read_under_the_lock_of_a_map() {
    returns("calls of a map that the clock asks", || {
        let slot = Arc::new(OnceLock::new());
        let asked = Arc::clone(&slot);
        let clock = OddClock::new(move || {
            let _ = asked.get().map(ExpiringMap::<u32, u32>::len);
            Instant::now()
        });
        let (timer, _driver) = Timer::builder().clock(clock).build_driven().unwrap();
        let far = Duration::MAX;
        let map = ExpiringMap::builder().shards(1).time_to_idle(far).build(&timer);
        let map = slot.get_or_init(|| map);
        assert_eq!(map.insert(1, 10, far).ok(), Some(None));
        assert_eq!(map.insert_at(1, 11, Instant::now() + ms(3_600_000)).ok(), Some(Some(10)));
        assert!(map.insert_if_absent(2, 20, far).is_ok());
        assert_eq!(map.get_or_insert_with(3, far, || 30).ok(), Some(30));
        assert_eq!((map.get(&1), map.get_and_reset(&1, far)), (Some(11), Some(11)));
        assert!(map.update(&1, |value| *value += 1).is_some() && map.touch(&1));
        assert!(map.reset(&1, far) && map.reset_if(&1, far, |&value| value == 12));
        assert!(map.reset_at(&1, Instant::now() + ms(3_600_000)));
        assert!(map.contains_key(&1) && map.deadline(&1).is_some());
        map.retain(|&key, _| key != 3);
        assert_eq!(map.iter().count(), 2);
        assert_eq!(map.remove_if(&2, |_| true), Some(20));
        assert_eq!(map.remove(&1), Some(12));
    });
}

#[test]
fn under_a_lock_for_which_the_worker_waits_nothing_waits_for_the_worker() {
    let clock = ManualClock::new();
    let timer = Timer::builder().clock(clock.clone()).build().unwrap();
    let map = ExpiringMap::builder().shards(1).build(&timer);
    let mut queue = DelayQueue::with_timer(&timer);
    queue.insert("late", ms(3_600_000));
    map.insert("long", (), ms(3_600_000)).unwrap();
    let timeout = timer.schedule(ms(10), || {}).unwrap();
    let mut slot = Some(timer);
    returns("calls under a lock", move || {
        let under_the_lock = |call: &mut dyn FnMut()| {
            map.insert("short", (), ms(10)).unwrap();
            let called = map.update("long", |_| {
                // The worker waits for this lock now, or soon.
                clock.advance(ms(10));
                call();
            });
            called.expect("it is there");
        };
        under_the_lock(&mut || assert!(slot.as_ref().unwrap().stop().is_err()));
        under_the_lock(&mut || assert!(timeout.cancel_and_wait().is_err()));
        under_the_lock(&mut || {
            let error = queue.recv_timeout(ms(1)).unwrap().unwrap_err().error();
            assert_eq!(error, Some(ScheduleErrorKind::Deadlock));
        });
        under_the_lock(&mut || slot = None); // the last clone
    });
}

#[test]
fn a_map_may_be_dropped_by_its_own_hook() {
    let manual = Manual::with(|builder| builder);
    let holder: Arc<Mutex<Option<ExpiringMap<u32, u32>>>> = Arc::default();
    let (last, count) = (Arc::clone(&holder), Count::default());
    let seen = count.clone();
    let hook = move |_| {
        drop(last.lock().unwrap().take());
        seen.add();
    };
    let map = ExpiringMap::builder().shards(1).on_expired(hook).build(&manual.timer);
    for key in 0..10 {
        map.insert(key, key, ms(10)).unwrap();
    }
    *holder.lock().unwrap() = Some(map);
    manual.advance(10);
    assert_eq!((count.get(), manual.timer.pending(), manual.timer.stats().panics), (10, 0, 0));
}

#[test]
fn the_last_handle_drops_all_values_while_the_worker_drops_one_that_has_expired() {
    let (manual, gate) = (Manual::with(|builder| builder), Gate::default());
    let passes = gate.clone();
    let herd = Herd::that_calls(move |act, number| {
        if (act, number) == (Act::Drop, 0) {
            passes.pass();
        }
    });
    let map = ExpiringMap::builder().shards(1).build(&manual.timer);
    assert!(map.insert(0, herd.make(0), ms(10)).is_ok());
    for number in 1..=3 {
        assert!(map.insert(number, herd.bomb(number), ms(1_000)).is_ok());
    }
    thread::scope(|scope| {
        scope.spawn(|| manual.clock.jump(ms(10)));
        gate.reached();
        let _opens = OpensInDrop(&gate);
        let last = map.clone();
        drop(map);
        assert_eq!(herd.dropped(), 1);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(last))).is_err());
        // The caller has the first panic.
        assert_eq!((herd.alive(), manual.timer.stats().panics), (0, 2));
    });
    manual.settle();
    assert_eq!((manual.timer.pending(), manual.timer.stats().panics), (0, 2));
}

#[test]
fn an_idle_map_starts_no_thread_and_a_full_one_wakes_nobody() {
    let timer = Timer::builder().thread_name("expiring-idle").build().unwrap();
    let map = ExpiringMap::with_timer(&timer);
    assert_eq!((map.get(&1), map.remove(&1), map.len()), (None, None, 0));
    map.retain(|_: &u32, _: &mut u32| false);
    map.clear();
    assert!(threads_named("expiring-idle").is_none_or(|threads| threads == 0));
    returns("a stop", move || {
        map.insert(1, 1, ms(1_000_000)).unwrap();
        timer.stop().unwrap();
    });
}

#[test]
fn a_map_that_is_not_full_leaves_what_has_expired_to_the_worker() {
    let clock = ManualClock::new();
    let (timer, _driver) = Timer::builder().clock(clock.clone()).build_driven().unwrap();
    let map = ExpiringMap::builder().shards(1).max_len(5).build(&timer);
    (0..3).for_each(|key| assert!(map.insert(key, key, ms(5)).is_ok()));
    clock.advance(ms(10));
    for (key, len) in [(3, 4), (4, 5), (5, 3)] {
        assert!(map.insert(key, key, ms(5)).is_ok());
        assert_eq!(map.len(), len, "{key}");
    }
}
