//! A map that threads share beside caches for many threads, moka and mini-moka, and beside a
//! concurrent hash map and a delay channel kept in step by hand, on 1, 2 and 4 threads.
//! `cargo bench -p peers --bench shared_maps`; `-- --quick` for fewer values. They take turns. A
//! time is that of the processor, by all threads of the process, per operation. A ratio is of one
//! turn, and its spread that of all turns. In the end, bytes per value, and how many gets of the
//! mixed calls found a value.

#[path = "../src/allocator.rs"]
mod allocator;

use allocator::counted;
use cpu_time::ProcessTime;
use dashmap::DashMap;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{DelayKey, DelayReceiver, DelaySender, ExpiringMap, Timer, delay_channel, timer};

/// A map of numbers, each of which is there for an hour, that threads share.
trait Subject: Sync {
    const NAME: &str;

    fn new() -> Self;
    fn insert(&self, key: u64, value: u64);
    fn get(&self, key: u64) -> Option<u64>;
    /// Gets a value, which then is there for another hour.
    fn get_and_touch(&self, key: u64) -> Option<u64>;
    fn remove(&self, key: u64) -> Option<u64>;
    fn settle(&self) {}
}

impl Subject for ExpiringMap<u64, u64> {
    const NAME: &str = "ExpiringMap";

    fn new() -> Self {
        Self::with_timer(timer())
    }

    fn insert(&self, key: u64, value: u64) {
        _ = self.insert(key, value, HOUR);
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.get(&key)
    }

    fn get_and_touch(&self, key: u64) -> Option<u64> {
        self.get_and_reset(&key, HOUR)
    }

    fn remove(&self, key: u64) -> Option<u64> {
        self.remove(&key)
    }
}

/// Its values may be idle for an hour. So each `get` moves the end of a value.
struct Moka(moka::sync::Cache<u64, u64>);

impl Subject for Moka {
    const NAME: &str = "moka";

    fn new() -> Self {
        Self(moka::sync::Cache::builder().time_to_live(24 * HOUR).time_to_idle(HOUR).build())
    }

    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    fn get_and_touch(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    fn remove(&self, key: u64) -> Option<u64> {
        self.0.remove(&key)
    }

    fn settle(&self) {
        self.0.run_pending_tasks();
    }
}

struct MiniMoka(mini_moka::sync::Cache<u64, u64>);

impl Subject for MiniMoka {
    const NAME: &str = "mini-moka";

    fn new() -> Self {
        let builder = mini_moka::sync::Cache::builder();
        Self(builder.time_to_live(24 * HOUR).time_to_idle(HOUR).build())
    }

    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    fn get_and_touch(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    fn remove(&self, key: u64) -> Option<u64> {
        let value = self.0.get(&key);
        self.0.invalidate(&key);
        value
    }

    fn settle(&self) {
        mini_moka::sync::ConcurrentCacheExt::sync(&self.0);
    }
}

/// A value with its end, and its name in the channel.
type Held = (u64, Instant, DelayKey);

struct ByHand {
    map: DashMap<u64, Held>,
    sender: DelaySender<u64>,
    /// It gets nothing within the hour.
    _receiver: DelayReceiver<u64>,
    _timer: Timer,
}

impl Subject for ByHand {
    const NAME: &str = "by hand";

    fn new() -> Self {
        let timer = Timer::new();
        let (sender, receiver) = delay_channel(&timer);
        Self { map: DashMap::new(), sender, _receiver: receiver, _timer: timer }
    }

    fn insert(&self, key: u64, value: u64) {
        let end = Instant::now() + HOUR;
        let named = self.sender.insert(key, HOUR).expect("it is open");
        if let Some((_, _, replaced)) = self.map.insert(key, (value, end, named)) {
            self.sender.remove(replaced);
        }
    }

    fn get(&self, key: u64) -> Option<u64> {
        let held = self.map.get(&key)?;
        (Instant::now() < held.1).then_some(held.0)
    }

    fn get_and_touch(&self, key: u64) -> Option<u64> {
        let mut held = self.map.get_mut(&key)?;
        let now = Instant::now();
        if held.1 <= now {
            return None;
        }
        held.1 = now + HOUR;
        self.sender.reset(held.2, HOUR);
        Some(held.0)
    }

