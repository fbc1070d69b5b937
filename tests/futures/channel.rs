//! The delay channel: what it has in common with a queue and a map, and what it alone has: many
//! senders, one receiver, and an end. Races are in `tests/loom.rs`.

use crate::common::long;
use crate::help::{Count, Gate, Hand, Manual, ms, wait_until};
use fastrand::Rng;
use shared::{Held, some};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{
    DelayKey, DelayReceiver, DelaySender, ExpiringMap, Mode, ScheduleErrorKind, SendError, Timer,
    delay_channel, steps,
};

#[path = "shared.rs"]
mod shared;

in_each_mode! {
    an_earlier_one_wakes_who_waits_and_a_later_one_does_not,
    one_on_another_shard_at_the_same_tick_wakes_nobody,
    it_waits_while_it_is_empty_and_ends_when_the_last_sender_goes,
    a_timed_wait_ends_when_the_last_sender_goes,
    once_it_is_over_nobody_waits_on_the_worker_either,
    the_last_sender_leaves_what_is_pending,
    without_a_receiver_each_value_comes_back,
    a_value_that_calls_the_channel_in_its_drop,
    a_waker_may_call_the_channel,
    a_sender_that_is_held_up_as_it_wakes_the_receiver_holds_up_no_other,
    a_look_while_receivers_are_woken_holds_up_no_other,
    a_value_taken_without_waiting_ends_no_wait,
    a_waker_that_panics_fails_no_sender,
    many_threads_and_nothing_is_lost,
    random_operations_of_many_threads_give_what_a_sorted_map_gives,
    a_far_jump_costs_what_is_due_however_many_shards_wait,
    a_jump_over_what_many_shards_have_in_turns_costs_what_is_due,
    a_key_of_another_channel_finds_nothing,
    each_receiver_that_waits_is_woken_and_one_gets_it,
    receivers_share_the_values_and_all_end,
    a_receiver_that_goes_leaves_the_values_to_others,
    values_are_taken_out_with_keys_and_deadlines,
    a_value_that_came_out_is_armed_again,
    who_waits_on_after_the_end_is_woken_for_what_another_receiver_inserts,
    closed_it_takes_nothing_and_ends_after_what_is_left,
    closed_it_wakes_who_waits_when_nothing_is_left,
    after_a_stop_no_value_is_taken_and_none_is_lost,
    what_expires_in_a_map_as_its_timer_stops_is_in_its_receiver,
}

/// Two senders, which insert, move and remove in turns.
struct Kind {
    senders: [DelaySender<u32>; 2],
    receiver: DelayReceiver<u32>,
}
type KindKey = DelayKey;

impl Kind {
    fn sender(&mut self) -> &DelaySender<u32> {
        self.senders.swap(0, 1);
        &self.senders[0]
    }

    fn insert(&mut self, value: u32, delay: Duration) -> DelayKey {
        self.sender().insert(value, delay).expect("it is open")
    }

    fn insert_at(&mut self, value: u32, deadline: Instant) -> DelayKey {
        self.sender().insert_at(value, deadline).expect("it is open")
    }

    fn remove(&mut self, key: DelayKey) -> Option<u32> {
        self.sender().remove(key)
    }

    fn reset(&mut self, key: DelayKey, delay: Duration) -> bool {
        self.sender().reset(key, delay)
    }

    fn reset_at(&mut self, key: DelayKey, deadline: Instant) -> bool {
        self.sender().reset_at(key, deadline)
    }
}

impl Deref for Kind {
    type Target = DelayReceiver<u32>;

    fn deref(&self) -> &Self::Target {
        &self.receiver
    }
}

impl DerefMut for Kind {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.receiver
    }
}

fn on(timer: &Timer) -> Kind {
    let (sender, receiver) = delay_channel(timer);
    Kind { senders: [sender.clone(), sender], receiver }
}

fn replace(
    channel: &mut Kind,
    key: DelayKey,
    value: u32,
    delay: Duration,
) -> (Option<u32>, DelayKey) {
    (channel.remove(key), channel.insert(value, delay))
}

/// Nothing can be asked.
fn check(_: &mut Kind, _: DelayKey, _: Option<(u32, Instant)>, _: Option<Instant>) {}

fn an_earlier_one_wakes_who_waits_and_a_later_one_does_not(mode: Mode) {
    let mut held = Held::new(mode);
    assert_eq!(held.poll(), Poll::Pending);
    held.insert(1, 100);
    assert_eq!((held.hand.woken(), held.poll()), (1, Poll::Pending));
    held.insert(2, 200);
    held.insert(3, 100);
    assert_eq!(held.hand.woken(), 0);
    // Two in a row, and the task did not yet look: one wake-up is enough.
    held.insert(4, 50);
    held.kind.insert_at(5, held.manual.at(0));
    assert_eq!((held.hand.woken(), held.poll(), held.poll()), (1, some(5), Poll::Pending));
    held.manual.advance(50);
    assert_eq!((held.hand.woken(), held.poll(), held.poll()), (1, some(4), Poll::Pending));
}

