//! How should threads hand a timeout over? Schedule and cancel, by one thread and by two.
//!
//! Each thread keeps 1,000 timeouts of 30 s, and cancels the oldest for each new one: what a server
//! does that gets its replies in time. The subjects:
//!
//! - ours, also in a program that has other threads;
//! - the design of Netty's `HashedWheelTimer`: one lock-free queue to the worker for what is new and
//!   one for what was cancelled, which a worker empties once a tick;
//! - one wheel behind one lock;
//! - tokio's `Sleep`: created, polled once, dropped.
//!
//! `cargo bench --bench timer`, with `-- --quick` for a look at whether it works. It is not a
//! criterion benchmark, as the figures that matter are ratios between subjects with threads of their
//! own: they take turns within each repetition, so that whatever else the machine does hits all of
//! them, and the median of the repetitions counts.

mod report;

use cpu_time::ProcessTime;
use crossbeam_queue::SegQueue;
use report::{Goal, goal, is_quick, rounded, table};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tickwheel::{Key, Mode, Timeout, Timer, Wheel};
use tokio::runtime::{self, Runtime};
use tokio::task::unconstrained;
use tokio::time::{Sleep, sleep};

const DELAY: Duration = Duration::from_secs(30);
const LIVE: usize = 1_000;
const TICK: Duration = Duration::from_millis(1);

type Task = Box<dyn FnOnce() + Send>;

/// It captures something, as tasks do.
fn task(number: usize) -> impl FnOnce() + Send + 'static {
    move || _ = black_box(number)
}

/// Something that many threads give timeouts to.
trait Subject: Sync {
    type Timeout;

    fn schedule(&self, number: usize) -> Self::Timeout;
    fn cancel(&self, timeout: Self::Timeout);

    fn replace(&self, oldest: &mut Self::Timeout, number: usize) {
        let new = self.schedule(number);
        self.cancel(std::mem::replace(oldest, new));
    }

    /// Runs what a thread of the benchmark does.
    fn on_thread(&self, run: impl FnOnce()) {
        run();
    }

    /// Timeouts handed over that the worker has not seen yet.
    fn backlog(&self) -> usize {
        0
    }
}

struct Ours(Timer);

impl Ours {
    fn new() -> Self {
        Self(Timer::builder().tick(TICK).build().expect("a valid tick"))
    }
}

impl Subject for Ours {
    type Timeout = Timeout;

    fn schedule(&self, number: usize) -> Timeout {
        self.0.schedule(DELAY, task(number)).expect("it runs, and has no limit")
    }

    fn cancel(&self, timeout: Timeout) {
        assert!(timeout.cancel());
    }
}

/// Ours in a program that has other threads: after each of the benchmark's begins one that schedules
/// once and is gone. If threads take turns with the shards, those that matter may meet at one.
struct AmongOthers {
    ours: Ours,
    turn: Mutex<()>,
}

impl AmongOthers {
    fn new() -> Self {
        Self { ours: Ours::new(), turn: Mutex::new(()) }
    }
}

impl Subject for AmongOthers {
    type Timeout = Timeout;

    fn schedule(&self, number: usize) -> Timeout {
        self.ours.schedule(number)
    }

    fn cancel(&self, timeout: Timeout) {
        self.ours.cancel(timeout);
    }

    fn on_thread(&self, run: impl FnOnce()) {
        let once = || self.cancel(self.schedule(0));
        let turn = self.turn.lock().expect("no panics");
        once();
        thread::scope(|scope| scope.spawn(once).join().expect("no panics"));
        drop(turn);
        run();
    }
}

/// A thread that does something once a tick, as Netty's worker does.
struct Worker {
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn new(start: Instant, mut at_tick: impl FnMut(u64) + Send + 'static) -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let stops = stops.clone();
            move || {
                while !stops.load(Ordering::Relaxed) {
                    let now = ticks(start.elapsed());
                    at_tick(now);
                    let next = TICK * u32::try_from(now + 1).expect("a run of less than 49 days");
                    thread::sleep(next.saturating_sub(start.elapsed()));
                }
            }
        });
        Self { stops, thread: Some(thread) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a worker does not panic");
        }
    }
}

/// Of a length, the whole ticks.
fn ticks(length: Duration) -> u64 {
    (length.as_nanos() / TICK.as_nanos()) as u64
}

/// Callers never meet the worker, and pay with a timeout that is shared with it: an `Arc` with an
/// atomic state, and two trips through a queue.
struct Queues {
    start: Instant,
    handed_over: Arc<HandedOver>,
    _worker: Worker,
}

#[derive(Default)]
struct HandedOver {
    new: SegQueue<Arc<Queued>>,
    cancelled: SegQueue<Arc<Queued>>,
    /// Netty counts as well: neither the queues nor the wheel know what is pending.
    pending: AtomicUsize,
}

struct Queued {
    deadline: u64,
    state: AtomicU8,
    /// Where the worker has put it. Nobody else looks.
    key: OnceLock<Key>,
    task: Mutex<Option<Task>>,
}

