//! Hashed wheels against hierarchical ones, beside what else could hold timeouts.
//!
//! `cargo bench --bench modes` runs all; `cargo bench --bench modes -- 'fire/1M/60s'` a part.
//! A benchmark is named work/live timeouts/delays/subject, and its throughput is per timeout. One
//! tick is a millisecond. The subjects beside the wheels: a `BinaryHeap` whose cancelled entries
//! stay until they surface or outnumber the others, and a `BTreeMap`; where timeouts are fired, the
//! limit: `sort_unstable` of the same (deadline, value) pairs once and a walk over them, which
//! nothing that is asked for one timeout after the other can do; where they are cancelled, a bare
//! slab, which forgets the deadlines.

use criterion::{BatchSize, BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::hint::black_box;
use std::time::Duration;
use tickwheel::{Mode, Wheel};

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
    fn draw(self, random: &mut Random) -> u64 {
        if self.log_uniform {
            (self.longest as f64).powf(random.unit()) as u64
        } else {
            1 + random.below(self.longest)
        }
    }

    fn deadlines(self, count: usize) -> Vec<u64> {
        let mut random = Random(1);
        (0..count).map(|_| self.draw(&mut random)).collect()
    }
}

/// SplitMix64, so that every subject gets the same numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn shuffle<E>(&mut self, elements: &mut [E]) {
        for last in (1..elements.len()).rev() {
            elements.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// What can hold timeouts.
trait Subject {
    type Key: Copy;

    fn schedule(&mut self, deadline: u64, value: u64) -> Self::Key;
    fn cancel(&mut self, key: Self::Key) -> Option<u64>;
    fn reschedule(&mut self, key: Self::Key, deadline: u64) -> Self::Key;
    /// The next timeout that is due at `now`, by deadline.
    fn expire(&mut self, now: u64) -> Option<u64>;
    /// When to call `expire` again.
    fn next_wake(&mut self) -> Option<u64>;
}

impl Subject for Wheel<u64> {
    type Key = tickwheel::Key;

    #[inline]
    fn schedule(&mut self, deadline: u64, value: u64) -> Self::Key {
        self.schedule(deadline, value)
    }

    #[inline]
    fn cancel(&mut self, key: Self::Key) -> Option<u64> {
        self.cancel(key)
    }

    #[inline]
    fn reschedule(&mut self, key: Self::Key, deadline: u64) -> Self::Key {
        self.reschedule(key, deadline);
        key
    }

    #[inline]
    fn expire(&mut self, now: u64) -> Option<u64> {
        self.expire(now).map(|expired| expired.value)
    }

    #[inline]
    fn next_wake(&mut self) -> Option<u64> {
        Self::next_wake(self)
    }
}

/// A heap beside a slab of values: a cancel takes the value and leaves the heap's entry behind.
#[derive(Default)]
struct LazyHeap {
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// By index: the number of its present entry, and the value unless vacant.
    slab: Vec<(u64, Option<u64>)>,
    vacant: Vec<u32>,
    scheduled: u64,
}

impl LazyHeap {
    fn take(&mut self, number: u64, index: u32) -> Option<u64> {
        let (present, value) = &mut self.slab[index as usize];
        if *present != number {
            return None;
        }
        let value = value.take()?;
        self.vacant.push(index);
        Some(value)
    }

    /// Throws the cancelled entries out, once they outnumber the others.
    fn clean(&mut self) {
        let live = self.slab.len() - self.vacant.len();
        if self.heap.len() > 64 + 2 * live {
            let slab = &self.slab;
            self.heap.retain(|&Reverse((_, number, index))| {
                let (present, value) = slab[index as usize];
                present == number && value.is_some()
            });
        }
    }
}

impl Subject for LazyHeap {
    type Key = (u64, u32);

    #[inline]
    fn schedule(&mut self, deadline: u64, value: u64) -> Self::Key {
        self.scheduled += 1;
        let slot = (self.scheduled, Some(value));
        let index = match self.vacant.pop() {
            Some(index) => {
                self.slab[index as usize] = slot;
                index
            }
            None => {
                self.slab.push(slot);
                (self.slab.len() - 1) as u32
            }
        };
        self.heap.push(Reverse((deadline, self.scheduled, index)));
        (self.scheduled, index)
    }

    #[inline]
    fn cancel(&mut self, (number, index): Self::Key) -> Option<u64> {
        let value = self.take(number, index);
        self.clean();
        value
    }

    #[inline]
    fn reschedule(&mut self, (number, index): Self::Key, deadline: u64) -> Self::Key {
        match self.take(number, index) {
            Some(value) => {
                let key = self.schedule(deadline, value);
                self.clean();
                key
            }
            None => (number, index),
        }
    }

    #[inline]
    fn expire(&mut self, now: u64) -> Option<u64> {
        while let Some(&Reverse((deadline, number, index))) = self.heap.peek() {
            if now < deadline {
                break;
            }
            self.heap.pop();
            if let Some(value) = self.take(number, index) {
                return Some(value);
            }
        }
        None
    }

    #[inline]
    fn next_wake(&mut self) -> Option<u64> {
        self.heap.peek().map(|&Reverse((deadline, ..))| deadline)
    }
}

#[derive(Default)]
struct Tree {
    map: BTreeMap<(u64, u64), u64>,
    scheduled: u64,
}

impl Subject for Tree {
    type Key = (u64, u64);

    #[inline]
    fn schedule(&mut self, deadline: u64, value: u64) -> Self::Key {
        self.scheduled += 1;
        let key = (deadline, self.scheduled);
        self.map.insert(key, value);
        key
    }

    #[inline]
    fn cancel(&mut self, key: Self::Key) -> Option<u64> {
        self.map.remove(&key)
    }

    #[inline]
    fn reschedule(&mut self, key: Self::Key, deadline: u64) -> Self::Key {
        match self.map.remove(&key) {
            Some(value) => self.schedule(deadline, value),
            None => key,
        }
    }

    #[inline]
    fn expire(&mut self, now: u64) -> Option<u64> {
        let first = self.map.first_entry()?;
        if now < first.key().0 { None } else { Some(first.remove()) }
    }

    #[inline]
    fn next_wake(&mut self) -> Option<u64> {
        self.map.first_key_value().map(|(&(deadline, _), _)| deadline)
    }
}

/// A slab and nothing else: the limit for what cancels, as it forgets the deadlines.
#[derive(Default)]
struct Slab {
    slots: Vec<Option<u64>>,
    vacant: Vec<u32>,
}

impl Subject for Slab {
    type Key = u32;

    #[inline]
    fn schedule(&mut self, _deadline: u64, value: u64) -> u32 {
        match self.vacant.pop() {
            Some(index) => {
                self.slots[index as usize] = Some(value);
                index
            }
            None => {
                self.slots.push(Some(value));
                (self.slots.len() - 1) as u32
            }
        }
    }

    #[inline]
    fn cancel(&mut self, index: u32) -> Option<u64> {
        let value = self.slots[index as usize].take()?;
        self.vacant.push(index);
        Some(value)
    }

    #[inline]
    fn reschedule(&mut self, index: u32, _deadline: u64) -> u32 {
        index
    }

    #[inline]
    fn expire(&mut self, _now: u64) -> Option<u64> {
        None
    }

    #[inline]
    fn next_wake(&mut self) -> Option<u64> {
        None
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
    fn draws(self) -> Vec<(u64, u64)> {
        let mut random = Random(3);
        let draw = |_| (random.below(self.count as u64), self.delays.draw(&mut random));
        (0..4 * self.count).map(draw).collect()
    }

    fn fill<S: Subject>(self, new: impl Fn() -> S) -> (S, Vec<S::Key>) {
        let mut subject = new();
        let keys = schedule(&mut subject, &self.delays.deadlines(self.count));
        (subject, keys)
    }
}

fn schedule<S: Subject>(subject: &mut S, deadlines: &[u64]) -> Vec<S::Key> {
    let mut keys = Vec::with_capacity(deadlines.len());
    for (value, &deadline) in (0..).zip(deadlines) {
        keys.push(subject.schedule(deadline, value));
    }
    keys
}

/// As an event loop would that has nothing else to do: it sleeps until the next wake.
fn fire_all<S: Subject>(subject: &mut S, mut now: u64) -> (u64, u64) {
    let mut sum = 0_u64;
    while let Some(wake) = subject.next_wake() {
        now = now.max(wake);
        while let Some(value) = subject.expire(now) {
            sum = sum.wrapping_add(value);
        }
    }
    (sum, now)
}

type Group<'a> = BenchmarkGroup<'a, WallTime>;

fn bench_schedule<S: Subject>(group: &mut Group, name: &str, load: Load, new: impl Fn() -> S) {
    let deadlines = load.delays.deadlines(load.count);
    group.bench_function(name, |bencher| {
        bencher.iter_batched(
            &new,
            |mut subject| {
                let keys = schedule(&mut subject, &deadlines);
                (subject, keys)
            },
            BatchSize::PerIteration,
        );
    });
}

fn bench_fire<S: Subject>(group: &mut Group, name: &str, load: Load, new: impl Fn() -> S) {
    group.bench_function(name, |bencher| {
        bencher.iter_batched(
            || load.fill(&new).0,
            |mut subject| (fire_all(&mut subject, 0), subject),
            BatchSize::PerIteration,
        );
    });
}

/// Schedules them all and fires them all, over and over.
fn bench_pass<S: Subject>(group: &mut Group, name: &str, load: Load, new: impl Fn() -> S) {
    let delays = load.delays.deadlines(load.count);
    let mut subject = new();
    let mut now = 0;
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            for (value, &delay) in (0..).zip(&delays) {
                subject.schedule(now + delay, value);
            }
            let (sum, end) = fire_all(&mut subject, now);
            now = end;
            sum
        });
    });
}

