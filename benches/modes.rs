//! Hashed wheels against hierarchical ones.
//!
//! `cargo bench --bench modes` runs all; `cargo bench --bench modes -- 'fire/1M/60s'` a part.
//! A benchmark is named work/live timeouts/delays/mode, and its throughput is per timeout. One tick
//! is a millisecond. What else could hold timeouts, a heap, a `BTreeMap`, a sort or a bare slab, is
//! measured in `benches/peers`.

use criterion::{BatchSize, BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use fastrand::Rng;
use std::hint::black_box;
use std::time::Duration;
use tickwheel::{Key, Mode, Wheel};

const WHEELS: [&str; 5] =
    ["hierarchical:64", "hierarchical:256", "hashed:512", "hashed:4096", "hashed:65536"];
const SIZES: [(&str, usize); 3] = [("1k", 1_000), ("100k", 100_000), ("1M", 1_000_000)];
const DELAYS: [Delays; 4] = [
    Delays { name: "60s", longest: 60_000, log_uniform: false },
    Delays { name: "1h", longest: 3_600_000, log_uniform: false },
    Delays { name: "24h", longest: 86_400_000, log_uniform: false },
    Delays { name: "1y", longest: 31_557_600_000, log_uniform: true },
];

#[derive(Clone, Copy)]
struct Delays {
    name: &'static str,
    /// In ticks.
    longest: u64,
    log_uniform: bool,
}

impl Delays {
    fn draw(self, rng: &mut Rng) -> u64 {
        if self.log_uniform {
            (self.longest as f64).powf(rng.f64()) as u64
        } else {
            rng.u64(1..=self.longest)
        }
    }

    fn deadlines(self, count: usize) -> Vec<u64> {
        let mut rng = Rng::with_seed(1);
        (0..count).map(|_| self.draw(&mut rng)).collect()
    }
}

/// What a benchmark works on.
#[derive(Clone, Copy)]
struct Load {
    delays: Delays,
    count: usize,
}

impl Load {
    /// Which timeout, and a delay: four times as often as there are timeouts. Drawn beforehand, as
    /// drawing costs as much as a cancel.
    fn draws(self) -> Vec<(usize, u64)> {
        let mut rng = Rng::with_seed(3);
        let draw = |_| (rng.usize(..self.count), self.delays.draw(&mut rng));
        (0..4 * self.count).map(draw).collect()
    }

    fn fill(self, mode: Mode) -> (Wheel<u64>, Vec<Key>) {
        let mut wheel = Wheel::new(mode);
        let keys = schedule(&mut wheel, &self.delays.deadlines(self.count));
        (wheel, keys)
    }
}

fn schedule(wheel: &mut Wheel<u64>, deadlines: &[u64]) -> Vec<Key> {
    let mut keys = Vec::with_capacity(deadlines.len());
    for (value, &deadline) in (0..).zip(deadlines) {
        keys.push(wheel.schedule(deadline, value));
    }
    keys
}

/// As an event loop would that has nothing else to do: it sleeps until the next wake.
fn fire_all(wheel: &mut Wheel<u64>, mut now: u64) -> (u64, u64) {
    let mut sum = 0_u64;
    while let Some(wake) = wheel.next_wake() {
        now = now.max(wake);
        while let Some(expired) = wheel.expire(now) {
            sum = sum.wrapping_add(expired.value);
        }
    }
    (sum, now)
}

type Group<'a> = BenchmarkGroup<'a, WallTime>;

type Bench<L> = fn(&mut Group, &str, L, Mode);

fn bench_schedule(group: &mut Group, name: &str, load: Load, mode: Mode) {
    let deadlines = load.delays.deadlines(load.count);
    group.bench_function(name, |bencher| {
        bencher.iter_batched(
            || Wheel::new(mode),
            |mut wheel| {
                let keys = schedule(&mut wheel, &deadlines);
                (wheel, keys)
            },
            BatchSize::PerIteration,
        );
    });
}

fn bench_fire(group: &mut Group, name: &str, load: Load, mode: Mode) {
    group.bench_function(name, |bencher| {
        bencher.iter_batched(
            || load.fill(mode).0,
            |mut wheel| (fire_all(&mut wheel, 0), wheel),
            BatchSize::PerIteration,
        );
    });
}

/// Schedules them all and fires them all, over and over.
fn bench_pass(group: &mut Group, name: &str, load: Load, mode: Mode) {
    let delays = load.delays.deadlines(load.count);
    let mut wheel = Wheel::new(mode);
    let mut now = 0;
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            for (value, &delay) in (0..).zip(&delays) {
                wheel.schedule(now + delay, value);
            }
            let (sum, end) = fire_all(&mut wheel, now);
            now = end;
            sum
        });
    });
}