fn one_on_another_shard_at_the_same_tick_wakes_nobody(mode: Mode) {
    let (manual, hand) = (Manual::built(mode, |builder| builder.shards(4)), Hand::new());
    let (sender, mut receiver) = delay_channel(&manual.timer);
    let crew = Crew::new(4);
    for thread in 0..4 {
        let sender = sender.clone();
        crew.on(thread, move || sender.insert(0, ms(10)).expect("it is open"));
        assert_eq!(hand.woken(), 0, "thread {thread}");
        assert!(receiver.poll_expired(&mut hand.context()).is_pending());
    }
}

fn it_waits_while_it_is_empty_and_ends_when_the_last_sender_goes(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let (sender, mut receiver) = delay_channel::<u32>(&manual.timer);
    let other = sender.clone();
    assert!(receiver.poll_expired(&mut hand.context()).is_pending());
    manual.advance(1_000_000);
    drop(sender);
    assert_eq!(hand.woken(), 0);
    drop(other);
    assert_eq!(hand.woken(), 1);
    assert_eq!(receiver.poll_expired(&mut hand.context()), Poll::Ready(None));
    assert_eq!(receiver.poll_expired(&mut hand.context()), Poll::Ready(None));
    assert_eq!((receiver.recv(), receiver.recv_timeout(ms(1))), (None, None));
}

fn a_timed_wait_ends_when_the_last_sender_goes(mode: Mode) {
    let manual = Manual::new(mode);
    let (sender, mut receiver) = delay_channel::<u32>(&manual.timer);
    thread::scope(|scope| {
        let waits = scope.spawn(move || receiver.recv_timeout(Duration::from_secs(3_600)));
        wait_until(|| manual.timer.pending() == 1);
        drop(sender);
        assert_eq!(waits.join().expect("no panic"), None);
    });
}

fn once_it_is_over_nobody_waits_on_the_worker_either(mode: Mode) {
    let manual = Manual::new(mode);
    let (sender, mut receiver) = delay_channel::<u32>(&manual.timer);
    drop(sender);
    let (answers, answer) = mpsc::channel();
    let task = move || {
        let batch = receiver.recv_batch(&mut Vec::new(), 5);
        answers.send((receiver.recv(), batch, receiver.recv_timeout(ms(5)))).unwrap();
    };
    manual.timer.schedule(ms(5), task).expect("it runs");
    manual.advance(5);
    assert_eq!(answer.recv(), Ok((None, Ok(0), None)));
}

fn the_last_sender_leaves_what_is_pending(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let (sender, mut receiver) = delay_channel(&manual.timer);
    sender.insert(1, ms(10)).expect("it is open");
    assert!(receiver.poll_expired(&mut hand.context()).is_pending());
    drop(sender);
    manual.advance(9);
    assert_eq!(hand.woken(), 0);
    manual.advance(1);
    let due = receiver.recv().expect("there is one").expect("it runs");
    assert_eq!((due.value, due.deadline, receiver.recv()), (1, manual.at(10), None));
}

fn without_a_receiver_each_value_comes_back(mode: Mode) {
    let manual = Manual::new(mode);
    let (sender, receiver) = delay_channel(&manual.timer);
    let key = sender.insert(1, ms(10)).expect("it is open");
    assert!(!sender.is_closed());
    drop(receiver);
    assert!(sender.is_closed() && sender.clone().is_closed());
    assert_eq!(sender.insert(2, ms(10)).map_err(SendError::into_value), Err(2));
    assert_eq!((sender.remove(key), sender.reset(key, ms(1))), (None, false));
    let error = sender.insert(3, ms(10)).expect_err("it is closed");
    assert_eq!(
        error.to_string(),
        "the delay channel is closed, or its receivers are gone, or its timer is stopped"
    );
}

/// Calls the channel that it is in, and panics then if it is told to.
struct Calls(DelaySender<Option<Self>>, bool);

impl Drop for Calls {
    fn drop(&mut self) {
        assert!(self.0.is_closed());
        assert!(self.0.insert(None, ms(1)).is_err());
        assert!(!self.1, "as it should");
    }
}

fn a_value_that_calls_the_channel_in_its_drop(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let (sender, mut receiver) = delay_channel(&manual.timer);
    for number in 0..10 {
        let value = Some(Calls(sender.clone(), number == 5));
        assert!(sender.insert(value, ms(10)).is_ok());
    }
    assert!(receiver.poll_expired(&mut hand.context()).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(receiver))).is_err());
    assert_eq!((manual.timer.pending(), hand.wakers()), (0, 0));
    assert!(sender.is_closed());
}