const PENDING: u8 = 0;
const CANCELLED: u8 = 1;
const FIRED: u8 = 2;

impl Queued {
    fn ends(&self, state: u8) -> bool {
        self.state.compare_exchange(PENDING, state, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl Queues {
    /// Netty's number, so that a tick does not take for ever.
    const MOST_A_TICK: usize = 100_000;

    fn new() -> Self {
        let start = Instant::now();
        let handed_over = Arc::new(HandedOver::default());
        let mut wheel = Wheel::<Arc<Queued>>::new(Mode::hierarchical());
        let worker = Worker::new(start, {
            let handed_over = handed_over.clone();
            move |now| {
                let HandedOver { new, cancelled, pending } = &*handed_over;
                while let Some(timeout) = cancelled.pop() {
                    pending.fetch_sub(1, Ordering::Relaxed);
                    // One without a key is still in the other queue.
                    timeout.key.get().map(|&key| wheel.cancel(key));
                }
                for timeout in std::iter::from_fn(|| new.pop()).take(Self::MOST_A_TICK) {
                    if timeout.state.load(Ordering::Acquire) == PENDING {
                        let key = wheel.schedule(timeout.deadline, timeout.clone());
                        timeout.key.set(key).expect("it is scheduled once");
                    }
                }
                while let Some(expired) = wheel.expire(now) {
                    if expired.value.ends(FIRED) {
                        pending.fetch_sub(1, Ordering::Relaxed);
                        let task = expired.value.task.lock().expect("no panics").take();
                        task.expect("it is taken once")();
                    }
                }
            }
        });
        Self { start, handed_over, _worker: worker }
    }
}

impl Subject for Queues {
    type Timeout = Arc<Queued>;

    fn schedule(&self, number: usize) -> Arc<Queued> {
        let timeout = Arc::new(Queued {
            deadline: ticks(self.start.elapsed() + DELAY) + 1,
            state: AtomicU8::new(PENDING),
            key: OnceLock::new(),
            task: Mutex::new(Some(Box::new(task(number)))),
        });
        self.handed_over.pending.fetch_add(1, Ordering::Relaxed);
        self.handed_over.new.push(timeout.clone());
        timeout
    }

    fn cancel(&self, timeout: Arc<Queued>) {
        assert!(timeout.ends(CANCELLED));
        self.handed_over.cancelled.push(timeout);
    }

    fn backlog(&self) -> usize {
        self.handed_over.new.len()
    }
}

/// The least that could work.
struct OneLock {
    start: Instant,
    wheel: Arc<Mutex<Wheel<Task>>>,
    _worker: Worker,
}

impl OneLock {
    fn new() -> Self {
        let start = Instant::now();
        let wheel = Arc::new(Mutex::new(Wheel::<Task>::new(Mode::hierarchical())));
        let worker = Worker::new(start, {
            let wheel = wheel.clone();
            move |now| {
                loop {
                    let expired = wheel.lock().expect("no panics").expire(now);
                    let Some(expired) = expired else { break };
                    (expired.value)();
                }
            }
        });
        Self { start, wheel, _worker: worker }
    }
}

impl Subject for OneLock {
    type Timeout = Key;

    fn schedule(&self, number: usize) -> Key {
        let task = Box::new(task(number));
        let deadline = ticks(self.start.elapsed() + DELAY) + 1;
        self.wheel.lock().expect("no panics").schedule(deadline, task)
    }

    fn cancel(&self, timeout: Key) {
        let task = self.wheel.lock().expect("no panics").cancel(timeout);
        assert!(task.is_some());
    }
}

/// A runtime of tokio's, whose timer the threads of the benchmark share: each runs a task, and polls
/// with its waker. They keep their timeouts in place, so that it need not allocate.
struct Tokio(Runtime);

thread_local! {
    static WAKER: RefCell<Waker> = RefCell::new(Waker::noop().clone());
}

impl Tokio {
    fn new() -> Self {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build();
        Self(runtime.expect("a runtime"))
    }
}

fn poll_once(sleep: Pin<&mut Sleep>) {
    WAKER.with_borrow(|waker| {
        assert!(sleep.poll(&mut Context::from_waker(waker)).is_pending());
    });
}

impl Subject for Tokio {
    type Timeout = Pin<Box<Sleep>>;

    fn schedule(&self, _: usize) -> Pin<Box<Sleep>> {
        let mut timeout = Box::pin(sleep(DELAY));
        poll_once(timeout.as_mut());
        timeout
    }

    fn cancel(&self, timeout: Pin<Box<Sleep>>) {
        drop(timeout);
    }

    fn replace(&self, oldest: &mut Pin<Box<Sleep>>, _: usize) {
        oldest.as_mut().set(sleep(DELAY));
        poll_once(oldest.as_mut());
    }

    fn on_thread(&self, run: impl FnOnce()) {
        let mut run = Some(run);
        // Otherwise it would be told to give way after 128 polls.
        self.0.block_on(unconstrained(poll_fn(|context| {
            WAKER.set(context.waker().clone());
            run.take().expect("it is polled once")();
            Poll::Ready(())
        })));
    }
}

#[derive(Clone, Copy)]
struct Run {
    /// Operations of all threads in a second; one is a schedule and a cancel.
    throughput: f64,
    backlog: usize,
    /// Processors that it kept busy.
    processors: f64,
}

fn measure(subject: &impl Subject, threads: usize, length: Duration) -> Run {
    let barrier = Barrier::new(threads);
    let (start, cpu) = (Instant::now(), ProcessTime::now());
    let throughput = thread::scope(|scope| {
        let throughputs: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut throughput = 0.0;
                    subject.on_thread(|| {
                        let mut live: Vec<_> = (0..LIVE).map(|n| subject.schedule(n)).collect();
                        barrier.wait();
                        // Past the first page faults, and for as long as another thread may still
                        // be about to start.
                        replace_for(subject, &mut live, length / 10);
                        throughput = replace_for(subject, &mut live, length);
                        // The others are to be measured with all threads at work.
                        replace_for(subject, &mut live, length / 10);
                        live.into_iter().for_each(|timeout| subject.cancel(timeout));
                    });
                    throughput
                })
            })
            .collect();
        throughputs.into_iter().map(|thread| thread.join().expect("no panics")).sum()
    });
    let processors = cpu.elapsed().as_secs_f64() / start.elapsed().as_secs_f64();
    Run { throughput, backlog: subject.backlog(), processors }
}

