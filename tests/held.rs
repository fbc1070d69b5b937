//! Wheels, timers, queues, maps and channels cost what their documentation says, whatever waits or
//! has waited, and no lock is held for more than a bounded number of steps.
//!
//! Alone in its file, because the steps under a lock are those of the whole process. `BOUNDS_PEAK`
//! says how many timeouts each history has.

#[path = "common/mod.rs"]
#[allow(unused_macros, reason = "its situations are the same in each mode")]
mod common;
#[path = "common/bounds.rs"]
mod kept;
#[path = "held/tight.rs"]
mod tight;
#[path = "held/wheels.rs"]
mod wheels;

use allocation_counter::measure;
use common::SameHashes;
use kept::{GROWS, MOVED_WHOLE, Subject, grows_in_steps, keeps_its_bounds};
use std::fs;
use std::future::pending;
use std::hint::black_box;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tickwheel::{
    DelayKey, DelayMap, DelayQueue, DelayReceiver, DelaySender, Driver, ExpiringMap, Interval, Key,
    ManualClock, MissedTick, Mode, Next, Timeout, Timer, delay_channel, most_steps_under_a_lock,
    steps,
};

fn delay(number: u64) -> Duration {
    Duration::from_millis(60_000 + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 50_000)
}

fn timers() -> impl Iterator<Item = (Timer, ManualClock)> {
    let modes = ["hierarchical:64", "hierarchical:4096", "hashed:1", "hashed:512", "hashed:65536"];
    modes.into_iter().filter(|mode| common::is_run(mode)).map(|mode| {
        let clock = ManualClock::new();
        let mode = mode.parse::<Mode>().expect("a mode");
        let timer = Timer::builder().mode(mode).shards(1).clock(clock.clone()).build();
        (timer.expect("in range"), clock)
    })
}

fn crowd(timer: &Timer) -> Vec<Timeout> {
    (0..MANY).map(|number| timer.schedule(delay(number), || {}).expect("it runs")).collect()
}

/// Takes out the next value, unless the receiver gives way.
fn receive(receiver: &mut DelayReceiver<u64>) {
    _ = receiver.poll_expired(&mut Context::from_waker(Waker::noop()));
}

/// Panics if a lock was held for more steps than that.
fn assert_bounded(what: &str) {
    let steps = most_steps_under_a_lock();
    assert!(steps <= MOST, "{what}: {steps} steps under a lock");
}

/// Lets one test take steps at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    _ = most_steps_under_a_lock();
    alone
}

#[test]
fn no_lock_is_held_for_what_waits_or_has_waited() {
    let _alone = alone();
    for (timer, clock) in timers() {
        let timeouts = crowd(&timer);
        assert_bounded("schedule");
        for timeout in timeouts.iter().take(10) {
            assert!(timer.next_deadline().is_some());
            timeout.reschedule(delay(7));
        }
        assert_bounded("next_deadline");
        assert!(timeouts.iter().rev().all(Timeout::cancel));
        assert_bounded("cancel");
        drop(crowd(&timer));
        clock.jump(Duration::from_secs(600));
        assert_eq!(timer.pending(), 0);
        assert_bounded("fire");
        drop(crowd(&timer));
        assert_eq!(timer.stop().expect("outside").len() as u64, MANY);
        assert_bounded("stop");
    }
}

#[test]
fn a_channel_is_locked_for_no_more() {
    let _alone = alone();
    for (timer, clock) in timers() {
        let (sender, mut receiver) = delay_channel(&timer);
        let fill = || -> Vec<_> {
            (0..MANY).map(|number| sender.insert(number, delay(number)).expect("it runs")).collect()
        };
        let keys = fill();
        assert!(keys.into_iter().all(|key| sender.remove(key).is_some()));
        assert_bounded("remove");
        fill();
        clock.jump(Duration::from_secs(600));
        while !receiver.is_empty() {
            receive(&mut receiver);
        }
        assert_bounded("receive");
        fill();
        clock.jump(Duration::from_secs(600));
        while !receiver.is_empty() {
            _ = polled(receiver.next_batch(&mut Vec::new(), MANY as usize));
        }
        assert_bounded("next_batch");
        fill();
        drop(receiver);
        assert_bounded("drop");
    }
}

#[test]
fn a_shared_map_is_locked_for_no_more() {
    let _alone = alone();
    for (timer, clock) in timers() {
        let builder = ExpiringMap::builder().shards(1);
        let map = builder.hasher(SameHashes::default()).build(&timer);
        let fill = || {
            for number in 0..MANY {
                assert!(map.insert(number, number, delay(number)).is_ok_and(|old| old.is_none()));
            }
        };
        fill();
        assert!((0..MANY).rev().all(|number| map.remove(&number).is_some()));
        assert_bounded("remove");
        fill();
        clock.jump(Duration::from_secs(600));
        assert!(map.is_empty());
        assert_bounded("expire");
        fill();
        // All are looked at, and none expires.
        assert!((0..MANY).all(|number| map.reset(&number, 2 * delay(number))));
        clock.jump(Duration::from_secs(115));
        assert_eq!(map.len() as u64, MANY);
        assert_bounded("move");
        assert_eq!(map.drain().count() as u64, MANY);
        assert_bounded("drain");
    }
}