/// A waker whose calls do something, and whose clones are other objects.
struct Does<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Does<F> {
    fn wake(self: Arc<Self>) {
        self.0();
    }
}

fn a_waker_may_call_the_channel(mode: Mode) {
    let manual = Manual::new(mode);
    let (sender, receiver) = delay_channel(&manual.timer);
    let receiver = Arc::new(Mutex::new(receiver));
    let got = Arc::new(Mutex::new(Vec::new()));
    let waker = {
        let (sender, receiver, got) = (sender.clone(), Arc::clone(&receiver), Arc::clone(&got));
        Waker::from(Arc::new(Does(move || {
            // As an executor that polls inline does; and as a sender.
            let key = sender.insert(9, ms(1_000)).expect("it is open");
            assert_eq!((sender.remove(key), sender.is_closed()), (Some(9), false));
            drop(sender.clone());
            let mut receiver = receiver.lock().expect("no panic");
            let due = receiver.poll_expired(&mut Context::from_waker(Waker::noop()));
            got.lock()
                .expect("no panic")
                .push(due.map(|due| due.map(|due| due.map(|due| due.value))));
        })))
    };
    let wait = || receiver.lock().expect("no panic").poll_expired(&mut Context::from_waker(&waker));
    assert!(wait().is_pending());
    sender.insert(1, ms(10)).expect("it is open");
    assert!(wait().is_pending());
    sender.insert_at(2, manual.at(0)).expect("it is open");
    assert!(wait().is_pending());
    manual.advance(10);
    let got = std::mem::take(&mut *got.lock().expect("no panic"));
    assert!(got.contains(&Poll::Ready(Some(Ok(1)))), "{got:?}");
    assert!(got.contains(&Poll::Ready(Some(Ok(2)))), "{got:?}");
    assert_eq!(manual.timer.stats().panics, 0);
}

fn a_sender_that_is_held_up_as_it_wakes_the_receiver_holds_up_no_other(mode: Mode) {
    // Senders share a shard, or do not.
    for shards in [1, 8] {
        holds_up_no_other(Manual::built(mode, |builder| builder.shards(shards)));
    }
}

fn holds_up_no_other(manual: Manual) {
    let (gate, wakes) = (Gate::default(), Count::default());
    let waker = {
        let (gate, wakes) = (gate.clone(), wakes.clone());
        Waker::from(Arc::new(Does(move || {
            wakes.add();
            if wakes.get() == 1 {
                gate.pass();
            }
        })))
    };
    let (sender, mut receiver) = delay_channel(&manual.timer);
    assert!(receiver.poll_expired(&mut Context::from_waker(&waker)).is_pending());
    thread::scope(|scope| {
        let insert = |delay| _ = sender.insert(0, ms(delay)).expect("it is open");
        scope.spawn(move || insert(10));
        gate.reached();
        for (delay, woken) in [(20, 2), (10, 2), (5, 2)] {
            insert(delay);
            assert_eq!(wakes.get(), woken, "after {delay} ms");
        }
        // It looks, and hears of what comes before the next value.
        assert!(receiver.poll_expired(&mut Context::from_waker(&waker)).is_pending());
        for (delay, woken) in [(1_000_000, 2), (4, 3)] {
            insert(delay);
            assert_eq!(wakes.get(), woken, "after {delay} ms");
        }
        gate.open();
    });
    assert_eq!(wakes.get(), 3);
}

/// A sender wakes two that wait, one after the other. As it wakes the first, a third one looks, and
/// a later value comes.
fn a_look_while_receivers_are_woken_holds_up_no_other(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Arc::new(Hand::new()));
    let (sender, mut first) = delay_channel(&manual.timer);
    let [mut second, third] = [(); 2].map(|()| first.clone());
    let woken_in_between = Arc::new(Mutex::new(None));
    let does = {
        let (sender, hand, woken) =
            (sender.clone(), Arc::clone(&hand), Arc::clone(&woken_in_between));
        let third = Mutex::new((Hand::new(), Some(third)));
        move || {
            let mut third = third.lock().unwrap();
            let Some(mut receiver) = third.1.take() else { return };
            assert!(receiver.poll_expired(&mut third.0.context()).is_pending());
            sender.insert(2, ms(12)).expect("it is open");
            *woken.lock().unwrap() = Some(hand.woken());
        }
    };
    let waker = Waker::from(Arc::new(Does(does)));
    assert!(first.poll_expired(&mut Context::from_waker(&waker)).is_pending());
    assert!(second.poll_expired(&mut hand.context()).is_pending());
    sender.insert(1, ms(10)).expect("it is open");
    assert_eq!(*woken_in_between.lock().unwrap(), Some(1));
}