/// Returns the operations in a second.
fn replace_for<S: Subject>(subject: &S, live: &mut [S::Timeout], length: Duration) -> f64 {
    let start = Instant::now();
    let mut operations = 0;
    loop {
        for (number, oldest) in live.iter_mut().enumerate() {
            subject.replace(oldest, number);
        }
        operations += live.len();
        let elapsed = start.elapsed();
        if elapsed >= length {
            return operations as f64 / elapsed.as_secs_f64();
        }
    }
}

const OURS: &str = "tickwheel";
const AMONG_OTHERS: &str = "tickwheel, other threads too";
const QUEUES: &str = "two queues to the worker";
const ONE_LOCK: &str = "one lock, one wheel";
const TOKIO: &str = "tokio's Sleep";

fn main() {
    let (repetitions, length) = match is_quick() {
        true => (1, Duration::from_millis(50)),
        false => (9, Duration::from_millis(300)),
    };
    let mut runs = BTreeMap::<_, Vec<Run>>::new();
    for _ in 0..repetitions {
        for threads in [1, 2] {
            let mut add = |name, run| runs.entry((name, threads)).or_default().push(run);
            // New ones each time: what a queue has left over is not to slow the next run.
            add(OURS, measure(&Ours::new(), threads, length));
            add(AMONG_OTHERS, measure(&AmongOthers::new(), threads, length));
            add(QUEUES, measure(&Queues::new(), threads, length));
            add(ONE_LOCK, measure(&OneLock::new(), threads, length));
            add(TOKIO, measure(&Tokio::new(), threads, length));
        }
    }
    let median_of = |name, threads, figure: fn(&Run) -> f64| {
        let mut figures: Vec<_> = runs[&(name, threads)].iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let median = |name, threads| median_of(name, threads, |run| run.throughput);

    println!(
        "Schedule and cancel of timeouts of 30 s, {LIVE} live a thread; median of {repetitions}"
    );
    let mut table = table([
        "",
        "1 thread, ns",
        "2 threads, ns a thread",
        "1 thread, M/s",
        "2 threads, M/s",
        "2 against 1",
        "left in the queue",
    ]);
    for name in [OURS, AMONG_OTHERS, QUEUES, ONE_LOCK, TOKIO] {
        let (one, two) = (median(name, 1), median(name, 2));
        let backlog = runs[&(name, 2)].iter().map(|run| run.backlog).max();
        table.add_row([
            name.to_owned(),
            rounded(1e9 / one).to_string(),
            rounded(2e9 / two).to_string(),
            rounded(one / 1e6).to_string(),
            rounded(two / 1e6).to_string(),
            rounded(two / one).to_string(),
            backlog.unwrap_or(0).to_string(),
        ]);
    }
    println!("{table}");
    if median_of(OURS, 2, |run| run.processors) < 1.9 {
        println!(
            "Two threads did not have two processors: the machine was busy, and this is void."
        );
    }
    let ours = median(OURS, 2);
    goal("throughput, 2 threads against 1", ours / median(OURS, 1), Goal::AtLeast(1.8));
    let among_others = median(AMONG_OTHERS, 2) / median(AMONG_OTHERS, 1);
    goal("the same, other threads too", among_others, Goal::AtLeast(1.8));
    goal("throughput at 2 threads against tokio", ours / median(TOKIO, 2), Goal::AtLeast(8.0));
    goal("throughput at 2 threads against queues", ours / median(QUEUES, 2), Goal::AtLeast(4.0));
}