/// A timer that the test drives, on a clock that it moves: so all that it does is done by this
/// thread.
struct Driven {
    timer: Timer,
    driver: Driver,
    clock: ManualClock,
    start: Instant,
}

impl Driven {
    fn new(mode: Mode) -> Self {
        let clock = ManualClock::new();
        let mut builder = Timer::builder().mode(mode).shards(1).clock(clock.clone());
        if mode.is_hashed() {
            // With a limit, and with an executor that sheds: one that ran tasks here could not stop.
            builder = builder.max_pending(1 << 30).executor(drop::<Box<dyn FnOnce() + Send>>);
        }
        #[cfg(feature = "record")]
        if !mode.is_hashed() {
            builder = builder.record(std::io::sink());
        }
        let (timer, driver) = builder.build_driven().expect("in range");
        // A recording lays out its ring for the first operation.
        assert!(timer.schedule(Duration::ZERO, || {}).expect("it runs").cancel());
        Self { timer, driver, start: clock.now(), clock }
    }

    fn at(&self, tick: u64) -> Instant {
        self.start + Duration::from_millis(tick)
    }

    /// Moves the clock to a tick, unless that has passed.
    fn drive(&self, tick: u64) {
        self.clock.jump(self.at(tick).saturating_duration_since(self.clock.now()));
    }

    /// Returns how long it is until the deadline of a turn.
    fn delay(turn: u64) -> Duration {
        Duration::from_millis(kept::deadline(turn))
    }
}

/// Makes a call, and panics if a lock was held for long, unless the operation says so.
fn is_known(name: &str, call: impl FnOnce() -> bool) -> bool {
    _ = most_steps_under_a_lock();
    let is_known = call();
    if !["drain", "iter", "retain", "shrink_to_fit", "stats"].contains(&name) {
        assert_bounded(name);
    }
    is_known
}

fn polled<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A timer, and the handles to its timeouts by number.
struct OfTimer {
    driven: Driven,
    timeouts: Vec<Timeout>,
}

impl OfTimer {
    fn set(&mut self, number: u64, timeout: Timeout) {
        match self.timeouts.get_mut(number as usize) {
            Some(old) => *old = timeout,
            None => self.timeouts.push(timeout),
        }
    }
}

impl Subject for OfTimer {
    const SOURCES: &[&str] = &[
        "src/timer/mod.rs",
        "src/timer/schedule.rs",
        "src/timer/driver.rs",
        "src/timer/timeout.rs",
        "src/future/mod.rs",
        "src/future/sleep.rs",
        "src/future/interval.rs",
    ];
    const LEFT_OUT: &[(&str, &str)] = &[
        ("new", "it makes one"),
        ("builder", "it makes one"),
        ("build", "it makes one"),
        ("build_driven", "it makes one"),
        ("timer", "it makes one"),
        ("run", "a poll of it is a turn"),
        ("recorded", "it reads two counters"),
    ];
    const MEAN: f64 = FEW;
    const KEPT_STOPPED: f64 = STOPPED;

    fn new(mode: Mode) -> Self {
        Self { driven: Driven::new(mode), timeouts: Vec::new() }
    }

    fn put(&mut self, deadline: u64, number: u64) {
        let timeout = self.driven.timer.schedule_at(self.driven.at(deadline), || {});
        self.set(number, timeout.expect("it runs"));
    }

    fn put_within(&mut self, deadline: u64, number: u64) {
        let delay = Duration::from_millis(deadline);
        let timeout = self.driven.timer.schedule_within(delay..=delay + delay / 32, || {});
        self.set(number, timeout.expect("it runs"));
    }

    fn take(&mut self, number: u64) {
        self.timeouts[number as usize].cancel();
    }

    fn shift(&mut self, number: u64, deadline: u64) {
        self.timeouts[number as usize].reschedule_at(self.driven.at(deadline));
    }

    fn drive(&mut self, now: u64, _: &mut usize) -> bool {
        self.driven.drive(now);
        self.driven.driver.turn().is_some_and(|next| next <= self.driven.clock.now())
    }

    fn ask(&mut self) {
        black_box(self.driven.timer.next_deadline());
    }

    fn empty(&mut self) {
        self.timeouts.iter().for_each(|timeout| _ = timeout.cancel());
    }

    fn forget(&mut self) {
        self.timeouts = Vec::new();
    }

    fn len(&self) -> usize {
        self.driven.timer.pending()
    }

