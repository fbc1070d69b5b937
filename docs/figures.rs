//! Writes docs/figures.md: what can be counted, so that every machine gives the same figures.
//!
//! `cargo run --release -p documents`; a test compares the page with what this program counts.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};
use tickwheel::{Key, ManualClock, Sleep, Timeout, Timer, Wheel};

fn main() -> io::Result<()> {
    fs::write(PAGE, page())
}

fn page() -> String {
    [HEAD, &wake_ups(), &memory(), &sizes(), &work()].join("\n")
}

/// How many wake-ups does a second of slack save?
fn wake_ups() -> String {
    let beats = |mode: &str, threads, slack| {
        let (beats, instants) = heartbeats(mode, threads, slack);
        vec![mode.into(), threads.to_string(), slack.as_secs().to_string(), beats, instants]
    };
    let second = Duration::from_secs(1);
    let mut rows = vec![beats("hierarchical:64", 1, Duration::ZERO)];
    rows.extend([1, 8].map(|threads| beats("hierarchical:64", threads, second)));
    rows.push(beats("hashed:512", 1, second));
    section(
        "Wake-ups",
        &format!(
            "{} heartbeats, each {} s after the one before, for a minute, at ticks of 1 ms. With \
             slack each is scheduled by `schedule_within`.",
            grouped(HEARTBEATS),
            PERIOD.as_secs()
        ),
        &["mode", "threads that schedule", "slack, s", "beats", "wake-ups"],
        rows,
    )
}

/// Lets the heartbeats beat for two periods. As many threads schedule, each on a shard of its own.
/// Returns how many beats there were, and at how many instants.
fn heartbeats(mode: &str, threads: u64, slack: Duration) -> (String, String) {
    let clock = ManualClock::new();
    let builder = Timer::builder().tick(Duration::from_millis(1));
    let builder = builder.mode(mode.parse().expect("a mode")).shards(threads as usize);
    let timer = builder.clock(clock.clone()).build().expect("in range");
    let beaten = Arc::new(Mutex::new((0, BTreeSet::new())));
    let beat = Beat { timer, clock: clock.clone(), slack, beaten };
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
    *beat.beaten.lock().expect("nothing panicked") = (0, BTreeSet::new());
    clock.advance(2 * PERIOD);
    let beaten = beat.beaten.lock().expect("nothing panicked");
    (grouped(beaten.0), grouped(beaten.1.len() as u64))
}

/// A heartbeat that schedules the next one.
#[derive(Clone)]
struct Beat {
    timer: Timer,
    clock: ManualClock,
    slack: Duration,
    /// How many beats there were, and when.
    beaten: Arc<Mutex<(u64, BTreeSet<Instant>)>>,
}

impl Beat {
    fn run(self) {
        let mut beaten = self.beaten.lock().expect("nothing panicked");
        beaten.0 += 1;
        beaten.1.insert(self.clock.now());
        drop(beaten);
        let (timer, within) = (self.timer.clone(), PERIOD..=PERIOD + self.slack);
        drop(timer.schedule_within(within, move || self.run()));
    }
}

/// How many bytes does a timeout take, besides its value?
fn memory() -> String {
    let rows = MODES.map(|mode| {
        let mut wheel = Wheel::new(mode.parse().expect("a mode"));
        let each = |wheel: &Wheel<u64>, values: usize| {
            let bytes = wheel.stats().memory - values * size_of::<u64>();
            format!("{:.1}", bytes as f64 / PENDING as f64)
        };
        let keys: Vec<_> =
            deadlines(PENDING, MINUTE).map(|deadline| wheel.schedule(deadline, 0)).collect();
        let pending = each(&wheel, PENDING);
        keys.into_iter().for_each(|key| _ = wheel.cancel(key));
        let cancelled = each(&wheel, 0);
        wheel.shrink_to_fit();
        vec![mode.into(), pending, cancelled, each(&wheel, 0)]
    });
    section(
        "Memory",
        &format!(
            "Bytes per timeout, in a wheel of {} with delays of up to a minute at ticks of 1 ms: \
             while all are pending, besides their values; after all were cancelled, for the next \
             ones; and after `shrink_to_fit`.",
            grouped(PENDING as u64)
        ),
        &["mode", "pending", "cancelled", "shrunk"],
        rows,
    )
}

/// How large are the values that a caller holds?
fn sizes() -> String {
    let rows = [
        ("`Key`", size_of::<Key>()),
        ("`Timer`", size_of::<Timer>()),
        ("`Timeout`", size_of::<Timeout>()),
        ("`Sleep`", size_of::<Sleep>()),
    ];
    let rows = rows.map(|(name, bytes)| vec![name.into(), bytes.to_string()]);
    section("Sizes", "Of what a caller holds, with pointers of 8 bytes.", &["", "bytes"], rows)
}

/// How often is a timeout touched on its way?
fn work() -> String {
    let delays = [("a minute", MINUTE), ("an hour", 60 * MINUTE), ("a day", 1440 * MINUTE)];
    let rows = MODES.into_iter().flat_map(|mode| {
        delays.map(|(most, ticks)| {
            let mut wheel = Wheel::new(mode.parse().expect("a mode"));
            deadlines(WORKED, ticks).for_each(|deadline| _ = wheel.schedule(deadline, ()));
            while let Some(now) = wheel.next_wake() {
                while wheel.expire(now).is_some() {}
            }
            let stats = wheel.stats();
            let each = [stats.demotions, stats.rounds_waited, stats.buckets_visited]
                .map(|count| format!("{:.2}", count as f64 / WORKED as f64));
            [mode, most].map(String::from).into_iter().chain(each).collect()
        })
    });
    section(
        "Work",
        &format!(
            "{} timeouts are scheduled at ticks of 1 ms, and all expire. Counts per timeout.",
            grouped(WORKED as u64)
        ),
        &["mode", "delays of up to", "demotions", "rounds waited", "buckets visited"],
        rows.collect::<Vec<_>>(),
    )
}

/// As many ticks of up to `most`, the same in each run, evenly spread and in no order.
fn deadlines(count: usize, most: u64) -> impl Iterator<Item = u64> {
    (1..=count as u64).map(move |number| 1 + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % most)
}

fn section(
    title: &str,
    about: &str,
    heads: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = format!("## {title}\n\n{about}\n\n");
    text += &line(&heads.iter().map(ToString::to_string).collect::<Vec<_>>());
    text += &format!("|---{}|\n", "|---:".repeat(heads.len() - 1));
    text.extend(rows.into_iter().map(|row| line(&row)));
    text
}

/// A number with commas: 10,000.
fn grouped(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", grouped(number / 1000), number % 1000),
    }
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/figures.md");

const HEAD: &str = "\
# Figures

What can be counted is the same on every machine. One command counts it and writes this page, and a
test compares the two:

```sh
cargo run --release -p documents
```

Instructions per operation are in [instructions.txt](../benches/instructions.txt), which `cargo bench
-p tickwheel --bench instructions` compares. Times are in [benchmarks.md](benchmarks.md).
";

const HEARTBEATS: u64 = 10_000;
const PERIOD: Duration = Duration::from_secs(30);

const MODES: [&str; 4] = ["hierarchical:64", "hierarchical:256", "hashed:512", "hashed:65536"];
const PENDING: usize = 100_000;
const WORKED: usize = 10_000;
/// In ticks of a millisecond.
const MINUTE: u64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes and bytes are those of pointers of 8 bytes.
    #[cfg(target_pointer_width = "64")]
    #[test]
    fn the_page_has_what_is_counted() {
        assert_eq!(fs::read_to_string(PAGE).expect("the page"), page());
    }
}