/// A sender wakes two that wait, one after the other. As it wakes the first, the holder of the second
/// takes the value. The task of the second waits for the next one nevertheless.
fn a_value_taken_without_waiting_ends_no_wait(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let (sender, mut first) = delay_channel(&manual.timer);
    let second = Arc::new(Mutex::new(first.clone()));
    let takes = {
        let second = Arc::clone(&second);
        move || _ = second.lock().unwrap().try_recv().expect("it is due")
    };
    let waker = Waker::from(Arc::new(Does(takes)));
    assert!(first.poll_expired(&mut Context::from_waker(&waker)).is_pending());
    assert!(second.lock().unwrap().poll_expired(&mut hand.context()).is_pending());
    sender.insert_at(1, manual.at(0)).expect("it is open");
    drop((first, waker));
    assert_eq!((sender.len(), manual.timer.stats().panics), (0, 0));
    sender.insert_at(2, manual.at(0)).expect("it is open");
    assert_eq!((hand.woken(), take(&mut second.lock().unwrap(), &hand)), (1, vec![2]));
}

fn a_waker_that_panics_fails_no_sender(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let (sender, mut receiver) = delay_channel(&manual.timer);
    let waker = Waker::from(Arc::new(Does(|| panic!("as it should"))));
    assert!(receiver.poll_expired(&mut Context::from_waker(&waker)).is_pending());
    sender.insert(1, ms(10)).expect("it is open");
    assert_eq!(manual.timer.stats().panics, 1);
    assert!(receiver.poll_expired(&mut Context::from_waker(&waker)).is_pending());
    assert!(sender.insert_at(2, manual.at(0)).is_ok());
    assert_eq!(manual.timer.stats().panics, 2);
    assert!(receiver.poll_expired(&mut hand.context()).is_ready());
    manual.advance(10);
    assert_eq!(receiver.recv().expect("there is one").expect("it runs").value, 1);
    assert!(receiver.poll_expired(&mut Context::from_waker(&waker)).is_pending());
    drop(sender);
    assert_eq!(receiver.poll_expired(&mut hand.context()), Poll::Ready(None));
}

/// Threads insert, move and remove at once: each value comes out, or comes back, exactly once.
fn many_threads_and_nothing_is_lost(mode: Mode) {
    let manual = Manual::new(mode);
    let (sender, mut receiver) = delay_channel(&manual.timer);
    let threads: Vec<_> = (0..4_u64)
        .map(|number| {
            let sender = sender.clone();
            thread::spawn(move || {
                let mut rng = Rng::with_seed(number);
                let mut removed = Vec::new();
                for value in 0..500_u64 {
                    let value = number * 500 + value;
                    let key = sender.insert(value, ms(rng.u64(..50))).expect("it is open");
                    match rng.u32(..4) {
                        0 => removed.extend(sender.remove(key)),
                        1 => drop(sender.reset(key, ms(rng.u64(..50)))),
                        _ => {}
                    }
                }
                removed
            })
        })
        .collect();
    drop(sender);
    let receiving = thread::spawn(move || {
        let due = std::iter::from_fn(|| receiver.recv()).map(|due| due.expect("it runs"));
        due.map(|due| due.value).collect::<Vec<_>>()
    });
    wait_until(|| {
        manual.advance(5);
        receiving.is_finished()
    });
    let mut values = receiving.join().expect("no panic");
    values.extend(threads.into_iter().flat_map(|thread| thread.join().expect("no panic")));
    values.sort_unstable();
    assert!(values.into_iter().eq(0..2_000));
}

/// Threads, each with its shard, that do what they are told, one after the other.
struct Crew(Vec<mpsc::Sender<Box<dyn FnOnce() + Send>>>);

impl Crew {
    fn new(threads: usize) -> Self {
        let begin = |_| {
            let (sender, jobs) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
            thread::spawn(move || jobs.into_iter().for_each(|job| job()));
            sender
        };
        Self((0..threads).map(begin).collect())
    }

    /// Does something on one of the threads, and returns what came of it.
    fn on<R: Send + 'static>(&self, thread: usize, job: impl FnOnce() -> R + Send + 'static) -> R {
        let (sender, done) = mpsc::channel();
        let job = Box::new(move || sender.send(job()).expect("it waits"));
        self.0[thread].send(job).expect("it is there");
        done.recv().expect("no panic")
    }
}

