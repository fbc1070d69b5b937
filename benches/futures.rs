//! Futures against tokio's, the delay queue against tokio-util's, in one run.
//!
//! `cargo bench --bench futures` runs all; `-- timeout`, `-- crowd` or `-- queue` a part,
//! `-- --quick` smaller ones. Where there is a goal, it is printed with what became of it.
//!
//! Timeouts, crowds and queues take turns with what they are compared with, three or five times, and
//! the least time of each counts: what else the machine does can only add to it.

mod report;

use cap::Cap;
use cpu_time::ProcessTime;
use fastrand::Rng;
use report::is_asked_for;
use std::alloc::System;
use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tickwheel::{DelayQueue, Timer};
use tokio::runtime::{Builder, Runtime};

/// Counts what is allocated.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

fn main() {
    let is_quick = report::is_quick();
    if is_asked_for("timeout") {
        resets(if is_quick { 50_000 } else { 1_000_000 });
        timeouts(if is_quick { 50_000 } else { 1_000_000 });
    }
    if is_asked_for("crowd") {
        let (tasks, seconds) = if is_quick { (20_000, 2) } else { (1_000_000, 10) };
        crowds(tasks, Duration::from_secs(seconds));
    }
    if is_asked_for("queue") {
        let sizes: &[usize] = if is_quick { &[100_000] } else { &[100_000, 1_000_000] };
        for &size in sizes {
            queues(size);
        }
    }
}

/// The nanoseconds of each of so many.
fn each(count: usize, mut run: impl FnMut()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_nanos() as f64 / count as f64
}

/// A row: ours, theirs, the ratio, and what becomes of its goal.
fn compare(name: &str, ours: f64, theirs: f64, goal: Option<f64>) {
    let ratio = ours / theirs;
    print!("{name:<32} {ours:>10.1} {theirs:>10.1} {ratio:>8.3}");
    match goal {
        Some(goal) if ratio <= goal => println!("   at most {goal}: met"),
        Some(goal) => println!("   at most {goal}: MISSED"),
        None => println!(),
    }
}

fn head(what: &str, theirs: &str) {
    println!("\n{what}\n{:<32} {:>10} {theirs:>10} {:>8}", "", "tickwheel", "ratio");
}

/// Of each figure the least.
fn least_of<const N: usize>(least: [f64; N], run: [f64; N]) -> [f64; N] {
    std::array::from_fn(|at| least[at].min(run[at]))
}

fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(threads).enable_time().build().expect("a runtime")
}

const LONG: Duration = Duration::from_secs(30);

/// Pending once, and then ready: an answer that comes soon. It wakes nobody, as it is polled again
/// anyway.
struct Soon {
    was_polled: bool,
}

