//! The wakers of the zoo under all futures: wakers that move when they are cloned, that panic in clone,
//! wake or drop, that poll inline, and that call the timer.

use crate::help::{Hand, Manual, ms};
use crate::zoo::wakers::{Habits, Task, does, that_panics};
use cooked_waker::{IntoWaker, Wake, WakeRef};
use std::future::{Future as _, pending};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tickwheel::{DelayMap, DelayQueue, ManualClock, Mode, ScheduleErrorKind, Timer, delay_channel};

in_each_mode! {
    polled_again_and_again_it_has_one_waker,
    dropped_it_leaves_nothing_behind,
    a_full_timer_says_so,
    a_stopped_timer_wakes_it_and_says_so,
    two_tasks_polled_from_one_place_are_told_apart,
    a_waker_that_panics_in_clone_leaves_the_future_good,
    a_waker_that_panics_in_wake_is_counted_and_others_are_woken,
    a_waker_that_panics_in_drop_is_replaced_nevertheless,
    a_waker_may_poll_inline,
    a_waker_may_call_the_timer,
}

type Future = Box<dyn FnMut(&mut Context<'_>) -> Poll<Result<(), ScheduleErrorKind>> + Send>;

/// One of each kind, to be ready 10 ms from now.
fn futures(timer: &Timer, clock: &ManualClock) -> Vec<Future> {
    let delay = ms(10);
    let (mut sleep, mut timed) = (timer.sleep(delay), timer.timeout(delay, pending::<()>()));
    let mut interval = timer.interval_at(clock.now() + delay, delay);
    let mut queue = DelayQueue::with_timer(timer);
    queue.insert(1, delay);
    let mut map = DelayMap::with_timer(timer);
    map.insert(1, 1, delay);
    let (sender, mut receiver) = delay_channel(timer);
    sender.insert(1, delay).expect("the receiver is there");
    vec![
        Box::new(move |context| Pin::new(&mut sleep).poll(context)),
        Box::new(move |context| {
            let elapsed = Pin::new(&mut timed).poll(context).map(Result::unwrap_err);
            elapsed.map(|elapsed| elapsed.error().map_or(Ok(()), Err))
        }),
        Box::new(move |context| interval.poll_tick(context).map_ok(drop)),
        Box::new(move |context| queue.poll_expired(context).map(|due| due.unwrap().map(drop))),
        Box::new(move |context| map.poll_expired(context).map(|due| due.unwrap().map(drop))),
        Box::new(move |context| {
            let _kept = &sender;
            receiver.poll_expired(context).map(|due| due.unwrap().map(drop))
        }),
    ]
}

fn for_each_future(mode: Mode, check: impl Fn(&Manual, Future)) {
    for kind in 0..6 {
        let manual = Manual::built(mode, |builder| builder.max_pending(2));
        let future = futures(&manual.timer, &manual.clock).swap_remove(kind);
        check(&manual, future);
        assert_eq!(manual.timer.pending(), 0);
    }
}

fn two_tasks_polled_from_one_place_are_told_apart(mode: Mode) {
    for_each_future(mode, |manual, mut future| {
        let tasks = [Task::default(), Task::default(), Task::default()];
        for task in &tasks {
            for _ in 0..3 {
                assert!(task.poll(&mut future).expect("no panic").is_pending());
            }
        }
        manual.advance(10);
        assert_eq!(tasks.each_ref().map(Task::woken), [0, 0, 1]);
        assert!(tasks[0].poll(&mut future).expect("no panic").is_ready());
        drop(future);
        assert_eq!(tasks.each_ref().map(Task::wakers), [0, 0, 0]);
    });
}

fn polled_again_and_again_it_has_one_waker(mode: Mode) {
    for_each_future(mode, |manual, mut future| {
        let hand = Hand::new();
        for _ in 0..10 {
            for _ in 0..5 {
                assert!(future(&mut hand.context()).is_pending());
            }
            // A channel has one for its senders, too.
            assert!(matches!(hand.wakers(), 1 | 2));
            assert_eq!((manual.timer.pending(), hand.woken()), (1, 0));
            manual.advance(1);
        }
        assert_eq!((hand.woken(), future(&mut hand.context())), (1, Poll::Ready(Ok(()))));
    });
}

fn dropped_it_leaves_nothing_behind(mode: Mode) {
    for_each_future(mode, |manual, mut future| {
        let hand = Hand::new();
        assert!(future(&mut hand.context()).is_pending());
        assert_eq!(manual.timer.pending(), 1);
        drop(future);
        assert_eq!((manual.timer.pending(), hand.wakers()), (0, 0));
        manual.advance(20);
        assert_eq!(hand.woken(), 0);
    });
}

fn a_full_timer_says_so(mode: Mode) {
    for_each_future(mode, |manual, mut future| {
        let hand = Hand::new();
        let kept = [(); 2].map(|()| manual.timer.schedule(ms(100), || {}).expect("there is room"));
        assert_eq!(future(&mut hand.context()), Poll::Ready(Err(ScheduleErrorKind::Full)));
        assert!(kept.into_iter().all(|timeout| timeout.cancel()));
    });
}

fn a_stopped_timer_wakes_it_and_says_so(mode: Mode) {
    for_each_future(mode, |manual, mut future| {
        let hand = Hand::new();
        assert!(future(&mut hand.context()).is_pending());
        assert!(manual.timer.stop().expect("outside").is_empty());
        assert_eq!(hand.woken(), 1);
        assert_eq!(future(&mut hand.context()), Poll::Ready(Err(ScheduleErrorKind::Stopped)));
    });
}

fn a_waker_that_panics_in_clone_leaves_the_future_good(mode: Mode) {
    for_each_future(mode, |manual, mut future| {
        let bad = Task::with(Habits { clone: that_panics(), ..Habits::default() });
        let good = Task::default();
        assert!(bad.poll(&mut future).is_none());
        assert!(good.poll(&mut future).expect("no panic").is_pending());
        assert!(bad.poll(&mut future).is_none());
        manual.advance(10);
        assert_eq!((good.woken(), bad.woken()), (1, 0));
        assert!(good.poll(&mut future).expect("no panic").is_ready());
        drop(future);
        assert_eq!((good.wakers(), bad.wakers()), (0, 0));
    });
}

fn a_waker_that_panics_in_wake_is_counted_and_others_are_woken(mode: Mode) {
    for_each_future(mode, |manual, mut future| {
        let bad = Task::with(Habits { wake: that_panics(), ..Habits::default() });
        let hand = Hand::new();
        let mut other = manual.timer.sleep(ms(10));
        assert!(bad.poll(&mut future).expect("no panic").is_pending());
        assert!(hand.poll(&mut other).is_pending());
        manual.advance(10);
        assert_eq!((bad.woken(), hand.woken(), manual.timer.stats().panics), (1, 1, 1));
        assert!(bad.poll(&mut future).expect("no panic").is_ready());
        assert_eq!(bad.wakers(), 0);
    });
}

/// Whatever place the next waker is in: one may be that of the waker that was dropped.
fn a_waker_that_panics_in_drop_is_replaced_nevertheless(mode: Mode) {
    for places in 0..4 {
        for_each_future(mode, |manual, mut future| {
            let bad = Task::with(Habits { drop: that_panics(), ..Habits::default() });
            let good = [Task::default(), Task::default()];
            assert!(bad.poll(&mut future).expect("no panic").is_pending());
            // It drops the other's waker. That panics, and the timer is told.
            assert!(good[0].poll(&mut future).expect("no panic").is_pending());
            assert!(1 <= manual.timer.stats().panics);
            // A channel registers it for its senders, too.
            assert!(matches!(good[0].wakers(), 1 | 2));
            let _in_the_way: Vec<_> = (0..places).map(|_| Task::default().waker()).collect();
            assert!(good[1].poll(&mut future).expect("no panic").is_pending());
            manual.advance(10);
            assert_eq!((bad.woken(), good[0].woken(), good[1].woken()), (0, 0, 1));
            assert!(good[0].poll(&mut future).expect("no panic").is_ready());
            drop(future);
            assert_eq!((bad.wakers(), good[0].wakers(), good[1].wakers()), (0, 0, 0));
        });
    }
}

/// On the worker, within `wake`.
fn a_waker_may_poll_inline(mode: Mode) {
    for_each_future(mode, |manual, future| {
        let future = Arc::new(Mutex::new(future));
        let (polled, ready) = (Arc::clone(&future), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&ready);
        let inline = move || {
            let mut context = Context::from_waker(Waker::noop());
            if polled.lock().unwrap()(&mut context).is_ready() {
                count.fetch_add(1, SeqCst);
            }
        };
        let task = Task::with(Habits { wake: does(inline), ..Habits::default() });
        assert!(task.poll(&mut *future.lock().unwrap()).expect("no panic").is_pending());
        manual.advance(10);
        assert_eq!((task.woken(), ready.load(SeqCst)), (1, 1));
    });
}

fn a_waker_may_call_the_timer(mode: Mode) {
    for_each_future(mode, |manual, mut future| {
        let calls = {
            let (timer, clock) = (manual.timer.clone(), manual.clock.clone());
            move || {
                let hand = Hand::new();
                let mut sleep = timer.sleep(ms(5));
                assert!(hand.poll(&mut sleep).is_pending());
                drop(sleep);
                let timeout = timer.schedule(ms(7), || {}).expect("it runs");
                assert!(timeout.reschedule(ms(5)) && timeout.cancel());
                assert_eq!((timer.pending(), timer.next_deadline()), (0, None));
                clock.advance(Duration::ZERO);
            }
        };
        let in_wake = {
            let (calls, timer) = (calls.clone(), manual.timer.clone());
            move || {
                calls();
                assert!(timer.stop().is_err());
            }
        };
        // The waker keeps the timer: only the tasks that it was cloned for keep the waker.
        let habits = Habits { clone: does(calls.clone()), wake: does(in_wake), drop: None };
        let task = Task::with(habits);
        assert!(task.poll(&mut future).expect("no panic").is_pending());
        manual.advance(10);
        assert_eq!((task.woken(), manual.timer.stats().panics), (1, 0));
        assert!(task.poll(&mut future).expect("no panic").is_ready());
        assert_eq!(task.wakers(), 0);
    });
}

static WOKEN: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

#[derive(Clone)]
struct Empty<const KIND: usize>;

impl<const KIND: usize> WakeRef for Empty<KIND> {
    fn wake_by_ref(&self) {
        WOKEN[KIND].fetch_add(1, SeqCst);
    }
}

impl<const KIND: usize> Wake for Empty<KIND> {}

#[test]
fn a_waker_of_another_kind_at_the_same_address_is_another() {
    let manual = Manual::new(Mode::default());
    let wakers = [Box::new(Empty::<0>).into_waker(), Box::new(Empty::<1>).into_waker()];
    assert_eq!(wakers[0].data(), wakers[1].data(), "nothing is at its address");
    let mut sleep = pin!(manual.timer.sleep(ms(5)));
    for waker in &wakers {
        assert!(sleep.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    manual.advance(5);
    assert_eq!(WOKEN.each_ref().map(|woken| woken.load(SeqCst)), [0, 1]);
}