    fn call(&mut self, name: &str, turn: u64, number: u64) -> bool {
        let Self { driven, timeouts } = self;
        let Driven { timer, driver, clock, .. } = &mut *driven;
        let delay = Driven::delay(turn);
        let at = clock.now() + delay;
        let known = timeouts.get(number as usize);
        is_known(name, || {
            match name {
                "pending" => _ = black_box(timer.pending()),
                "now" => _ = black_box(timer.now()),
                "stop" => _ = black_box(timer.stop().expect("outside")),
                "next_deadline" => {
                    _ = known.map(|timeout| timeout.reschedule(delay * 9));
                    _ = black_box(timer.next_deadline());
                }
                "stats" => _ = black_box(timer.stats()),
                "shrink_to_fit" => timer.shrink_to_fit(),
                "is_stopped" => assert!(!timer.is_stopped() && !driver.is_stopped()),
                "schedule" => _ = timer.schedule(delay, || {}).expect("it runs"),
                "schedule_at" => _ = timer.schedule_at(at, || {}).expect("it runs"),
                "schedule_value" => {
                    _ = timer.schedule_value(delay, turn, drop).expect("it runs");
                }
                "schedule_within" => {
                    _ = timer.schedule_within(delay..=delay * 2, || {}).expect("it runs");
                }
                "schedule_repeating" => {
                    let repeats = || std::ops::ControlFlow::Continue(());
                    let repeating = timer.schedule_repeating(delay, MissedTick::Skip, repeats);
                    assert!(repeating.expect("it runs").cancel());
                }
                "schedule_with" => {
                    let repeating = timer.schedule_with(delay, move |_| Next::After(delay));
                    let repeating = repeating.expect("it runs");
                    assert!(repeating.reschedule(delay * 2) && repeating.cancel());
                }
                "on_wake" => driver.on_wake(|_| {}),
                // A turn is a few batches, and so counts as four calls.
                "turn" if turn % 4 > 0 => {}
                "turn" => {
                    clock.jump(delay);
                    _ = black_box(driver.turn());
                }
                "cancel" => _ = black_box(known.map(Timeout::cancel)),
                "cancel_and_wait" => _ = known.map(|timeout| timeout.cancel_and_wait()),
                "cancel_and_wait_async" => {
                    _ = known.map(|timeout| polled(timeout.cancel_and_wait_async()));
                }
                "cancel_on_drop" => drop(known.map(|timeout| timeout.clone().cancel_on_drop())),
                "keep" => _ = known.map(|timeout| timeout.clone().cancel_on_drop().keep()),
                "reschedule" => _ = known.map(|timeout| timeout.reschedule(delay)),
                "reschedule_at" => _ = known.map(|timeout| timeout.reschedule_at(at)),
                "reschedule_within" => {
                    _ = known.map(|timeout| timeout.reschedule_within(delay..=delay * 2));
                }
                "deadline" => _ = black_box(known.map(Timeout::deadline)),
                "status" => _ = black_box(known.map(Timeout::status)),
                "sleep" | "reset" | "is_elapsed" | "deregister" => {
                    let mut sleep = timer.sleep(delay);
                    assert!(polled(&mut sleep).is_pending() && !sleep.is_elapsed());
                    sleep.reset(delay / 2);
                    sleep.deregister();
                    timer.interval(delay).reset();
                }
                "sleep_until" | "reset_at" => {
                    let mut sleep = timer.sleep_until(at);
                    assert!(polled(&mut sleep).is_pending());
                    sleep.reset_at(at + delay);
                    timer.interval(delay).reset_at(at);
                }
                "sleeps" | "downgrade" | "upgrade" => {
                    let sleeps = timer.sleeps().downgrade();
                    let sleeps = sleeps.upgrade().expect("it is not stopped");
                    assert!(polled(sleeps.sleep_until(at)).is_pending());
                }
                "timeout" => _ = polled(timer.timeout(delay, pending::<()>())),
                "timeout_at" => _ = polled(timer.timeout_at(at, pending::<()>())),
                "interval" | "tick" => _ = polled(timer.interval(delay).tick()),
                "interval_at" => _ = polled(timer.interval_at(at, delay).tick()),
                "poll_tick" | "reset_after" | "reset_immediately" => {
                    let mut interval = timer.interval_at(at, delay);
                    let poll = |interval: &mut Interval| {
                        interval.poll_tick(&mut Context::from_waker(Waker::noop()))
                    };
                    assert!(poll(&mut interval).is_pending());
                    interval.reset_after(delay / 2);
                    assert!(poll(&mut interval).is_pending());
                    interval.reset_immediately();
                    _ = poll(&mut interval);
                }
                "period" | "missed_tick" | "set_missed_tick" => {
                    let mut interval = timer.interval(delay);
                    interval.set_missed_tick(MissedTick::Skip);
                    _ = black_box((interval.period(), interval.missed_tick()));
                }
                _ => return false,
            }
            true
        })
    }
}

