//! Hashed wheels against hierarchical ones.
//!
//! `cargo bench --bench modes` runs all; `cargo bench --bench modes -- fire/1M/60s` a part, and
//! `--quick` fewer of them. A row is named work/live timeouts/delays, and its figures are the
//! nanoseconds a timeout, of the mode above: the median of turns that the modes take. One tick is a
//! millisecond. What else could hold timeouts, a heap, a `BTreeMap`, a sort or a bare slab, is
//! measured in `benches/peers`.

mod report;

use fastrand::Rng;
use report::{is_asked_for, is_quick, median, rounded, table};
use std::hint::black_box;
use std::time::Instant;
use tickwheel::{Key, Mode, Wheel};

const MODES: [&str; 5] =
    ["hierarchical:64", "hierarchical:256", "hashed:512", "hashed:4096", "hashed:65536"];
const SIZES: [(&str, usize); 3] = [("1k", 1_000), ("100k", 100_000), ("1M", 1_000_000)];
/// The longest, in ticks, and whether each power of ten is as likely as any other.
const DELAYS: [(&str, u64, bool); 4] = [
    ("60s", 60_000, false),
    ("1h", 3_600_000, false),
    ("24h", 86_400_000, false),
    ("1y", 31_557_600_000, true),
];

/// What is done with a wheel, so many times; returns the nanoseconds that all took.
type Work = fn(&Load, Mode) -> f64;

const WORKS: [(&str, Work); 7] = [
    ("schedule", |load, mode| load.fill(mode).0),
    ("fire", |load, mode| {
        let (_, mut wheel, _) = load.fill(mode);
        timed(|| fire_all(&mut wheel, 0)).0
    }),
    // All are scheduled and fire, in a wheel that has seen it before.
    ("pass", |load, mode| {
        let (_, mut wheel, _) = load.fill(mode);
        let (_, now) = timed(|| fire_all(&mut wheel, 0));
        timed(|| {
            for (value, &delay) in (0..).zip(&load.delays) {
                wheel.schedule(now + delay, value);
            }
            fire_all(&mut wheel, now)
        })
        .0
    }),
    ("cancel", |load, mode| {
        let (_, mut wheel, mut keys) = load.fill(mode);
        Rng::with_seed(2).shuffle(&mut keys);
        timed(|| keys.iter().for_each(|&key| _ = black_box(wheel.cancel(key)))).0
    }),
    ("reschedule", |load, mode| {
        let (_, mut wheel, mut keys) = load.fill(mode);
        Rng::with_seed(2).shuffle(&mut keys);
        let mut moves = keys.iter().zip(&load.delays);
        timed(|| moves.all(|(&key, &deadline)| black_box(wheel.reschedule(key, deadline)))).0
    }),
    // One after the other is scheduled, and a random one of those that wait is cancelled for it. Time
    // stands still, and none comes due.
    ("replace", |load, mode| {
        let (_, mut wheel, mut keys) = load.fill(mode);
        let mut replace = |&(which, delay): &(usize, u64)| {
            let key = wheel.schedule(delay, 0);
            black_box(wheel.cancel(std::mem::replace(&mut keys[which], key)));
        };
        let (warm_up, draws) = load.draws.split_at(load.draws.len() - load.delays.len());
        warm_up.iter().for_each(&mut replace);
        timed(|| draws.iter().for_each(replace)).0
    }),
    // Time goes on; what is due fires and is scheduled again, and for each of those a random one is
    // moved and another one replaced.
    ("mix", |load, mode| {
        let (_, mut wheel, mut keys) = load.fill(mode);
        let mut now = 0;
        let mut turn = |draws: &[(usize, u64)]| {
            let [(which, delay), (other, _)] = draws else { return };
            let fired = loop {
                match wheel.expire(now) {
                    Some(expired) => break expired.value,
                    None => now = wheel.next_wake().expect("timeouts wait").max(now + 1),
                }
            };
            keys[fired as usize] = wheel.schedule(now + delay, fired);
            wheel.reschedule(keys[*which], now + delay / 2 + 1);
            if let Some(value) = wheel.cancel(keys[*other]) {
                keys[*other] = wheel.schedule(now + delay, value);
            }
        };
        let (warm_up, draws) = load.draws.split_at(load.draws.len() - 2 * load.delays.len());
        warm_up.chunks(2).for_each(&mut turn);
        timed(|| draws.chunks(2).for_each(turn)).0
    }),
];

type SparseWork = fn(Mode) -> f64;

