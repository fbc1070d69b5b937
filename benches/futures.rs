//! Futures against tokio's, the delay queue against tokio-util's, in one run.
//!
//! `cargo bench --bench futures` runs all; `-- timeout`, `-- crowd` or `-- queue` a part,
//! `-- --quick` smaller ones. Timeouts, crowds and queues take turns with their peers, three or
//! five times. The table has the medians, and the median of the ratios of each turn.

mod report;

use cap::Cap;
use cpu_time::ProcessTime;
use fastrand::Rng;
use report::{Report, is_asked_for};
use std::alloc::System;
use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tickwheel::{DelayQueue, Timer};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, sleep_until, timeout};

/// Counts allocated bytes.
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

/// Runs ours and theirs in turn, `times` times each, and prints the median of each figure and
/// ratio.
fn compare<const N: usize>(
    [what, peer]: [&str; 2],
    names: [&str; N],
    times: usize,
    mut ours: impl FnMut() -> [f64; N],
    mut theirs: impl FnMut() -> [f64; N],
) {
    println!("\n{what}");
    let turns: Vec<_> = (0..times).map(|_| (ours(), theirs())).collect();
    let mut report = Report::new(["", "tickwheel", peer, "ratio"]);
    for (at, name) in names.into_iter().enumerate() {
        let figures = |(ours, theirs): &([f64; N], [f64; N])| [ours[at], theirs[at]];
        let columns: [fn([f64; 2]) -> f64; 3] = [|it| it[0], |it| it[1], |it| it[0] / it[1]];
        report.row(name, columns.map(|column| median(turns.iter().map(figures).map(column))));
    }
    report.print();
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Returns the nanoseconds per call.
fn each(count: usize, run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_nanos() as f64 / count as f64
}

fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(threads).enable_time().build().expect("a runtime")
}

/// Moves a pending sleep to later and later deadlines, as an idle timeout does, and to earlier
/// ones.
fn resets(rounds: u32) {
    let runtime = runtime(1);
    let _guard = runtime.enter();
    let timer = Timer::new();
    let start = Instant::now() + LONG;
    let later: Vec<_> = (0..rounds).map(|at| start + Duration::from_millis(1) * at).collect();
    let earlier: Vec<_> = later.iter().rev().copied().collect();
    let ours = |deadlines: &[Instant]| {
        moved(deadlines, |at| timer.sleep_until(at), |sleep, at| sleep.get_mut().reset_at(at))
    };
    let theirs = |deadlines: &[Instant]| {
        moved(deadlines, |at| sleep_until(at.into()), |sleep, at| sleep.reset(at.into()))
    };
    compare(
        ["A sleep that waits is moved: ns", "tokio"],
        ["to later", "to earlier, under the lock"],
        1,
        || [ours(&later), ours(&earlier)],
        || [theirs(&later), theirs(&earlier)],
    );
}

/// Returns the nanoseconds per reset of a sleep that waits for the first of the deadlines.
fn moved<S: Future>(
    deadlines: &[Instant],
    sleep_until: impl Fn(Instant) -> S,
    reset: impl Fn(Pin<&mut S>, Instant),
) -> f64 {
    let mut sleep = pin!(sleep_until(deadlines[0]));
    assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    each(deadlines.len(), || deadlines.iter().for_each(|&at| reset(sleep.as_mut(), at)))
}

/// Makes a timeout of 30 s around a future that is ready at its second poll, polls it twice, and
/// drops it.
fn timeouts(rounds: usize) {
    for threads in [1, 2] {
        let (timer, runtime) = (Timer::new(), runtime(threads));
        let bare = || on_each(&runtime, threads, rounds, soon);
        let ours = || {
            let timer = timer.clone();
            on_each(&runtime, threads, rounds, move || timer.timeout(LONG, soon()))
        };
        let theirs = || on_each(&runtime, threads, rounds, || timeout(LONG, soon()));
        let what = "A timeout of 30 s, made, polled twice and dropped: ns of each thread";
        let name = format!("worker threads: {threads}");
        let names = [&name, "  a clock, a waker and two locks", "  of which are not the timeout's"];
        let ours = || [ours(), on_each(&runtime, threads, rounds, floor), bare()];
        compare([what, "tokio"], names, 5, ours, || {
            let theirs = theirs();
            [theirs, theirs, bare()]
        });
    }
}