/// A map that threads share, in which each value has a time to idle, too.
struct Sessions {
    driven: Driven,
    map: ExpiringMap<u64, u64, SameHashes>,
}

impl Subject for Sessions {
    const SOURCES: &[&str] = &["src/expiring/mod.rs"];
    const LEFT_OUT: &[(&str, &str)] = &[
        ("new", "it makes one"),
        ("with_timer", "it makes one"),
        ("builder", "it makes one"),
        ("into_entry", "it moves a field"),
        ("kind", "it returns a field"),
    ];
    const MEAN: f64 = FEW;
    const IS_MAP: bool = true;

    fn new(mode: Mode) -> Self {
        let driven = Driven::new(mode);
        let idle = Duration::from_millis(1 << 62);
        let builder = ExpiringMap::builder().shards(1).time_to_idle(idle);
        let map = builder.hasher(SameHashes::default()).build(&driven.timer);
        Self { driven, map }
    }

    fn put(&mut self, deadline: u64, number: u64) {
        let inserted = self.map.insert_at(number, number, self.driven.at(deadline));
        assert!(inserted.is_ok_and(|old| old.is_none()));
    }

    fn put_within(&mut self, deadline: u64, number: u64) {
        self.put(deadline + deadline / 32, number);
    }

    fn take(&mut self, number: u64) {
        self.map.remove(&number);
    }

    fn shift(&mut self, number: u64, deadline: u64) {
        self.map.reset_at(&number, self.driven.at(deadline));
    }

    fn drive(&mut self, now: u64, _: &mut usize) -> bool {
        self.driven.drive(now);
        self.driven.driver.turn().is_some_and(|next| next <= self.driven.clock.now())
    }

    fn ask(&mut self) {}

    fn empty(&mut self) {
        self.map.clear();
    }

    fn len(&self) -> usize {
        self.map.len()
    }

    fn call(&mut self, name: &str, turn: u64, key: u64) -> bool {
        let (map, delay) = (&self.map, Driven::delay(turn));
        let at = self.driven.clock.now() + delay;
        // Every second one is there.
        let new = |call: u64| (call << 32) + turn / 2;
        is_known(name, || {
            match name {
                "insert" => _ = map.insert(new(1), turn, delay).expect("there is no limit"),
                "insert_at" => _ = map.insert_at(new(2), turn, at).expect("there is no limit"),
                "insert_if_absent" => _ = map.insert_if_absent(new(3), turn, delay),
                "get_or_insert_with" => _ = map.get_or_insert_with(new(4), delay, || turn),
                "get" => _ = black_box(map.get(&key)),
                "peek" => _ = black_box(map.peek(&key)),
                "get_and_reset" => _ = black_box(map.get_and_reset(&key, delay)),
                "with" => _ = black_box(map.with(&key, |&value| value)),
                "update" => _ = black_box(map.update(&key, |value| *value += 1)),
                "touch" => _ = black_box(map.touch(&key)),
                "reset" => _ = black_box(map.reset(&key, delay)),
                "reset_at" => _ = black_box(map.reset_at(&key, at)),
                "remove" => _ = black_box(map.remove(&key)),
                "remove_entry" => _ = black_box(map.remove_entry(&key)),
                "reset_if" => _ = black_box(map.reset_if(&key, delay, |_| turn % 2 == 0)),
                "remove_if" => _ = black_box(map.remove_if(&key, |_| turn % 2 == 0)),
                "contains_key" => _ = black_box(map.contains_key(&key)),
                "deadline" => _ = black_box(map.deadline(&key)),
                "len" => _ = black_box(map.len()),
                "is_empty" => _ = black_box(map.is_empty()),
                "iter" => _ = black_box(map.iter().count()),
                "drain" => _ = map.drain().count(),
                "clear" => map.clear(),
                "retain" => map.retain(|_, _| turn % 2 == 0),
                "shrink_to_fit" => map.shrink_to_fit(),
                _ => return false,
            }
            true
        })
    }
}

/// A queue, a map or a channel.
trait Kind: Sized {
    const SOURCES: &[&str];
    const LEFT_OUT: &[(&str, &str)];
    const IS_MAP: bool = false;

