//! Polls at which nothing is due.

use crate::case::Sample;
use crate::clock::Time;
use crate::log::{Faults, Log, NOTHING, value};
use crate::subject::{Setup, Subject};
use std::hint::black_box;
use std::time::Duration;

/// Polls for so long; as many calls as fit, a batch at a time.
pub(super) fn run<S: Subject>(milliseconds: u64) -> Sample {
    const BATCH: u64 = 65_536;
    let mut subject = S::new(&Setup::new(FAR, 1));
    let mut pending = [value(FAR, 0)];
    subject.schedule_for_good(FAR, pending[0]);
    let mut log = Log::default();
    let most = Duration::from_millis(milliseconds);
    let mut now = 0;
    let (mut polls, mut spent) = (0, Duration::ZERO);
    while spent < most && now + BATCH < FAR {
        let started = Time::now();
        for _ in 0..BATCH {
            now += 1;
            subject.expire(black_box(now), &mut log);
        }
        // The first is to warm up.
        if now > BATCH {
            spent += started.elapsed();
            polls += BATCH;
        }
    }
    log.end_batch(now, now);
    let mut faults = Faults::default();
    if S::PROFILE.cancels {
        subject.drive(FAR - 1, &mut log);
    } else {
        subject.expire(FAR, &mut log);
        log.end_batch(FAR, FAR);
    }
    faults.judge_all(&log, &mut pending);
    faults.lost += u64::from(pending != [NOTHING]);
    Sample::of(faults, &[("poll", spent.as_nanos() as f64 / polls as f64)])
}

/// Not farther, as some have to be driven there tick by tick.
const FAR: u64 = 1 << 27;