/// A future that is pending once and then ready: an answer that comes soon. It wakes no task,
/// because its caller polls it again anyway.
fn soon() -> impl Future<Output = ()> {
    let mut was_polled = false;
    poll_fn(move |_| match std::mem::replace(&mut was_polled, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
}

/// The least work of a timeout: it reads the clock, and stores a waker behind a lock that belongs
/// to its thread, for as long as the timeout lives.
fn floor() -> impl Future<Output = ()> {
    let deadline = Instant::now() + LONG;
    let mut left = None;
    poll_fn(move |context| {
        if left.is_some() {
            return Poll::Ready(());
        }
        black_box(deadline);
        let place = PLACE.with(|place| *place);
        *place.lock().unwrap() = Some(context.waker().clone());
        left = Some(Left(place));
        Poll::Pending
    })
}

/// Takes the waker back when it is dropped.
struct Left(&'static Mutex<Option<Waker>>);

thread_local! {
    static PLACE: &'static Mutex<Option<Waker>> = Box::leak(Box::default());
}

impl Drop for Left {
    fn drop(&mut self) {
        let waker = self.0.lock().unwrap().take();
        drop(waker);
    }
}

/// Lets each worker thread make, poll and drop futures. Returns the nanoseconds per future.
fn on_each<F, M>(runtime: &Runtime, threads: usize, rounds: usize, make: M) -> f64
where
    F: Future,
    M: Fn() -> F + Clone + Send + Sync + 'static,
{
    let start = Arc::new(std::sync::Barrier::new(threads));
    let task = |_| {
        let (make, start) = (make.clone(), Arc::clone(&start));
        runtime.spawn(async move {
            // From here on each task has a thread of its own, because no task goes to sleep.
            start.wait();
            let begin = Instant::now();
            let mut left = rounds;
            poll_fn(|context| {
                // tokio's futures need to give way now and then; ours do so as well.
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
    };
    let tasks: Vec<_> = (0..threads).map(task).collect();
    let took = tasks.into_iter().map(|task| runtime.block_on(task).expect("it ends"));
    took.sum::<Duration>().as_nanos() as f64 / (threads * rounds) as f64
}

/// Many tasks that each sleep once, spread over some time.
fn crowds(tasks: usize, over: Duration) {
    let what = format!("{tasks} tasks that sleep once, over {over:?}, on two worker threads");
    // tokio rounds the size of a task up to a multiple of 128.
    let names =
        ["after the last deadline, ms", "to spawn, ms", "CPU in all, ms", "bytes per task, in all"];
    let ours = || {
        // A new timer each time, because a timer keeps its memory. It is leaked, because the tasks
        // need it for ever.
        let timer: &Timer = Box::leak(Box::new(Timer::new()));
        crowd(tasks, over, |delay| async move { timer.sleep(delay).await.expect("it runs") })
    };
    let theirs = || crowd(tasks, over, |delay| async move { sleep(delay).await });
    compare([&what, "tokio"], names, 3, ours, theirs);

    let runtime = runtime(1);
    let _guard = runtime.enter();
    // Also where our arrays have just doubled: growing is over by then.
    let full = tasks.next_power_of_two();
    let sizes = [tasks, full + full / 32];
    let names = ["bytes a sleep, in all", "  of as many as cost most", "  of which in the future"];
    let ours = || {
        let [some, most] = sizes.map(|sleeps| {
            let timer = Timer::new();
            bytes(sleeps, over, |delay| timer.sleep(delay))
        });
        [some, most, size_of::<tickwheel::Sleep>() as f64]
    };
    let theirs = || {
        let [some, most] = sizes.map(|sleeps| bytes(sleeps, over, sleep));
        [some, most, size_of::<tokio::time::Sleep>() as f64]
    };
    compare(["Sleeps that wait", "tokio"], names, 1, ours, theirs);
}

/// Returns the bytes per waiting sleep, with the sleep itself.
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
fn crowd<F>(tasks: usize, over: Duration, sleep: impl Fn(Duration) -> F) -> [f64; 4]
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
    // As if all tasks had taken equally long to spawn, and had begun to sleep at once.
    let deadline = |(number, delay)| start + spawn.mul_f64(number as f64 / tasks as f64) + delay;
    let last = delays.into_iter().enumerate().map(deadline).max().unwrap_or(start);
    // No task has ended, and every task was polled.
    std::thread::sleep(over / 20);
    let bytes = ALLOCATOR.allocated().saturating_sub(memory) as f64 / tasks as f64;
    runtime.block_on(async {
        for handle in handles {
            handle.await.expect("it ends");
        }
    });
    let late = Instant::now().saturating_duration_since(last);
    let [late, spawn, cpu] = [late, spawn, cpu.elapsed()].map(|took| took.as_secs_f64() * 1e3);
    [late, spawn, cpu, bytes]
}

/// Inserting, moving, removing and taking out, with so many values in the queue.
fn queues(size: usize) {
    // Its thread drives tokio's clock.
    let runtime = runtime(1);
    let _guard = runtime.enter();
    let timer = Timer::new();
    // Both count a delay from the call.
    let names = ["insert", "reset", "remove", "pop", "  a clock read, for each insert"];
    let ours = || {
        let [insert, reset, remove, pop] = queue(
            size,
            || DelayQueue::with_timer(&timer),
            DelayQueue::insert,
            |queue, key, delay| assert!(queue.reset(key, delay)),
            |queue, key| queue.remove(key),
            |queue, context| queue.poll_expired(context).map(|due| Some(due?.ok()?.value)),
        );
        let clock = each(size, || (0..size).for_each(|_| _ = black_box(Instant::now())));
        [insert, reset, remove, pop, clock]
    };
    let theirs = || {
        let [insert, reset, remove, pop] = queue(
            size,
            tokio_util::time::DelayQueue::new,
            tokio_util::time::DelayQueue::insert,
            |queue, key, delay| queue.reset(&key, delay),
            |queue, key| queue.try_remove(&key).map(|removed| removed.into_inner()),
            |queue, context| queue.poll_expired(context).map(|due| due.map(|due| due.into_inner())),
        );
        [insert, reset, remove, pop, insert]
    };
    let what = format!("A delay queue of {size}: ns per call");
    compare([&what, "tokio-util"], names, 3, ours, theirs);
}

/// Returns the nanoseconds per insert, reset, remove and pop.
fn queue<Q, K: Copy>(
    size: usize,
    new: impl Fn() -> Q,
    insert: impl Fn(&mut Q, u64, Duration) -> K,
    reset: impl Fn(&mut Q, K, Duration),
    remove: impl Fn(&mut Q, K) -> Option<u64>,
    pop: impl Fn(&mut Q, &mut Context<'_>) -> Poll<Option<u64>>,
) -> [f64; 4] {
    const SECOND: Duration = Duration::from_secs(1);
    let mut rng = Rng::with_seed(3);
    let mut draw =
        || -> Vec<_> { (0..size).map(|_| SECOND + 60 * SECOND.mul_f64(rng.f64())).collect() };
    let (delays, moved) = (draw(), draw());
    let mut context = Context::from_waker(Waker::noop());
    let mut queue = new();
    let mut keys = Vec::with_capacity(size);
    let insert_time = each(size, || {
        keys.extend((0..).zip(&delays).map(|(value, &delay)| insert(&mut queue, value, delay)));
    });
    // A task waits, so that a call may have to wake it.
    assert!(pop(&mut queue, &mut context).is_pending());
    let mut rng = Rng::with_seed(4);
    rng.shuffle(&mut keys);
    let moves = keys.iter().zip(&moved);
    let reset = each(size, || moves.for_each(|(&key, &delay)| reset(&mut queue, key, delay)));
    rng.shuffle(&mut keys);
    let remove = each(size, || {
        keys.iter().for_each(|&key| assert!(remove(&mut queue, key).is_some()));
    });
    drop(queue);

    // All values are due when they are taken out. Their deadlines spread over 200 ms.
    let mut queue = new();
    for (value, &delay) in (0..).zip(&delays) {
        insert(&mut queue, value, (delay - SECOND) / 300);
    }
    std::thread::sleep(Duration::from_millis(210));
    let pop = each(size, || {
        for _ in 0..size {
            while pop(&mut queue, &mut context).map(|value| value.expect("more")).is_pending() {
                std::thread::yield_now();
            }
        }
    });
    [insert_time, reset, remove, pop]
}

const LONG: Duration = Duration::from_secs(30);
