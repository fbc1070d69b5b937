//! A cache whose entries expire some time after they were written, or last used, without a thread:
//! each operation of the cache drops what has expired.

use std::error::Error;
use std::hash::Hash;
use std::ops::RangeInclusive;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{Mode, WheelMap};
use tickwheel_cli::trace::Trace;

/// A map whose entries expire. The caller says what time it is, in ticks.
///
/// Each operation drops some of what has expired, and never much, so that none takes long. What
/// has expired and is still there counts as gone.
#[derive(Debug)]
pub struct ExpiringCache<K, V> {
    entries: WheelMap<K, Entry<V>>,
    lifetimes: Lifetimes,
}

/// The ticks after which an entry expires. None: it does not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lifetimes {
    /// After it was written.
    pub after_write: Option<u64>,
    /// After it was written or used.
    pub after_access: Option<u64>,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    /// The tick at which it expires, however often it is used.
    last: u64,
    /// The tick at which it expires unless it is used: its deadline in the wheel, or later, because
    /// a use does not move that.
    end: u64,
}

impl<K: Hash + Eq, V> ExpiringCache<K, V> {
    /// Returns an empty cache on a wheel of the mode.
    #[must_use]
    pub fn new(mode: Mode, lifetimes: Lifetimes) -> Self {
        Self { entries: WheelMap::new(mode), lifetimes }
    }

    /// Writes `value` under `key`, and returns the value that it had.
    pub fn insert(&mut self, now: u64, key: K, value: V) -> Option<V> {
        self.expire(now, &mut { WORK });
        let last = after(now, self.lifetimes.after_write);
        let end = last.min(after(now, self.lifetimes.after_access));
        live(now, self.entries.insert(key, Entry { value, last, end }, end))
    }

    /// Returns the value of `key`, which counts as a use.
    pub fn get(&mut self, now: u64, key: &K) -> Option<&V> {
        self.expire(now, &mut { WORK });
        let entry = self.entries.get_mut(key).filter(|entry| now < entry.end)?;
        entry.end = entry.last.min(after(now, self.lifetimes.after_access));
        Some(&entry.value)
    }

    /// Removes `key` and returns its value.
    pub fn remove(&mut self, now: u64, key: &K) -> Option<V> {
        self.expire(now, &mut { WORK });
        live(now, self.entries.remove(key))
    }

    /// Drops all that has expired, and gives back the memory that it took. Cost: O(n).
    pub fn clean_up(&mut self, now: u64) {
        self.expire(now, &mut { usize::MAX });
        self.entries.shrink_to_fit();
    }

    /// Returns the number of entries, with those that have expired and were not dropped yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether [`len`](Self::len) is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Costs next to nothing if nothing has expired.
    fn expire(&mut self, now: u64, work: &mut usize) {
        while let Some(due) = self.entries.expire_bounded(now, work) {
            // Used since its deadline was set.
            if now < due.value.end {
                let end = due.value.end;
                self.entries.insert(due.key, due.value, end);
            }
        }
    }
}

fn live<V>(now: u64, entry: Option<Entry<V>>) -> Option<V> {
    entry.filter(|entry| now < entry.end).map(|entry| entry.value)
}

/// A sum that no clock reaches is never.
fn after(now: u64, lifetime: Option<u64>) -> u64 {
    lifetime.map_or(u64::MAX, |lifetime| now.saturating_add(lifetime))
}

/// The requests of the bundled trace of a cache: when, in ms, and for which object.
///
/// # Errors
///
/// If the trace is not there, or is not as it should be.
pub fn requests() -> Result<Vec<(u64, u32)>, Box<dyn Error>> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data");
    let trace = Trace::open(&data.join("cache-twitter52.csv.gz"))?;
    let requests = trace.map(|operation| operation.map(|it| (it.time_ms, it.key)));
    Ok(requests.collect::<Result<_, _>>()?)
}

/// Asks both caches for each object of `requests` at its time, and writes it into each that has not
/// got it. The lifetimes are those after a write and after an access. `tell` learns the object, from
/// when to when the caches were asked, and whether this one and moka had it.
///
/// moka reads a clock of its own. So both run on that, and a second of trace and lifetimes takes
/// `second`.
pub fn beside_moka(
    requests: &[(u64, u32)],
    lifetimes: [Duration; 2],
    second: Duration,
    mut tell: impl FnMut(u32, RangeInclusive<Duration>, [bool; 2]),
) {
    let scaled = lifetimes.map(|lifetime| lifetime.mul_f64(second.as_secs_f64()));
    let ticks = scaled.map(|lifetime| Some(lifetime.as_micros() as u64));
    let [after_write, after_access] = ticks;
    let lifetimes = Lifetimes { after_write, after_access };
    let mut ours = ExpiringCache::new(Mode::hierarchical(), lifetimes);
    let [write, access] = scaled;
    let moka = moka::sync::Cache::builder().time_to_live(write).time_to_idle(access).build();
    let begun = Instant::now();
    for &(time_ms, object) in requests {
        let due = second.mul_f64(time_ms as f64 / 1_000.0);
        thread::sleep(due.saturating_sub(begun.elapsed()));
        let from = begun.elapsed();
        let now = from.as_micros() as u64;
        let hits = [ours.get(now, &object).is_some(), moka.get(&object).is_some()];
        if !hits[0] {
            ours.insert(now, object, ());
        }
        if !hits[1] {
            moka.insert(object, ());
        }
        tell(object, from..=begun.elapsed(), hits);
    }
}

/// What an operation does at most for entries that it was not asked for. An entry that is dropped
/// has come up on each level of the wheel at most once, so they go faster than they come.
const WORK: usize = 64;