    fn new(timer: &Timer) -> Self;
    fn insert(&mut self, at: Instant, number: u64);
    fn remove(&mut self, number: u64);
    fn reset(&mut self, number: u64, at: Instant);
    fn ask(&mut self) {}
    fn empty(&mut self);
    fn forget(&mut self) {}
    fn poll(&mut self, waker: &Waker) -> bool;
    fn len(&self) -> usize;
    /// Makes a call that all kinds have. Returns false if it is unknown.
    fn shared(&mut self, name: &str, turn: u64) -> bool;
    /// Makes a call of this kind. Returns false if it is unknown.
    fn own(&mut self, name: &str, turn: u64, number: u64, at: Instant) -> bool;
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

struct Values<K> {
    driven: Driven,
    kind: K,
}

impl<K: Kind> Subject for Values<K> {
    const SOURCES: &[&str] = K::SOURCES;
    const LEFT_OUT: &[(&str, &str)] = K::LEFT_OUT;
    const MEAN: f64 = FEW;
    const IS_MAP: bool = K::IS_MAP;

    fn new(mode: Mode) -> Self {
        let driven = Driven::new(mode);
        Self { kind: K::new(&driven.timer), driven }
    }

    fn put(&mut self, deadline: u64, number: u64) {
        self.kind.insert(self.driven.at(deadline), number);
    }

    fn put_within(&mut self, deadline: u64, number: u64) {
        self.kind.insert(self.driven.at(deadline + deadline / 32), number);
    }

    fn take(&mut self, number: u64) {
        self.kind.remove(number);
    }

    fn shift(&mut self, number: u64, deadline: u64) {
        self.kind.reset(number, self.driven.at(deadline));
    }

    fn drive(&mut self, now: u64, _: &mut usize) -> bool {
        self.driven.drive(now);
        // Where it is not ready it gives way, or nothing is due: it wakes the task, or does not.
        loop {
            let woken = Arc::new(Woken::default());
            if self.kind.poll(&Arc::clone(&woken).into()) {
                return true;
            } else if !woken.0.load(Relaxed) {
                return false;
            }
        }
    }

    fn ask(&mut self) {
        self.kind.ask();
    }

    fn empty(&mut self) {
        self.kind.empty();
    }

    fn forget(&mut self) {
        self.kind.forget();
    }

    fn len(&self) -> usize {
        self.kind.len()
    }

    fn call(&mut self, name: &str, turn: u64, number: u64) -> bool {
        let Self { driven, kind } = self;
        let delay = Driven::delay(turn);
        match name {
            "poll_expired" | "next" | "next_due" | "next_batch" | "try_recv" => {
                driven.clock.jump(delay)
            }
            // What they wait for is due.
            "recv" | "recv_timeout" | "recv_batch" => driven.drive(1 << 61),
            _ => {}
        }
        let at = driven.clock.now() + delay;
        is_known(name, || kind.shared(name, turn) || kind.own(name, turn, number, at))
    }
}

/// What all kinds do with what hands out their values.
macro_rules! shared {
    () => {
        fn poll(&mut self, waker: &Waker) -> bool {
            let mut context = Context::from_waker(waker);
            matches!(self.receiver.poll_expired(&mut context), Poll::Ready(Some(_)))
        }

        fn len(&self) -> usize {
            self.receiver.len()
        }

        fn shared(&mut self, name: &str, turn: u64) -> bool {
            let receiver = &mut self.receiver;
            match name {
                "poll_expired" => _ = self.poll(Waker::noop()),
                "next" => _ = black_box(polled(receiver.next())),
                "next_due" => _ = black_box(polled(receiver.next_due())),
                // It costs a poll for each value, and so counts as ten calls.
                "next_batch" if turn % 10 > 0 => {}
                "next_batch" => _ = polled(receiver.next_batch(&mut Vec::new(), 10)),
                "recv" | "recv_timeout" | "recv_batch" if receiver.is_empty() => {}
                "recv" => _ = black_box(receiver.recv()),
                "recv_timeout" => _ = black_box(receiver.recv_timeout(Duration::ZERO)),
                "recv_batch" => _ = black_box(receiver.recv_batch(&mut Vec::new(), 10)),
                "try_recv" => _ = black_box(receiver.try_recv()),
                "shrink_to_fit" => receiver.shrink_to_fit(),
                "len" | "is_empty" => _ = black_box((receiver.len(), receiver.is_empty())),
                _ => return false,
            }
            true
        }
    };
}

/// The key that a number has now.
fn set<K>(keys: &mut Vec<K>, number: u64, key: K) {
    match keys.get_mut(number as usize) {
        Some(old) => *old = key,
        None => keys.push(key),
    }
}

struct Queue {
    receiver: DelayQueue<u64>,
    keys: Vec<Key>,
}

impl Kind for Queue {
    const SOURCES: &[&str] = &["src/delay/mod.rs", "src/delay/queue.rs"];
    const LEFT_OUT: &[(&str, &str)] = &[("new", "it makes one"), ("with_timer", "it makes one")];

    shared!();

    fn new(timer: &Timer) -> Self {
        Self { receiver: DelayQueue::with_timer(timer), keys: Vec::new() }
    }

    fn insert(&mut self, at: Instant, number: u64) {
        set(&mut self.keys, number, self.receiver.insert_at(number, at));
    }

