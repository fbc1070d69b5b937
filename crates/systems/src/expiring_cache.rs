//! A cache whose entries expire some time after they were written, and after they were last used:
//! an [`ExpiringMap`] and nothing else. Beside it moka, on the requests of a real cache.

use std::error::Error;
use std::ops::RangeInclusive;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{ExpiringMap, Timer};
use tickwheel_cli::trace::Trace;

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
/// Both read clocks of their own, and a second of trace and lifetimes takes
/// `second`.
pub fn beside_moka(
    requests: &[(u64, u32)],
    lifetimes: [Duration; 2],
    second: Duration,
    mut tell: impl FnMut(u32, RangeInclusive<Duration>, [bool; 2]),
) {
    let [write, access] = lifetimes.map(|lifetime| lifetime.mul_f64(second.as_secs_f64()));
    let timer = Timer::new();
    let ours = ExpiringMap::builder().time_to_idle(access).build(&timer);
    let moka = moka::sync::Cache::builder().time_to_live(write).time_to_idle(access).build();
    let begun = Instant::now();
    for &(time_ms, object) in requests {
        let due = second.mul_f64(time_ms as f64 / 1_000.0);
        thread::sleep(due.saturating_sub(begun.elapsed()));
        let from = begun.elapsed();
        let hits = [ours.get(&object).is_some(), moka.get(&object).is_some()];
        if !hits[0] {
            let _ = ours.insert(object, (), write); // it has no limit
        }
        if !hits[1] {
            moka.insert(object, ());
        }
        tell(object, from..=begun.elapsed(), hits);
    }
}
