//! Threads and tasks that schedule, cancel, stop and wait for each other at random, on timers with
//! threads and with drivers, whose executors are pools, share one, run inside of another timer, and
//! shed.
//!
//! `TICKWHEEL_WAITING_ROUNDS` says how many rounds; a round is one call. Most of the time all wait,
//! so several processes run beside each other, each with another `TICKWHEEL_WAITING_SEED`.

use crate::common::{Numbers, asked, asked_or_long};
use crate::help::{build_driven, ms};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{Status, Timeout, Timer};

type BoxedTask = Box<dyn FnOnce() + Send>;

#[test]
fn nothing_hangs_and_nothing_returns_before_its_promise() {
    let rounds = asked_or_long("TICKWHEEL_WAITING_ROUNDS", 3_000, 20_000);
    let done = Arc::new(AtomicU64::new(0));
    let (all_done, calls) = (Arc::clone(&done), Arc::new([const { AtomicU64::new(0) }; 4]));
    let counts = Arc::clone(&calls);
    let first = asked("TICKWHEEL_WAITING_SEED").unwrap_or(0);
    let runs = thread::spawn(move || {
        for seed in first.. {
            if rounds <= all_done.load(SeqCst) {
                break;
            }
            run_world(seed, &all_done, &counts);
        }
    });
    // The watchdog: a call that waits for ever stops them all, soon.
    let (mut last, mut since) = (0, Instant::now());
    while !runs.is_finished() {
        thread::sleep(ms(10));
        let now = done.load(SeqCst);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        assert!(since.elapsed() < Duration::from_secs(60), "hangs after {now} rounds");
    }
    runs.join().expect("no promise was broken");
    let [waited, refused, stopped, not_stopped] =
        [0, 1, 2, 3].map(|call: usize| calls[call].load(SeqCst));
    println!("waited {waited}, refused {refused}; stopped {stopped}, refused {not_stopped}");
    assert!([waited, refused, stopped, not_stopped].iter().all(|&count| 0 < count));
}

/// A few timers, and the calls that threads and tasks make to them.
struct World {
    timers: Vec<Timer>,
    /// Timeouts of all timers, with what became of their tasks.
    timeouts: Mutex<Vec<(Timeout, Arc<Fate>)>>,
    numbers: Mutex<Numbers>,
    done: Arc<AtomicU64>,
    calls: Arc<[AtomicU64; 4]>,
}

#[derive(Default)]
struct Fate {
    runs: AtomicBool,
    dropped: AtomicBool,
}

/// Says when it is dropped, after a while in which others may look.
struct Captured(Arc<Fate>);

impl Drop for Captured {
    fn drop(&mut self) {
        thread::yield_now();
        self.0.dropped.store(true, SeqCst);
    }
}

fn pool(threads: usize) -> mpsc::Sender<BoxedTask> {
    let (sender, receiver) = mpsc::channel::<BoxedTask>();
    let receiver = Arc::new(Mutex::new(receiver));
    for _ in 0..threads {
        let receiver = Arc::clone(&receiver);
        thread::spawn(move || {
            loop {
                let Ok(task) = receiver.lock().unwrap().recv() else { break };
                task();
            }
        });
    }
    sender
}

/// Sets `is_warm` when all threads of a pool have run a task of each timer that it serves.
fn warm_up(timer: &Timer, threads: usize) {
    let barrier = Arc::new(Barrier::new(threads + 1));
    for _ in 0..threads {
        let barrier = Arc::clone(&barrier);
        let task = move || {
            barrier.wait();
        };
        timer.schedule(Duration::ZERO, task).expect("it runs");
    }
    barrier.wait();
}

