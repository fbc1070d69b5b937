//! A timer with threads that schedule, move and cancel; futures; a channel; a map; and animals of
//! the zoo.

use super::{Figures, Over, nap, word};
use crate::zoo::caught;
use crate::zoo::values::{Act, Herd};
use crate::zoo::wakers::{Habits, Task, does, that_panics};
use fastrand::Rng;
use futures::executor::block_on;
use futures::poll;
use std::collections::VecDeque;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{
    DelayKey, DelayReceiver, DelaySender, ExpiredReceiver, ExpiringMap, Mode, Status, Timeout,
    Timer, delay_channel,
};

pub(super) fn library() {
    let (over, figures) = (Over::default(), Figures::new());
    let timers = [Mode::hierarchical(), Mode::hashed(512).expect("a mode")]
        .map(|mode| Timer::builder().mode(mode).build().expect("a timer"));
    let [counts, sent, kept] = [0; 3].map(|_| Arc::<Counts>::default());
    let mut threads = Vec::new();
    let mut channels = Vec::new();
    for timer in &timers {
        for _ in 0..2 {
            let (timer, counts) = (timer.clone(), Arc::clone(&counts));
            let (figures, over) = (Arc::clone(&figures), over.clone());
            threads.push(thread::spawn(move || requests(&timer, &counts, &figures, &over)));
        }
        let (awaited, stopped) = (timer.clone(), over.clone());
        threads.push(thread::spawn(move || block_on(awaits(&awaited, &stopped))));
        let (foreign, stopped) = (timer.clone(), over.clone());
        threads.push(thread::spawn(move || odd(&foreign, &stopped)));
        let (sender, receiver) = delay_channel(timer);
        let (counts, over) = (Arc::clone(&sent), over.clone());
        let sends = sender.clone();
        threads.push(thread::spawn(move || send(&sends, &counts, &over)));
        let (counts, figures) = (Arc::clone(&sent), Arc::clone(&figures));
        let receives = thread::spawn(move || receive(receiver, &counts, &figures));
        channels.push((sender, receives));
    }
    let (map, expired) = ExpiringMap::builder().build_with_receiver(&timers[0]);
    let kept_by = (map.clone(), Arc::clone(&kept), over.clone());
    threads.push(thread::spawn(move || keep(&kept_by.0, &kept_by.1, &kept_by.2)));
    let expires = {
        let (counts, figures) = (Arc::clone(&kept), Arc::clone(&figures));
        thread::spawn(move || expire(expired, &counts, &figures))
    };
    let told = timers.clone();
    figures.tell(&over, move || told.iter().map(Timer::pending).sum());

    while let Some(word) = word() {
        let Some(many) = word.strip_prefix("burst ").and_then(|many| many.parse().ok()) else {
            continue;
        };
        let timer = &timers[fastrand::usize(..2)];
        for _ in 0..many {
            let deadline = Instant::now() + Duration::from_millis(fastrand::u64(..2_000));
            counts.schedule(timer, deadline, &figures);
        }
    }
    over.end();
    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    for (sender, receives) in channels {
        sender.close();
        receives.join().expect("it does not panic");
    }
    kept.unfired.fetch_add(map.drain().count() as u64, SeqCst);
    drop(map);
    expires.join().expect("it does not panic");
    for timer in &timers {
        let unfired = timer.stop().expect("it is called by no task").len();
        counts.unfired.fetch_add(unfired as u64, SeqCst);
    }
    counts.balance("timers");
    sent.balance("channels");
    kept.balance("map");
}

/// Each timeout that was scheduled has one end.
#[derive(Debug, Default)]
struct Counts {
    scheduled: AtomicU64,
    fired: AtomicU64,
    cancelled: AtomicU64,
    unfired: AtomicU64,
}

impl Counts {
    fn schedule(
        self: &Arc<Self>,
        timer: &Timer,
        deadline: Instant,
        figures: &Arc<Figures>,
    ) -> Timeout {
        self.scheduled.fetch_add(1, SeqCst);
        let (counts, figures) = (Arc::clone(self), Arc::clone(figures));
        let task = move || {
            figures.came(deadline);
            counts.fired.fetch_add(1, SeqCst);
        };
        timer.schedule_at(deadline, task).expect("it has no limit")
    }