    fn remove(&mut self, number: u64) {
        self.receiver.remove(self.keys[number as usize]);
    }

    fn reset(&mut self, number: u64, at: Instant) {
        self.receiver.reset_at(self.keys[number as usize], at);
    }

    fn ask(&mut self) {
        black_box(self.receiver.next_deadline());
    }

    fn empty(&mut self) {
        self.receiver.clear();
    }

    fn forget(&mut self) {
        self.keys = Vec::new();
    }

    fn own(&mut self, name: &str, turn: u64, number: u64, at: Instant) -> bool {
        let (queue, delay) = (&mut self.receiver, Driven::delay(turn));
        let key = self.keys.get(number as usize).copied();
        match name {
            "insert" => _ = queue.insert(turn, delay),
            "insert_at" => _ = queue.insert_at(turn, at),
            "remove" => _ = key.map(|key| queue.remove(key)),
            "reset" => _ = key.map(|key| queue.reset(key, delay)),
            "reset_at" => _ = key.map(|key| queue.reset_at(key, at)),
            "clear" => queue.clear(),
            "drain" => _ = queue.drain().count(),
            "iter" => _ = black_box(queue.iter().count()),
            "iter_mut" => _ = black_box(queue.iter_mut().count()),
            "retain" => queue.retain(|_, _, _| turn % 2 == 0),
            "reserve" => queue.reserve(turn as usize),
            "deadline" => _ = black_box(key.map(|key| queue.deadline(key))),
            "next_deadline" => {
                _ = key.map(|key| queue.reset_at(key, at));
                _ = black_box(queue.next_deadline());
            }
            "peek" => _ = queue.peek().map(|key| queue.remove(key)),
            "get" => _ = black_box(key.map(|key| queue.get(key).is_some())),
            "get_mut" => _ = black_box(key.map(|key| queue.get_mut(key).is_some())),
            _ => return false,
        }
        true
    }
}

struct Map {
    receiver: DelayMap<u64, u64, SameHashes>,
}

impl Kind for Map {
    const SOURCES: &[&str] = &["src/delay/mod.rs", "src/delay/map.rs"];
    const LEFT_OUT: &[(&str, &str)] =
        &[("new", "it makes one"), ("with_timer", "it makes one"), ("with_hasher", "it makes one")];
    const IS_MAP: bool = true;

    shared!();

    fn new(timer: &Timer) -> Self {
        Self { receiver: DelayMap::with_hasher(timer, SameHashes::default()) }
    }

    fn insert(&mut self, at: Instant, number: u64) {
        self.receiver.insert_at(number, number, at);
    }

    fn remove(&mut self, number: u64) {
        self.receiver.remove(&number);
    }

    fn reset(&mut self, number: u64, at: Instant) {
        self.receiver.reset_at(&number, at);
    }

    fn ask(&mut self) {
        black_box(self.receiver.next_deadline());
    }

    fn empty(&mut self) {
        self.receiver.clear();
    }

    fn own(&mut self, name: &str, turn: u64, number: u64, at: Instant) -> bool {
        let (map, delay) = (&mut self.receiver, Driven::delay(turn));
        match name {
            "insert" => _ = map.insert(number, turn, delay),
            "insert_at" => _ = map.insert_at(number, turn, at),
            "remove" => _ = map.remove(&number),
            "remove_entry" => _ = map.remove_entry(&number),
            "reset" => _ = map.reset(&number, delay),
            "reset_at" => _ = map.reset_at(&number, at),
            "drain" => _ = map.drain().count(),
            "clear" => map.clear(),
            "retain" => map.retain(|_, _| turn % 2 == 0),
            "reserve" => map.reserve(turn as usize),
            "next_deadline" => {
                map.reset_at(&number, at);
                _ = black_box(map.next_deadline());
            }
            "iter" => _ = black_box(map.iter().count()),
            "iter_mut" => _ = black_box(map.iter_mut().count()),
            "get_or_insert_with" => {
                _ = black_box(map.get_or_insert_with(number, delay, || turn));
            }
            "get" => _ = black_box(map.get(&number).is_some()),
            "get_mut" => _ = black_box(map.get_mut(&number).is_some()),
            "contains_key" => _ = black_box(map.contains_key(&number)),
            "deadline" => _ = black_box(map.deadline(&number)),
            _ => return false,
        }
        true
    }
}

struct Channel {
    sender: DelaySender<u64>,
    receiver: DelayReceiver<u64>,
    keys: Vec<DelayKey>,
}

impl Kind for Channel {
    const SOURCES: &[&str] = &["src/delay/mod.rs", "src/delay/channel.rs"];
    const LEFT_OUT: &[(&str, &str)] =
        &[("delay_channel", "it makes one"), ("into_value", "it returns a field")];

    shared!();