impl Future for Soon {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.was_polled, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// A sleep that waits is moved to later and later, as an idle timeout is, and to earlier and earlier.
fn resets(rounds: usize) {
    head("A sleep that waits is moved: ns", "tokio");
    let runtime = runtime(1);
    let _guard = runtime.enter();
    let timer = Timer::new();
    let mut context = Context::from_waker(Waker::noop());
    let start = Instant::now() + LONG;
    let step = Duration::from_millis(1);
    let far = start + step * u32::try_from(rounds).expect("not so many");
    let mut ours = timer.sleep_until(start);
    assert!(Pin::new(&mut ours).poll(&mut context).is_pending());
    let mut theirs = pin!(tokio::time::sleep_until(start.into()));
    assert!(theirs.as_mut().poll(&mut context).is_pending());
    let numbers = || 0..u32::try_from(rounds).expect("not so many");
    let ours_later = each(rounds, || numbers().for_each(|at| ours.reset_at(start + step * at)));
    let mut reset = |deadline: Instant| theirs.as_mut().reset(deadline.into());
    let later = each(rounds, || numbers().for_each(|at| reset(start + step * at)));
    compare("to later", ours_later, later, None);
    // At its first deadline it is in the wheel still, and would not be moved there.
    ours = timer.sleep_until(far);
    assert!(Pin::new(&mut ours).poll(&mut context).is_pending());
    let ours_earlier = each(rounds, || numbers().for_each(|at| ours.reset_at(far - step * at)));
    let earlier = each(rounds, || numbers().for_each(|at| reset(far - step * at)));
    compare("to earlier, under the lock", ours_earlier, earlier, None);
}

/// A timeout of 30 s around what is ready at the second poll: made, polled twice, dropped.
fn timeouts(rounds: usize) {
    head("A timeout of 30 s, made, polled twice and dropped: ns of each thread", "tokio");
    let timer = Timer::new();
    for (threads, goal) in [(1, 0.5), (2, 0.2)] {
        let runtime = runtime(threads);
        let soon = || Soon { was_polled: false };
        let mut least = [f64::INFINITY; 4];
        for _ in 0..5 {
            let timer = timer.clone();
            let run = [
                on_each(&runtime, threads, rounds, move || timer.timeout(LONG, soon())),
                on_each(&runtime, threads, rounds, move || tokio::time::timeout(LONG, soon())),
                on_each(&runtime, threads, rounds, Floor::new),
                on_each(&runtime, threads, rounds, soon),
            ];
            least = least_of(least, run);
        }
        let [ours, theirs, floor, bare] = least;
        let name = format!("worker threads: {threads}");
        compare(&name, ours, theirs, Some(goal));
        compare("  a clock, a waker and two locks", floor, theirs, None);
        println!("{:<32} {bare:>10.1} {bare:>10.1}", "  of which are not the timeout's");
    }
}

/// The least that a timeout does: it reads the clock, and leaves a waker with somebody else, behind a
/// lock of its thread's, for as long as it lives.
struct Floor {
    deadline: Instant,
    place: Option<&'static Mutex<Option<Waker>>>,
}

thread_local! {
    static PLACE: &'static Mutex<Option<Waker>> = Box::leak(Box::default());
}

impl Floor {
    fn new() -> Self {
        Self { deadline: Instant::now() + LONG, place: None }
    }
}

impl Future for Floor {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.place.is_some() {
            return Poll::Ready(());
        }
        black_box(self.deadline);
        let place = PLACE.with(|place| *place);
        *place.lock().unwrap() = Some(context.waker().clone());
        self.place = Some(place);
        Poll::Pending
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let waker = place.lock().unwrap().take();
        drop(waker);
    }
}

/// Each worker thread makes, polls and drops futures: the nanoseconds of one.
fn on_each<F, M>(runtime: &Runtime, threads: usize, rounds: usize, make: M) -> f64
where
    F: Future,
    M: Fn() -> F + Clone + Send + Sync + 'static,
{
    let start = Arc::new(std::sync::Barrier::new(threads));
    let tasks: Vec<_> = (0..threads)
        .map(|_| {
            let (make, start) = (make.clone(), Arc::clone(&start));
            runtime.spawn(async move {
                // Each has a thread of its own from here on, as none of them goes to sleep.
                start.wait();
                let begin = Instant::now();
                let mut left = rounds;
                poll_fn(|context| {
                    // tokio's futures want a pause now and then; ours get it as well.
                    for _ in 0..left.min(50) {
                        let mut future = pin!(make());
                        assert!(future.as_mut().poll(context).is_pending());
                        assert!(future.as_mut().poll(context).is_ready());
                        left -= 1;
                    }
                    if left == 0 {
                        return Poll::Ready(());
                    }
                    context.waker().wake_by_ref();
                    Poll::Pending
                })
                .await;
                begin.elapsed()
            })
        })
        .collect();
    let elapsed: Vec<_> =
        tasks.into_iter().map(|task| runtime.block_on(task).expect("it ends")).collect();
    let total: Duration = elapsed.iter().sum();
    total.as_nanos() as f64 / (threads * rounds) as f64
}

