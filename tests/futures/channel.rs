//! The delay channel: many senders, one receiver, and when it ends. What it shares with the delay
//! queue is tested there; races are in `tests/loom.rs`.

use crate::help::{Hand, Manual, ms, wait_until};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use tickwheel::{
    DelayReceiver, DelaySender, Mode, ScheduleErrorKind, SendError, Timer, delay_channel,
};

in_each_mode! {
    each_comes_at_its_deadline_whichever_sender_inserted_it,
    random_operations_of_two_senders_come_by_deadline,
    an_earlier_one_wakes_who_waits_and_a_later_one_does_not,
    moved_earlier_it_wakes_who_waits,
    a_stale_key_moves_nothing_and_wakes_later,
    removed_it_never_comes,
    it_waits_while_it_is_empty_and_ends_when_the_last_sender_goes,
    the_last_sender_leaves_what_is_pending,
    without_a_receiver_each_value_comes_back,
    dropping_the_receiver_drops_what_is_left,
    a_value_that_calls_the_channel_in_its_drop,
    a_waker_may_call_the_channel,
    a_waker_that_panics_fails_no_sender,
    a_task_that_got_its_value_is_not_woken,
    another_task_that_waits_is_woken_instead,
    a_batch_has_what_is_due_and_no_more,
    a_stopped_timer_says_so,
    a_thread_waits_for_other_threads,
    one_timeout_in_the_timer_whatever_is_in_it,
    many_threads_and_nothing_is_lost,
}

struct Channel {
    sender: DelaySender<u32>,
    receiver: DelayReceiver<u32>,
    manual: Manual,
    hand: Hand,
}

impl Channel {
    fn new(mode: Mode) -> Self {
        let manual = Manual::new(mode);
        let (sender, receiver) = delay_channel(&manual.timer);
        Self { sender, receiver, manual, hand: Hand::new() }
    }

    fn poll(&mut self) -> Poll<Option<u32>> {
        self.receiver
            .poll_expired(&mut self.hand.context())
            .map(|due| due.map(|due| due.expect("the timer runs").value))
    }
}

fn some(value: u32) -> Poll<Option<u32>> {
    Poll::Ready(Some(value))
}

fn each_comes_at_its_deadline_whichever_sender_inserted_it(mode: Mode) {
    let mut channel = Channel::new(mode);
    let other = channel.sender.clone();
    channel.sender.insert(2, ms(20)).expect("it is open");
    other.insert(1, ms(10)).expect("it is open");
    other.insert_at(3, channel.manual.at(20)).expect("it is open");
    assert_eq!(channel.poll(), Poll::Pending);
    channel.manual.advance(9);
    assert_eq!((channel.hand.woken(), channel.poll()), (0, Poll::Pending));
    channel.manual.advance(1);
    assert_eq!((channel.hand.woken(), channel.poll(), channel.poll()), (1, some(1), Poll::Pending));
    channel.manual.advance(10);
    assert_eq!((channel.hand.woken(), channel.poll(), channel.poll()), (1, some(2), some(3)));
    assert_eq!((channel.poll(), channel.receiver.is_empty()), (Poll::Pending, true));
}

fn random_operations_of_two_senders_come_by_deadline(mode: Mode) {
    for seed in 0..20 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut channel = Channel::new(mode);
        let senders = [channel.sender.clone(), channel.sender.clone()];
        let mut pending = std::collections::BTreeMap::new();
        let mut keys = Vec::new();
        let (mut now, mut waits) = (0, false);
        for order in 0..400_u64 {
            let (sender, delay) = (&senders[rng.usize(..2)], rng.u64(..300));
            let value = u32::try_from(keys.len()).expect("few");
            let which = rng.usize(..keys.len().max(1));
            match (rng.u32(..8), keys.get_mut(which)) {
                (0, Some((key, place))) => {
                    let held = pending.remove(place);
                    assert_eq!(sender.remove(*key), held);
                }
                (1..3, Some((key, place))) => {
                    let held = pending.remove(place);
                    assert_eq!(sender.reset(*key, ms(delay)), held.is_some());
                    if let Some(held) = held {
                        *place = (now + delay, order);
                        pending.insert(*place, held);
                    }
                }
                (3..6, _) => {
                    let key = sender.insert(value, ms(delay)).expect("it is open");
                    keys.push((key, (now + delay, order)));
                    pending.insert((now + delay, order), value);
                }
                _ => {
                    let pass = rng.u64(..50);
                    now += pass;
                    channel.manual.advance(pass);
                    let is_due = pending.first_key_value().is_some_and(|(place, _)| place.0 <= now);
                    assert!(!is_due || !waits || channel.hand.woken() > 0, "woken in time");
                    while let Some(entry) = pending.first_entry().filter(|due| due.key().0 <= now) {
                        assert_eq!(channel.poll(), some(entry.remove()));
                    }
                    assert_eq!(channel.poll(), Poll::Pending);
                    waits = true;
                    channel.hand.woken();
                }
            }
            assert_eq!(channel.receiver.len(), pending.len());
        }
    }
}

