//! The delay channel: what it has in common with a queue and a map, and what it alone has: many
//! senders, one receiver, and an end. Races are in `tests/loom.rs`.

use crate::help::{Count, Gate, Hand, Manual, ms, wait_until};
use shared::{Held, some};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{DelayReceiver, DelaySender, Key, Mode, SendError, Timer, delay_channel};

#[path = "shared.rs"]
mod shared;

in_each_mode! {
    an_earlier_one_wakes_who_waits_and_a_later_one_does_not,
    it_waits_while_it_is_empty_and_ends_when_the_last_sender_goes,
    the_last_sender_leaves_what_is_pending,
    without_a_receiver_each_value_comes_back,
    a_value_that_calls_the_channel_in_its_drop,
    a_waker_may_call_the_channel,
    a_sender_that_is_held_up_as_it_wakes_the_receiver_holds_up_no_other,
    a_waker_that_panics_fails_no_sender,
    many_threads_and_nothing_is_lost,
}

/// Two senders, which insert, move and remove in turns.
struct Kind {
    senders: [DelaySender<u32>; 2],
    receiver: DelayReceiver<u32>,
}
type KindKey = Key;

impl Kind {
    fn sender(&mut self) -> &DelaySender<u32> {
        self.senders.swap(0, 1);
        &self.senders[0]
    }

    fn insert(&mut self, value: u32, delay: Duration) -> Key {
        self.sender().insert(value, delay).expect("it is open")
    }

    fn insert_at(&mut self, value: u32, deadline: Instant) -> Key {
        self.sender().insert_at(value, deadline).expect("it is open")
    }

    fn remove(&mut self, key: Key) -> Option<u32> {
        self.sender().remove(key)
    }

    fn reset(&mut self, key: Key, delay: Duration) -> bool {
        self.sender().reset(key, delay)
    }

    fn reset_at(&mut self, key: Key, deadline: Instant) -> bool {
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

fn replace(channel: &mut Kind, key: Key, value: u32, delay: Duration) -> (Option<u32>, Key) {
    (channel.remove(key), channel.insert(value, delay))
}

/// Nothing can be asked.
fn check(_: &mut Kind, _: Key, _: Option<(u32, Instant)>, _: Option<Instant>) {}

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
    let (sender, receiver) = delay_channel(&Manual::new(mode).timer);
    let key = sender.insert(1, ms(10)).expect("it is open");
    assert!(!sender.is_closed());
    drop(receiver);
    assert!(sender.is_closed() && sender.clone().is_closed());
    assert_eq!(sender.insert(2, ms(10)), Err(SendError(2)));
    assert_eq!((sender.remove(key), sender.reset(key, ms(1))), (None, false));
    let error = sender.insert(3, ms(10)).expect_err("it is closed");
    assert_eq!(error.to_string(), "the receiver of the delay channel is gone");
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
    let manual = Manual::new(mode);
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

fn a_waker_that_panics_fails_no_sender(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let (sender, mut receiver) = delay_channel(&manual.timer);
    let waker = Waker::from(Arc::new(Does(|| panic!("as it should"))));
    assert!(receiver.poll_expired(&mut Context::from_waker(&waker)).is_pending());
    sender.insert(1, ms(10)).expect("it is open");
    assert_eq!(manual.timer.stats().panics, 1);
    assert!(receiver.poll_expired(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(sender.insert_at(2, manual.at(0)).map(drop), Ok(()));
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
                let mut rng = fastrand::Rng::with_seed(number);
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

/// It waits for its senders.
const EMPTY: Poll<Option<u32>> = Poll::Pending;
