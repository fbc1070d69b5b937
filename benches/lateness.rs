//! How late do timeouts fire, and does one fire early? Beside tokio's `sleep`.
//!
//! 2,000 timeouts with delays of 5 to 55 ms, none of them a multiple of a tick, are scheduled in one
//! go, and each notes when it fired. Late is what is more than its delay, counted from just before
//! the call that scheduled it.
//!
//! `cargo bench --bench lateness`, with `-- --quick` for a look at whether it works.

mod report;

use report::{Goal, goal, is_quick, microseconds, percentile, rounded, table};
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tickwheel::Timer;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

const TIMEOUTS: u64 = 2_000;
const SHORTEST: Duration = Duration::from_millis(5);
const SPREAD: Duration = Duration::from_millis(50);
const FINE: Duration = Duration::from_micros(100);

/// The fractional parts of the multiples of the golden ratio: spread evenly, in no order.
fn delays() -> impl Iterator<Item = Duration> {
    (0..TIMEOUTS).map(|number| {
        let fraction = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) as f64 / 2_f64.powi(64);
        let delay = SHORTEST + SPREAD.mul_f64(fraction);
        let is_multiple = delay.as_nanos() % FINE.as_nanos() == 0;
        delay + Duration::from_nanos(is_multiple.into())
    })
}

/// When one was due, and when it fired.
type Fired = (Instant, Instant);

fn ours(timer: &Timer) -> Vec<Fired> {
    let (fired, all_fired) = mpsc::channel();
    for delay in delays() {
        let fired = fired.clone();
        let due = Instant::now() + delay;
        let scheduled = timer.schedule(delay, move || {
            // The receiver is not waiting yet, so that this wakes nobody.
            let _ = fired.send((due, Instant::now()));
        });
        scheduled.expect("it runs, and has no limit");
    }
    drop(fired);
    std::thread::sleep(SHORTEST + SPREAD + 2 * SHORTEST);
    all_fired.iter().collect()
}

fn tokios(runtime: &Runtime) -> Vec<Fired> {
    let (fired, all_fired) = mpsc::channel();
    runtime.block_on(async {
        for delay in delays() {
            let fired = fired.clone();
            tokio::spawn(async move {
                let due = Instant::now() + delay;
                sleep(delay).await;
                let _ = fired.send((due, Instant::now()));
            });
        }
        drop(fired);
        sleep(SHORTEST + SPREAD + 2 * SHORTEST).await;
    });
    all_fired.iter().collect()
}

/// Of one repetition.
struct Lateness {
    early: usize,
    median: Duration,
    p99: Duration,
    longest: Duration,
}

impl Lateness {
    fn of(fired: &[Fired]) -> Self {
        assert_eq!(fired.len() as u64, TIMEOUTS, "each fires once");
        let mut late: Vec<_> =
            fired.iter().map(|(due, fired)| fired.saturating_duration_since(*due)).collect();
        Self {
            early: fired.iter().filter(|(due, fired)| fired < due).count(),
            median: percentile(&mut late, 0.5),
            p99: percentile(&mut late, 0.99),
            longest: percentile(&mut late, 1.0),
        }
    }
}

const DEFAULT_TICK: &str = "tickwheel, tick of 1 ms (default)";
const FINE_TICK: &str = "tickwheel, tick of 100 us";
const TOKIO: &str = "tokio, two threads";
const TOKIO_CURRENT: &str = "tokio, current thread";

fn main() {
    let repetitions = if is_quick() { 1 } else { 15 };
    let timer = Timer::builder().build().expect("a valid tick");
    let fine = Timer::builder().tick(FINE).build().expect("a valid tick");
    let two = Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let two = two.expect("a runtime");
    let current = Builder::new_current_thread().enable_time().build().expect("a runtime");

    let mut runs = BTreeMap::<_, Vec<Lateness>>::new();
    for _ in 0..repetitions {
        let mut add = |name, fired: &[Fired]| {
            runs.entry(name).or_default().push(Lateness::of(fired));
        };
        add(DEFAULT_TICK, &ours(&timer));
        add(TOKIO, &tokios(&two));
        add(FINE_TICK, &ours(&fine));
        add(TOKIO_CURRENT, &tokios(&current));
    }

    println!(
        "Lateness of {TIMEOUTS} timeouts of 5 to 55 ms, in us; percentiles: median of \
         {repetitions} repetitions, max: of all"
    );
    let mut table = table(["", "early", "p50", "p99", "max"]);
    let mut figures = BTreeMap::new();
    for name in [DEFAULT_TICK, FINE_TICK, TOKIO, TOKIO_CURRENT] {
        let runs = &runs[name];
        let median = |part: fn(&Lateness) -> Duration| {
            microseconds(percentile(&mut runs.iter().map(part).collect::<Vec<_>>(), 0.5))
        };
        let (p50, p99) = (median(|run| run.median), median(|run| run.p99));
        let longest = runs.iter().map(|run| run.longest).max().expect("there are repetitions");
        let early: usize = runs.iter().map(|run| run.early).sum();
        table.add_row([
            name.to_owned(),
            early.to_string(),
            rounded(p50).to_string(),
            rounded(p99).to_string(),
            rounded(microseconds(longest)).to_string(),
        ]);
        figures.insert(name, (early, p50, p99));
    }
    println!("{table}");
    let early = figures[DEFAULT_TICK].0 + figures[FINE_TICK].0;
    goal("fired early", early as f64, Goal::AtMost(0.0));
    // Against whichever of tokio's is better.
    let tokio = |part: fn(&(usize, f64, f64)) -> f64| {
        part(&figures[TOKIO]).min(part(&figures[TOKIO_CURRENT]))
    };
    for (name, bound) in [(DEFAULT_TICK, 0.6), (FINE_TICK, 0.2)] {
        let (_, p50, p99) = figures[name];
        let against = |ours, tokio| goal_of_ratio(name, ours, tokio, bound);
        against(("p50", p50), tokio(|figures| figures.1));
        against(("p99", p99), tokio(|figures| figures.2));
    }
}

fn goal_of_ratio(name: &str, (what, ours): (&str, f64), tokio: f64, bound: f64) {
    goal(&format!("{name}: {what} against tokio's"), ours / tokio, Goal::AtMost(bound));
}