fn an_earlier_one_wakes_who_waits_and_a_later_one_does_not(mode: Mode) {
    let mut channel = Channel::new(mode);
    assert_eq!(channel.poll(), Poll::Pending);
    channel.sender.insert(1, ms(100)).expect("it is open");
    assert_eq!((channel.hand.woken(), channel.poll()), (1, Poll::Pending));
    channel.sender.insert(2, ms(200)).expect("it is open");
    channel.sender.insert(3, ms(100)).expect("it is open");
    assert_eq!(channel.hand.woken(), 0);
    // Two in a row, and the task did not yet look: one wake-up is enough.
    channel.sender.insert(4, ms(50)).expect("it is open");
    channel.sender.insert_at(5, channel.manual.at(0)).expect("it is open");
    assert_eq!((channel.hand.woken(), channel.poll(), channel.poll()), (1, some(5), Poll::Pending));
    channel.manual.advance(50);
    assert_eq!((channel.hand.woken(), channel.poll(), channel.poll()), (1, some(4), Poll::Pending));
}

fn moved_earlier_it_wakes_who_waits(mode: Mode) {
    let mut channel = Channel::new(mode);
    let key = channel.sender.insert(1, ms(100)).expect("it is open");
    assert_eq!(channel.poll(), Poll::Pending);
    assert!(channel.sender.reset(key, ms(200)));
    assert!(channel.sender.reset(key, ms(10)));
    assert_eq!((channel.hand.woken(), channel.poll()), (1, Poll::Pending));
    channel.manual.advance(10);
    assert_eq!((channel.hand.woken(), channel.poll()), (1, some(1)));
    assert!(!channel.sender.reset_at(key, channel.manual.at(0)));
}

fn a_stale_key_moves_nothing_and_wakes_later(mode: Mode) {
    let mut channel = Channel::new(mode);
    let stale = channel.sender.insert(1, ms(0)).expect("it is open");
    assert_eq!(channel.poll(), some(1));
    channel.sender.insert(2, ms(100)).expect("it is open");
    assert_eq!(channel.poll(), Poll::Pending);
    assert!(!channel.sender.reset(stale, ms(0)));
    assert_eq!((channel.hand.woken(), channel.sender.remove(stale)), (0, None));
    channel.sender.insert(3, ms(10)).expect("it is open");
    assert_eq!(channel.hand.woken(), 1);
}

fn removed_it_never_comes(mode: Mode) {
    let mut channel = Channel::new(mode);
    let key = channel.sender.insert(1, ms(10)).expect("it is open");
    channel.sender.insert(2, ms(20)).expect("it is open");
    assert_eq!(channel.poll(), Poll::Pending);
    assert_eq!(channel.sender.remove(key), Some(1));
    channel.manual.advance(10);
    assert_eq!(channel.poll(), Poll::Pending);
    channel.manual.advance(10);
    assert_eq!((channel.poll(), channel.poll()), (some(2), Poll::Pending));
}

fn it_waits_while_it_is_empty_and_ends_when_the_last_sender_goes(mode: Mode) {
    let Channel { sender, mut receiver, manual, hand } = Channel::new(mode);
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
    let Channel { sender, mut receiver, manual, hand } = Channel::new(mode);
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
    let Channel { sender, receiver, .. } = Channel::new(mode);
    let key = sender.insert(1, ms(10)).expect("it is open");
    assert!(!sender.is_closed());
    drop(receiver);
    assert!(sender.is_closed() && sender.clone().is_closed());
    assert_eq!(sender.insert(2, ms(10)), Err(SendError(2)));
    assert_eq!((sender.remove(key), sender.reset(key, ms(1))), (None, false));
    let error = sender.insert(3, ms(10)).expect_err("it is closed");
    assert_eq!(error.to_string(), "the receiver of the delay channel is gone");
}

