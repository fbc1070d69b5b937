//! How long can a call take while the worker has its hands full?
//!
//! A million timeouts come due in one tick, or are moved at once to finer buckets (or, in a hashed
//! wheel, looked at and left for a later round), while another thread schedules and cancels. Beside
//! it the same calls to an idle timer. With one shard the caller cannot but share it with the
//! million; otherwise it may have one of its own.
//!
//! A schedule and a cancel are to begin every 2 us. A call that takes longer holds up those that
//! would have begun meanwhile. The last column counts these with the time that they would have
//! waited: a caller that is locked out for 10 ms is not one bad call among many good ones. The
//! column also counts the time that the system takes from the caller's core. *busy elsewhere* shows
//! that time alone: the worker works, and the caller only reads the clock.
//!
//! `cargo bench --bench burst`, with `-- --quick` for a look at whether it works.

mod report;

use report::{Report, is_quick};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{ManualClock, Timer, TimerBuilder};

/// Calls `pair`, which returns when the first of its two calls was over, while `run` does what it
/// does, and returns how long each took.
fn calls_during(pair: impl Fn() -> Instant + Sync, run: impl FnOnce()) -> Vec<Duration> {
    let begins = AtomicBool::new(false);
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let caller = scope.spawn(|| {
            // Touched beforehand: a page that has to be found for it would count as a long call.
            let mut calls = vec![PACE; 2_000_000];
            calls.clear();
            let mut next = Instant::now();
            while !ends.load(Ordering::Relaxed) {
                let start = wait_until(next);
                let first = pair();
                calls.extend([first - start, first.elapsed()]);
                next = start + PACE;
                begins.store(true, Ordering::Relaxed);
            }
            calls
        });
        while !begins.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        run();
        ends.store(true, Ordering::Relaxed);
        caller.join().expect("no panics")
    })
}

/// The calls, and those that each of them held up.
fn with_held_up(calls: &[Duration]) -> Vec<Duration> {
    let held_up = |&call: &Duration| {
        let waits = move |&took: &Duration| took.checked_sub(PACE).filter(|rest| !rest.is_zero());
        std::iter::successors(Some(call), waits)
    };
    calls.iter().flat_map(held_up).collect()
}

/// Spins, as sleeping is not that exact.
fn wait_until(instant: Instant) -> Instant {
    loop {
        let now = Instant::now();
        if instant <= now {
            return now;
        }
    }
}

/// The time in us that a share of the calls was not above. Nearest rank; sorts the calls.
fn percentile(calls: &mut [Duration], share: f64) -> f64 {
    calls.sort_unstable();
    let rank = (calls.len() as f64 * share).ceil() as usize;
    calls[rank.clamp(1, calls.len()) - 1].as_secs_f64() * 1e6
}

/// Makes what the timers of one row have in common.
type Common<'a> = &'a dyn Fn() -> TimerBuilder;

/// One that has woken up already, and has nothing to do for a while.
fn timer(builder: TimerBuilder) -> Timer {
    let timer = builder.build().expect("a valid tick");
    timer.schedule(DELAY / 2, || {}).expect("it runs, and has no limit");
    thread::sleep(Duration::from_millis(10));
    timer
}

/// Schedules and cancels, and returns when the first of the two calls was over.
fn pair(timer: &Timer) -> Instant {
    let timeout = timer.schedule(DELAY, || {}).expect("it runs, and has no limit");
    let scheduled = Instant::now();
    timeout.cancel();
    scheduled
}

fn idle(common: Common, length: Duration) -> Vec<Duration> {
    let timer = timer(common());
    calls_during(|| pair(&timer), || thread::sleep(length))
}

/// With `calls` false the caller leaves the timer alone.
fn due_at_once(common: Common, timeouts: usize, calls: bool) -> Vec<Duration> {
    let timer = timer(common());
    let fired = Arc::new(AtomicUsize::new(0));
    // Long enough to schedule them all several times.
    let due = Instant::now() + Duration::from_micros(timeouts as u64);
    for _ in 0..timeouts {
        let fired = fired.clone();
        let task = move || _ = fired.fetch_add(1, Ordering::Relaxed);
        timer.schedule_at(due, task).expect("it runs, and has no limit");
    }
    if due <= Instant::now() {
        println!("The machine is too busy: some came due before all were scheduled.");
    }
    // The caller is at work before the worker is.
    thread::sleep((due - 2 * TICK).saturating_duration_since(Instant::now()));
    let until_all_fired = || {
        while fired.load(Ordering::Relaxed) < timeouts {
            thread::sleep(TICK);
        }
    };
    match calls {
        true => calls_during(|| pair(&timer), until_all_fired),
        false => calls_during(Instant::now, until_all_fired),
    }
}

/// In a hierarchical wheel all timeouts are in one bucket of its fourth level, which spans 2^18
/// ticks. In a hashed one they are in one bucket, one in each round.
fn moved_at_once(common: Common, timeouts: usize, is_hashed: bool) -> Vec<Duration> {
    const START: u32 = 1 << 18;
    let clock = ManualClock::new();
    let timer = timer(common().clock(clock.clone()));
    for number in 0..timeouts as u32 {
        let later = match is_hashed {
            true => 512 * number,
            false => (u64::from(number) * u64::from(START) / timeouts as u64) as u32,
        };
        timer.schedule(TICK * (START + later), || {}).expect("it runs, and has no limit");
    }
    clock.advance(TICK * (START - 1));
    calls_during(|| pair(&timer), || clock.advance(2 * TICK))
}

fn main() {
    let (repetitions, timeouts) = if is_quick() { (1, 100_000) } else { (5, 1_000_000) };
    let length = Duration::from_micros(timeouts as u64 / 5);
    println!(
        "Calls of schedule and cancel, one each {} us, while {timeouts} timeouts come due or are \
         moved at once; us, {repetitions} repetitions",
        PACE.as_micros()
    );
    let heads =
        ["", "calls", "p50", "p99", "p99.9", "max", "p99.9 beyond idle", "p99.9 with held up"];
    let mut report = Report::new(heads);
    for (mode, is_hashed) in [("hierarchical:64", false), ("hashed:512", true)] {
        let default = || Timer::builder().tick(TICK).mode(mode.parse().expect("a mode"));
        let one = || default().shards(1);
        let both: [(_, Common); 2] = [("default shards", &default), ("1 shard", &one)];
        for (shards, common) in both {
            let mut calls = [const { Vec::new() }; 4];
            // Those that are compared take turns.
            for _ in 0..repetitions {
                calls[0].extend(idle(common, length));
                calls[1].extend(due_at_once(common, timeouts, false));
                calls[2].extend(due_at_once(common, timeouts, true));
                calls[3].extend(moved_at_once(common, timeouts, is_hashed));
            }
            let idle = percentile(&mut calls[0], 0.999);
            let names = ["idle", "busy elsewhere", "due", "moved"];
            for (what, mut calls) in names.into_iter().zip(calls) {
                let held_up = percentile(&mut with_held_up(&calls), 0.999);
                let shares = [0.5, 0.99, 0.999, 1.0];
                let [p50, p99, p999, longest] = shares.map(|share| percentile(&mut calls, share));
                let (count, beyond) = (calls.len() as f64, p999 - idle);
                let figures = [count, p50, p99, p999, longest, beyond, held_up];
                report.row(&format!("{mode}, {shards}: {what}"), figures);
            }
        }
    }
    report.print();
}

/// Between the beginnings of two calls.
const PACE: Duration = Duration::from_micros(2);
const DELAY: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(1);