    fn balance(&self, what: &str) {
        let [scheduled, fired, cancelled, unfired] =
            [&self.scheduled, &self.fired, &self.cancelled, &self.unfired]
                .map(|count| count.load(SeqCst));
        let ended = fired + cancelled + unfired;
        assert!(
            scheduled == ended,
            "{what}: of {scheduled}, {fired} fired, {cancelled} were cancelled, {unfired} were left"
        );
    }
}

/// Requests that are answered, nearly all; some are moved, some are months away.
fn requests(timer: &Timer, counts: &Arc<Counts>, figures: &Arc<Figures>, over: &Over) {
    let (mut rng, mut open) = (Rng::new(), VecDeque::new());
    while !over.is_over() {
        for _ in 0..50 {
            let delay = match rng.u32(..256) {
                0 => Duration::from_secs(86_400 * rng.u64(1..100)),
                1..=16 => Duration::from_micros(rng.u64(..50_000)),
                _ => Duration::from_millis(rng.u64(1_000..60_000)),
            };
            open.push_back(counts.schedule(timer, Instant::now() + delay, figures));
        }
        while OPEN < open.len() {
            let oldest = open.pop_front().expect("many are open");
            if oldest.cancel() {
                counts.cancelled.fetch_add(1, SeqCst);
            }
        }
        let moved: &Timeout = &open[rng.usize(..open.len())];
        // Later only: its task knows the first deadline.
        moved.reschedule(Duration::from_secs(120));
        nap(Duration::from_millis(4));
    }
    // What cannot be cancelled runs, or has run.
    for timeout in open {
        match timeout.cancel_and_wait().expect("it is called by no task") {
            true => _ = counts.cancelled.fetch_add(1, SeqCst),
            false => assert_eq!(timeout.status(), Status::Fired),
        }
    }
}

/// Sleeps, futures with a time limit, which some of them miss, and waits that are given up.
async fn awaits(timer: &Timer, over: &Over) {
    while !over.is_over() {
        let (delay, begun) = (Duration::from_micros(fastrand::u64(..20_000)), Instant::now());
        timer.sleep(delay).await.expect("the timer runs");
        assert!(delay <= begun.elapsed(), "a sleep of {delay:?} took {:?}", begun.elapsed());
        let short = timer.timeout(delay, pending::<()>()).await;
        assert!(short.is_err(), "nothing came");
        let long = timer.timeout(Duration::from_secs(600), timer.sleep(delay)).await;
        assert!(long.is_ok(), "it took ten minutes");
        // Each is given up, and would be there for months.
        for _ in 0..GIVEN_UP {
            let mut sleep = pin!(timer.sleep(Duration::from_secs(90 * 86_400)));
            assert!(poll!(&mut sleep).is_pending());
        }
    }
}

/// Tasks that call the timer and panic as they are dropped, a map of such keys and values, and
/// sleeps whose wakers move, panic and call the timer.
fn odd(timer: &Timer, over: &Over) {
    let calls = {
        let timer = timer.clone();
        move || assert!(timer.schedule(Duration::from_secs(60), || {}).expect("it runs").cancel())
    };
    let herd = {
        let calls = calls.clone();
        Herd::that_calls(move |act, _| {
            if act == Act::Drop {
                calls()
            }
        })
    };
    let habits = [
        Habits { clone: does(calls.clone()), ..Habits::default() },
        Habits { wake: does(calls), ..Habits::default() },
        Habits { clone: that_panics(), ..Habits::default() },
        Habits { wake: that_panics(), ..Habits::default() },
        Habits { drop: that_panics(), ..Habits::default() },
    ];
    while !over.is_over() {
        let delay = Duration::from_micros(fastrand::u64(..20_000));
        let bombs = [(); 4].map(|()| {
            let (bomb, delay) = (herd.bomb(0), delay * fastrand::u32(..20));
            timer.schedule(delay, move || drop(bomb)).expect("it has no limit")
        });
        for habits in &habits {
            let (task, begun) = (Task::with(habits.clone()), Instant::now());
            let mut sleep = Box::pin(timer.sleep(delay));
            let polled = task.poll(|context| sleep.as_mut().poll(context).is_ready());
            let wait_until = |is_so: &dyn Fn() -> bool| {
                while !is_so() {
                    assert!(begun.elapsed() < LATEST, "it was not woken");
                    nap(Duration::from_millis(1));
                }
            };
            wait_until(&|| polled != Some(false) || task.is_woken());
            caught(|| drop(sleep));
            wait_until(&|| task.wakers() == 0);
        }
        for bomb in bombs {
            if fastrand::bool() {
                caught(|| bomb.cancel());
            }
            caught(|| bomb.cancel_and_wait().map(drop));
        }
        assert_eq!(herd.alive(), 0, "each has one end");
        keep_odd(timer, &herd);
    }
}

