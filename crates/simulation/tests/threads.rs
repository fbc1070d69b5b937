//! Threads, jobs and tasks that call whole timers at random, on clocks that they move themselves.
//!
//! A seed decides what they do and which of them goes on at each lock, atomic and wait: each run of
//! a seed is like the other. Nothing is early, what is due has fired when the clock has moved, each
//! timeout has one end, `stop` gives back what did not run, and all that was captured is dropped.
//! What waits for ever is a deadlock, which shuttle reports.
//!
//! `TICKWHEEL_SIMULATION_SEEDS` says how many seeds, and `TICKWHEEL_SIMULATION_FIRST` the first of
//! them: one that has failed, to take it again.

extern crate simulated as tickwheel;

#[path = "../../../tests/zoo/mod.rs"]
mod zoo;

use fastrand::Rng;
use shuttle::future::block_on;
use shuttle::rand::{RngCore, thread_rng};
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::sync::{Condvar, Mutex, mpsc};
use shuttle::thread::{self, JoinHandle};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner, thread_local};
use simulated::{
    Clock, DelayKey, DelayReceiver, DelaySender, Driver, ExpiringMap, ManualClock, MissedTick,
    Next, Run, ScheduleError, ScheduleErrorKind, Sleep, Status, StopError, Timeout, Timer,
    delay_channel,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::pending;
use std::mem::take;
use std::ops::ControlFlow;
use std::panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use zoo::clocks::OddClock;
use zoo::executors::{BoxedTask, Fate as Does, executor};
use zoo::values::{Herd, Odd};
use zoo::wakers::{Habits, Task as Awaits, does};

#[test]
fn no_order_of_threads_breaks_a_promise() {
    let first = asked("TICKWHEEL_SIMULATION_FIRST").unwrap_or(0);
    let long = std::env::var_os("TICKWHEEL_LONG").is_some();
    let seeds = asked("TICKWHEEL_SIMULATION_SEEDS").unwrap_or(if long { MANY } else { FEW });
    let (seed, counts) = (Arc::new(AtomicU64::new(first)), Arc::<Counts>::default());
    let scheduler = Seeds::new(first..first + seeds, Arc::clone(&seed));
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(1_000_000);
    config.silence_warnings = true;
    count_panics();
    let counted = Arc::clone(&counts);
    let run = move || Runner::new(scheduler, config).run(move || world(&counted));
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        let seed = seed.load(Relaxed);
        eprintln!("again: TICKWHEEL_SIMULATION_FIRST={seed} TICKWHEEL_SIMULATION_SEEDS=1");
        resume_unwind(panic);
    }
    println!("{seeds} seeds from {first}: {counts:?}");
    let kinds = counts.0.lock().unwrap().len();
    assert!(kinds == KINDS || seeds < FEW, "{kinds} kinds of events");
}

/// Counts panics, also those that a timer catches.
fn count_panics() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Relaxed);
        hook(panic);
    }));
}

static PANICS: AtomicU64 = AtomicU64::new(0);