fn dropping_the_receiver_drops_what_is_left(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let (sender, mut receiver) = delay_channel(&manual.timer);
    let value = Arc::new(());
    for delay in 0..100 {
        sender.insert(Arc::clone(&value), ms(1 + delay)).expect("it is open");
    }
    assert!(receiver.poll_expired(&mut hand.context()).is_pending());
    assert_eq!((manual.timer.pending(), Arc::strong_count(&value)), (1, 101));
    drop(receiver);
    assert_eq!((manual.timer.pending(), Arc::strong_count(&value), hand.wakers()), (0, 1, 0));
    drop(sender);
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
    let Channel { sender, receiver, manual, .. } = Channel::new(mode);
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

fn a_waker_that_panics_fails_no_sender(mode: Mode) {
    let Channel { sender, mut receiver, manual, hand } = Channel::new(mode);
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

fn a_task_that_got_its_value_is_not_woken(mode: Mode) {
    let mut channel = Channel::new(mode);
    channel.sender.insert(1, ms(10)).expect("it is open");
    assert_eq!(channel.poll(), Poll::Pending);
    channel.manual.advance(10);
    assert_eq!((channel.hand.woken(), channel.poll(), channel.hand.wakers()), (1, some(1), 0));
    channel.sender.insert_at(2, channel.manual.at(0)).expect("it is open");
    assert_eq!((channel.hand.woken(), channel.poll()), (0, some(2)));
}

fn another_task_that_waits_is_woken_instead(mode: Mode) {
    let mut channel = Channel::new(mode);
    let first = Hand::new();
    assert!(channel.receiver.poll_expired(&mut first.context()).is_pending());
    assert_eq!(channel.poll(), Poll::Pending);
    assert_eq!(first.wakers(), 0);
    channel.sender.insert(1, ms(10)).expect("it is open");
    assert_eq!((first.woken(), channel.hand.woken(), channel.poll()), (0, 1, Poll::Pending));
    channel.manual.advance(10);
    assert_eq!((first.woken(), channel.hand.woken(), channel.poll()), (0, 1, some(1)));
}

fn a_batch_has_what_is_due_and_no_more(mode: Mode) {
    let Channel { sender, mut receiver, manual, hand } = Channel::new(mode);
    let mut batch = Vec::new();
    assert!(hand.poll_once(receiver.next_batch(&mut batch, 9)).is_pending());
    for value in 0..1_000 {
        sender.insert(value, ms(10 + u64::from(value / 700))).expect("it is open");
    }
    manual.advance(10);
    assert!(hand.woken() > 0);
    assert_eq!(hand.poll_once(receiver.next_batch(&mut batch, 500)), Poll::Ready(Ok(500)));
    assert_eq!(receiver.recv_batch(&mut batch, 500), Ok(200));
    assert!(hand.poll_once(receiver.next_batch(&mut batch, 500)).is_pending());
    drop(sender);
    manual.advance(1);
    assert_eq!(hand.poll_once(receiver.next_batch(&mut batch, usize::MAX)), Poll::Ready(Ok(300)));
    assert_eq!(hand.poll_once(receiver.next_batch(&mut batch, 500)), Poll::Ready(Ok(0)));
    assert!(batch.iter().map(|due| due.value).eq(0..1_000));
}

fn a_stopped_timer_says_so(mode: Mode) {
    let mut channel = Channel::new(mode);
    assert_eq!(channel.poll(), Poll::Pending);
    assert!(channel.manual.timer.stop().expect("outside").is_empty());
    // An empty channel says so, too: no deadline could come any more.
    assert_eq!(channel.hand.woken(), 1);
    let stopped = Some(Err(ScheduleErrorKind::Stopped));
    assert_eq!((channel.receiver.recv(), channel.receiver.recv()), (stopped, None));
    channel.sender.insert(1, ms(10)).expect("it is open");
    assert_eq!((channel.receiver.recv(), channel.receiver.recv()), (stopped, None));
    channel.manual.clock.jump(ms(10));
    assert_eq!(channel.poll(), some(1));
}

fn a_thread_waits_for_other_threads(mode: Mode) {
    let timer = Timer::builder().mode(mode).build().expect("in range");
    let (sender, mut receiver) = delay_channel(&timer);
    let threads: Vec<_> = (0..3_u64)
        .map(|number| {
            let sender = sender.clone();
            thread::spawn(move || {
                for value in 0..10 {
                    let inserted = sender.insert(number * 10 + value, ms(1 + value % 4));
                    inserted.expect("the receiver is there");
                }
            })
        })
        .collect();
    drop(sender);
    let mut values: Vec<_> =
        std::iter::from_fn(|| receiver.recv()).map(|due| due.expect("it runs").value).collect();
    values.sort_unstable();
    assert!(values.into_iter().eq(0..30));
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    // Longer than it takes, and shorter.
    let (sender, mut receiver) = delay_channel(&timer);
    let elapsed = receiver.recv_timeout(ms(1)).expect("a sender is there");
    assert!(elapsed.is_err_and(|elapsed| elapsed.error().is_none()));
    sender.insert(1, ms(1)).expect("the receiver is there");
    let due = receiver.recv_timeout(ms(60_000)).expect("a sender is there");
    assert_eq!(due.expect("in time").value, 1);
}

fn one_timeout_in_the_timer_whatever_is_in_it(mode: Mode) {
    let mut channel = Channel::new(mode);
    for value in 0..100 {
        channel.sender.insert(value, ms(1_000 - u64::from(value))).expect("it is open");
        assert_eq!(channel.poll(), Poll::Pending);
    }
    assert_eq!(channel.manual.timer.pending(), 1);
    drop(channel.receiver);
    assert_eq!((channel.manual.timer.pending(), channel.hand.wakers()), (0, 0));
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

#[cfg(feature = "stream")]
#[test]
fn as_a_stream_it_ends_when_it_is_over() {
    use futures::StreamExt;

    let timer = Timer::new();
    let (sender, receiver) = delay_channel(&timer);
    let start = std::time::Instant::now();
    for number in [3, 1, 2] {
        sender.insert_at(number, start + ms(number)).expect("it is open");
    }
    drop(sender);
    let values = receiver.map(|due| due.expect("it runs").value).collect::<Vec<_>>();
    assert_eq!(futures::executor::block_on(values), [1, 2, 3]);
}
