//! What does a shorter tick cost, and what does it bring?
//!
//! A thread schedules what each load asks for, every 5 ms, and the ticks take turns. The processor's
//! time is that of the whole process, so the thread that schedules is in it; it is compared with
//! that at 1 ms in the same turn. Lateness counts from the deadline that was asked for.
//!
//! `cargo bench --bench ticks`, with `-- --quick` for a look at whether it works.

mod report;

use cpu_time::ProcessTime;
use report::{is_quick, number, table};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::Timer;

fn main() {
    let (turns, length) = match is_quick() {
        true => (1, Duration::from_millis(200)),
        false => (3, Duration::from_secs(4)),
    };
    let heads =
        ["load", "tick", "CPU, ms/s", "CPU / 1 ms", "wake-ups/s", "late p50", "p99", "max, us"];
    let mut table = table(heads);
    for load in LOADS {
        let mut all: [Vec<Seen>; TICKS.len()] = Default::default();
        for _ in 0..turns {
            for (seen, tick) in all.iter_mut().zip(TICKS) {
                seen.push(load.run(tick, length));
            }
        }
        for (seen, tick) in all.iter().zip(TICKS) {
            let of = |figure: fn(&Seen) -> f64| median(seen.iter().map(figure).collect());
            let longest = all[0].iter();
            let ratio = median(seen.iter().zip(longest).map(|(it, by)| it.cpu / by.cpu).collect());
            let figures = [
                of(|seen| seen.cpu),
                ratio,
                of(|seen| seen.wake_ups),
                of(|seen| seen.late[0]),
                of(|seen| seen.late[1]),
                of(|seen| seen.late[2]),
            ];
            let cells = figures.into_iter().map(number);
            let tick = tick.map_or_else(|| "default".to_owned(), |tick| format!("{tick:?}"));
            table.add_row([load.name.to_owned(), tick].into_iter().chain(cells));
        }
    }
    println!("{table}");
}

struct Load {
    name: &'static str,
    per_second: u64,
    /// How much later than asked for a timeout may fire.
    slack: Duration,
    /// Whether each is cancelled long before its deadline.
    is_cancelled: bool,
}

/// What a load cost in a second, and how late its timeouts were, in microseconds.
struct Seen {
    cpu: f64,
    wake_ups: f64,
    late: [f64; 3],
}

impl Load {
    const fn fires(name: &'static str, per_second: u64) -> Self {
        Self { name, per_second, slack: Duration::ZERO, is_cancelled: false }
    }

    fn run(&self, tick: Option<Duration>, length: Duration) -> Seen {
        let builder = Timer::builder();
        let builder = tick.into_iter().fold(builder, |builder, tick| builder.tick(tick));
        let timer = builder.build().expect("a tick in the limits");
        let late = Arc::new(Mutex::new(Vec::with_capacity(1 << 20)));
        for _ in 0..IDLE {
            timer.schedule(HOUR, || {}).expect("it runs, and has no limit");
        }
        thread::sleep(Duration::from_millis(20));
        let (wake_ups, cpu, begin) = (timer.stats().wake_ups, ProcessTime::now(), Instant::now());
        let mut random = fastrand::Rng::with_seed(1);
        let (mut made, mut requests) = (0, VecDeque::new());
        while begin.elapsed() < length {
            let wanted = (begin.elapsed().as_secs_f64() * self.per_second as f64) as u64;
            for _ in made..wanted {
                let delay = Duration::from_nanos(random.u64(SOON));
                if self.is_cancelled {
                    requests.push_back(timer.schedule(30 * delay, || {}).expect("as above"));
                } else {
                    let (at, late) = (Instant::now() + delay, Arc::clone(&late));
                    let task = move || late.lock().expect("no panics").push(at.elapsed());
                    let timeout = if self.slack.is_zero() {
                        timer.schedule(delay, task)
                    } else {
                        timer.schedule_within(delay..=delay + self.slack, task)
                    };
                    timeout.expect("as above");
                }
            }
            made = wanted;
            while self.per_second / 20 < requests.len() as u64 {
                requests.pop_front().expect("there is one").cancel();
            }
            thread::sleep(PACE);
        }
        let seconds = begin.elapsed().as_secs_f64();
        let cpu = cpu.elapsed().as_secs_f64() * 1e3 / seconds;
        let wake_ups = (timer.stats().wake_ups - wake_ups) as f64 / seconds;
        drop(timer);
        let mut late = late.lock().expect("no panics");
        late.sort_unstable();
        let at = |part: f64| {
            let last = late.len().saturating_sub(1);
            late.get((last as f64 * part) as usize)
                .map_or(f64::NAN, |late| late.as_secs_f64() * 1e6)
        };
        Seen { cpu, wake_ups, late: [at(0.5), at(0.99), at(1.0)] }
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// None is the default.
const TICKS: [Option<Duration>; 6] = [
    Some(Duration::from_millis(1)),
    None,
    Some(Duration::from_micros(500)),
    Some(Duration::from_micros(200)),
    Some(Duration::from_micros(100)),
    Some(Duration::from_micros(10)),
];

const LOADS: [Load; 8] = [
    Load::fires("idle", 0),
    Load::fires("100 fire per second", 100),
    Load::fires("1,000", 1_000),
    Load::fires("10,000", 10_000),
    Load::fires("100,000", 100_000),
    Load {
        is_cancelled: true,
        ..Load::fires("100,000 requests per second, all cancelled", 100_000)
    },
    Load { slack: Duration::from_millis(10), ..Load::fires("1,000, 10 ms of slack", 1_000) },
    Load { slack: Duration::from_millis(10), ..Load::fires("10,000, 10 ms of slack", 10_000) },
];

/// Timeouts that are far away, in each load.
const IDLE: u64 = 10_000;
const PACE: Duration = Duration::from_millis(5);
/// Delays in nanoseconds.
const SOON: std::ops::Range<u64> = 20_000_000..120_000_000;
const HOUR: Duration = Duration::from_secs(3_600);
