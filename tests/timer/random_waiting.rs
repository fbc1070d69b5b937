//! Threads, jobs and tasks that schedule, cancel, stop and wait for each other at random, on timers
//! with threads and with drivers, whose executors run inline, are pools, share one, run inside of
//! another timer, and shed.
//!
//! `TICKWHEEL_WAITING_ROUNDS` says how many rounds; a round is one call. Most of the time all wait,
//! so several processes run beside each other, each with another `TICKWHEEL_WAITING_SEED`.

use crate::common::{Numbers, asked, asked_or_long};
use crate::help::{BoxedTask, Hand, build_driven, ms};
use crate::zoo::executors::{Fate as Does, executor};
use futures::executor::block_on;
use std::cell::Cell;
use std::mem::take;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, Weak, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tickwheel::{ExpiringMap, Next, Run, Sleep, Status, StopError, Timeout, Timer};

#[test]
fn nothing_hangs_and_nothing_returns_before_its_promise() {
    let rounds = asked_or_long("TICKWHEEL_WAITING_ROUNDS", 3_000, 20_000);
    let counts = Arc::<Counts>::default();
    let first = asked("TICKWHEEL_WAITING_SEED").unwrap_or(0);
    let counted = Arc::clone(&counts);
    let runs = thread::spawn(move || {
        let mut worlds = 0;
        for seed in first.. {
            if rounds <= counted.calls.load(SeqCst) {
                break;
            }
            run_world(seed, &counted);
            worlds += 1;
        }
        worlds
    });
    // The watchdog: a call that waits for ever stops them all, soon.
    let (mut last, mut rounds) = (0, 0);
    while !runs.is_finished() {
        thread::sleep(ms(10));
        rounds += 1;
        let now = counts.steps.load(SeqCst);
        if now != last {
            (last, rounds) = (now, 0);
        }
        let calls = counts.calls.load(SeqCst);
        assert!(rounds < 6_000, "hangs after {calls} rounds");
    }
    let worlds = runs.join().expect("no promise was broken");
    println!("seeds {first} to {}: {counts:?}", first + worlds - 1);
    assert!(counts.each().iter().all(|count| 0 < count.load(SeqCst)), "{counts:?}");
}

/// How many calls there were, and what became of those that wait.
#[derive(Debug, Default)]
struct Counts {
    calls: AtomicU64,
    /// Calls, and what else shows that nothing hangs.
    steps: AtomicU64,
    waited: AtomicU64,
    refused: AtomicU64,
    awaited: AtomicU64,
    awaited_later: AtomicU64,
    not_awaited: AtomicU64,
    stopped: AtomicU64,
    not_stopped: AtomicU64,
    woken: AtomicU64,
    received: AtomicU64,
    not_received: AtomicU64,
    panics: AtomicU64,
}

impl Counts {
    fn each(&self) -> [&AtomicU64; 10] {
        let Self { waited, refused, awaited, awaited_later, not_awaited, .. } = self;
        let Self { stopped, not_stopped, woken, received, not_received, .. } = self;
        let waits = [waited, refused, awaited, awaited_later, not_awaited];
        let others = [stopped, not_stopped, woken, received, not_received];
        [waits, others].concat().try_into().expect("these are ten")
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, SeqCst);
}

/// A few timers, and the calls that threads, jobs and tasks make to them.
struct World {
    timers: Vec<Timed>,
    log: Arc<Log>,
    /// Dropped with each capture: the receiver ends when none is left.
    is_left: mpsc::Sender<()>,
}

struct Timed {
    timer: Timer,
    /// Its tasks run on the worker: there is no executor, or one that runs them inline.
    on_worker: bool,
    /// A `stop` has returned.
    is_over: Arc<AtomicBool>,
    /// Each waited when it was put here.
    sleeps: Mutex<Vec<(Sleep, Hand)>>,
}

/// What outlives the timers.
struct Log {
    /// Timeouts of all timers, with what became of their tasks.
    timeouts: Mutex<Vec<(Timeout, Arc<Fate>)>>,
    /// Waits that were begun on a thread that they may need.
    begun: Mutex<Vec<Begun>>,
    numbers: Mutex<Numbers>,
    counts: Arc<Counts>,
    /// How many came back from the `stop` of each timer.
    unfired: [AtomicUsize; TIMERS],
    /// The timer that another runs inside of: what came back has tasks of that one, too.
    outer: usize,
}

type Begun = (Pin<Box<dyn Future<Output = Result<bool, StopError>> + Send>>, Timeout, Arc<Fate>);

