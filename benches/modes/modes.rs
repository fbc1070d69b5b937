//! Hashed wheels against hierarchical ones.
//!
//! `cargo bench -p modes` runs all; `cargo bench -p modes -- 'fire/1M/60s'` a part.
//! A benchmark is named work/live timeouts/delays/mode, and its throughput is per timeout. One tick
//! is a millisecond. What else could hold timeouts, a heap, a `BTreeMap`, a sort or a bare slab, is
//! measured in `benches/peers`.

#[path = "../peers/src/random.rs"]
mod random;

use criterion::{BatchSize, Bencher, Criterion, Throughput};
use fastrand::Rng;
use random::{DAY, Delays, HOUR, MINUTE, YEAR};
use std::hint::black_box;
use std::mem;
use std::time::Duration;
use tickwheel::{Key, Mode, Wheel};

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

    fn deadlines(self) -> Vec<u64> {
        self.delays.many(self.count)
    }

    fn fill(self, mode: Mode) -> (Wheel<u64>, Vec<Key>) {
        let mut wheel = Wheel::new(mode);
        let keys = schedule_all(&mut wheel, &self.deadlines());
        (wheel, keys)
    }

    fn fill_and_shuffle(self, mode: Mode) -> (Wheel<u64>, Vec<Key>) {
        let (wheel, mut keys) = self.fill(mode);
        Rng::with_seed(2).shuffle(&mut keys);
        (wheel, keys)
    }
}

fn schedule_all(wheel: &mut Wheel<u64>, deadlines: &[u64]) -> Vec<Key> {
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

type Bench = fn(Load, Mode) -> Run;

/// What criterion runs. It is made for each benchmark, even for those that were not asked for.
type Run = Box<dyn FnMut(&mut Bencher)>;

/// Each run has what `new` makes, which is not timed, as is dropping what `run` returns.
fn each<I, O>(new: impl Fn() -> I + 'static, run: impl Fn(I) -> O + 'static) -> Run {
    Box::new(move |bencher| bencher.iter_batched(&new, &run, BatchSize::PerIteration))
}

/// One run after the other has what `new` makes when it is first needed.
fn on<S: 'static, O>(new: impl Fn() -> S + 'static, run: impl Fn(&mut S) -> O + 'static) -> Run {
    let mut state = None;
    Box::new(move |bencher| {
        let state = state.get_or_insert_with(&new);
        bencher.iter(|| run(state));
    })
}

fn schedule(load: Load, mode: Mode) -> Run {
    let new = move || (Wheel::new(mode), load.deadlines());
    each(new, |(mut wheel, deadlines)| (schedule_all(&mut wheel, &deadlines), wheel, deadlines))
}

fn fire(load: Load, mode: Mode) -> Run {
    each(move || load.fill(mode).0, |mut wheel| (fire_all(&mut wheel, 0), wheel))
}

/// Schedules them all and fires them all, over and over.
fn pass(load: Load, mode: Mode) -> Run {
    let new = move || (Wheel::new(mode), load.deadlines(), 0);
    on(new, |(wheel, delays, now)| {
        for (value, &delay) in (0..).zip(&*delays) {
            wheel.schedule(*now + delay, value);
        }
        let (sum, end) = fire_all(wheel, *now);
        *now = end;
        sum
    })
}

fn cancel(load: Load, mode: Mode) -> Run {
    let new = move || load.fill_and_shuffle(mode);
    each(new, |(mut wheel, keys)| {
        for &key in &keys {
            black_box(wheel.cancel(key));
        }
        (wheel, keys)
    })
}

fn reschedule(load: Load, mode: Mode) -> Run {
    let new = move || (load.fill_and_shuffle(mode), load.deadlines());
    each(new, |((mut wheel, keys), deadlines)| {
        for (&key, &deadline) in keys.iter().zip(&deadlines) {
            black_box(wheel.reschedule(key, deadline));
        }
        (wheel, keys, deadlines)
    })
}

/// One after the other is scheduled, and a random one of those that wait is cancelled for it. Time
/// stands still, and none comes due.
fn replace(load: Load, mode: Mode) -> Run {
    let new = move || (load.fill(mode), load.draws(), 0);
    on(new, |((wheel, keys), draws, at)| {
        let (which, delay) = draws[*at % draws.len()];
        *at += 1;
        let key = wheel.schedule(delay, *at as u64);
        wheel.cancel(mem::replace(&mut keys[which], key))
    })
}

/// Time goes on; what is due fires and is scheduled again, and for each of those a random one is
/// moved and another one replaced.
fn mix(load: Load, mode: Mode) -> Run {
    let new = move || (load.fill(mode), load.draws(), 0, 0);
    on(new, |((wheel, keys), draws, at, now)| {
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
    })
}

fn with_one(deadline: u64, mode: Mode) -> Wheel<u64> {
    let mut wheel = Wheel::new(mode);
    wheel.schedule(deadline, 0);
    wheel
}

/// The only timeout is so many ticks away, and jumped to.
fn jump(ticks: u64, mode: Mode) -> Run {
    let new = move || with_one(ticks, mode);
    Box::new(move |bencher| {
        bencher.iter_batched_ref(new, |wheel| wheel.expire(ticks), BatchSize::SmallInput);
    })
}

/// Time goes on tick by tick, and the only timeout is far away.
fn poll(deadline: u64, mode: Mode) -> Run {
    on(
        move || (with_one(deadline, mode), 0),
        |(wheel, now)| {
            *now += 1;
            wheel.expire(black_box(*now))
        },
    )
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();
    let mut bench = |name: String, timeouts: u64, run: &dyn Fn(Mode) -> Run| {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(timeouts));
        for name in WHEELS {
            group.bench_function(name, run(name.parse().expect("a mode")));
        }
        group.finish();
    };
    let works: [(&str, Bench); 7] = [
        ("schedule", schedule),
        ("fire", fire),
        ("pass", pass),
        ("cancel", cancel),
        ("reschedule", reschedule),
        ("replace", replace),
        ("mix", mix),
    ];
    for (work, run) in works {
        for (size, count) in SIZES {
            for (name, delays) in DELAYS {
                let timeouts = if matches!(work, "replace" | "mix") { 1 } else { count as u64 };
                let load = Load { delays, count };
                bench(format!("{work}/{size}/{name}"), timeouts, &|mode| run(load, mode));
            }
        }
    }
    bench("sparse/poll".into(), 1, &|mode| poll(u64::MAX, mode));
    bench("sparse/jump/1".into(), 1, &|mode| jump(1, mode));
    bench("sparse/jump/2^60".into(), 1, &|mode| jump(1 << 60, mode));
    criterion.final_summary();
}

const WHEELS: [&str; 5] =
    ["hierarchical:64", "hierarchical:256", "hashed:512", "hashed:4096", "hashed:65536"];
const SIZES: [(&str, usize); 3] = [("1k", 1_000), ("100k", 100_000), ("1M", 1_000_000)];
const DELAYS: [(&str, Delays); 4] = [
    ("60s", Delays::uniform(MINUTE)),
    ("1h", Delays::uniform(HOUR)),
    ("24h", Delays::uniform(DAY)),
    ("1y", Delays::log_uniform(YEAR)),
];