fn bench_cancel(group: &mut Group, name: &str, load: Load, mode: Mode) {
    group.bench_function(name, |bencher| {
        bencher.iter_batched(
            || {
                let (wheel, mut keys) = load.fill(mode);
                Rng::with_seed(2).shuffle(&mut keys);
                (wheel, keys)
            },
            |(mut wheel, keys)| {
                for &key in &keys {
                    black_box(wheel.cancel(key));
                }
                (wheel, keys)
            },
            BatchSize::PerIteration,
        );
    });
}

fn bench_reschedule(group: &mut Group, name: &str, load: Load, mode: Mode) {
    let deadlines = load.delays.deadlines(load.count);
    group.bench_function(name, |bencher| {
        bencher.iter_batched(
            || {
                let (wheel, mut keys) = load.fill(mode);
                Rng::with_seed(2).shuffle(&mut keys);
                (wheel, keys)
            },
            |(mut wheel, keys)| {
                for (key, &deadline) in keys.iter().zip(&deadlines) {
                    black_box(wheel.reschedule(*key, deadline));
                }
                (wheel, keys)
            },
            BatchSize::PerIteration,
        );
    });
}

/// One after the other is scheduled, and a random one of those that wait is cancelled for it. Time
/// stands still, and none comes due.
fn bench_replace(group: &mut Group, name: &str, load: Load, mode: Mode) {
    group.throughput(Throughput::Elements(1));
    let mut state = None;
    group.bench_function(name, |bencher| {
        let (wheel, keys, draws, at) = state.get_or_insert_with(|| {
            let (wheel, keys) = load.fill(mode);
            (wheel, keys, load.draws(), 0)
        });
        bencher.iter(|| {
            let (which, delay) = draws[*at % draws.len()];
            *at += 1;
            let key = wheel.schedule(delay, *at as u64);
            wheel.cancel(std::mem::replace(&mut keys[which], key))
        });
    });
}

/// Time goes on; what is due fires and is scheduled again, and for each of those a random one is
/// moved and another one replaced.
fn bench_mix(group: &mut Group, name: &str, load: Load, mode: Mode) {
    group.throughput(Throughput::Elements(1));
    let mut state = None;
    group.bench_function(name, |bencher| {
        let (wheel, keys, draws, at, now) = state.get_or_insert_with(|| {
            let (wheel, keys) = load.fill(mode);
            (wheel, keys, load.draws(), 0, 0)
        });
        bencher.iter(|| {
            let fired = loop {
                match wheel.expire(*now) {
                    Some(expired) => break expired.value,
                    None => *now = wheel.next_wake().expect("timeouts wait").max(*now + 1),
                }
            };
            let (which, delay) = draws[*at % draws.len()];
            let (other, _) = draws[(*at + 1) % draws.len()];
            *at += 2;
            keys[fired as usize] = wheel.schedule(*now + delay, fired);
            wheel.reschedule(keys[which], *now + delay / 2 + 1);
            if let Some(value) = wheel.cancel(keys[other]) {
                keys[other] = wheel.schedule(*now + delay, value);
            }
        });
    });
}

/// The only timeout is so many ticks away, and jumped to.
fn bench_jump(group: &mut Group, name: &str, ticks: u64, mode: Mode) {
    group.bench_function(name, |bencher| {
        bencher.iter_batched_ref(
            || {
                let mut wheel = Wheel::new(mode);
                wheel.schedule(ticks, 0);
                wheel
            },
            |wheel| wheel.expire(ticks),
            BatchSize::SmallInput,
        );
    });
}

/// Time goes on tick by tick, and the only timeout is far away.
fn bench_poll(group: &mut Group, name: &str, deadline: u64, mode: Mode) {
    let mut wheel = Wheel::new(mode);
    wheel.schedule(deadline, 0);
    let mut now = 0;
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            now += 1;
            wheel.expire(black_box(now))
        });
    });
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();
    let benches: [(&str, Bench<Load>); 7] = [
        ("schedule", bench_schedule),
        ("fire", bench_fire),
        ("pass", bench_pass),
        ("cancel", bench_cancel),
        ("reschedule", bench_reschedule),
        ("replace", bench_replace),
        ("mix", bench_mix),
    ];
    for (work, bench) in benches {
        for (size, count) in SIZES {
            for delays in DELAYS {
                let name = format!("{work}/{size}/{}", delays.name);
                let mut group = criterion.benchmark_group(name);
                group.throughput(Throughput::Elements(count as u64));
                for name in WHEELS {
                    bench(&mut group, name, Load { delays, count }, mode(name));
                }
                group.finish();
            }
        }
    }
    let sparse: [(&str, Bench<u64>, u64); 3] = [
        ("poll", bench_poll, u64::MAX),
        ("jump/1", bench_jump, 1),
        ("jump/2^60", bench_jump, 1 << 60),
    ];
    for (work, bench, deadline) in sparse {
        let mut group = criterion.benchmark_group(format!("sparse/{work}"));
        for name in WHEELS {
            bench(&mut group, name, deadline, mode(name));
        }
        group.finish();
    }
    criterion.final_summary();
}

fn mode(name: &str) -> Mode {
    name.parse().expect("a mode")
}
