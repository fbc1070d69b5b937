//! A cache beside moka, on the requests for objects of a real cache.

use cap::Cap;
use cpu_time::ThreadTime;
use std::alloc::System;
use std::error::Error;
use std::time::Duration;
use systems::expiring_cache::{beside_moka, requests};
use tickwheel::{ExpiringMap, Timer};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

fn main() -> Result<(), Box<dyn Error>> {
    let requests = requests()?;
    let (&(last, _), many) = (requests.last().ok_or("an empty trace")?, requests.len());
    println!("{many} requests in {} s of a cache at Twitter", last / 1_000);

    let timer = Timer::new();
    println!("a day after the last use, as the trace has it, at full speed:");
    for turn in 1..=2 {
        let ours = ExpiringMap::builder().time_to_idle(DAY).build(&timer);
        let ours = measured(&requests, |now, object| {
            let is_hit = ours.get(&object).is_some();
            if !is_hit {
                let _ = ours.insert(object, now, Duration::MAX); // it has no limit
            }
            is_hit
        });
        println!("  {turn}. tickwheel: {ours}");
        let moka = moka::sync::Cache::builder().time_to_idle(DAY).build();
        let moka = measured(&requests, |now, object| {
            let is_hit = moka.get(&object).is_some();
            if !is_hit {
                moka.insert(object, now);
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

/// Asks for each object at its time, and says what that took.
fn measured(requests: &[(u64, u32)], mut ask: impl FnMut(u64, u32) -> bool) -> String {
    let before = ALLOCATOR.allocated();
    let start = ThreadTime::now();
    let hits = requests.iter().filter(|&&(now, object)| ask(now, object)).count();
    let each = start.elapsed().as_nanos() as usize / requests.len();
    let objects = requests.len() - hits;
    let bytes = ALLOCATOR.allocated().saturating_sub(before) / objects;
    format!("{hits} hits, {objects} objects, {each} ns per request, {bytes} bytes per object")
}

const DAY: Duration = Duration::from_secs(86_400);
const SECOND: Duration = Duration::from_secs(1);