fn run_world(seed: u64, done: &Arc<AtomicU64>, calls: &Arc<[AtomicU64; 4]>) {
    let mut numbers = Numbers(seed);
    let size = 1 + numbers.below(3) as usize;
    let (own, shared) = (pool(size), pool(1));
    // Each timer has a thread in one world, and a driver in another.
    let mut drives = seed;
    let mut build = |executor: Option<Box<dyn Fn(BoxedTask) + Send + Sync>>| {
        let mut builder = Timer::builder().tick(Duration::from_micros(50)).shards(2);
        if let Some(executor) = executor {
            builder = builder.executor(executor);
        }
        drives = drives.rotate_right(1);
        if drives.leading_zeros() == 0 {
            build_driven(builder)
        } else {
            builder.build().expect("in range")
        }
    };
    let sends = |to: &mpsc::Sender<BoxedTask>| -> Option<Box<dyn Fn(BoxedTask) + Send + Sync>> {
        let to = to.clone();
        Some(Box::new(move |task| drop(to.send(task))))
    };
    let mut timers = vec![build(None), build(None), build(sends(&own))];
    timers.extend([build(sends(&shared)), build(sends(&shared))]);
    let inner = timers[numbers.below(5) as usize].clone();
    timers.push(build(Some(Box::new(move |task| drop(inner.schedule(Duration::ZERO, task))))));
    let (sheds, last) = (AtomicU64::new(0), shared.clone());
    timers.push(build(Some(Box::new(move |task| {
        if sheds.fetch_add(1, SeqCst) % 3 != 1 {
            drop(last.send(task));
        }
    }))));
    for (timer, threads) in [(2, size), (3, 1), (4, 1), (6, 1)] {
        warm_up(&timers[timer], threads);
    }
    let world = Arc::new(World {
        timers,
        timeouts: Mutex::default(),
        numbers: Mutex::new(numbers),
        done: Arc::clone(done),
        calls: Arc::clone(calls),
    });
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..60).for_each(|_| world.call(4)));
        }
        // Jobs on the threads of the executors, which are inside of no task.
        for jobs in [&own, &shared] {
            for _ in 0..20 {
                let world = Arc::clone(&world);
                jobs.send(Box::new(move || world.call(4))).expect("the pool is there");
            }
        }
    });
    // In the order in which one executor needs another.
    for timer in world.timers.iter().rev() {
        timer.stop().expect("outside");
    }
    world.timeouts.lock().unwrap().clear();
}

impl World {
    /// Makes a call; tasks that it schedules make some themselves, up to `depth` levels.
    fn call(self: &Arc<Self>, depth: u32) {
        self.done.fetch_add(1, SeqCst);
        let [kind, which] = {
            let mut numbers = self.numbers.lock().unwrap();
            [numbers.below(100), numbers.below(1 << 30)]
        };
        let timer = &self.timers[which as usize % self.timers.len()];
        let chosen = {
            let timeouts = self.timeouts.lock().unwrap();
            let index = which as usize % timeouts.len().max(1);
            timeouts.get(index).cloned()
        };
        match (kind, chosen) {
            (..50, _) | (_, None) => {
                self.schedule(timer, Duration::from_micros(which % 300), depth)
            }
            (50..65, Some((timeout, _))) => drop(timeout.cancel()),
            (65..97, Some((timeout, fate))) => match timeout.cancel_and_wait() {
                Ok(_) => {
                    self.calls[0].fetch_add(1, SeqCst);
                    assert!(!fate.runs.load(SeqCst), "it runs");
                    let is_dropped = fate.dropped.load(SeqCst);
                    // `stop` gives back what it took out.
                    assert!(is_dropped || timeout.status() == Status::Stopped, "not dropped");
                }
                Err(_) => _ = self.calls[1].fetch_add(1, SeqCst),
            },
            _ => match timer.stop() {
                Ok(_) => {
                    self.calls[2].fetch_add(1, SeqCst);
                    assert_eq!(timer.pending(), 0);
                }
                Err(_) => _ = self.calls[3].fetch_add(1, SeqCst),
            },
        }
    }

    fn schedule(self: &Arc<Self>, timer: &Timer, delay: Duration, depth: u32) {
        let Some(depth) = depth.checked_sub(1) else { return };
        let (world, fate) = (Arc::clone(self), Arc::new(Fate::default()));
        let captured = Captured(Arc::clone(&fate));
        let task = move || {
            captured.0.runs.store(true, SeqCst);
            (0..2).for_each(|_| world.call(depth));
            captured.0.runs.store(false, SeqCst);
        };
        if let Ok(timeout) = timer.schedule(delay, task) {
            self.timeouts.lock().unwrap().push((timeout, fate));
        }
    }
}
