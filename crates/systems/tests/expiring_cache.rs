//! A cache expires as moka does.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::Duration;
use systems::expiring_cache::{beside_moka, requests};

/// However long the system holds the thread up: an answer is judged by the earliest and the latest
/// times at which the clock may have been read.
#[test]
fn hits_are_those_of_moka() {
    let mut requests = requests().expect("the trace is bundled");
    requests.retain(|&(time_ms, _)| time_ms < 40_000);
    // They end in the middle of a second of the trace.
    let [write, access] = [20_500, 5_500].map(Duration::from_millis);
    let second = Duration::from_millis(50);
    let [after_write, after_access] = [write, access].map(|it| it.mul_f64(second.as_secs_f64()));
    // When each cache wrote and last used an object.
    let mut known: [HashMap<u32, [RangeInclusive<Duration>; 2]>; 2] = Default::default();
    let (mut hits, mut unsure) = ([0; 2], 0);
    beside_moka(&requests, [write, access], second, |object, when, answers| {
        for ((known, is_hit), hits) in known.iter_mut().zip(answers).zip(&mut hits) {
            let is_there = |now: Duration, [written, used]: [Duration; 2]| {
                now < written + after_write && now < used + after_access
            };
            let (may_hit, must_hit) =
                known.get(&object).map_or((false, false), |[written, used]| {
                    let [latest, earliest] =
                        [[written.end(), used.end()], [written.start(), used.start()]]
                            .map(|at| at.map(|at| *at));
                    let may_hit = is_there(when.start().saturating_sub(CLOCKS), latest);
                    (may_hit, is_there(*when.end() + CLOCKS, earliest))
                });
            assert!(if is_hit { may_hit } else { !must_hit }, "{object} at {when:?}: {is_hit}");
            unsure += usize::from(may_hit != must_hit);
            let [written, used] =
                known.entry(object).or_insert_with(|| [when.clone(), when.clone()]);
            if !is_hit {
                *written = when.clone();
            }
            *used = when.clone();
            *hits += usize::from(is_hit);
        }
    });
    assert!(0 < hits[0] && hits[0] < requests.len());
    assert!(0 < unsure || hits[0] == hits[1], "hits of ours, and of moka's: {hits:?}");
}

/// Caches and test read different clocks, which may be so far apart.
const CLOCKS: Duration = Duration::from_millis(2);
