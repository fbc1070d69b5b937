//! What does a timer cost while nothing is due?
//!
//! An empty one, and one with a million timeouts that are one to two hours away, at a tick of 1 ms:
//! how often its worker wakes up in 30 s, and the processor's time that the whole process takes.
//!
//! And 10,000 heartbeats of 30 s: how many wake-ups does a second of slack save? They are counted
//! on a clock that is moved by hand, so every run gives the same figures.
//!
//! `cargo bench --bench idle`, with `-- --quick` for a look at whether it works.

mod report;

use cpu_time::ProcessTime;
use report::{Report, is_quick};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{ManualClock, Mode, Timer};

const HOUR: Duration = Duration::from_secs(3_600);

const HEARTBEATS: u64 = 10_000;
const PERIOD: Duration = Duration::from_secs(30);
const PERIODS: u32 = 2;

fn main() {
    nothing_is_due();
    println!();
    heartbeats();
}

fn nothing_is_due() {
    let (length, many) = match is_quick() {
        true => (Duration::from_millis(300), 100_000),
        false => (Duration::from_secs(30), 1_000_000),
    };
    println!("Nothing is due for {} s", length.as_secs_f64());
    let mut report = Report::new(["", "timeouts", "wake-ups", "CPU, ms"]);
    for mode in ["hierarchical:64", "hashed:512"] {
        for timeouts in [0, many] {
            let parsed = mode.parse::<Mode>().expect("a mode");
            let timer = Timer::builder().mode(parsed).build().expect("the default tick");
            // The worker starts with the first timeout.
            timer.schedule(Duration::ZERO, || {}).expect("it runs, and has no limit");
            for number in 0..timeouts {
                let delay = HOUR + HOUR * number / timeouts;
                timer.schedule(delay, || {}).expect("it runs, and has no limit");
            }
            thread::sleep(Duration::from_millis(100));

            let (wake_ups, before) = (timer.stats().wake_ups, ProcessTime::now());
            thread::sleep(length);
            let cpu = before.elapsed().as_secs_f64() * 1e3;
            let wake_ups = (timer.stats().wake_ups - wake_ups) as f64;

            report.row(mode, [timeouts.into(), wake_ups, cpu]);
        }
    }
    report.print();
}

fn heartbeats() {
    println!("{HEARTBEATS} heartbeats of {PERIOD:?}, for {:?}", PERIOD * PERIODS);
    let mut report = Report::new(["", "threads", "slack, s", "beats", "wake-ups"]);
    let mut count = |mode: &str, threads: u64, slack: Duration| {
        let (beats, wake_ups) = wake_ups(mode, threads, slack);
        report.row(mode, [threads, slack.as_secs(), beats, wake_ups].map(|figure| figure as f64));
    };
    count("hierarchical:64", 1, Duration::ZERO);
    for mode in ["hierarchical:64", "hashed:512"] {
        for threads in [1, 8] {
            count(mode, threads, Duration::from_secs(1));
        }
    }
    report.print();
}

/// Lets the heartbeats beat, which so many threads schedule, each on a shard of its own. Returns
/// how many beats there were, and at how many different instants.
fn wake_ups(mode: &str, threads: u64, slack: Duration) -> (u64, u64) {
    let clock = ManualClock::new();
    let builder = Timer::builder().mode(mode.parse().expect("a mode")).shards(threads as usize);
    let timer = builder.clock(clock.clone()).build().expect("in range");
    let instants = Arc::new(Mutex::new((0, BTreeSet::new())));
    let beat = Beat { timer, clock: clock.clone(), slack, instants };
    for thread in 0..threads {
        let beat = beat.clone();
        let schedule = move || {
            for number in (thread..HEARTBEATS).step_by(threads as usize) {
                // Each begins at a time of its own, over the first period.
                let first = PERIOD.mul_f64(number as f64 * 0.618_034 % 1.0);
                let beat = beat.clone();
                beat.timer.clone().schedule(first, move || beat.run()).expect("it has no limit");
            }
        };
        // One after the other, so that every run is like the other.
        thread::spawn(schedule).join().expect("it schedules");
    }
    // The first beats come at times of their own in any case.
    clock.advance(PERIOD);
    *beat.instants.lock().expect("nothing panicked") = (0, BTreeSet::new());
    clock.advance(PERIOD * PERIODS);
    let instants = beat.instants.lock().expect("nothing panicked");
    (instants.0, instants.1.len() as u64)
}

/// A heartbeat that schedules the next one.
#[derive(Clone)]
struct Beat {
    timer: Timer,
    clock: ManualClock,
    slack: Duration,
    /// How many beats there were, and when.
    instants: Arc<Mutex<(u64, BTreeSet<Instant>)>>,
}

impl Beat {
    fn run(self) {
        let mut instants = self.instants.lock().expect("nothing panicked");
        instants.0 += 1;
        instants.1.insert(self.clock.now());
        drop(instants);
        let (timer, within) = (self.timer.clone(), PERIOD..=PERIOD + self.slack);
        drop(timer.schedule_within(within, move || self.run()));
    }
}