/// What became of a task, which belongs to a timer.
struct Fate {
    timer: usize,
    repeats: bool,
    runs: AtomicBool,
    begun: AtomicUsize,
    dropped: AtomicBool,
}

/// Says when it is dropped, after a call, or a while in which others may look.
struct Captured(Arc<Fate>, Option<mpsc::Sender<()>>, Weak<World>);

impl Drop for Captured {
    fn drop(&mut self) {
        Calls(self.2.clone()).call();
        self.0.dropped.store(true, SeqCst);
        drop(self.1.take());
    }
}

/// Makes a call now and then, where a value is dropped or a task is woken.
struct Calls(Weak<World>);

impl Calls {
    fn call(&self) {
        match self.0.upgrade() {
            Some(world)
                if !HAS_UNFIRED.get() && world.log.numbers.lock().unwrap().below(4) == 0 =>
            {
                world.call(Caller::Task(0));
            }
            // It may be the last.
            world => drop(world),
        }
        thread::yield_now();
    }
}

thread_local! {
    /// This thread drops what came back from a `stop`. If another timer's executor put a task
    /// there, who waits for that task here waits for itself, and no timer knows.
    static HAS_UNFIRED: Cell<bool> = const { Cell::new(false) };
}

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.call();
    }
}

/// Who makes a call.
#[derive(Clone, Copy, PartialEq)]
enum Caller {
    Thread,
    /// A job on a thread of an executor, inside of no task.
    Job,
    /// A task, whose tasks make calls up to so many levels.
    Task(u32),
}

fn pool(threads: usize) -> (mpsc::Sender<BoxedTask>, Vec<JoinHandle<()>>) {
    let (sender, receiver) = mpsc::channel::<BoxedTask>();
    let receiver = Arc::new(Mutex::new(receiver));
    let works = |_| {
        let receiver = Arc::clone(&receiver);
        thread::spawn(move || {
            loop {
                let Ok(task) = receiver.lock().unwrap().recv() else { break };
                task();
            }
        })
    };
    let threads = (0..threads).map(works).collect();
    (sender, threads)
}

/// Returns when all threads of a pool have run a task of the timer.
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

type Executor = Option<Box<dyn Fn(BoxedTask) + Send + Sync>>;

fn run_world(seed: u64, counts: &Arc<Counts>) {
    let mut numbers = Numbers(seed);
    let size = 1 + numbers.below(3) as usize;
    let ((own, mut threads), (shared, other)) = (pool(size), pool(1));
    threads.extend(other);
    // Each timer has a thread in one world, and a driver in another.
    let mut drives = seed;
    let mut build = |on_worker: bool, executor: Executor| {
        let mut builder = Timer::builder().tick(Duration::from_micros(50)).shards(2);
        let counts = Arc::clone(counts);
        builder = builder.on_panic(move |_| count(&counts.panics));
        if let Some(executor) = executor {
            builder = builder.executor(executor);
        }
        drives = drives.rotate_right(1);
        let timer = match drives.leading_zeros() {
            0 => build_driven(builder),
            _ => builder.build().expect("in range"),
        };
        Timed { timer, on_worker, is_over: Arc::default(), sleeps: Mutex::default() }
    };
    let sends = |to: &mpsc::Sender<BoxedTask>, fates: &[Does]| -> Executor {
        let to = to.clone();
        Some(Box::new(executor(fates.to_vec(), move |task| drop(to.send(task)))))
    };
    let pools = [Does::Leaves];
    let mut timers = vec![build(true, None), build(true, None), build(false, sends(&own, &pools))];
    timers.extend([(); 2].map(|()| build(false, sends(&shared, &pools))));
    timers.push(build(true, sends(&shared, &[Does::Runs])));
    let outer = numbers.below(NESTS as u64) as usize;
    let runs = timers[outer].timer.clone();
    let nests = executor(pools.to_vec(), move |task| drop(runs.schedule(Duration::ZERO, task)));
    timers.push(build(false, Some(Box::new(nests))));
    timers.push(build(false, sends(&shared, &[Does::Leaves, Does::IsShed, Does::Leaves])));
    for (timer, threads) in [(2, size), (3, 1), (4, 1), (7, 1)] {
        warm_up(&timers[timer].timer, threads);
    }
    let stops = numbers.below(2) == 0;
    let log = Arc::new(Log {
        timeouts: Mutex::default(),
        begun: Mutex::default(),
        numbers: Mutex::new(numbers),
        counts: Arc::clone(counts),
        unfired: Default::default(),
        outer,
    });
    let (is_left, none_is_left) = mpsc::channel();
    let world = Arc::new(World { timers, log: Arc::clone(&log), is_left });
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..60).for_each(|_| world.call(Caller::Thread)));
        }
        for jobs in [&own, &shared] {
            for _ in 0..20 {
                let world = Arc::clone(&world);
                let job = move || world.call(Caller::Job);
                jobs.send(Box::new(job)).expect("the pool is there");
            }
        }
    });
    log.finish_begun();
    // In the order in which one executor needs another. Otherwise the last clones are dropped here,
    // or in a job or a task; the timer that nests is stopped, because it would never lose a
    // repeating task that it cannot run.
    let stopped = if stops { 0..TIMERS } else { NESTS..NESTS + 1 };
    stopped.rev().for_each(|timer| world.stop(timer));
    drop(world);
    drop((own, shared));
    assert!(none_is_left.recv().is_err(), "each capture is dropped");
    for thread in threads {
        thread.join().expect("no promise was broken in a job");
    }
    // Jobs that ran last have begun them.
    log.finish_begun();
    count(&counts.steps);
    log.check_ends(stops);
    assert_eq!(counts.panics.load(SeqCst), 0, "a promise was broken in a task");
}

