//! Each public future, and each call that polls, gives way to others on its thread now and then, if
//! it is ready whenever it is polled.

use crate::help::{Hand, Manual, ms};
use std::fs;
use std::future::{pending, ready};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::{Context, Poll};
use tickwheel::{
    DelayMap, DelayQueue, ExpiringMap, Interval, ManualClock, Mode, Timer, delay_channel,
};

in_each_mode! {
    sleeps_and_intervals_give_way,
    an_interval_on_a_stopped_timer_gives_way,
    what_hands_out_values_gives_way,
    what_hands_out_values_on_a_stopped_timer_gives_way,
    a_driver_gives_way,
}

/// Polls again and again. No more than 32 times in a row is it ready, and where it is not, it is to
/// be polled again.
fn assert_gives_way(what: &str, mut poll: impl FnMut(&mut Context<'_>) -> bool) {
    let hand = Hand::new();
    let (mut in_a_row, mut pending) = (0, 0);
    for _ in 0..500 {
        hand.woken();
        if poll(&mut hand.context()) {
            in_a_row += 1;
            assert!(in_a_row <= 32, "{what}: others never have their turn");
        } else {
            assert_eq!(hand.woken(), 1, "{what}: it is to be polled again");
            (in_a_row, pending) = (0, pending + 1);
        }
    }
    assert!(pending < 250, "{what}: it is ready");
}

fn once<F: Future>(future: F, context: &mut Context<'_>) -> bool {
    pin!(future).poll(context).is_ready()
}

fn sleeps_and_intervals_give_way(mode: Mode) {
    let manual = Manual::new(mode);
    let mut sleep = manual.timer.sleep_until(manual.at(0));
    assert_gives_way("Sleep", |context| once(&mut sleep, context));
    let mut timed = pin!(manual.timer.timeout_at(manual.at(0), pending::<()>()));
    assert_gives_way("Timed", |context| once(timed.as_mut(), context));
    let each = |interval: &mut Interval| {
        manual.clock.jump(ms(5));
        interval.reset_immediately();
    };
    let mut interval = manual.timer.interval(ms(3));
    assert_gives_way("Interval::poll_tick", |context| {
        each(&mut interval);
        interval.poll_tick(context).is_ready()
    });
    assert_gives_way("Interval::tick", |context| {
        each(&mut interval);
        once(interval.tick(), context)
    });
    #[cfg(feature = "stream")]
    assert_gives_way("Stream for Interval", |context| {
        each(&mut interval);
        futures::Stream::poll_next(pin!(&mut interval), context).is_ready()
    });
    #[cfg(feature = "hyper")]
    {
        let mut limit = ::hyper::rt::Timer::sleep_until(&manual.timer, manual.at(0));
        assert_gives_way("Limit", |context| limit.as_mut().poll(context).is_ready());
    }
}

fn an_interval_on_a_stopped_timer_gives_way(mode: Mode) {
    let manual = Manual::new(mode);
    let mut interval = manual.timer.interval_at(manual.at(10), ms(3));
    let mut sleep = manual.timer.sleep(ms(10));
    manual.timer.stop().expect("outside");
    assert_gives_way("Interval::tick", |context| once(interval.tick(), context));
    assert_gives_way("Sleep", |context| {
        sleep.reset(ms(10));
        once(&mut sleep, context)
    });
}

/// Asserts it of one expression that is a source of values.
macro_rules! assert_source_gives_way {
    ($what:literal, $source:expr, $refill:expr) => {
        let mut source = $source;
        #[allow(unused_mut, reason = "some count what they insert")]
        let mut refill = $refill;
        assert_gives_way(concat!($what, "::poll_expired"), |context| {
            refill(&mut source);
            source.poll_expired(context).is_ready()
        });
        assert_gives_way(concat!($what, "::next"), |context| {
            refill(&mut source);
            once(source.next(), context)
        });
        assert_gives_way(concat!($what, "::next_due"), |context| {
            refill(&mut source);
            once(source.next_due(), context)
        });
        for max in [0, 1, 2] {
            assert_gives_way(concat!($what, "::next_batch"), |context| {
                refill(&mut source);
                once(source.next_batch(&mut Vec::new(), max), context)
            });
        }
        #[cfg(feature = "stream")]
        assert_gives_way(concat!("Stream for ", $what), |context| {
            refill(&mut source);
            futures::Stream::poll_next(pin!(&mut source), context).is_ready()
        });
    };
}

fn what_hands_out_values_gives_way(mode: Mode) {
    let manual = Manual::new(mode);
    let (timer, past) = (&manual.timer, manual.at(0));
    assert_source_gives_way!(
        "DelayQueue",
        DelayQueue::with_timer(timer),
        |queue: &mut DelayQueue<_>| {
            _ = queue.insert_at(1, past);
            _ = queue.insert_at(1, past);
        }
    );
    let mut number = 0;
    assert_source_gives_way!("DelayMap", DelayMap::with_timer(timer), |map: &mut DelayMap<
        _,
        _,
    >| {
        number += 2;
        (number..number + 2).for_each(|key| _ = map.insert_at(key, 1, past));
    });
    let (sender, receiver) = delay_channel(timer);
    assert_source_gives_way!("DelayReceiver", receiver, |_: &mut _| {
        for value in [1, 2] {
            sender.insert_at(value, past).expect("it is open");
        }
    });
    let (timer, mut driver) =
        Timer::builder().mode(mode).clock(manual.clock.clone()).build_driven().expect("in range");
    let (map, receiver) = ExpiringMap::builder().build_with_receiver(&timer);
    let mut number = 0;
    assert_source_gives_way!("ExpiredReceiver", receiver, |_: &mut _| {
        number += 2;
        (number..number + 2).for_each(|key| _ = map.insert_at(key, (), past).expect("no limit"));
        driver.turn();
    });
}

/// The error of each call, or the end that comes after it.
fn what_hands_out_values_on_a_stopped_timer_gives_way(mode: Mode) {
    let manual = Manual::new(mode);
    let mut queue = DelayQueue::with_timer(&manual.timer);
    queue.insert(1, ms(10));
    let (_sender, receiver) = delay_channel::<u32>(&manual.timer);
    manual.timer.stop().expect("outside");
    assert_source_gives_way!("DelayQueue", queue, |_: &mut _| ());
    assert_source_gives_way!("DelayReceiver", receiver, |_: &mut _| ());
}

/// A task is due in each turn, or the sleep until the next one is over at once.
fn a_driver_gives_way(mode: Mode) {
    let built = Timer::builder().mode(mode).clock(ManualClock::new()).build_driven();
    let (timer, driver) = built.expect("in range");
    let mut runs = pin!(driver.run(|_| ready(())));
    let hand = Hand::new();
    for delay in [ms(0), ms(1_000_000)] {
        for _ in 0..500 {
            timer.schedule(delay, || {}).expect("it runs");
            hand.woken();
            assert!(runs.as_mut().poll(&mut hand.context()).is_pending());
            assert_eq!(0 < hand.woken(), 0 < timer.pending(), "it is to be polled again");
        }
    }
    drop(timer);
    assert_eq!(runs.as_mut().poll(&mut hand.context()), Poll::Ready(()));
}

/// What the files of the library call a future, a stream or a poll, and where it is asked.
#[test]
fn each_public_future_is_asked() {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(folder).expect("it is a folder");
        for path in entries.map(|entry| entry.expect("it is there").path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                found.extend(futures_of(&path));
            }
        }
    }
    found.sort();
    assert_eq!(found, ASKED.map(str::to_owned));
}

fn futures_of(path: &PathBuf) -> Vec<String> {
    let text = fs::read_to_string(path).expect("it is text");
    let code = text.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    code.filter_map(|line| {
        let function = ["pub async fn ", "pub fn poll_"];
        if let Some(item) = function.into_iter().find_map(|words| line.strip_prefix(words)) {
            let name = item.split(['(', '<']).next().expect("a name");
            let poll = if line.contains("fn poll_") { "poll_" } else { "" };
            return Some(format!("{poll}{name}"));
        }
        let (_, kind) = line
            .strip_prefix("impl")?
            .split_once("Future for ")
            .or_else(|| line.split_once("Stream for "))?;
        Some(kind.split(['<', ' ']).next().expect("a name").to_owned())
    })
    .collect()
}

/// `cancel_and_wait_async` ends with the run that it waits for, and `run` with its timer.
const ASKED: [&str; 13] = [
    "Delayed",
    "Interval",
    "Limit",
    "Sleep",
    "Timed",
    "cancel_and_wait_async",
    "next",
    "next_batch",
    "next_due",
    "poll_expired",
    "poll_tick",
    "run",
    "tick",
];