/// With one timeout, at a deadline: the nanoseconds of a call.
const SPARSE: [(&str, SparseWork); 3] = [
    // Time goes on tick by tick, and the only timeout is far away.
    ("sparse/poll", |mode| {
        let mut wheel = Wheel::new(mode);
        wheel.schedule(u64::MAX, 0);
        let polls = 1..=1_000_000_u64;
        timed(|| polls.for_each(|now| _ = black_box(wheel.expire(black_box(now))))).0 / 1e6
    }),
    ("sparse/jump/1", |mode| jump(mode, 1)),
    ("sparse/jump/2^60", |mode| jump(mode, 1 << 60)),
];

fn jump(mode: Mode, ticks: u64) -> f64 {
    const WHEELS: usize = 1_000;
    let wheel = |_| {
        let mut wheel = Wheel::new(mode);
        wheel.schedule(ticks, 0);
        wheel
    };
    let mut wheels: Vec<_> = (0..WHEELS).map(wheel).collect();
    let jump = |wheel: &mut Wheel<u64>| _ = black_box(wheel.expire(ticks));
    timed(|| wheels.iter_mut().for_each(jump)).0 / WHEELS as f64
}

/// What a wheel is filled with, drawn beforehand, as drawing costs as much as a cancel.
struct Load {
    delays: Vec<u64>,
    /// Which timeout, and a delay: four times as often as there are timeouts.
    draws: Vec<(usize, u64)>,
}

impl Load {
    fn new(count: usize, longest: u64, log_uniform: bool) -> Self {
        let mut rng = Rng::with_seed(1);
        let delay = |rng: &mut Rng| match log_uniform {
            true => (longest as f64).powf(rng.f64()) as u64,
            false => rng.u64(1..=longest),
        };
        let delays = (0..count).map(|_| delay(&mut rng)).collect();
        let draws = (0..4 * count).map(|_| (rng.usize(..count), delay(&mut rng))).collect();
        Self { delays, draws }
    }

    /// The nanoseconds that it took, too.
    fn fill(&self, mode: Mode) -> (f64, Wheel<u64>, Vec<Key>) {
        let mut wheel = Wheel::new(mode);
        let mut keys = Vec::with_capacity(self.delays.len());
        let schedule = |(value, &deadline)| keys.push(wheel.schedule(deadline, value));
        let (took, ()) = timed(|| (0..).zip(&self.delays).for_each(schedule));
        (took, wheel, keys)
    }
}

/// As an event loop would that has nothing else to do: it sleeps until the next wake.
fn fire_all(wheel: &mut Wheel<u64>, mut now: u64) -> u64 {
    while let Some(wake) = wheel.next_wake() {
        now = now.max(wake);
        while let Some(expired) = wheel.expire(now) {
            black_box(expired);
        }
    }
    now
}

fn timed<R>(work: impl FnOnce() -> R) -> (f64, R) {
    let start = Instant::now();
    let result = work();
    (start.elapsed().as_nanos() as f64, result)
}

/// A row with the median of so many turns.
fn row(name: &str, turns: usize, measure: impl Fn(Mode) -> f64) -> Vec<String> {
    let modes = MODES.map(|mode| mode.parse().expect("a mode"));
    let mut figures = MODES.map(|_| Vec::new());
    for _ in 0..turns {
        for (figures, mode) in figures.iter_mut().zip(modes) {
            figures.push(measure(mode));
        }
    }
    let medians = figures.map(|figures| rounded(median(figures)).to_string());
    [name.to_owned()].into_iter().chain(medians).collect()
}

fn main() {
    let sizes = if is_quick() { &SIZES[..1] } else { &SIZES };
    let mut header = vec!["ns"];
    header.extend(MODES);
    let mut table = table(header);
    for (work, measure) in WORKS {
        for &(size, count) in sizes {
            for (delays, longest, log_uniform) in DELAYS {
                let name = format!("{work}/{size}/{delays}");
                if is_asked_for(&name) {
                    let load = Load::new(count, longest, log_uniform);
                    // So that as many timeouts are measured of each size.
                    let turns = (if is_quick() { 1_000 } else { 10_000_000 } / count).clamp(1, 200);
                    table.add_row(row(&name, turns, |mode| measure(&load, mode) / count as f64));
                }
            }
        }
    }
    for (name, measure) in SPARSE {
        if is_asked_for(name) {
            table.add_row(row(name, if is_quick() { 1 } else { 20 }, measure));
        }
    }
    println!("{table}");
}
