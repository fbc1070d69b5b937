//! Time jumps.

use crate::case::Sample;
use crate::log::{Faults, Log};
use crate::subject::{Setup, Subject};
use std::time::Instant;

pub(super) fn run<S: Subject>() -> Sample {
    let mut faults = Faults::default();
    let mut once = || {
        let mut subject = S::new(&Setup::new(JUMP, 1));
        subject.schedule_for_good(JUMP, 7);
        let mut log = Log::with_capacity(1);
        subject.expire(JUMP - 1, &mut log);
        if log.len() > 0 {
            faults.early += 1;
        }
        // The jump before it is the one that counts; this tells whether it arrived.
        subject.expire(JUMP, &mut log);
        match log.values()[..] {
            [7] => {}
            [] => faults.lost += 1,
            _ => faults.duplicated += 1,
        }

        let mut subject = S::new(&Setup::new(JUMP, 1));
        subject.schedule_for_good(JUMP, 7);
        let started = Instant::now();
        subject.expire(JUMP, &mut log);
        started.elapsed()
    };
    once();
    let jump = once();
    Sample::of(faults, &[("jump", jump.as_nanos() as f64)])
}

const JUMP: u64 = 1 << 40;