fn bench_cancel<S: Subject>(group: &mut Group, name: &str, load: Load, new: impl Fn() -> S) {
    group.bench_function(name, |bencher| {
        bencher.iter_batched(
            || {
                let (subject, mut keys) = load.fill(&new);
                Random(2).shuffle(&mut keys);
                (subject, keys)
            },
            |(mut subject, keys)| {
                for &key in &keys {
                    black_box(subject.cancel(key));
                }
                (subject, keys)
            },
            BatchSize::PerIteration,
        );
    });
}

fn bench_reschedule<S: Subject>(group: &mut Group, name: &str, load: Load, new: impl Fn() -> S) {
    let deadlines = load.delays.deadlines(load.count);
    group.bench_function(name, |bencher| {
        bencher.iter_batched(
            || {
                let (subject, mut keys) = load.fill(&new);
                Random(2).shuffle(&mut keys);
                (subject, keys)
            },
            |(mut subject, mut keys)| {
                for (key, &deadline) in keys.iter_mut().zip(&deadlines) {
                    *key = subject.reschedule(*key, deadline);
                }
                (subject, keys)
            },
            BatchSize::PerIteration,
        );
    });
}

/// One after the other is scheduled, and a random one of those that wait is cancelled for it. Time
/// stands still, and none comes due.
fn bench_replace<S: Subject>(group: &mut Group, name: &str, load: Load, new: impl Fn() -> S) {
    group.throughput(Throughput::Elements(1));
    let mut state = None;
    group.bench_function(name, |bencher| {
        let (subject, keys, draws, at) = state.get_or_insert_with(|| {
            let (subject, keys) = load.fill(&new);
            (subject, keys, load.draws(), 0)
        });
        bencher.iter(|| {
            let (which, delay) = draws[*at % draws.len()];
            *at += 1;
            let key = subject.schedule(delay, *at as u64);
            subject.cancel(std::mem::replace(&mut keys[which as usize], key))
        });
    });
}

