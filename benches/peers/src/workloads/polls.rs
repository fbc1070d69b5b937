//! Polls at which little or nothing is due, and a jump in time.

use crate::case::Sample;
use crate::log::{Fault, Faults, Log, deadline, value};
use crate::random::{Delays, HOUR, MINUTE, SECOND};
use crate::subject::{Setup, Subject};
use cpu_time::ThreadTime;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Polls for so long; as many calls as fit, a batch at a time.
pub(super) fn far<S: Subject>(milliseconds: u64) -> Sample {
    const BATCH: u64 = 65_536;
    // Not farther, as some have to be driven there tick by tick.
    const FAR: u64 = 1 << 27;
    let mut subject = S::new(&Setup::new(FAR, 1));
    let mut pending = [value(FAR, 0)];
    subject.schedule_for_good(FAR, pending[0]);
    let mut log = Log::default();
    let most = Duration::from_millis(milliseconds);
    let mut now = 0;
    let (mut polls, mut spent) = (0, Duration::ZERO);
    while spent < most && now + BATCH < FAR {
        let started = ThreadTime::now();
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
    subject.drive(FAR - 1, &mut log);
    faults.judge_all(&log, &mut pending);
    faults.judge_rest(&pending);
    Sample::of(faults, &[("poll", spent.as_nanos() as f64 / polls as f64)])
}

/// Time jumps.
pub(super) fn jump<S: Subject>() -> Sample {
    const JUMP: u64 = 1 << 40;
    let mut faults = Faults::default();
    let mut once = || {
        let mut subject = S::new(&Setup::new(JUMP, 1));
        subject.schedule_for_good(JUMP, 7);
        let mut log = Log::with_capacity(1);
        subject.expire(JUMP - 1, &mut log);
        faults.add(Fault::Early, log.values.len() as u64);
        // The jump before it is the one that counts; this tells whether it arrived.
        subject.expire(JUMP, &mut log);
        faults.add(Fault::Lost, log.values.is_empty());
        faults.add(Fault::Duplicated, log.values.len().saturating_sub(1) as u64);

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

/// What it costs that many wait, none of which is due.
pub(super) fn waiting<S: Subject>(count: usize) -> Sample {
    let setup = Setup { buckets: Some(512), ..Setup::new(2 * HOUR, count) };
    let mut subject = S::new(&setup);
    let mut pending = fill(&mut subject, HOUR, Delays::uniform(HOUR), count);
    // That the rest comes out is a test of its own.
    let (each, faults) = polled(subject, MINUTE, 0, &mut pending);
    Sample::of(faults, &[("core", each * 1e-6)])
}

/// Times that are no whole ticks: nothing may come before its time, however short of it.
pub(super) fn between_ticks<S: Subject>(count: usize) -> Sample {
    /// Of the caller's unit of time.
    const TICK: u64 = 16;
    let delays = Delays::uniform(10 * SECOND * TICK);
    let setup = Setup { units_a_tick: TICK, ..Setup::new(delays.longest, count) };
    let mut subject = S::new(&setup);
    let mut pending = fill(&mut subject, 0, delays, count);
    // Up to a tick late is all that can be asked for.
    let (each, mut faults) = polled(subject, delays.longest + TICK, TICK, &mut pending);
    faults.judge_rest(&pending);
    // Within a tick there is no order to be had.
    faults.forgive(Fault::Disordered);
    Sample::of(faults, &[("poll", each)])
}

/// Schedules timeouts that are due after `since`, and returns their values.
fn fill(subject: &mut impl Subject, since: u64, delays: Delays, count: usize) -> Vec<u64> {
    let delays = (0..).zip(delays.many(count));
    let pending: Vec<_> = delays.map(|(id, delay)| value(since + delay, id)).collect();
    pending.iter().for_each(|&value| subject.schedule_for_good(deadline(value), value));
    pending
}

/// Polls until `end`, where it may be late by so much: the nanoseconds a poll, and what was wrong.
fn polled(mut subject: impl Subject, end: u64, late: u64, pending: &mut [u64]) -> (f64, Faults) {
    let mut log = Log::with_capacity(pending.len());
    let started = ThreadTime::now();
    for now in 1..=end {
        subject.expire(now, &mut log);
        log.end_batch(now, now.saturating_sub(late));
    }
    let each = started.elapsed().as_nanos() as f64 / end as f64;
    let mut faults = Faults::default();
    faults.judge_all(&log, pending);
    (each, faults)
}
