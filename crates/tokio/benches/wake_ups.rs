//! The CPU time of sleeps and timeouts inside a runtime, beside tokio's own, in turns.
//!
//! `cargo bench -p tickwheel-tokio --bench wake_ups` has a million of them; `-- --quick` fewer. With
//! `RUSTFLAGS="--cfg tokio_unstable"` tokio's own is its timer of each worker, `enable_alt_timer`,
//! on two threads. The last row of each is the least that any timer can have: the same tasks, which
//! read the clock where a timeout would, and have no timer.

use cpu_time::ProcessTime;
use std::future::pending;
use std::hint::black_box;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

/// The module `time` that a load runs on.
trait Time: 'static {
    fn sleep(duration: Duration) -> impl Future<Output = ()> + Send;
    fn is_over(limit: Duration, ends: bool) -> impl Future<Output = bool> + Send;
}

struct Ours;
struct Theirs;
struct Nothing;

impl Time for Ours {
    fn sleep(duration: Duration) -> impl Future<Output = ()> + Send {
        tickwheel_tokio::time::sleep(duration)
    }

    async fn is_over(limit: Duration, ends: bool) -> bool {
        tickwheel_tokio::time::timeout(limit, answer(ends)).await.is_err()
    }
}

impl Time for Theirs {
    fn sleep(duration: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(duration)
    }

    async fn is_over(limit: Duration, ends: bool) -> bool {
        tokio::time::timeout(limit, answer(ends)).await.is_err()
    }
}

impl Time for Nothing {
    async fn sleep(duration: Duration) {
        black_box(Instant::now() + duration);
    }

    async fn is_over(limit: Duration, ends: bool) -> bool {
        black_box(Instant::now() + limit);
        answer(false).await;
        ends
    }
}

/// An answer that comes soon, or never.
async fn answer(never: bool) {
    yield_now().await;
    if never {
        pending::<()>().await;
    }
}

fn main() {
    let count =
        if std::env::args().any(|argument| argument == "--quick") { 20_000 } else { 1_000_000 };
    println!(
        "{:<44}{:>8}{:>10}{:>10}{:>8}",
        "CPU seconds", "threads", "tickwheel", "tokio", "ratio"
    );
    for threads in [1, 2] {
        compare("each of many tasks sleeps once", threads, once::<Ours>, once::<Theirs>, count);
        compare(
            "a tenth as many sleeps end at once",
            threads,
            burst::<Ours>,
            burst::<Theirs>,
            count / 10,
        );
        compare(
            "many timeouts, of which 1 % ends",
            threads,
            limits::<Ours>,
            limits::<Theirs>,
            count,
        );
        compare("the same, of no timer", threads, limits::<Nothing>, limits::<Theirs>, count);
    }
}

type Load = fn(&Runtime, usize);

/// A load, and the timer that its runtime has.
struct Side {
    load: Load,
    enables: fn(&mut Builder) -> &mut Builder,
}

/// Runs both in turns, and prints the medians, and the median of the ratios of each turn.
fn compare(name: &str, threads: usize, ours: Load, theirs: Load, count: usize) {
    #[cfg(tokio_unstable)]
    let theirs = Side { load: theirs, enables: Builder::enable_alt_timer };
    #[cfg(not(tokio_unstable))]
    let theirs = Side { load: theirs, enables: Builder::enable_time };
    let sides = [Side { load: ours, enables: Builder::enable_time }, theirs];
    let turn = || [0, 1].map(|side| cpu_time_of(&sides[side], threads, count));
    let turns: Vec<_> = (0..TURNS).map(|_| turn()).collect();
    let median = |figure: fn(&[f64; 2]) -> f64| {
        let mut figures: Vec<_> = turns.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[TURNS / 2]
    };
    let [ours, theirs] = [median(|it| it[0]), median(|it| it[1])];
    let ratio = median(|it| it[0] / it[1]);
    println!("{name:<44}{threads:>8}{ours:>10.3}{theirs:>10.3}{ratio:>8.2}");
}

fn cpu_time_of(side: &Side, threads: usize, count: usize) -> f64 {
    let mut builder = match threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if 1 < threads {
        builder.worker_threads(threads);
    }
    let runtime = (side.enables)(&mut builder).build().expect("a runtime");
    let start = ProcessTime::now();
    (side.load)(&runtime, count);
    drop(runtime);
    start.elapsed().as_secs_f64()
}

/// Waits for tasks that the runtime has.
fn all(runtime: &Runtime, tasks: impl Iterator<Item = impl Future<Output = ()> + Send + 'static>) {
    runtime.block_on(async {
        let tasks: Vec<_> = tasks.map(tokio::spawn).collect();
        for task in tasks {
            task.await.expect("it ends");
        }
    });
}

fn once<T: Time>(runtime: &Runtime, count: usize) {
    let delay = |number: usize| Duration::from_micros(500_000 + number as u64 * 7_919 % 1_000_000);
    all(runtime, (0..count).map(|number| async move { T::sleep(delay(number)).await }));
}

fn burst<T: Time>(runtime: &Runtime, count: usize) {
    all(runtime, (0..count).map(|_| async { T::sleep(Duration::from_millis(500)).await }));
}

fn limits<T: Time>(runtime: &Runtime, count: usize) {
    let task = |_| async {
        for number in 0..IN_TURN {
            let ends = number % 100 == 0;
            let limit = Duration::from_millis(if ends { 1 } else { 30_000 });
            assert_eq!(T::is_over(limit, ends).await, ends);
        }
    };
    all(runtime, (0..count / IN_TURN).map(task));
}

const TURNS: usize = 3;

/// How many timeouts a task has one after another.
const IN_TURN: usize = 1_000;