impl World {
    /// Makes a call.
    fn call(self: &Arc<Self>, caller: Caller) {
        let (log, counts) = (&self.log, &self.log.counts);
        count(&counts.calls);
        count(&counts.steps);
        let [kind, which] = {
            let mut numbers = log.numbers.lock().unwrap();
            [numbers.below(100), numbers.below(1 << 30)]
        };
        let timer = which as usize % self.timers.len();
        let chosen = {
            let timeouts = log.timeouts.lock().unwrap();
            let index = which as usize % timeouts.len().max(1);
            timeouts.get(index).cloned()
        };
        match (kind, chosen) {
            (..45, _) | (_, None) => {
                let delay = Duration::from_micros(which % 300);
                self.schedule(timer, delay, caller, kind < 8);
            }
            (45..48, _) => self.sleep(timer),
            (48..50, _) => self.receive(timer, Duration::from_micros(which % 300)),
            (50..65, Some((timeout, fate))) => {
                let ended = timeout.cancel();
                assert!(!ended || fate.repeats || fate.dropped.load(SeqCst), "not dropped");
            }
            (65..83, Some((timeout, fate))) => match timeout.cancel_and_wait() {
                Ok(_) => {
                    count(&counts.waited);
                    fate.check(&timeout);
                }
                Err(_) => count(&counts.refused),
            },
            (83..97, Some((timeout, fate))) => {
                let waits = timeout.clone();
                let mut waits = Box::pin(async move { waits.cancel_and_wait_async().await });
                match caller {
                    Caller::Thread => log.awaited(block_on(waits), &timeout, &fate),
                    // The task may need this thread, so this thread does not block.
                    _ => match waits.as_mut().poll(&mut Context::from_waker(&self.calls())) {
                        Poll::Ready(end) => log.awaited(end, &timeout, &fate),
                        Poll::Pending => log.begun.lock().unwrap().push((waits, timeout, fate)),
                    },
                }
            }
            _ => self.stop(timer),
        }
    }

    fn schedule(self: &Arc<Self>, timer: usize, delay: Duration, caller: Caller, repeats: bool) {
        let depth = match caller {
            Caller::Task(0) => return,
            Caller::Task(depth) => depth - 1,
            _ => 3,
        };
        let Timed { timer: on, on_worker, is_over, .. } = &self.timers[timer];
        let (runs, begun, dropped) = Default::default();
        let fate = Arc::new(Fate { timer, repeats, runs, begun, dropped });
        let calls = Arc::downgrade(self);
        let captured = Captured(Arc::clone(&fate), Some(self.is_left.clone()), calls);
        let is_over = on_worker.then(|| Arc::clone(is_over));
        let world = Arc::clone(self);
        let run = move || {
            let Captured(fate, ..) = &captured;
            let is_over = is_over.as_ref().is_some_and(|is_over| is_over.load(SeqCst));
            assert!(!is_over, "it begins after a stop");
            assert!(!fate.runs.swap(true, SeqCst), "it runs twice at once");
            fate.begun.fetch_add(1, SeqCst);
            (0..2).for_each(|_| world.call(Caller::Task(depth)));
            fate.runs.store(false, SeqCst);
        };
        let timeout = match repeats {
            false => on.schedule(delay, run).ok(),
            true => {
                let task = move |times: &Run| {
                    run();
                    if times.count() < 3 { Next::After(delay) } else { Next::Stop }
                };
                on.schedule_with(delay, task).ok()
            }
        };
        if let Some(timeout) = timeout {
            self.log.timeouts.lock().unwrap().push((timeout, fate));
        }
    }