/// Many tasks that each sleep once, spread over some time.
fn crowds(tasks: usize, over: Duration) {
    let title = format!("{tasks} tasks that sleep once, over {over:?}, on two worker threads");
    head(&title, "tokio");
    let (mut ours, mut theirs) = ([f64::INFINITY; 3], [f64::INFINITY; 3]);
    // The most bytes: where there were fewer, not all had been polled yet.
    let (mut our_bytes, mut their_bytes) = (0.0_f64, 0.0_f64);
    for _ in 0..3 {
        // A new one each time, as it keeps its memory; and one for ever, as the tasks are.
        let timer: &Timer = Box::leak(Box::new(Timer::new()));
        let (run, bytes) = crowd(tasks, over, |delay| async move {
            tokio::time::sleep(delay).await;
        });
        (theirs, their_bytes) = (least_of(theirs, run), their_bytes.max(bytes));
        let (run, bytes) = crowd(tasks, over, |delay| async move {
            timer.sleep(delay).await.expect("it runs");
        });
        (ours, our_bytes) = (least_of(ours, run), our_bytes.max(bytes));
    }
    let names = ["after the last deadline, ms", "to spawn, ms", "CPU in all, ms"];
    for (at, name) in names.into_iter().enumerate() {
        compare(name, ours[at], theirs[at], Some(1.0));
    }
    let runtime = runtime(1);
    let _guard = runtime.enter();
    // Where our arrays have just been doubled, too.
    for (name, sleeps) in
        [("bytes a sleep, in all", tasks), ("  of as many as cost most", doubled(tasks))]
    {
        let timer = Timer::new();
        let ours = bytes(sleeps, over, |delay| timer.sleep(delay));
        compare(name, ours, bytes(sleeps, over, tokio::time::sleep), Some(1.0));
    }
    let sizes = (size_of::<tickwheel::Sleep>(), size_of::<tokio::time::Sleep>());
    compare("  of which in the future", sizes.0 as f64, sizes.1 as f64, Some(1.0));
    // It rounds up what a task takes to a multiple of 128.
    compare("bytes a task of tokio, in all", our_bytes, their_bytes, Some(1.0));
}

/// Some more than the next power of two: by then growing has come to an end.
fn doubled(count: usize) -> usize {
    let full = count.next_power_of_two();
    full + full / 32
}

/// What is allocated for one of so many sleeps that wait, itself included.
fn bytes<F: Future>(sleeps: usize, over: Duration, sleep: impl Fn(Duration) -> F) -> f64 {
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting = Vec::with_capacity(sleeps);
    let memory = ALLOCATOR.allocated();
    let mut rng = Rng::with_seed(1);
    for _ in 0..sleeps {
        let mut sleep = Box::pin(sleep(over * 2 + over.mul_f64(rng.f64())));
        assert!(sleep.as_mut().poll(&mut context).is_pending());
        waiting.push(sleep);
    }
    ALLOCATOR.allocated().saturating_sub(memory) as f64 / sleeps as f64
}

/// How long after the last deadline the last task ended, how long they took to spawn, and the
/// processor's time, in ms; and the bytes of each.
fn crowd<F>(tasks: usize, over: Duration, sleep: impl Fn(Duration) -> F) -> ([f64; 3], f64)
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = runtime(2);
    let _guard = runtime.enter();
    let mut rng = Rng::with_seed(1);
    let delays: Vec<_> = (0..tasks).map(|_| over / 2 + over.mul_f64(rng.f64() / 2.0)).collect();
    let mut handles = Vec::with_capacity(tasks);
    let (memory, cpu, start) = (ALLOCATOR.allocated(), ProcessTime::now(), Instant::now());
    for &delay in &delays {
        handles.push(runtime.spawn(sleep(delay)));
    }
    let spawn = start.elapsed();
    // As if each had taken as long as any other to spawn, and had begun to sleep at once.
    let deadline = |(number, delay)| start + spawn.mul_f64(number as f64 / tasks as f64) + delay;
    let last = delays.into_iter().enumerate().map(deadline).max().unwrap_or(start);
    // None has ended, and nearly all were polled.
    let bytes = ALLOCATOR.allocated().saturating_sub(memory) as f64 / tasks as f64;
    runtime.block_on(async {
        for handle in handles {
            handle.await.expect("it ends");
        }
    });
    let late = Instant::now().saturating_duration_since(last);
    ([late, spawn, cpu.elapsed()].map(|took| took.as_secs_f64() * 1e3), bytes)
}