/// Keeps keys and values of which one after the other panics.
fn keep_odd(timer: &Timer, herd: &Herd) {
    let map = ExpiringMap::with_timer(timer);
    for number in 0..20 {
        herd.panic_at(None, fastrand::usize(..6));
        let (key, value) = (herd.make(number % 8), herd.bomb(number));
        let delay = Duration::from_micros(fastrand::u64(..5_000));
        caught(|| map.insert(key, value, delay).map(drop));
        caught(|| map.remove(&herd.make(number % 5)).map(drop));
        caught(|| map.retain(|_, _| fastrand::u32(..8) > 0));
        caught(|| drop(map.iter()));
    }
    herd.tame();
    caught(|| map.clear());
    drop(map);
    let begun = Instant::now();
    while herd.alive() > 0 {
        assert!(begun.elapsed() < LATEST, "{herd:?} that no map has");
        nap(Duration::from_millis(1));
    }
}

type Sent = Instant;

/// Sends values that most often are taken back.
fn send(sender: &DelaySender<Sent>, counts: &Counts, over: &Over) {
    let (mut rng, mut open) = (Rng::new(), VecDeque::<DelayKey>::new());
    while !over.is_over() {
        for _ in 0..20 {
            let delay = Duration::from_millis(if rng.u32(..8) == 0 { 20 } else { 30_000 });
            let deadline = Instant::now() + delay;
            open.push_back(sender.insert_at(deadline, deadline).expect("it is open"));
            counts.scheduled.fetch_add(1, SeqCst);
        }
        while OPEN < open.len() {
            let oldest = open.pop_front().expect("many are open");
            if sender.remove(oldest).is_some() {
                counts.cancelled.fetch_add(1, SeqCst);
            }
        }
        nap(Duration::from_millis(4));
    }
    for key in open {
        if sender.remove(key).is_some() {
            counts.cancelled.fetch_add(1, SeqCst);
        }
    }
}

/// Receives until the channel is closed and empty.
fn receive(mut receiver: DelayReceiver<Sent>, counts: &Counts, figures: &Figures) {
    while let Some(due) = receiver.recv() {
        figures.came(due.expect("the timer runs").value);
        counts.fired.fetch_add(1, SeqCst);
    }
}

/// Keeps values, many of which are replaced or removed.
fn keep(map: &ExpiringMap<u64, Instant>, counts: &Counts, over: &Over) {
    let mut rng = Rng::new();
    while !over.is_over() {
        for _ in 0..20 {
            let (key, delay) = (rng.u64(..20_000), Duration::from_millis(rng.u64(..20_000)));
            let old = match rng.u32(..4) {
                0 | 1 => map.remove(&key),
                _ => {
                    counts.scheduled.fetch_add(1, SeqCst);
                    let deadline = Instant::now() + delay;
                    map.insert_at(key, deadline, deadline).expect("it has no limit")
                }
            };
            counts.cancelled.fetch_add(old.is_some().into(), SeqCst);
        }
        nap(Duration::from_millis(4));
    }
}

fn expire(mut expired: ExpiredReceiver<u64, Instant>, counts: &Counts, figures: &Figures) {
    while let Some(due) = expired.recv() {
        figures.came(due.expect("the timer runs").value);
        counts.fired.fetch_add(1, SeqCst);
    }
}

/// Handles that one thread keeps.
const OPEN: usize = 20_000;
/// Waits in turn.
const GIVEN_UP: usize = 100;
/// A sleep may be so late while the process is stopped and short of everything.
const LATEST: Duration = Duration::from_secs(600);