/// Time goes on; what is due fires and is scheduled again, and for each of those a random one is
/// moved and another one replaced.
fn bench_mix<S: Subject>(group: &mut Group, name: &str, load: Load, new: impl Fn() -> S) {
    group.throughput(Throughput::Elements(1));
    let mut state = None;
    group.bench_function(name, |bencher| {
        let (subject, keys, draws, at, now) = state.get_or_insert_with(|| {
            let (subject, keys) = load.fill(&new);
            (subject, keys, load.draws(), 0, 0)
        });
        bencher.iter(|| {
            let fired = loop {
                match subject.expire(*now) {
                    Some(value) => break value,
                    None => *now = subject.next_wake().expect("timeouts wait").max(*now + 1),
                }
            };
            let (which, delay) = draws[*at % draws.len()];
            let (other, _) = draws[(*at + 1) % draws.len()];
            *at += 2;
            keys[fired as usize] = subject.schedule(*now + delay, fired);
            keys[which as usize] = subject.reschedule(keys[which as usize], *now + delay / 2 + 1);
            if subject.cancel(keys[other as usize]).is_some() {
                keys[other as usize] = subject.schedule(*now + delay, other);
            }
        });
    });
}

/// The only timeout is so many ticks away, and jumped to.
fn bench_jump<S: Subject>(group: &mut Group, name: &str, ticks: u64, new: impl Fn() -> S) {
    group.bench_function(name, |bencher| {
        bencher.iter_batched_ref(
            || {
                let mut subject = new();
                subject.schedule(ticks, 0);
                subject
            },
            |subject| subject.expire(ticks),
            BatchSize::SmallInput,
        );
    });
}

