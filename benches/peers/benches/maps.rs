//! A delay map beside a hash map and a delay queue kept in step by hand, and beside moka, which is
//! a cache for many threads. `cargo bench -p peers --bench maps`; `-- --quick` for fewer values.
//! They take turns; a ratio is of one turn, and its spread that of all turns. Times are those of
//! the processor: another program on the machine costs them little.

use cap::Cap;
use cpu_time::ThreadTime;
use moka::{Expiry, sync::Cache};
use std::alloc::System;
use std::collections::{HashMap, hash_map::Entry};
use std::hint::black_box;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tickwheel::{DelayMap, DelayQueue, Key};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// The figures of one subject in one turn, by row.
fn figures<M>(
    keys: &[u64],
    new: impl FnOnce() -> M,
    insert: impl Fn(&mut M, u64, Duration),
    get: impl Fn(&mut M, u64) -> bool,
    reset: impl Fn(&mut M, u64, Duration),
    // Hands out what is due, and returns whether nothing is left.
    expire: impl Fn(&mut M) -> bool,
) -> [f64; ROWS.len()] {
    let each = |run: &mut dyn FnMut()| {
        let start = ThreadTime::now();
        run();
        start.elapsed().as_nanos() as f64 / keys.len() as f64
    };
    let hours = |key: u64| Duration::from_millis(3_600_000 + key % 3_600_000);
    let soon = Duration::from_millis(1);
    let before = ALLOCATOR.allocated();
    let mut map = new();
    let inserts = each(&mut || keys.iter().for_each(|&key| insert(&mut map, key, hours(key))));
    assert!(!expire(&mut map));
    let bytes = (ALLOCATOR.allocated() - before) as f64 / keys.len() as f64;
    let gets = each(&mut || assert!(keys.iter().rev().all(|&key| get(&mut map, key))));
    let resets = each(&mut || keys.iter().for_each(|&key| reset(&mut map, key, hours(key / 7))));
    let replaces = each(&mut || keys.iter().for_each(|&key| insert(&mut map, key, hours(key / 9))));
    let mut expires = each(&mut || keys.iter().for_each(|&key| insert(&mut map, key, soon)));
    // moka looks a second later. Sleeping takes no time of the processor.
    expires += each(&mut || {
        while !expire(&mut map) {
            std::thread::sleep(50 * soon);
        }
    });
    [inserts, gets, resets, replaces, expires, bytes]
}

/// The value is its own delay.
struct ByValue;

type Delay = Option<Duration>;

impl Expiry<u64, Duration> for ByValue {
    fn expire_after_create(&self, _: &u64, delay: &Duration, _: Instant) -> Delay {
        Some(*delay)
    }

    fn expire_after_update(&self, _: &u64, delay: &Duration, _: Instant, _: Delay) -> Delay {
        Some(*delay)
    }
}

fn turn(keys: &[u64]) -> [[f64; ROWS.len()]; 3] {
    let delay_map = figures(
        keys,
        DelayMap::<u64, Duration>::new,
        |map, key, delay| _ = map.insert(key, delay, delay),
        |map, key| map.get(&key).is_some(),
        |map, key, delay| assert!(map.reset(&key, delay)),
        |map| {
            while let Poll::Ready(Some(_)) = map.poll_expired(&mut context()) {}
            map.is_empty()
        },
    );
    let by_hand = figures(
        keys,
        || (HashMap::<u64, (Duration, Key)>::new(), DelayQueue::new()),
        |(map, queue), key, delay| match map.entry(key) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().0 = delay;
                queue.reset(entry.get().1, delay);
            }
            Entry::Vacant(entry) => _ = entry.insert((delay, queue.insert(key, delay))),
        },
        |(map, _), key| map.contains_key(&key),
        |(map, queue), key, delay| assert!(queue.reset(map[&key].1, delay)),
        |(map, queue)| {
            while let Poll::Ready(Some(due)) = queue.poll_expired(&mut context()) {
                black_box(map.remove(&due.expect("the timer runs").value));
            }
            map.is_empty()
        },
    );
    let moka = figures(
        keys,
        || Cache::builder().expire_after(ByValue).build(),
        |map, key, delay| map.insert(key, delay),
        |map, key| map.get(&key).is_some(),
        |map, key, delay| map.insert(key, delay),
        |map| {
            map.run_pending_tasks();
            map.entry_count() == 0
        },
    );
    [delay_map, by_hand, moka]
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    for size in if is_quick { vec![20_000] } else { vec![1_000, 100_000, 1_000_000] } {
        let mut rng = fastrand::Rng::with_seed(1);
        let keys: Vec<u64> = (0..size).map(|_| rng.u64(..)).collect();
        let turns: Vec<_> = (0..if is_quick { 3 } else { 5 }).map(|_| turn(&keys)).collect();
        println!("\n{size:<26}{:>24}{:>24}{:>24}", "DelayMap", "to by hand", "to moka");
        for (row, name) in ROWS.into_iter().enumerate() {
            let spread = |base: &dyn Fn(&[[f64; ROWS.len()]; 3]) -> f64| {
                let mut figures: Vec<_> = turns.iter().map(|t| t[0][row] / base(t)).collect();
                figures.sort_by(f64::total_cmp);
                let [least, most] = [figures[0], figures[figures.len() - 1]];
                format!("{:.2} ({least:.2} to {most:.2})", figures[figures.len() / 2])
            };
            let [by_hand, moka] = [1, 2].map(|theirs| spread(&|turn| turn[theirs][row]));
            println!("{name:<26}{:>24}{by_hand:>24}{moka:>24}", spread(&|_| 1.0));
        }
    }
}

const ROWS: [&str; 6] =
    ["insert, ns", "get", "reset", "replace", "replace by 1 ms, hand out", "bytes per value"];
