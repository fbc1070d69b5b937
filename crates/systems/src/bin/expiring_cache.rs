//! A cache without a thread, beside moka, on the requests for objects of a real cache.

use cap::Cap;
use cpu_time::ThreadTime;
use std::alloc::System;
use std::error::Error;
use std::time::Duration;
use systems::expiring_cache::{ExpiringCache, Lifetimes, beside_moka, requests};
use tickwheel::Mode;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

fn main() -> Result<(), Box<dyn Error>> {
    let requests = requests()?;
    let (&(last, _), many) = (requests.last().ok_or("an empty trace")?, requests.len());
    println!("{many} requests in {} s of a cache at Twitter", last / 1_000);

    println!("a day after the last use, as the trace has it, at full speed:");
    for turn in 1..=2 {
        let lifetimes = Lifetimes { after_write: None, after_access: Some(DAY.as_millis() as u64) };
        let ours = measured(&requests, ExpiringCache::new(Mode::hierarchical(), lifetimes), {
            |cache: &mut ExpiringCache<u32, u64>, now, object| {
                let is_hit = cache.get(now, &object).is_some();
                if !is_hit {
                    cache.insert(now, object, now);
                }
                is_hit
            }
        });
        println!("  {turn}. tickwheel: {ours}");
        let moka = moka::sync::Cache::builder().time_to_idle(DAY).build();
        let moka =
            measured(&requests, moka, |cache: &mut moka::sync::Cache<u32, u64>, now, object| {
                let is_hit = cache.get(&object).is_some();
                if !is_hit {
                    cache.insert(object, now);
                }
                is_hit
            });
        println!("  {turn}. moka:      {moka}");
    }

    println!("60.5 s after the write, 10.5 s after the last use, a second in 20 ms:");
    let lifetimes = [60.5, 10.5].map(|seconds| SECOND.mul_f64(seconds));
    let [mut ours, mut moka] = [0; 2];
    beside_moka(&requests, lifetimes, SECOND / 50, |_, _, [is_ours, is_mokas]| {
        ours += usize::from(is_ours);
        moka += usize::from(is_mokas);
    });
    println!("  tickwheel: {ours} hits\n  moka:      {moka} hits");
    Ok(())
}

/// Asks the cache for each object at its time, and says what that took.
fn measured<C>(
    requests: &[(u64, u32)],
    mut cache: C,
    mut ask: impl FnMut(&mut C, u64, u32) -> bool,
) -> String {
    let before = ALLOCATOR.allocated();
    let start = ThreadTime::now();
    let hits = requests.iter().filter(|&&(now, object)| ask(&mut cache, now, object)).count();
    let each = start.elapsed().as_nanos() as usize / requests.len();
    let objects = requests.len() - hits;
    let bytes = ALLOCATOR.allocated().saturating_sub(before) / objects;
    format!("{hits} hits, {objects} objects, {each} ns per request, {bytes} bytes per object")
}

const DAY: Duration = Duration::from_secs(86_400);
const SECOND: Duration = Duration::from_secs(1);