/// Time goes on tick by tick, and the only timeout is far away.
fn bench_poll<S: Subject>(group: &mut Group, name: &str, new: impl Fn() -> S) {
    let mut subject = new();
    subject.schedule(u64::MAX, 0);
    let mut now = 0;
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            now += 1;
            subject.expire(black_box(now))
        });
    });
}

/// Sorts once and walks.
fn bench_limit(group: &mut Group, name: &str, load: Load) {
    let pairs: Vec<(u64, u64)> = load.delays.deadlines(load.count).into_iter().zip(0..).collect();
    group.bench_function(name, |bencher| {
        bencher.iter_batched(
            || pairs.clone(),
            |mut pairs| {
                pairs.sort_unstable();
                let mut sum = 0_u64;
                for &(deadline, value) in &pairs {
                    sum = sum.wrapping_add(black_box(deadline) ^ value);
                }
                (sum, pairs)
            },
            BatchSize::PerIteration,
        );
    });
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();

    macro_rules! bench {
        ($work:literal, $bench:ident $(, $limit:literal: $bench_limit:expr)?) => {
            for (size, count) in SIZES {
                for delays in DELAYS {
                    let load = Load { delays, count };
                    let name = format!("{}/{size}/{}", $work, delays.name);
                    let mut group = criterion.benchmark_group(name);
                    group.throughput(Throughput::Elements(count as u64));
                    for wheel in WHEELS {
                        let mode: Mode = wheel.parse().expect("a mode");
                        $bench(&mut group, wheel, load, || Wheel::<u64>::new(mode));
                    }
                    $bench(&mut group, "heap", load, LazyHeap::default);
                    $bench(&mut group, "btree", load, Tree::default);
                    $($bench_limit(&mut group, $limit, load);)?
                    group.finish();
                }
            }
        };
    }
    let slab = |bench: fn(&mut Group, &str, Load, fn() -> Slab)| {
        move |group: &mut Group, name: &str, load| bench(group, name, load, Slab::default)
    };
    bench!("schedule", bench_schedule);
    bench!("fire", bench_fire, "limit": bench_limit);
    bench!("pass", bench_pass, "limit": bench_limit);
    bench!("cancel", bench_cancel, "slab": slab(bench_cancel));
    bench!("reschedule", bench_reschedule);
    bench!("replace", bench_replace, "slab": slab(bench_replace));
    bench!("mix", bench_mix);

    macro_rules! bench_sparse {
        ($group:literal, |$bencher:ident, $name:ident, $new:ident| $bench:expr) => {
            let mut $bencher = criterion.benchmark_group(concat!("sparse/", $group));
            for $name in WHEELS {
                let mode: Mode = $name.parse().expect("a mode");
                let $new = || Wheel::<u64>::new(mode);
                $bench;
            }
            let ($name, $new) = ("heap", LazyHeap::default);
            $bench;
            let ($name, $new) = ("btree", Tree::default);
            $bench;
            $bencher.finish();
        };
    }
    bench_sparse!("poll", |group, name, new| bench_poll(&mut group, name, new));
    bench_sparse!("jump/1", |group, name, new| bench_jump(&mut group, name, 1, new));
    bench_sparse!("jump/2^60", |group, name, new| bench_jump(&mut group, name, 1 << 60, new));
    criterion.final_summary();
}