    /// Waits in a future, which only a stop ends.
    fn sleep(&self, timer: usize) {
        let Timed { timer, sleeps, .. } = &self.timers[timer];
        let (mut sleep, hand) = (timer.sleep(Duration::from_secs(3_600)), Hand::new());
        if hand.poll(&mut sleep).is_pending() {
            sleeps.lock().unwrap().push((sleep, hand));
        }
    }

    fn calls(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::new(Calls(Arc::downgrade(self))))
    }

    /// Waits for a value that only the worker brings.
    fn receive(&self, timer: usize, delay: Duration) {
        let counts = &self.log.counts;
        let (map, mut receiver) =
            ExpiringMap::builder().build_with_receiver(&self.timers[timer].timer);
        map.insert((), (), delay).expect("it has no limit");
        match receiver.recv().expect("the map is there") {
            Ok(_) => count(&counts.received),
            Err(_) => count(&counts.not_received),
        }
    }

    /// Stops a timer, if this thread may, and looks whether it is as the page says.
    fn stop(&self, timer: usize) {
        let (Timed { timer: on, on_worker, is_over, sleeps }, log) =
            (&self.timers[timer], &self.log);
        let Ok(unfired) = on.stop() else { return count(&log.counts.not_stopped) };
        count(&log.counts.stopped);
        is_over.store(true, SeqCst);
        log.unfired[timer].fetch_add(unfired.len(), SeqCst);
        let is_first = !unfired.is_empty();
        HAS_UNFIRED.set(true);
        drop(unfired);
        HAS_UNFIRED.set(false);
        assert_eq!(on.pending(), 0);
        for (mut sleep, hand) in take(&mut *sleeps.lock().unwrap()) {
            count(&log.counts.woken);
            assert_eq!(hand.woken(), 1, "a future was not woken");
            assert!(matches!(hand.poll(&mut sleep), Poll::Ready(Err(_))));
        }
        let timeouts = log.timeouts.lock().unwrap();
        for (timeout, fate) in timeouts.iter().filter(|(_, fate)| fate.timer == timer) {
            let status = timeout.status();
            assert_ne!(status, Status::Pending, "it has no end");
            assert!(!on_worker || !fate.runs.load(SeqCst), "it runs on the worker");
            let came_back = is_first && status == Status::Stopped;
            assert!(!came_back || fate.dropped.load(SeqCst), "it has not come back");
        }
    }
}

impl Log {
    fn awaited(&self, end: Result<bool, StopError>, timeout: &Timeout, fate: &Fate) {
        match end {
            Ok(_) => {
                count(&self.counts.awaited);
                fate.check(timeout);
            }
            Err(_) => count(&self.counts.not_awaited),
        }
    }

    /// Waits for the ends of waits that threads of executors have begun. Every other one is given
    /// up.
    fn finish_begun(&self) {
        let begun = take(&mut *self.begun.lock().unwrap());
        for (waits, timeout, fate) in begun.into_iter().step_by(2) {
            self.awaited(block_on(waits), &timeout, &fate);
            count(&self.counts.awaited_later);
            count(&self.counts.steps);
        }
    }

    /// Looks at the ends when all is over.
    fn check_ends(&self, all_stopped: bool) {
        let mut stopped = [0; TIMERS];
        for (timeout, fate) in &*self.timeouts.lock().unwrap() {
            let (status, begun) = (timeout.status(), fate.begun.load(SeqCst));
            assert!(fate.dropped.load(SeqCst) && !fate.runs.load(SeqCst), "{status:?}");
            match status {
                Status::Cancelled | Status::Stopped => assert!(fate.repeats || begun == 0),
                // One that is shed has fired.
                Status::Fired => assert!(begun <= if fate.repeats { 3 } else { 1 }),
                status => panic!("{status:?}"),
            }
            stopped[fate.timer] += usize::from(status == Status::Stopped);
        }
        let unfired = self.unfired.each_ref().map(|count| count.load(SeqCst));
        for timer in (0..TIMERS).filter(|&timer| all_stopped && timer != self.outer) {
            assert_eq!(stopped[timer], unfired[timer], "stopped, and came back");
        }
    }
}

impl Fate {
    /// Looks at a task that somebody has waited for.
    fn check(&self, timeout: &Timeout) {
        assert!(!self.runs.load(SeqCst), "it runs");
        let is_dropped = self.dropped.load(SeqCst);
        // `stop` gives back what it took out.
        assert!(is_dropped || timeout.status() == Status::Stopped, "not dropped");
    }
}

const TIMERS: usize = 8;

/// The timer that runs inside of one of those before it.
const NESTS: usize = 6;