/// At each look all that is due comes, by deadline; what one thread inserted or moved last for the
/// same tick comes last.
fn random_operations_of_many_threads_give_what_a_sorted_map_gives(mode: Mode) {
    const THREADS: usize = 4;
    for seed in 0..long(2, 20) {
        let mut rng = Rng::with_seed(seed);
        let (manual, hand, crew) = (Manual::new(mode), Hand::new(), Crew::new(THREADS));
        let (sender, mut receiver) = delay_channel(&manual.timer);
        // By tick, thread of the shard, and order.
        let mut pending: BTreeMap<(u64, usize, u32), u32> = BTreeMap::new();
        let (mut keys, mut waits) = (Vec::new(), false);
        for order in 0..300_u32 {
            let most = [5, 100, 5_000][rng.usize(..3)];
            let delay = rng.u64(..most);
            let tick = manual.now() + delay;
            let (thread, inside) = (rng.usize(..THREADS), sender.clone());
            let which = rng.usize(..keys.len().max(1));
            match (rng.u32(..8), keys.get_mut(which)) {
                (0, Some((key, place))) => {
                    let key = *key;
                    let removed = crew.on(thread, move || inside.remove(key));
                    assert_eq!(removed, pending.remove(place));
                }
                (1 | 2, Some((key, place))) => {
                    let key = *key;
                    let is_there = crew.on(thread, move || inside.reset(key, ms(delay)));
                    let value = pending.remove(place);
                    assert_eq!(is_there, value.is_some());
                    if let Some(value) = value {
                        *place = (tick, place.1, order);
                        pending.insert(*place, value);
                    }
                }
                (3..6, _) => {
                    let insert = move || inside.insert(order, ms(delay)).expect("it is open");
                    let place = (tick, thread, order);
                    keys.push((crew.on(thread, insert), place));
                    pending.insert(place, order);
                }
                _ => {
                    manual.jump(rng.u64(..50));
                    let later = pending.split_off(&(manual.now() + 1, 0, 0));
                    let due = std::mem::replace(&mut pending, later);
                    assert!(due.is_empty() || !waits || hand.woken() > 0, "woken in time");
                    let places: BTreeMap<u32, _> =
                        due.iter().map(|(place, value)| (*value, *place)).collect();
                    let come: Vec<_> =
                        take(&mut receiver, &hand).iter().map(|value| places[value]).collect();
                    assert!(come.iter().collect::<BTreeSet<_>>().into_iter().eq(due.keys()));
                    assert_eq!(come.len(), due.len());
                    assert!(come.is_sorted_by_key(|place| place.0), "by deadline");
                    for thread in 0..THREADS {
                        assert!(come.iter().filter(|place| place.1 == thread).is_sorted());
                    }
                    waits = true;
                    hand.woken();
                }
            }
            assert_eq!((sender.len(), receiver.len()), (pending.len(), pending.len()));
        }
    }
}

/// All that is due: a batch, one, and so on.
fn take(receiver: &mut DelayReceiver<u32>, hand: &Hand) -> Vec<u32> {
    let mut values = Vec::new();
    loop {
        let mut batch = Vec::new();
        let polled = pin!(receiver.next_batch(&mut batch, 3)).poll(&mut hand.context());
        if let Poll::Ready(taken) = polled {
            assert_eq!((taken, batch.len() <= 3), (Ok(batch.len()), true));
        }
        values.extend(batch.into_iter().map(|due| due.value));
        match receiver.poll_expired(&mut hand.context()) {
            Poll::Ready(Some(due)) => values.push(due.expect("it runs").value),
            // It gives way to others now and then.
            Poll::Pending if hand.woken() > 0 => {}
            _ => return values,
        }
    }
}

/// In a hashed wheel a value that is far away comes up once per round.
fn a_far_jump_costs_what_is_due_however_many_shards_wait(mode: Mode) {
    const FAR: u64 = 1 << 32;
    let (manual, hand, crew) = (Manual::new(mode), Hand::new(), Crew::new(4));
    let (sender, mut receiver) = delay_channel(&manual.timer);
    for thread in 0..4 {
        let inside = sender.clone();
        // Its wheel does not know exactly when the next is due.
        let insert = move || {
            inside.insert(thread, ms(FAR + u64::from(thread))).expect("it is open");
            inside.remove(inside.insert(thread, ms(10))?).expect("it is there");
            Ok::<_, SendError<u32>>(())
        };
        assert!(crew.on(thread as usize, insert).is_ok());
    }
    manual.clock.jump(ms(FAR + 1));
    let before = steps();
    assert_eq!(take(&mut receiver, &hand), [0, 1]);
    assert!(steps() - before < 1_000, "{} steps", steps() - before);
    assert_eq!(receiver.len(), 2);
}