/// Inserting, moving, removing and taking out, with so many values in the queue.
fn queues(size: usize) {
    head(&format!("A delay queue of {size}: ns a call"), "tokio-util");
    // Its thread drives tokio's clock.
    let runtime = runtime(1);
    let _guard = runtime.enter();
    let timer = Timer::new();
    let (mut ours, mut theirs) = ([f64::INFINITY; 4], [f64::INFINITY; 4]);
    for _ in 0..3 {
        ours = least_of(ours, queue(size, || DelayQueue::with_timer(&timer)));
        theirs = least_of(theirs, queue(size, tokio_util::time::DelayQueue::new));
    }
    for (number, name) in ["insert", "reset", "remove", "pop"].into_iter().enumerate() {
        compare(name, ours[number], theirs[number], Some(0.5));
    }
    // Both count a delay from the call.
    let clock = || each(size, || (0..size).for_each(|_| _ = black_box(Instant::now())));
    let clock = (0..5).map(|_| clock()).fold(f64::INFINITY, f64::min);
    compare("  a clock read, for each insert", clock, theirs[0], None);
}

/// What both queues can do.
trait Queue {
    type Key: Copy;

    fn insert(&mut self, value: u64, delay: Duration) -> Self::Key;
    fn reset(&mut self, key: Self::Key, delay: Duration);
    fn remove(&mut self, key: Self::Key) -> u64;
    fn pop(&mut self, context: &mut Context<'_>) -> Poll<Option<u64>>;
}

impl Queue for DelayQueue<u64> {
    type Key = tickwheel::Key;

    fn insert(&mut self, value: u64, delay: Duration) -> Self::Key {
        self.insert(value, delay)
    }

    fn reset(&mut self, key: Self::Key, delay: Duration) {
        assert!(self.reset(key, delay));
    }

    fn remove(&mut self, key: Self::Key) -> u64 {
        self.remove(key).expect("it waits")
    }

    fn pop(&mut self, context: &mut Context<'_>) -> Poll<Option<u64>> {
        self.poll_expired(context).map(|due| Some(due?.expect("the timer runs").value))
    }
}

impl Queue for tokio_util::time::DelayQueue<u64> {
    type Key = tokio_util::time::delay_queue::Key;

    fn insert(&mut self, value: u64, delay: Duration) -> Self::Key {
        self.insert(value, delay)
    }

    fn reset(&mut self, key: Self::Key, delay: Duration) {
        self.reset(&key, delay);
    }

    fn remove(&mut self, key: Self::Key) -> u64 {
        self.remove(&key).into_inner()
    }

    fn pop(&mut self, context: &mut Context<'_>) -> Poll<Option<u64>> {
        self.poll_expired(context).map(|expired| Some(expired?.into_inner()))
    }
}

/// The nanoseconds of one insert, reset, remove and pop.
fn queue<Q: Queue>(size: usize, new: impl Fn() -> Q) -> [f64; 4] {
    let mut rng = Rng::with_seed(3);
    let mut delay = |longest: f64| Duration::from_secs_f64(rng.f64() * longest);
    let delays: Vec<_> = (0..size).map(|_| Duration::from_secs(1) + delay(60.0)).collect();
    let moved: Vec<_> = (0..size).map(|_| Duration::from_secs(1) + delay(60.0)).collect();
    let mut context = Context::from_waker(Waker::noop());
    let mut queue = new();
    let mut keys = Vec::with_capacity(size);
    let mut insert = |(value, &delay)| keys.push(queue.insert(value, delay));
    let insert = each(size, || (0..).zip(&delays).for_each(&mut insert));
    // Somebody waits, so that calls may have to tell him.
    assert!(queue.pop(&mut context).is_pending());
    let mut rng = Rng::with_seed(4);
    rng.shuffle(&mut keys);
    let mut reset = |(&key, &delay)| queue.reset(key, delay);
    let reset = each(size, || keys.iter().zip(&moved).for_each(&mut reset));
    rng.shuffle(&mut keys);
    let remove = each(size, || keys.iter().for_each(|&key| _ = black_box(queue.remove(key))));
    drop(queue);

    // All are due when they are taken, over 200 ms.
    let mut queue = new();
    for (value, delay) in (0..).zip(&delays) {
        queue.insert(value, (*delay - Duration::from_secs(1)) / 300);
    }
    std::thread::sleep(Duration::from_millis(210));
    let pop = each(size, || {
        let mut left = size;
        while left > 0 {
            match queue.pop(&mut context) {
                Poll::Ready(Some(value)) => {
                    black_box(value);
                    left -= 1;
                }
                Poll::Ready(None) => unreachable!("{left} are left"),
                Poll::Pending => std::thread::yield_now(),
            }
        }
    });
    [insert, reset, remove, pop]
}