    fn remove(&self, key: u64) -> Option<u64> {
        let (_, (value, end, named)) = self.map.remove(&key)?;
        self.sender.remove(named);
        (Instant::now() < end).then_some(value)
    }
}

/// The nanoseconds of an operation, by row.
fn figures<M: Subject>(keys: &[u64], threads: usize) -> [f64; ROWS.len()] {
    let map = M::new();
    let each = |call: &(dyn Fn(u64) -> bool + Sync)| {
        let start = ProcessTime::now();
        thread::scope(|scope| {
            for part in keys.chunks(keys.len() / threads) {
                let calls = || assert!(part.iter().all(|&key| call(key)));
                scope.spawn(calls);
            }
        });
        map.settle();
        start.elapsed().as_nanos() as f64 / keys.len() as f64
    };
    let insert = |key| {
        map.insert(key, key);
        true
    };
    let call_mixed = |key| {
        black_box(mixed(&map, keys, key));
        true
    };
    [
        each(&insert),
        each(&|key| map.get(key) == Some(key)),
        each(&|key| map.get(!key).is_none()),
        each(&|key| map.get_and_touch(key) == Some(key)),
        each(&insert),
        each(&call_mixed) / 2.0,
        each(&|key| map.remove(key) == Some(key)),
    ]
}

/// Two calls for a key. Of two gets there is one for a key that is often asked for, and one write of
/// eight calls. Returns what the gets found.
fn mixed(map: &impl Subject, keys: &[u64], key: u64) -> [Option<u64>; 2] {
    let often = map.get(keys[(key % 1_000) as usize % keys.len()]);
    let other = match key % 4 {
        0 => {
            map.insert(key / 2, key);
            None
        }
        1 if key % 8 == 1 => {
            map.remove(key / 2);
            None
        }
        _ => map.get(key),
    };
    [often, other]
}

/// Prints the bytes per value, and how many gets of the mixed calls found a value.
fn print_memory_and_hits<M: Subject>(keys: &[u64]) {
    let (map, [bytes, _]) = counted(|| {
        let map = M::new();
        keys.iter().for_each(|&key| map.insert(key, key));
        map.settle();
        map
    });
    let hits = keys.iter().flat_map(|&key| mixed(&map, keys, key)).flatten().count();
    println!(
        "{:<16}{:>10.1} bytes per value{hits:>12} hits",
        M::NAME,
        bytes as f64 / keys.len() as f64
    );
}

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let (size, turns) = if is_quick { (10_000, 1) } else { (200_000, 7) };
    let mut rng = fastrand::Rng::with_seed(1);
    // None is half of another or its complement, as far as it goes.
    let keys: Vec<u64> = (0..size).map(|_| rng.u64(..) | 1 << 63).collect();
    for threads in [1, 2, 4] {
        let turns: Vec<_> = (0..turns)
            .map(|_| {
                [
                    figures::<ExpiringMap<u64, u64>>(&keys, threads),
                    figures::<Moka>(&keys, threads),
                    figures::<MiniMoka>(&keys, threads),
                    figures::<ByHand>(&keys, threads),
                ]
            })
            .collect();
        let names = [Moka::NAME, MiniMoka::NAME, ByHand::NAME].map(|name| format!("to {name}"));
        let [moka, mini, by_hand] = &names;
        let ours = <ExpiringMap<u64, u64> as Subject>::NAME;
        println!("\n{threads} threads, ns{ours:>27}{moka:>24}{mini:>24}{by_hand:>24}");
        for (row, name) in ROWS.into_iter().enumerate() {
            let spread = |base: &dyn Fn(&[[f64; ROWS.len()]; 4]) -> f64| {
                let mut figures: Vec<_> =
                    turns.iter().map(|turn| turn[0][row] / base(turn)).collect();
                figures.sort_by(f64::total_cmp);
                let [least, most] = [figures[0], figures[figures.len() - 1]];
                format!("{:.2} ({least:.2} to {most:.2})", figures[figures.len() / 2])
            };
            let [moka, mini, by_hand] = [1, 2, 3].map(|theirs| spread(&|turn| turn[theirs][row]));
            println!("{name:<16}{:>24}{moka:>24}{mini:>24}{by_hand:>24}", spread(&|_| 1.0));
        }
    }

    println!();
    print_memory_and_hits::<ExpiringMap<u64, u64>>(&keys);
    print_memory_and_hits::<Moka>(&keys);
    print_memory_and_hits::<MiniMoka>(&keys);
    print_memory_and_hits::<ByHand>(&keys);
}

const ROWS: [&str; 7] =
    ["insert", "get, a hit", "get, a miss", "get and touch", "replace", "mixed", "remove"];

const HOUR: Duration = Duration::from_secs(3_600);