/// Each shard is driven to the present once, and not to what the others have next.
fn a_jump_over_what_many_shards_have_in_turns_costs_what_is_due(mode: Mode) {
    const EACH: u32 = 500;
    let (manual, hand, crew) = (Manual::new(mode), Hand::new(), Crew::new(4));
    let (sender, mut receiver) = delay_channel(&manual.timer);
    for thread in 0..4 {
        let inside = sender.clone();
        let insert = move |value| inside.insert(value, ms(7 * u64::from(value) + 7));
        crew.on(thread as usize, move || {
            (0..EACH).for_each(|at| _ = insert(4 * at + thread).expect("it is open"));
        });
    }
    manual.clock.jump(ms(7 * 4 * u64::from(EACH)));
    let before = steps();
    assert!(take(&mut receiver, &hand).into_iter().eq(0..4 * EACH));
    let each = (steps() - before) / u64::from(4 * EACH);
    assert!(each < 10, "{each} steps for each");
}

fn a_key_of_another_channel_finds_nothing(mode: Mode) {
    let timers = [8, 1].map(|shards| Manual::built(mode, |builder| builder.shards(shards)));
    let (large, receiver) = delay_channel(&timers[0].timer);
    let (small, _other) = delay_channel::<u32>(&timers[1].timer);
    let crew = Crew::new(8);
    for thread in 0..8 {
        let large = large.clone();
        let key = crew.on(thread, move || large.insert(0, ms(10)).expect("it is open"));
        assert_eq!((small.remove(key), small.reset(key, ms(1))), (None, false));
    }
    assert_eq!((large.len(), small.len(), small.is_empty()), (8, 0, true));
    assert!(!large.is_empty() && !receiver.is_empty());
}

fn each_receiver_that_waits_is_woken_and_one_gets_it(mode: Mode) {
    let (manual, hands) = (Manual::new(mode), [(); 3].map(|()| Hand::new()));
    let (sender, receiver) = delay_channel(&manual.timer);
    let mut receivers = [(); 3].map(|()| receiver.clone());
    let mut poll = |which: usize| {
        let due = receivers[which].poll_expired(&mut hands[which].context());
        due.map(|due| due.map(|due| due.expect("it runs").value))
    };
    let woken = || hands.each_ref().map(Hand::woken);
    assert!((0..3).all(|which| poll(which).is_pending()));
    sender.insert(1, ms(10)).expect("it is open");
    assert_eq!(woken(), [1; 3]);
    // One does not look. It is in nobody's way.
    assert!(poll(1).is_pending() && poll(2).is_pending());
    manual.advance(10);
    assert_eq!(woken(), [0, 1, 1]);
    assert_eq!((poll(1), poll(2)), (Poll::Ready(Some(1)), Poll::Pending));
    // It has its value, and waits no more. The first has not looked since it was woken.
    sender.insert(2, ms(10)).expect("it is open");
    assert_eq!(woken(), [0, 0, 1]);
    let other = sender.clone();
    Crew::new(1).on(0, move || other.insert(3, ms(5)).expect("it is open"));
    assert_eq!(woken(), [1, 0, 1]);
    assert_eq!((poll(0), poll(1), poll(2)), (EMPTY, EMPTY, EMPTY));
    manual.advance(10);
    assert_eq!(woken(), [1; 3]);
    assert_eq!((poll(2), poll(0), poll(1)), (Poll::Ready(Some(3)), Poll::Ready(Some(2)), EMPTY));
}

fn receivers_share_the_values_and_all_end(mode: Mode) {
    let manual = Manual::new(mode);
    let (sender, receiver) = delay_channel(&manual.timer);
    let receive = |mut receiver: DelayReceiver<u32>| {
        let due = std::iter::from_fn(move || receiver.recv());
        due.map(|due| due.expect("it runs").value).collect::<Vec<_>>()
    };
    let receivers: Vec<_> = (0..3)
        .map(|_| {
            let receiver = receiver.clone();
            thread::spawn(move || receive(receiver))
        })
        .collect();
    drop(receiver);
    for value in 0..600 {
        sender.insert(value, ms(value.into())).expect("it is open");
    }
    drop(sender);
    wait_until(|| {
        manual.advance(5);
        receivers.iter().all(|receiver| receiver.is_finished())
    });
    let received = receivers.into_iter().map(|receiver| receiver.join().expect("no panic"));
    let mut values: Vec<_> = received.inspect(|its| assert!(its.is_sorted())).flatten().collect();
    values.sort_unstable();
    assert!(values.into_iter().eq(0..600));
}

fn a_receiver_that_goes_leaves_the_values_to_others(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let (sender, mut receiver) = delay_channel(&manual.timer);
    let mut other = receiver.clone();
    assert!(receiver.poll_expired(&mut hand.context()).is_pending());
    sender.insert(1, ms(10)).expect("it is open");
    drop(receiver);
    assert_eq!((hand.woken(), hand.wakers(), sender.is_closed()), (1, 0, false));
    manual.advance(10);
    assert_eq!(take(&mut other, &hand), [1]);
    sender.insert(2, ms(10)).expect("it is open");
    let last = other.clone();
    drop(other);
    assert_eq!((sender.len(), sender.is_closed(), last.len()), (1, false, 1));
    drop(last);
    assert_eq!((sender.len(), sender.is_closed()), (0, true));
}

