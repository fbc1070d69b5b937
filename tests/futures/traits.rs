//! What can be sent, shared and moved: compiled, not run. And what is shown of it.

use std::error::Error;
use std::future::Ready;
use std::marker::PhantomPinned;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;
use tickwheel::{
    DelayMap, DelayQueue, DelayReceiver, DelaySender, Due, Elapsed, ExpiringMap, InsertError,
    Interval, ManualClock, SendError, Sleep, Timed, Timer, delay_channel,
};

/// Others tell what they hold: their tests see it.
#[test]
fn what_is_opaque_shows_its_name_in_debug() {
    let clock = ManualClock::new();
    let builder = Timer::builder().clock(clock.clone());
    let shown = format!("{builder:?}");
    let timer = builder.build().expect("in range");
    let (sender, receiver) = delay_channel::<u64>(&timer);
    let (sleeps, sleep) = (timer.sleeps(), timer.sleep(Duration::MAX));
    let map = ExpiringMap::<u32, u32>::builder().shards(2).max_len(0);
    let map_builder = format!("{map:?}");
    let (map, expired) = map.build_with_receiver(&timer);
    let full = map.insert(1, 1, Duration::ZERO).expect_err("there is no room");
    let timeout = timer.schedule(Duration::MAX, || {}).expect("it runs");
    let names = [
        (shown, "TimerBuilder"),
        (format!("{clock:?}"), "ManualClock"),
        (format!("{sender:?}"), "DelaySender { is_closed: false"),
        (format!("{receiver:?}"), "DelayReceiver { len: 0"),
        (format!("{sleep:?}"), "Sleep { deadline: None"),
        (format!("{:?}", sleeps.downgrade()), "WeakSleeps"),
        (format!("{sleeps:?}"), "Sleeps"),
        (format!("{:?}", timer.interval(Duration::from_secs(1))), "Interval"),
        (map_builder, "ExpiringMapBuilder { shards: Some(2)"),
        (format!("{map:?}"), "ExpiringMap { shards: 2"),
        (format!("{expired:?}"), "ExpiredReceiver { len: 0"),
        (format!("{full:?}"), "InsertError { kind: Full"),
        (format!("{:?}", timer.stats().lateness), "Lateness { count: 0"),
        (format!("{timeout:?}"), "Timeout { status: Pending"),
    ];
    for (shown, name) in names {
        assert!(shown.starts_with(name), "{shown}");
    }
    drop(receiver);
    let refused = sender.insert(1, Duration::ZERO).expect_err("its receiver is gone");
    assert!(format!("{refused:?}").starts_with("SendError"), "{refused:?}");
    let unfired = timer.stop().expect("no task waits for itself");
    let tasks: Vec<_> = unfired.into_iter().map(|unfired| unfired.into_task()).collect();
    assert_eq!(format!("{tasks:?}"), "[Once]");
    let refused = timer.schedule(Duration::ZERO, || {}).expect_err("it was stopped");
    assert!(format!("{refused:?}").starts_with("ScheduleError { kind: Stopped"), "{refused:?}");
}

macro_rules! assert_is {
    ($type:ty: $($bound:ident),+) => {
        const _: fn() = || {
            fn is<T: $($bound +)+>() {}
            is::<$type>();
        };
    };
}

/// Does not compile if it is, as then there are two functions to choose from.
macro_rules! assert_is_not {
    ($type:ty: $bound:ident) => {
        const _: fn() = || {
            trait Is<A> {
                fn it() {}
            }
            impl<T> Is<()> for T {}
            struct Bound;
            impl<T: $bound> Is<Bound> for T {}
            let _ = <$type as Is<_>>::it;
        };
    };
}

assert_is!(Sleep: Send, Sync, Unpin);
assert_is!(Interval: Send, Sync, Unpin);
assert_is!(Elapsed: Send, Sync, Unpin, Copy, UnwindSafe, RefUnwindSafe);

// What is in it decides.
assert_is!(Timed<Ready<()>>: Send, Sync, Unpin);
assert_is_not!(Timed<*const ()>: Send);
assert_is_not!(Timed<*const ()>: Sync);
assert_is_not!(Timed<PhantomPinned>: Unpin);

// Nothing in a queue is pinned.
assert_is!(DelayQueue<u64>: Send, Sync, Unpin);
assert_is!(DelayQueue<PhantomPinned>: Unpin);
assert_is_not!(DelayQueue<*const ()>: Send);
assert_is_not!(DelayQueue<*const ()>: Sync);
assert_is!(DelayMap<u64, u64>: Send, Sync, Unpin);
assert_is!(DelayMap<PhantomPinned, PhantomPinned>: Unpin);
assert_is_not!(DelayMap<*const (), ()>: Send);
assert_is_not!(DelayMap<(), *const ()>: Sync);
// A channel needs values that can be sent, and no more.
assert_is!(DelaySender<std::cell::Cell<u64>>: Send, Sync, Unpin, Clone);
assert_is!(DelayReceiver<std::cell::Cell<u64>>: Send, Sync, Unpin);
assert_is!(DelayReceiver<PhantomPinned>: Unpin);
assert_is_not!(DelaySender<*const ()>: Send);
assert_is_not!(DelaySender<*const ()>: Sync);
assert_is_not!(DelayReceiver<*const ()>: Send);
assert_is!(SendError<*const ()>: Error);
// So that `?` makes a boxed error of it, which threads share.
assert_is!(SendError<Box<dyn FnOnce() + Send>>: Error, Send, Sync);
assert_is!(InsertError<u64, Box<dyn FnOnce() + Send>>: Error, Send, Sync);
assert_is!(Due<u64>: Send, Sync, Unpin, Copy);

// What calls return can be sent, too.
const _: fn(Interval, DelayQueue<u64>, DelayMap<u64, u64>) = |mut interval, mut queue, mut map| {
    fn sent<T: Send>(_: T) {}
    sent(interval.tick());
    sent(queue.next());
    sent(queue.next_due());
    sent(queue.next_batch(&mut Vec::new(), 5));
    sent(map.next());
};