fn asked(name: &str) -> Option<u64> {
    let asked = std::env::var(name).ok()?;
    Some(asked.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Takes one seed after the other, and decides by it.
struct Seeds {
    next: std::ops::Range<u64>,
    /// The one that is under way.
    seed: Arc<AtomicU64>,
    /// What the threads do.
    draws: Rng,
    /// Which of them goes on.
    order: Rng,
    manner: Manner,
    /// Who is parked goes on now and then without being told: it may, and hides a lost wake-up.
    is_spurious: bool,
}

/// How threads take turns: races of two steps show where threads change often, and those of many
/// where one goes on for long while another stands still.
enum Manner {
    /// Of 64 times a thread goes on so many, and else whichever.
    GoesOn(u64),
    /// The thread with the highest rank goes on. One of 64 times, and if it gives way, it takes the
    /// lowest.
    Ranks(Vec<i64>),
}

impl Seeds {
    fn new(next: std::ops::Range<u64>, seed: Arc<AtomicU64>) -> Self {
        let [draws, order] = [0, 0].map(Rng::with_seed);
        Self { next, seed, draws, order, manner: Manner::GoesOn(0), is_spurious: false }
    }
}

impl Scheduler for Seeds {
    fn new_execution(&mut self) -> Option<Schedule> {
        let seed = self.next.next()?;
        self.seed.store(seed, Relaxed);
        self.draws = Rng::with_seed(seed);
        self.order = self.draws.fork();
        self.manner = match self.order.u64(..4) {
            3 => Manner::Ranks(Vec::new()),
            often => Manner::GoesOn([0, 48, 62][often as usize]),
        };
        self.is_spurious = self.order.u64(..4) == 0;
        Some(Schedule::new(seed))
    }

    fn next_task(
        &mut self,
        tasks: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let is_spurious = self.is_spurious;
        let mut tasks = tasks.iter().filter(|task| is_spurious || task.runnable());
        let gives_way = is_yielding || self.order.u64(..64) == 0;
        let chosen = match &mut self.manner {
            Manner::GoesOn(often) => {
                let goes_on = !is_yielding && self.order.u64(..64) < *often;
                let current = tasks.clone().find(|task| goes_on && Some(task.id()) == current);
                current.or_else(|| tasks.nth(self.order.usize(..tasks.clone().count())))?
            }
            Manner::Ranks(ranks) => {
                let most = tasks.clone().map(|task| usize::from(task.id())).max()?;
                while ranks.len() <= most {
                    ranks.push(self.order.i64(1..));
                }
                if let Some(current) = current.filter(|_| gives_way) {
                    ranks[usize::from(current)] =
                        ranks.iter().fold(0, |low, &rank| low.min(rank)) - 1;
                }
                tasks.max_by_key(|task| ranks[usize::from(task.id())])?
            }
        };
        Some(chosen.id())
    }

    fn next_u64(&mut self) -> u64 {
        self.draws.u64(..)
    }
}

/// A number below `limit`, by the seed.
fn draw(limit: u64) -> u64 {
    thread_rng().next_u64() % limit
}

/// How often each of these was.
#[derive(Debug, Default)]
struct Counts(std::sync::Mutex<BTreeMap<&'static str, u64>>);

impl Counts {
    fn add(&self, what: &'static str) {
        *self.0.lock().unwrap().entry(what).or_default() += 1;
    }
}

/// A few timers, and the calls that threads, jobs and tasks make to them.
struct World {
    timers: Vec<Timed>,
    /// A call may take the last of these.
    map: Mutex<Option<ExpiringMap<u64, Value>>>,
    sender: Mutex<Option<DelaySender<Value>>>,
    receiver: DelayReceiver<Value>,
    /// Somebody awaits its values, also after the end.
    is_awaited: bool,
    log: Arc<Log>,
}

struct Timed {
    timer: Timer,
    /// Its own, or that of the first timer.
    clock: ManualClock,
    has_own_clock: bool,
    /// The driver was dropped.
    is_undriven: Arc<AtomicBool>,
    kind: Kind,
    has_limit: bool,
    /// A `stop` has returned.
    is_over: Arc<AtomicBool>,
    /// Each waited when it was put here, until then at the latest.
    sleeps: Mutex<Vec<(Sleep, Instant, Awaits)>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Worker,
    Driven,
    /// The executor runs each task at once.
    Inline,
    /// A thread runs them, which several timers share.
    Pool,
    /// A thread of its own runs them later, in another order, and drops some.
    Late,
    /// It drops every third.
    Sheds,
    /// It schedules them on the first timer.
    Nests,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Worker,
        Self::Driven,
        Self::Inline,
        Self::Pool,
        Self::Late,
        Self::Sheds,
        Self::Nests,
    ];

    /// Tasks run on the worker.
    fn on_worker(self) -> bool {
        matches!(self, Self::Worker | Self::Driven | Self::Inline | Self::Sheds)
    }
}

/// What outlives the timers. Its locks are std's: no thread switches while it holds one.
struct Log {
    counts: Arc<Counts>,
    timeouts: std::sync::Mutex<Vec<Known>>,
    /// Waits that were begun on a thread that they may need.
    begun: std::sync::Mutex<Vec<Begun>>,
    /// Keys of the channel's values.
    keys: std::sync::Mutex<Vec<DelayKey>>,
    /// How many came back from the `stop` of each timer.
    unfired: [AtomicUsize; 3],
    /// How many say so of those that are not in `timeouts`.
    stopped: [AtomicUsize; 3],
    /// The values of the channel and the map.
    values: Herd,
    ends: Ends,
}

type Known = (Arc<Timeout>, Arc<Fate>);
type Begun =
    (Pin<Box<dyn Future<Output = Result<bool, StopError>> + Send>>, Arc<Timeout>, Arc<Fate>);

/// Tells who waits that something has ended.
#[derive(Default)]
struct Ends {
    lock: Mutex<()>,
    told: Condvar,
}

impl Ends {
    fn tell(&self) {
        drop(self.lock.lock());
        self.told.notify_all();
    }

    fn wait_until(&self, is_so: impl Fn() -> bool) {
        let mut guard = self.lock.lock().unwrap();
        while !is_so() {
            guard = self.told.wait(guard).unwrap();
        }
    }
}

/// What became of a task, which belongs to a timer.
struct Fate {
    timer: usize,
    repeats: bool,
    /// When it may begin.
    earliest: std::sync::Mutex<Instant>,
    moved: AtomicBool,
    cancelled: AtomicBool,
    runs: AtomicBool,
    begun: AtomicUsize,
    dropped: AtomicBool,
}

impl Fate {
    /// Looks at a task that somebody has waited for.
    fn check(&self, timeout: &Timeout) {
        assert!(!self.runs.load(Relaxed), "it runs");
        let is_dropped = self.dropped.load(Relaxed);
        // `stop` gives back what it took out.
        assert!(is_dropped || timeout.status() == Status::Stopped, "it was not dropped");
    }
}

/// Captured by a task: says when it is dropped, after a call.
struct Captured(Arc<Fate>, Calls);

impl Drop for Captured {
    fn drop(&mut self) {
        self.1.call();
        assert!(!self.0.dropped.swap(true, Relaxed), "dropped twice");
        self.1.log.ends.tell();
    }
}

/// Makes a call now and then, where a value is dropped or a task is woken.
#[derive(Clone)]
struct Calls {
    world: Weak<World>,
    log: Arc<Log>,
}

impl Calls {
    fn call(&self) {
        if let Some(is_undriven) = STOPS.with(|stops| stops.borrow().clone()) {
            return self.log.ends.wait_until(|| is_undriven.load(Relaxed));
        }
        parks();
        if HAS_UNFIRED.with(Cell::get) || draw(4) > 0 {
            return thread::yield_now();
        }
        match self.world.upgrade() {
            // It may be the last.
            Some(world) => world.call(Caller::Task(0)),
            // The last is being dropped, and the handles are good nevertheless.
            None => self.log.wait_for_any(),
        }
    }
}

thread_local! {
    /// This thread drops what came back from a `stop`. If another timer's executor put a task
    /// there, who waits for that task here waits for itself, and no timer knows.
    static HAS_UNFIRED: Cell<bool> = Cell::new(false);

    /// This thread stops a timer, whose wakers need the thread that drives it.
    static STOPS: RefCell<Option<Arc<AtomicBool>>> = RefCell::new(None);
}

/// Parks as code does that waits for a message, and takes what was to unpark this thread.
fn parks() {
    thread::current().unpark();
    thread::park();
}

/// A value of the channel or the map.
#[derive(Clone)]
struct Value {
    earliest: Instant,
    _counted: Odd,
    calls: Calls,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.calls.call();
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

/// Runs one world to its end.
fn world(counts: &Arc<Counts>) {
    let log = Arc::new(Log {
        counts: Arc::clone(counts),
        timeouts: Default::default(),
        begun: Default::default(),
        keys: Default::default(),
        unfired: Default::default(),
        stopped: Default::default(),
        values: Herd::default(),
        ends: Ends::default(),
    });
    let (jobs, queue) = mpsc::channel::<BoxedTask>();
    let pool = thread::spawn(move || queue.iter().for_each(|job| job()));
    let (timers, threads) = build(&jobs, &log);
    let expired = Arc::clone(counts);
    let mut map = ExpiringMap::builder().shards(1 + draw(2) as usize);
    // Else the worker drops them.
    if draw(2) == 0 {
        map = map.on_expired(move |_| expired.add("values expired"));
    }
    let map = map.build(&timers[0].timer);
    let (sender, receiver) = delay_channel(&timers[0].timer);
    let awaits: Vec<_> = (0..1 + draw(2)).map(|_| draw(2) == 0).collect();
    let is_awaited = awaits.contains(&true);
    let consumers = awaits.into_iter().map(|awaits| {
        let (clock, counts) = (timers[0].clock.clone(), Arc::clone(counts));
        let receiver = receiver.clone();
        thread::spawn(move || consume(&clock, receiver, awaits, &counts))
    });
    let mut consumers: Vec<_> = consumers.collect();
    // A timer knows the threads of its executor by the tasks that they have run.
    for (number, timed) in timers.iter().enumerate().filter(|(_, timed)| timed.kind == Kind::Pool) {
        timed.run_now(number, &log);
    }
    let (map, sender) = (Mutex::new(Some(map)), Mutex::new(Some(sender)));
    let log_of_world = Arc::clone(&log);
    let world = Arc::new(World { timers, map, sender, receiver, is_awaited, log: log_of_world });
    let callers: Vec<_> = (0..1 + draw(3))
        .map(|_| {
            let world = Arc::clone(&world);
            thread::spawn(move || (0..1 + draw(6)).for_each(|_| world.call(Caller::Thread)))
        })
        .collect();
    let mut ends = Vec::new();
    for _ in 0..draw(4) {
        let (world, is_over) = (Arc::clone(&world), Arc::<AtomicBool>::default());
        let over = Over(Arc::clone(&is_over), Arc::clone(&log));
        ends.push(is_over);
        let job = move || {
            world.call(Caller::Job);
            drop((world, over));
        };
        jobs.send(Box::new(job)).expect("the pool is there");
    }
    join(callers);
    for is_over in ends {
        log.ends.wait_until(|| is_over.load(Relaxed));
    }
    log.finish_begun();
    let stops = match draw(3) {
        0 => {
            world.finish();
            true
        }
        1 => true,
        _ => false,
    };
    if stops {
        (0..world.timers.len()).rev().for_each(|timer| world.stop(timer));
    } else {
        counts.add("worlds dropped");
    }
    drop(world);
    drop(jobs);
    consumers.push(pool);
    join(consumers);
    join(threads);
    log.finish_begun();
    log.check_ends(stops);
    // A worker may have the last of the world.
    for round in 0.. {
        if log.values.alive() == 0 {
            break;
        }
        assert!(round < 10_000, "a value is not dropped");
        thread::yield_now();
    }
    assert_eq!(PANICS.load(Relaxed), 0, "a promise was broken where a timer caught it");
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("no promise was broken there");
    }
}

fn build(jobs: &mpsc::Sender<BoxedTask>, log: &Arc<Log>) -> (Vec<Timed>, Vec<JoinHandle<()>>) {
    let (mut timers, mut threads) = (Vec::<Timed>::new(), Vec::new());
    for number in 0..1 + draw(3) {
        let kind = Kind::ALL[draw(if number == 0 { 6 } else { 7 }) as usize];
        let has_own_clock = number == 0 || draw(4) == 0;
        let clock = if has_own_clock { ManualClock::new() } else { timers[0].clock.clone() };
        let (tells, follows) = (clock.clone(), clock.clone());
        let odd = OddClock::new(move || tells.now())
            .waiting(|_| {
                parks();
                None
            })
            .following(move |timer| follows.follow(timer));
        let mut builder = Timer::builder().clock(odd).shards(1 + draw(2) as usize);
        if draw(4) == 0 {
            builder = builder.mode("hashed:8".parse().expect("a mode"));
        }
        if draw(4) == 0 {
            builder = builder.wakes_together();
        }
        let has_limit = kind != Kind::Pool && draw(8) == 0;
        if has_limit {
            builder = builder.max_pending(LIMIT);
        }
        let leaves = vec![Does::Leaves];
        builder = match kind {
            Kind::Worker | Kind::Driven => builder,
            Kind::Inline => builder.executor(executor(vec![Does::Runs], drop)),
            Kind::Pool => {
                let jobs = jobs.clone();
                builder.executor(executor(leaves, move |task| drop(jobs.send(task))))
            }
            Kind::Late => {
                let (later, queue) = mpsc::channel();
                threads.push(thread::spawn(move || run_later(&queue)));
                builder.executor(executor(leaves, move |task| drop(later.send(task))))
            }
            Kind::Sheds => {
                let fates = vec![Does::Runs, Does::IsShed, Does::Runs];
                builder.executor(executor(fates, drop))
            }
            Kind::Nests => {
                let outer = timers[0].timer.clone();
                let nests = move |task| drop(outer.schedule(Duration::ZERO, task));
                builder.executor(executor(leaves, nests))
            }
        };
        let is_undriven = Arc::<AtomicBool>::default();
        let timer = if kind == Kind::Driven {
            let (timer, driver) = builder.build_driven().expect("in range");
            // What it drops does not come back from a `stop`, which is looked at for the others.
            let goes = number == 0 && draw(4) == 0;
            let (clock, over) = (clock.clone(), Over(Arc::clone(&is_undriven), Arc::clone(log)));
            threads.push(thread::spawn(move || {
                drive(driver, &clock, goes);
                drop(over);
            }));
            timer
        } else {
            builder.build().expect("in range")
        };
        let (is_over, sleeps) = (Arc::default(), Mutex::default());
        timers.push(Timed {
            timer,
            clock,
            has_own_clock,
            is_undriven,
            kind,
            has_limit,
            is_over,
            sleeps,
        });
    }
    (timers, threads)
}

/// Runs what was sent in any order, and drops some of it.
fn run_later(queue: &mpsc::Receiver<BoxedTask>) {
    let mut kept = Vec::new();
    while let Ok(task) = queue.recv() {
        kept.push(task);
        while !kept.is_empty() {
            kept.extend(queue.try_iter());
            let task = kept.swap_remove(draw(kept.len() as u64) as usize);
            if draw(8) == 0 { drop(task) } else { task() }
        }
    }
}

/// Drops what was refused, and says why it was.
fn refused<F>(error: ScheduleError<F>) -> ScheduleErrorKind {
    let kind = error.kind();
    drop(error);
    kind
}

/// Turns a driver until its timer is stopped, or drops it before.
fn drive(mut driver: Driver, clock: &ManualClock, goes: bool) {
    if !goes && draw(2) == 0 {
        return block_on(driver.run(|_| pending::<()>()));
    }
    let told = Arc::new((Mutex::new(false), Condvar::new()));
    let tells = Arc::clone(&told);
    driver.on_wake(move |_| {
        parks();
        *tells.0.lock().unwrap() = true;
        tells.1.notify_all();
    });
    while !(driver.is_stopped() || goes && draw(8) == 0) {
        if driver.turn().is_some_and(|next| next <= clock.now()) {
            continue;
        }
        let mut is_told = told.0.lock().unwrap();
        while !*is_told && !driver.is_stopped() {
            is_told = told.1.wait(is_told).unwrap();
        }
        *is_told = false;
    }
}

/// Blocks for each value of the channel, or awaits it.
fn consume(clock: &ManualClock, mut receiver: DelayReceiver<Value>, awaits: bool, counts: &Counts) {
    loop {
        match if awaits { Some(block_on(receiver.next_due())) } else { receiver.recv() } {
            Some(Ok(due)) => {
                counts.add("values received");
                assert!(due.value.earliest <= clock.now(), "a value is early");
            }
            Some(Err(_)) => break counts.add("receivers that failed"),
            None => break,
        }
    }
}

impl World {
    /// Makes a call.
    fn call(self: &Arc<Self>, caller: Caller) {
        let (log, counts) = (&self.log, &self.log.counts);
        counts.add("calls");
        let timer = draw(self.timers.len() as u64) as usize;
        let Timed { timer: on, .. } = &self.timers[timer];
        let chosen = log.any();
        let delay = MILLI * draw(6) as u32;
        match (draw(100), chosen) {
            (..6, _) if caller == Caller::Thread => self.timers[timer].run_now(timer, log),
            (..30, _) | (_, None) => self.schedule(timer, delay, caller),
            (30..35, _) => self.sleep(timer, delay),
            (35..41, _) => self.send(delay),
            (41..47, _) => self.use_map(delay),
            (47..59, Some((timeout, fate))) => {
                if timeout.cancel() {
                    counts.add("cancelled");
                    assert!(fate.repeats || fate.dropped.load(Relaxed), "it was not dropped");
                    // A run of a repeating one may have begun.
                    fate.cancelled.fetch_or(!fate.repeats, Relaxed);
                }
            }
            (59..65, Some((timeout, fate))) => {
                fate.moved.store(true, Relaxed);
                let until = self.timers[fate.timer].clock.now() + delay;
                {
                    let mut earliest = fate.earliest.lock().unwrap();
                    *earliest = until.min(*earliest);
                }
                if timeout.reschedule(delay) {
                    counts.add("moved");
                }
            }
            (65..75, Some(_)) => log.wait_for_any(),
            (75..82, Some((timeout, fate))) => {
                let waits = Arc::clone(&timeout);
                let mut waits = Box::pin(async move { waits.cancel_and_wait_async().await });
                match caller {
                    Caller::Thread => log.awaited(block_on(waits), &timeout, &fate),
                    // The task may need this thread, so this thread does not block.
                    _ => {
                        match waits.as_mut().poll(&mut Context::from_waker(&self.awaits().waker()))
                        {
                            Poll::Ready(end) => log.awaited(end, &timeout, &fate),
                            Poll::Pending => log.begun.lock().unwrap().push((waits, timeout, fate)),
                        }
                    }
                }
            }
            (82..90, _) => self.advance(timer, delay, caller == Caller::Thread),
            (90, _) => assert!(!self.timers[timer].has_limit || on.pending() <= LIMIT),
            (91, _) => drop(on.next_deadline()),
            (92, _) => drop(on.stats()),
            (93, _) => on.shrink_to_fit(),
            (94, Some((timeout, _))) => drop(Timeout::clone(&timeout)),
            (98.., _) => self.stop(timer),
            _ => drop(on.clone()),
        }
    }

    fn schedule(self: &Arc<Self>, timer: usize, delay: Duration, caller: Caller) {
        let depth = match caller {
            Caller::Task(0) => return,
            Caller::Task(depth) => depth - 1,
            _ => 2,
        };
        let Timed { timer: on, clock, kind, is_over, has_limit, .. } = &self.timers[timer];
        let repeats = draw(4) == 0;
        let fate = Arc::new(Fate {
            timer,
            repeats,
            earliest: std::sync::Mutex::new(clock.now() + delay),
            moved: AtomicBool::default(),
            cancelled: AtomicBool::default(),
            runs: AtomicBool::default(),
            begun: AtomicUsize::default(),
            dropped: AtomicBool::default(),
        });
        let captured = Captured(Arc::clone(&fate), self.calls());
        let (on_worker, is_over) = (kind.on_worker(), Arc::clone(is_over));
        let clock = clock.clone();
        let run = move || {
            let Captured(fate, Calls { world, log }) = &captured;
            let now = clock.now();
            let is_early = now < *fate.earliest.lock().unwrap();
            assert!(fate.begun.fetch_add(1, Relaxed) > 0 || !is_early, "it is early");
            assert!(!fate.cancelled.load(Relaxed), "it begins after it was cancelled");
            assert!(!on_worker || !is_over.load(Relaxed), "it begins after a stop");
            assert!(!fate.runs.swap(true, Relaxed), "it runs twice at once");
            log.counts.add("runs");
            for _ in 0..draw(3) {
                if let Some(world) = world.upgrade() {
                    world.call(Caller::Task(depth));
                }
            }
            fate.runs.store(false, Relaxed);
        };
        let period = delay.max(MILLI);
        let scheduled = match (repeats, draw(3)) {
            (false, 0) => {
                let latest = delay + MILLI * draw(3) as u32;
                on.schedule_within(delay..=latest, run).map_err(refused)
            }
            (false, _) => on.schedule(delay, run).map_err(refused),
            (true, 0) => {
                let task = move |times: &Run| {
                    run();
                    if times.count() < 3 { Next::After(period) } else { Next::Stop }
                };
                on.schedule_with(delay, task).map_err(refused)
            }
            (true, missed) => {
                let missed = [MissedTick::Burst, MissedTick::Skip][missed as usize - 1];
                let mut left = 3;
                let task = move || {
                    run();
                    left -= 1;
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                };
                on.schedule_repeating(period, missed, task).map_err(refused)
            }
        };
        match scheduled {
            Ok(timeout) => self.log.timeouts.lock().unwrap().push((Arc::new(timeout), fate)),
            Err(kind) => {
                let full = ScheduleErrorKind::Full;
                assert!(kind == ScheduleErrorKind::Stopped || *has_limit && kind == full);
                assert!(fate.dropped.load(Relaxed), "what is refused comes back");
                self.log.counts.add("rejected");
            }
        }
    }

    /// Sleeps once more, or looks whether a sleep is over, moves it or drops it.
    fn sleep(self: &Arc<Self>, timer: usize, delay: Duration) {
        let Timed { timer: on, clock, sleeps, .. } = &self.timers[timer];
        let until = clock.now() + delay;
        let last = if draw(2) == 0 { sleeps.lock().unwrap().pop() } else { None };
        let mut sleep = match last {
            Some((sleep, ..)) if draw(2) == 0 => return drop(sleep),
            Some((mut sleep, ..)) => {
                sleep.reset(delay);
                sleep
            }
            None => on.sleep(delay),
        };
        let task = self.awaits();
        match Pin::new(&mut sleep).poll(&mut Context::from_waker(&task.waker())) {
            Poll::Pending => {
                // The clock may have moved since the sleep began.
                let latest = clock.now() + delay;
                sleeps.lock().unwrap().push((sleep, latest, task));
            }
            Poll::Ready(Ok(())) => {
                self.log.counts.add("sleeps");
                assert!(until <= clock.now(), "a sleep is short");
            }
            Poll::Ready(Err(_)) => self.log.counts.add("sleeps that failed"),
        }
    }

    fn value(self: &Arc<Self>, delay: Duration) -> Value {
        let earliest = self.timers[0].clock.now() + delay;
        Value { earliest, _counted: self.log.values.make(0), calls: self.calls() }
    }

    fn send(self: &Arc<Self>, delay: Duration) {
        let sender = some(&self.sender);
        let mut keys = self.log.keys.lock().unwrap();
        let key = match keys.len() as u64 {
            0 => None,
            keys_left if draw(2) == 0 => Some(keys.swap_remove(draw(keys_left) as usize)),
            _ => None,
        };
        drop(keys);
        match key {
            Some(key) => drop(sender.map(|sender| sender.remove(key))),
            None => {
                let value = self.value(delay);
                let is_over = self.timers[0].is_over.load(Relaxed);
                let sent = match sender {
                    Some(sender) => sender.insert(value, delay),
                    None => self.receiver.insert(value, delay),
                };
                if let Ok(key) = sent {
                    assert!(!is_over, "nothing is taken after a stop");
                    self.log.keys.lock().unwrap().push(key);
                }
            }
        }
    }

    fn use_map(self: &Arc<Self>, delay: Duration) {
        let (key, Some(map)) = (draw(2), some(&self.map)) else { return };
        match draw(6) {
            0 => drop(map.remove(&key)),
            1 => drop(map.get(&key)),
            2 => drop(map.reset(&key, delay)),
            3 => drop(map.touch(&key)),
            _ => {
                let value = self.value(delay);
                drop(map.insert(key, value, delay));
            }
        }
    }

    /// Returns the timer whose clock another goes by.
    fn clock_of(&self, timer: usize) -> usize {
        if self.timers[timer].has_own_clock { timer } else { 0 }
    }

    /// Moves a clock. Outside of tasks, what was due by then has fired.
    fn advance(&self, timer: usize, duration: Duration, is_outside: bool) {
        let (known, clock) = (self.log.known(), &self.timers[timer].clock);
        let until = clock.now() + duration;
        if draw(2) == 0 {
            clock.advance(duration)
        } else {
            clock.jump(duration)
        }
        for (timeout, fate) in known.iter().filter(|_| is_outside) {
            let Timed { timer: on, kind, .. } = &self.timers[fate.timer];
            let is_other = self.clock_of(fate.timer) != self.clock_of(timer);
            if is_other || fate.repeats || fate.moved.load(Relaxed) || *kind == Kind::Driven {
                continue;
            }
            let is_due = timeout.deadline().is_some_and(|deadline| deadline <= until);
            let is_late = is_due && timeout.status() == Status::Pending;
            assert!(!is_late || on.is_stopped(), "it is late");
        }
    }

    /// Lets time pass until all that is pending has come to its end.
    fn finish(&self) {
        let is_left = |(timeout, fate): &Known| {
            // Whose executor drops its runs comes to no end.
            let is_endless = fate.repeats && self.timers[fate.timer].kind == Kind::Nests;
            let is_over = timeout.status() != Status::Pending && fate.dropped.load(Relaxed);
            !is_endless && !is_over
        };
        for round in 0.. {
            self.pass();
            let known = self.log.known();
            // One that has ended may have scheduled another meanwhile.
            if !known.iter().any(is_left) && known.len() == self.log.known().len() {
                break;
            }
            assert!(round < 10_000, "a timeout comes to no end");
            thread::yield_now();
        }
        // The last of them may have begun to sleep. Those without an end may still do so.
        self.pass();
        for timed in self.timers.iter().filter(|timed| timed.kind != Kind::Driven) {
            let now = timed.clock.now();
            for (_, until, task) in &*timed.sleeps.lock().unwrap() {
                assert!(task.is_woken() || now <= *until, "a sleep was not woken");
            }
        }
        // Channel and map wait on the first, and what comes to no end may call any.
        if self.timers.iter().all(|timed| timed.kind != Kind::Nests) {
            let (first, is_open) = (&self.timers[0], self.sender.lock().unwrap().is_some());
            let is_taken = || self.receiver.is_empty() || first.timer.is_stopped();
            for round in 0.. {
                if first.has_limit || !(self.is_awaited || is_open) || is_taken() {
                    break;
                }
                assert!(round < 1_000, "a value is not received");
                self.pass();
                thread::yield_now();
            }
            let timers = self.timers.iter().enumerate().skip(1);
            for (number, timed) in timers.filter(|(_, timed)| timed.has_limit) {
                let (mut taken, mut rounds) = (0, 0);
                while taken < LIMIT && !timed.timer.is_stopped() {
                    match timed.timer.schedule(Duration::from_secs(3_600), || {}) {
                        Ok(_) => taken += 1,
                        // A waker on a driver may be about to find that its place is not needed.
                        Err(_) => thread::yield_now(),
                    }
                    rounds += 1;
                    assert!(rounds < 10_000, "a place is not free again");
                }
                self.log.stopped[number].fetch_add(taken, Relaxed);
            }
        }
    }

    fn pass(&self) {
        for timed in self.timers.iter().filter(|timed| timed.has_own_clock) {
            timed.clock.advance(WHILE);
        }
    }

    /// Stops a timer, if this thread may, and looks whether it is as the page says.
    fn stop(&self, timer: usize) {
        let (Timed { timer: on, kind, is_over, is_undriven, sleeps, .. }, log) =
            (&self.timers[timer], &self.log);
        let needs_driver = *kind == Kind::Driven && draw(2) == 0;
        let stops = needs_driver.then(|| Arc::clone(is_undriven));
        let before = STOPS.with(|it| it.replace(stops));
        let stopped = on.stop();
        STOPS.with(|it| it.replace(before));
        let Ok(unfired) = stopped else { return log.counts.add("not stopped") };
        log.counts.add("stopped");
        is_over.store(true, Relaxed);
        log.unfired[timer].fetch_add(unfired.len(), Relaxed);
        unfired.iter().for_each(|_| log.counts.add("came back"));
        let is_first = !unfired.is_empty();
        HAS_UNFIRED.with(|has| has.set(true));
        drop(unfired);
        HAS_UNFIRED.with(|has| has.set(false));
        assert_eq!(on.pending(), 0);
        let sleeps = take(&mut *sleeps.lock().unwrap());
        for (mut sleep, _, task) in sleeps {
            assert!(task.is_woken(), "a sleep was not woken");
            let waker = Waker::noop();
            let end = Pin::new(&mut sleep).poll(&mut Context::from_waker(waker));
            assert!(end.is_ready(), "a sleep does not end");
        }
        for (timeout, fate) in log.known().iter().filter(|(_, fate)| fate.timer == timer) {
            let status = timeout.status();
            assert_ne!(status, Status::Pending, "it has no end");
            assert!(!kind.on_worker() || !fate.runs.load(Relaxed), "it runs on the worker");
            let came_back = is_first && status == Status::Stopped;
            assert!(!came_back || fate.dropped.load(Relaxed), "it has not come back");
        }
    }

    fn calls(self: &Arc<Self>) -> Calls {
        Calls { world: Arc::downgrade(self), log: Arc::clone(&self.log) }
    }

    /// What awaits something: its waker calls now and then.
    fn awaits(self: &Arc<Self>) -> Awaits {
        let calls = self.calls();
        Awaits::with(Habits { wake: does(move || calls.call()), ..Habits::default() })
    }
}

impl Timed {
    /// Schedules what is due, and waits until it is over. No clock moves meanwhile, so the worker
    /// has to be told.
    fn run_now(&self, number: usize, log: &Arc<Log>) {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Over(Arc::clone(&is_over), Arc::clone(log));
        if let Ok(timeout) = self.timer.schedule(Duration::ZERO, move || drop(over)) {
            log.ends.wait_until(|| is_over.load(Relaxed));
            log.counts.add("over at once");
            let is_stopped = timeout.status() == Status::Stopped;
            log.stopped[number].fetch_add(is_stopped.into(), Relaxed);
        }
    }
}

/// Returns what calls share while it is there, and seldom the last of it.
fn some<T: Clone>(shared: &Mutex<Option<T>>) -> Option<T> {
    let mut shared = shared.lock().unwrap();
    if draw(16) == 0 { shared.take() } else { shared.clone() }
}

/// Says that it was dropped.
struct Over(Arc<AtomicBool>, Arc<Log>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
        self.1.ends.tell();
    }
}

impl Log {
    /// All timeouts, with what became of their tasks.
    fn known(&self) -> Vec<Known> {
        self.timeouts.lock().unwrap().clone()
    }

    /// One of them.
    fn any(&self) -> Option<Known> {
        let timeouts = self.timeouts.lock().unwrap();
        timeouts.get(draw(timeouts.len().max(1) as u64) as usize).cloned()
    }

    fn wait_for_any(&self) {
        let Some((timeout, fate)) = self.any() else { return };
        match timeout.cancel_and_wait() {
            Ok(_) => {
                self.counts.add("waited");
                fate.check(&timeout);
                fate.cancelled.store(true, Relaxed);
            }
            Err(_) => self.counts.add("refused"),
        }
    }

    fn awaited(&self, end: Result<bool, StopError>, timeout: &Timeout, fate: &Fate) {
        match end {
            Ok(_) => {
                self.counts.add("awaited");
                fate.check(timeout);
                fate.cancelled.store(true, Relaxed);
            }
            Err(_) => self.counts.add("not awaited"),
        }
    }

    /// Waits for the ends of waits that threads of executors have begun. Every other one is given
    /// up.
    fn finish_begun(&self) {
        let begun = take(&mut *self.begun.lock().unwrap());
        for (waits, timeout, fate) in begun.into_iter().step_by(2) {
            self.awaited(block_on(waits), &timeout, &fate);
        }
    }

    /// Looks at the ends when all is over.
    fn check_ends(&self, all_stopped: bool) {
        let mut stopped = self.stopped.each_ref().map(|count| count.load(Relaxed));
        for (timeout, fate) in self.known() {
            // Who dropped a last clone inside of a task did not wait.
            self.ends.wait_until(|| fate.dropped.load(Relaxed));
            let (status, begun) = (timeout.status(), fate.begun.load(Relaxed));
            assert!(!fate.runs.load(Relaxed), "{status:?}");
            match status {
                Status::Cancelled | Status::Stopped => assert!(fate.repeats || begun == 0),
                // One that is shed has fired.
                Status::Fired => assert!(begun <= if fate.repeats { 3 } else { 1 }),
                status => panic!("{status:?}"),
            }
            stopped[fate.timer] += usize::from(status == Status::Stopped);
        }
        let unfired = self.unfired.each_ref().map(|count| count.load(Relaxed));
        // What came back from the first has tasks of those that nest, too.
        for timer in (1..stopped.len()).filter(|_| all_stopped) {
            assert_eq!(stopped[timer], unfired[timer], "stopped, and came back");
        }
    }
}

/// The seeds that are taken, and if tests are long.
const FEW: u64 = 1_000;
const MANY: u64 = 50_000;

const MILLI: Duration = Duration::from_millis(1);

/// Longer than any delay. A repeating timeout without an end may fire at each tick of it.
const WHILE: Duration = Duration::from_millis(50);

/// How many kinds of events there are, so that none stays away unseen.
const KINDS: usize = 19;

/// The most timeouts of a timer with a limit.
const LIMIT: usize = 3;