fn values_are_taken_out_with_keys_and_deadlines(mode: Mode) {
    let (manual, hand, crew) = (Manual::new(mode), Hand::new(), Crew::new(4));
    let (sender, mut receiver) = delay_channel(&manual.timer);
    let mut all = vec![(sender.insert(9, Duration::MAX).expect("it is open"), None, 9)];
    for thread in 0..4_u32 {
        let (inside, delay) = (sender.clone(), 1_000 * u64::from(thread));
        let insert = move || inside.insert(thread, ms(delay)).expect("it is open");
        all.push((crew.on(thread as usize, insert), Some(manual.at(delay)), thread));
    }
    all.sort_unstable();
    let mut drained: Vec<_> = receiver.drain().collect();
    drained.sort_unstable();
    assert_eq!((drained, sender.len()), (all.clone(), 0));
    assert!(all.iter().all(|(key, ..)| sender.remove(*key).is_none()));
    // What comes later has other keys.
    let key = sender.insert(1, ms(50)).expect("it is open");
    assert!(all.iter().all(|(old, ..)| *old != key));
    assert_eq!(receiver.drain().map(|(key, ..)| key).collect::<Vec<_>>(), [key]);

    let manual = Manual::new(mode);
    let (sender, receiver) = delay_channel(&manual.timer);
    let (mut waits, mut drains) = (receiver.clone(), receiver);
    sender.insert(1, ms(10)).expect("it is open");
    assert!(waits.poll_expired(&mut hand.context()).is_pending());
    drop(sender);
    assert_eq!((hand.woken(), drains.drain().count(), hand.woken()), (0, 1, 1));
    assert_eq!(waits.poll_expired(&mut hand.context()), Poll::Ready(None));
}

fn a_value_that_came_out_is_armed_again(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let (sender, mut receiver) = delay_channel(&manual.timer);
    sender.insert(1, ms(10)).expect("it is open");
    drop(sender);
    for turn in 1..5 {
        assert!(receiver.poll_expired(&mut hand.context()).is_pending());
        manual.advance(10);
        assert_eq!((hand.woken(), take(&mut receiver, &hand)), (1, vec![turn]));
        // No sender is left, and it goes on nevertheless.
        if turn < 3 {
            receiver.insert(turn + 1, ms(10)).expect("it is open");
        } else {
            let at = manual.at(10 * u64::from(turn + 1));
            receiver.insert_at(turn + 1, at).expect("it is open");
        }
    }
    assert_eq!(receiver.len(), 1);
}

fn who_waits_on_after_the_end_is_woken_for_what_another_receiver_inserts(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let (sender, mut receiver) = delay_channel::<u32>(&manual.timer);
    let other = receiver.clone();
    drop(sender);
    let mut next = pin!(receiver.next_due());
    let mut poll = || next.as_mut().poll(&mut hand.context()).map_ok(|due| due.value);
    assert_eq!(poll(), Poll::Pending);
    other.insert(7, ms(10)).expect("it is open");
    assert_eq!((hand.woken(), poll()), (1, Poll::Pending));
    manual.advance(10);
    assert_eq!((hand.woken(), poll()), (1, Poll::Ready(Ok(7))));
}

fn closed_it_takes_nothing_and_ends_after_what_is_left(mode: Mode) {
    let by_sender = |sender: &DelaySender<u32>, _: &DelayReceiver<u32>| sender.close();
    let by_receiver = |_: &DelaySender<u32>, receiver: &DelayReceiver<u32>| receiver.close();
    for close in [by_sender as fn(&_, &_), by_receiver] {
        let (manual, hand) = (Manual::built(mode, |builder| builder.shards(4)), Hand::new());
        let (sender, mut receiver) = delay_channel(&manual.timer);
        let (crew, mut other) = (Crew::new(4), receiver.clone());
        let keys = (1..4).map(|thread| {
            let inside = sender.clone();
            let delay = ms(10 * u64::from(thread));
            crew.on(thread as usize, move || inside.insert(thread, delay).expect("it is open"))
        });
        let keys: Vec<_> = keys.collect();
        assert!(!receiver.is_closed());
        close(&sender, &receiver);
        close(&sender, &receiver);
        for number in 0..4 {
            let inside = sender.clone();
            let refused = crew.on(number, move || {
                (inside.is_closed(), inside.insert(9, ms(1)).map_err(SendError::into_value))
            });
            assert_eq!(refused, (true, Err(9)));
        }
        let refused = [receiver.insert(8, ms(1)), other.insert_at(8, manual.at(0))];
        assert!(
            refused.into_iter().all(|refused| refused.is_err_and(|error| error.into_value() == 8))
        );
        assert!(other.is_closed());
        // What is left comes in time, unless it is moved or removed.
        assert_eq!((sender.reset(keys[0], ms(15)), sender.remove(keys[1])), (true, Some(2)));
        manual.advance(14);
        assert!(receiver.poll_expired(&mut hand.context()).is_pending());
        manual.advance(1);
        assert_eq!((hand.woken(), receiver.try_recv().map(|due| due.value)), (1, Some(1)));
        assert!(other.poll_expired(&mut hand.context()).is_pending());
        manual.advance(15);
        assert_eq!(receiver.try_recv().map(|due| due.value), Some(3));
        assert_eq!((receiver.recv(), other.recv()), (None, None));
        assert_eq!(other.recv_batch(&mut Vec::new(), 5), Ok(0));
        assert_eq!(hand.poll_once(receiver.next()), Poll::Ready(None));
    }
}

