//! Animals of the zoo that no other file here has: clocks that stall, jump and begin where time
//! ends, and keys whose `Debug` panics or calls back.

use crate::help::{Count, Hand, ms};
use crate::zoo::caught;
use crate::zoo::clocks::{OddClock, edge};
use crate::zoo::values::{Act, Herd};
use std::ops::ControlFlow::Continue;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};
use tickwheel::{DelayMap, DelayQueue, ExpiringMap, MissedTick, Mode, Status, Timer, Unfired};

in_each_mode! {
    where_time_ends_what_an_instant_holds_comes_and_nothing_else,
    by_a_clock_that_stalls_and_jumps_all_comes_and_nothing_early,
}

fn where_time_ends_what_an_instant_holds_comes_and_nothing_else(mode: Mode) {
    let start = edge(ms(100));
    let now = Arc::new(Mutex::new(start));
    let read = Arc::clone(&now);
    let clock = OddClock::new(move || *read.lock().unwrap());
    let builder = Timer::builder().mode(mode).tick(ms(1)).clock(clock);
    let (timer, mut driver) = builder.build_driven().expect("in range");
    let fired = Count::default();
    let [near, far] = [ms(20), Duration::from_secs(3_600)]
        .map(|delay| timer.schedule(delay, fired.task()).expect("it runs"));
    let within = timer.schedule_within(ms(20)..=Duration::MAX, fired.task()).expect("it runs");
    assert!(start + ms(20) <= near.deadline().expect("an instant holds it"));
    assert_eq!(far.deadline(), None);
    let repeats = timer.schedule_repeating(ms(20), MissedTick::Burst, || Continue(()));
    let repeats = repeats.expect("it runs");
    let (mut queue, hand) = (DelayQueue::with_timer(&timer), Hand::new());
    let map = ExpiringMap::builder().time_to_idle(ms(20)).build(&timer);
    for delay in [ms(20), Duration::from_secs(3_600)] {
        queue.insert(1, delay);
        map.insert(delay, 1, delay).expect("it has no limit");
    }
    let mut rest = || while driver.turn().is_some_and(|next| next <= *now.lock().unwrap()) {};
    rest();
    *now.lock().unwrap() = start + ms(30);
    rest();
    assert_eq!((near.status(), far.status()), (Status::Fired, Status::Pending));
    assert_eq!((map.iter().count(), repeats.status()), (0, Status::Pending));
    assert!(matches!(queue.poll_expired(&mut hand.context()), Poll::Ready(Some(Ok(_)))));
    assert!(queue.poll_expired(&mut hand.context()).is_pending());
    assert!(within.cancel() || within.status() == Status::Fired);
    assert!(repeats.cancel());
    drop(queue);
    *now.lock().unwrap() = start + ms(100);
    rest();
    let unfired = timer.stop().expect("outside");
    let deadlines: Vec<_> = unfired.iter().map(Unfired::deadline).collect();
    assert_eq!(deadlines, [None]);
}

fn by_a_clock_that_stalls_and_jumps_all_comes_and_nothing_early(mode: Mode) {
    for (step, often) in [(1, 1), (1, 50), (700, 3), (60_000, 7)] {
        let start = Instant::now();
        let clock = OddClock::passing(start, ms(step), often);
        let builder = Timer::builder().mode(mode).tick(ms(1)).clock(clock);
        let (timer, mut driver) = builder.build_driven().expect("in range");
        let fired = Count::default();
        let timeouts: Vec<_> = (0..100)
            .map(|number| {
                let (reads, fired) = (timer.clone(), fired.clone());
                let at = start + Duration::from_micros(number * number * 333);
                let task = move || {
                    assert!(at <= reads.now(), "it is early");
                    fired.add();
                };
                timer.schedule_at(at, task).expect("it runs")
            })
            .collect();
        let mut turns = 0;
        while 0 < timer.pending() {
            driver.turn();
            turns += 1;
            assert!(turns < 2_000_000, "{} came", fired.get());
        }
        assert_eq!((fired.get(), timer.stats().panics), (100, 0));
        assert!(timeouts.iter().all(|timeout| timeout.status() == Status::Fired));
    }
}

#[test]
fn a_key_whose_debug_panics_or_calls_back_leaves_a_map_in_order() {
    let (timer, _driver) = Timer::builder().build_driven().expect("in range");
    let slot = Arc::new(OnceLock::<ExpiringMap<u64, u64>>::new());
    let inner = Arc::clone(&slot);
    let herd = Herd::that_calls(move |act, number| {
        let shared = inner.get().filter(|_| act == Act::Debug);
        shared.map(|shared| shared.insert(number, number, ms(1)).expect("it has no limit"));
    });
    let mut map = DelayMap::with_timer(&timer);
    slot.get_or_init(|| ExpiringMap::with_timer(&timer));
    for number in 0..10 {
        map.insert(herd.make(number), herd.make(number), ms(1_000));
    }
    for left in 0..20 {
        herd.panic_at(Some(Act::Debug), left);
        caught(|| format!("{map:?}"));
    }
    herd.tame();
    assert_eq!((map.len(), herd.alive()), (10, 20));
    let written = format!("{:?} {:?} {timer:?}", map, slot.get());
    assert!(written.is_ascii());
    map.clear();
    assert_eq!(herd.alive(), 0);
}