    fn new(timer: &Timer) -> Self {
        let (sender, receiver) = delay_channel(timer);
        Self { sender, receiver, keys: Vec::new() }
    }

    fn insert(&mut self, at: Instant, number: u64) {
        let key = self.sender.insert_at(number, at).expect("it is open");
        set(&mut self.keys, number, key);
    }

    fn remove(&mut self, number: u64) {
        self.sender.remove(self.keys[number as usize]);
    }

    fn reset(&mut self, number: u64, at: Instant) {
        self.sender.reset_at(self.keys[number as usize], at);
    }

    fn empty(&mut self) {
        self.keys.iter().for_each(|&key| _ = self.sender.remove(key));
    }

    fn forget(&mut self) {
        self.keys = Vec::new();
    }

    fn own(&mut self, name: &str, turn: u64, number: u64, at: Instant) -> bool {
        let (sender, delay) = (&self.sender, Driven::delay(turn));
        let key = self.keys.get(number as usize).copied();
        match name {
            "insert" => _ = sender.insert(turn, delay).expect("it is open"),
            "insert_at" => _ = sender.insert_at(turn, at).expect("it is open"),
            "remove" => _ = key.map(|key| sender.remove(key)),
            "reset" => _ = key.map(|key| sender.reset(key, delay)),
            "reset_at" => _ = key.map(|key| sender.reset_at(key, at)),
            "is_closed" => assert!(!sender.is_closed() && !self.receiver.is_closed()),
            "close" => sender.close(),
            "drain" => _ = self.receiver.drain().count(),
            "len" | "is_empty" => _ = black_box((sender.len(), sender.is_empty())),
            _ => return false,
        }
        true
    }
}

/// By default in one mode, and in the long run in both.
fn modes(mode: Mode, other: Mode) -> impl Iterator<Item = Mode> {
    [mode, other].into_iter().take(common::long(1, 2))
}

fn hierarchical() -> Mode {
    Mode::default()
}

fn hashed() -> Mode {
    Mode::hashed(512).expect("in range")
}

#[test]
fn a_timer_keeps_its_bounds() {
    let _alone = alone();
    modes(hierarchical(), hashed()).for_each(keeps_its_bounds::<OfTimer>);
}

#[test]
fn a_queue_and_a_map_keep_their_bounds() {
    let _alone = alone();
    modes(hashed(), hierarchical()).for_each(keeps_its_bounds::<Values<Map>>);
    if common::long(false, true) {
        modes(hierarchical(), hashed()).for_each(keeps_its_bounds::<Values<Queue>>);
    }
}

#[test]
fn a_channel_keeps_its_bounds() {
    let _alone = alone();
    modes(hierarchical(), hashed()).for_each(keeps_its_bounds::<Values<Channel>>);
}

#[test]
fn a_shared_map_keeps_its_bounds() {
    let _alone = alone();
    modes(hierarchical(), hashed()).for_each(keeps_its_bounds::<Sessions>);
}

#[test]
fn while_they_grow_each_insertion_keeps_to_a_few_steps() {
    let _alone = alone();
    let grown = [hierarchical(), hashed()].map(|mode| {
        let [wheel, map] = wheels::grow_in_steps(mode);
        [
            wheel,
            map,
            grows_in_steps::<OfTimer>(mode),
            grows_in_steps::<Sessions>(mode),
            grows_in_steps::<Values<Queue>>(mode),
            grows_in_steps::<Values<Map>>(mode),
            grows_in_steps::<Values<Channel>>(mode),
        ]
    });
    for (at, bound) in [GROWS, MOVED_WHOLE].into_iter().enumerate() {
        let most = grown.as_flattened().iter().map(|most| most[at]).max();
        tight::assert_tight(most.expect("some grew"), bound);
    }
}

/// Values that were read stay where they were filed, until a call that needs room files them anew.
#[test]
fn a_full_shared_map_files_all_values_anew_in_one_insertion_at_most() {
    let _alone = alone();
    for mode in [hierarchical(), hashed()] {
        let driven = Driven::new(mode);
        let builder = ExpiringMap::builder().shards(1).max_len(MANY as usize);
        let builder = builder.hasher(SameHashes::default());
        let map = builder.time_to_idle(Duration::from_secs(60)).build(&driven.timer);
        let insert = |key: u64| {
            let before = steps();
            let is_in = map.insert(key, key, Duration::from_secs(1 << 20)).is_ok();
            (is_in, steps() - before)
        };
        assert!((0..MANY).all(|key| insert(key).0));
        driven.clock.jump(Duration::from_secs(50));
        assert!((0..MANY).all(|key| map.touch(&key)));
        driven.clock.jump(Duration::from_secs(50));
        let (is_in, steps) = insert(MANY);
        // Steps are counted with debug assertions only.
        let least = if cfg!(debug_assertions) { MANY / 4 } else { 0 };
        assert!(!is_in && (least..40 * MANY).contains(&steps), "{mode}: {steps} steps");
        for key in MANY..MANY + 100 {
            let (is_in, steps) = insert(key);
            assert!(!is_in && steps <= 1_000, "{mode}: {steps} steps again");
        }
        assert_bounded("make room");
    }
}

#[test]
fn each_public_operation_is_judged_or_in_a_list_with_the_reason() {
    let judged =
        [OfTimer::SOURCES, Sessions::SOURCES, Queue::SOURCES, Map::SOURCES, Channel::SOURCES]
            .concat();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("src")];
    let mut with_operations = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("it is a folder") {
            let path = entry.expect("it is there").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let path = path.strip_prefix(root).expect("it is in there").to_str().expect("UTF-8");
            if !kept::stated(&[path]).is_empty() && !judged.contains(&path) {
                with_operations.push(path.to_owned());
            }
        }
    }
    with_operations.sort();
    let mut listed: Vec<_> = OTHERS.iter().map(|&(path, _)| path.to_owned()).collect();
    listed.sort();
    assert_eq!(with_operations, listed);
}