fn closed_it_wakes_who_waits_when_nothing_is_left(mode: Mode) {
    for is_empty in [false, true] {
        let (manual, hands) = (Manual::new(mode), [Hand::new(), Hand::new()]);
        let (sender, receiver) = delay_channel(&manual.timer);
        let key = sender.insert(1, ms(10)).expect("it is open");
        let mut receivers = [receiver.clone(), receiver];
        for (receiver, hand) in receivers.iter_mut().zip(&hands) {
            assert!(receiver.poll_expired(&mut hand.context()).is_pending());
        }
        if is_empty {
            assert_eq!(sender.remove(key), Some(1));
            sender.close();
        } else {
            sender.close();
            assert_eq!(hands.each_ref().map(Hand::woken), [0, 0]);
            assert_eq!(sender.remove(key), Some(1));
        }
        assert_eq!(hands.each_ref().map(Hand::woken), [1, 1]);
        for (receiver, hand) in receivers.iter_mut().zip(&hands) {
            assert_eq!(receiver.poll_expired(&mut hand.context()), Poll::Ready(None));
        }
        assert_eq!((manual.timer.pending(), hands[0].wakers()), (0, 0));
    }
}

fn after_a_stop_no_value_is_taken_and_none_is_lost(mode: Mode) {
    let (manual, mut batch) = (Manual::new(mode), Vec::new());
    let (sender, mut receiver) = delay_channel(&manual.timer);
    let key = sender.insert(1, ms(10)).expect("it is open");
    assert!(!sender.is_closed());
    manual.timer.stop().expect("outside");
    assert!(sender.is_closed() && receiver.is_closed());
    assert_eq!(sender.insert(2, ms(0)).map_err(SendError::into_value), Err(2));
    assert_eq!(receiver.insert(3, ms(0)).map_err(SendError::into_value), Err(3));
    // A loop that heeds no error ends, too.
    let stopped = Err(ScheduleErrorKind::Stopped);
    let turns = [(); 3].map(|()| receiver.recv_batch(&mut batch, 5));
    assert_eq!(turns, [stopped, Ok(0), stopped]);
    let drained: Vec<_> = receiver.drain().map(|(key, _, value)| (key, value)).collect();
    assert_eq!((drained, sender.len()), (vec![(key, 1)], 0));
    assert_eq!(sender.insert(4, ms(0)).map_err(SendError::into_value), Err(4));
    // Dropped inside a task, the timer is stopped as well.
    let Manual { timer, clock, .. } = Manual::new(mode);
    let (sender, receiver) = delay_channel(&timer);
    let (inside, last) = (sender.clone(), Mutex::new(Some(timer.clone())));
    let (tells, told) = mpsc::channel();
    let task = move || {
        drop(last.lock().expect("no panic").take());
        tells.send(inside.insert(5, ms(1)).is_err()).unwrap();
    };
    timer.schedule(ms(1), task).expect("it runs");
    drop(timer);
    clock.advance(ms(1));
    assert_eq!((told.recv(), sender.is_closed(), receiver.len()), (Ok(true), true, 0));
}

/// The worker hands over while the timer is stopped, and then the callers do.
fn what_expires_in_a_map_as_its_timer_stops_is_in_its_receiver(mode: Mode) {
    let manual = Manual::new(mode);
    let (map, mut receiver) = ExpiringMap::builder().shards(1).build_with_receiver(&manual.timer);
    assert!(map.insert(1, 10, ms(10)).is_ok());
    manual.timer.stop().expect("outside");
    manual.clock.jump(ms(10));
    assert_eq!(map.insert(1, 11, ms(10)).ok(), Some(None));
    let due = receiver.try_recv().expect("it has expired");
    assert_eq!((due.key, due.value, receiver.len()), (1, 10, 0));
}

/// It waits for its senders.
const EMPTY: Poll<Option<u32>> = Poll::Pending;