/// Polls until what fell into one far bucket comes out.
fn assert_polls_are_short<K: Kind>(mode: Mode) {
    let driven = Driven::new(mode);
    let mut kind = K::new(&driven.timer);
    for number in 0..MANY {
        kind.insert(driven.at((1 << 45) + number * 7919 % (1 << 30)), number);
    }
    driven.drive((1 << 45) + 100);
    for _ in 0..MANY {
        let before = steps();
        let is_ready = kind.poll(Waker::noop());
        let taken = steps() - before;
        assert!(taken <= MOST, "{mode}: {taken} steps in one poll");
        if is_ready {
            return;
        }
    }
    panic!("nothing comes");
}

#[test]
fn no_poll_looks_at_all_that_waits() {
    let _alone = alone();
    for mode in [hierarchical(), Mode::hashed(1).expect("in range")] {
        assert_polls_are_short::<Queue>(mode);
        assert_polls_are_short::<Map>(mode);
        assert_polls_are_short::<Channel>(mode);
    }
}

/// With the names that a recording has given to its timeouts.
#[test]
fn a_timer_that_is_stopped_while_many_are_due_keeps_a_bit_of_each() {
    let _alone = alone();
    for mode in [hierarchical(), hashed()] {
        let kept = |many: u64| {
            let mut kept = None;
            let held = measure(|| {
                let mut driven = Driven::new(mode);
                let at = |number| driven.at(kept::deadline(number));
                let timeouts: Vec<_> =
                    (0..many).map(|number| driven.timer.schedule_at(at(number), || {})).collect();
                driven.drive(1 << 50);
                driven.driver.turn();
                driven.timer.stop().expect("outside");
                drop(timeouts);
                kept = Some(driven);
            });
            held.bytes_current
        };
        let (many, few) = (kept(100_000), kept(1));
        assert!(many - few < 20_000 + (STOPPED * 100_000.0) as i64, "{mode}: {many} and {few}");
    }
}

const MANY: u64 = 14_000;
/// A bucket of 8192 is sorted, and a few more steps.
const MOST: u64 = 12_000;
/// So few that a call that looks at a tenth of what waits is found.
const FEW: f64 = 100.0;
/// The bytes that a stopped timer keeps per timeout that was due: a bit of a tree, for its handle.
const STOPPED: f64 = 0.5;
/// The files with public operations that no test here judges, and why.
const OTHERS: &[(&str, &str)] = &[
    ("src/wheel/mod.rs", "tests/held/wheels.rs judges it"),
    ("src/wheel/within.rs", "tests/held/wheels.rs judges it"),
    ("src/wheel_map.rs", "tests/held/wheels.rs judges it"),
    ("src/wheel/check.rs", "it is for tests"),
    ("src/steps.rs", "it is for tests"),
    ("src/mode.rs", "it holds two numbers"),
    ("src/ticks.rs", "it computes with two numbers"),
    ("src/timer/builder.rs", "a call sets a field"),
    ("src/timer/error.rs", "a call returns a field"),
    ("src/timer/task.rs", "a call returns a field, or runs a task"),
    ("src/timer/hub.rs", "a call returns a field"),
    ("src/timer/stats.rs", "it holds numbers of a fixed count"),
    ("src/timer/metrics.rs", "a call reads what `Timer::stats` returns"),
    ("src/timer/clock/boot.rs", "it reads a clock"),
    ("src/timer/clock/follower.rs", "a call wakes a worker, or waits for one"),
    ("src/timer/clock/manual.rs", "a call waits for all that comes due"),
    ("src/record/mod.rs", "a call begins a recording, or ends one"),
    ("src/future/timeout.rs", "a call returns a field"),
    ("src/expiring/builder.rs", "a call sets a field"),
];
