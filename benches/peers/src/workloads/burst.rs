//! Timers with threads: many timeouts that come due at once, alone and beside a thread that calls.

use crate::case::Sample;
use crate::log::{Fault, Faults};
use crate::threaded::{FAR, Threaded, early};
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// One burst alone, and one while another thread cancels and schedules without a rest.
pub(super) fn run<T: Threaded>(timeouts: usize) -> Sample {
    let began = Instant::now();
    let timer = T::new();
    let (alone, mut lost) = until_all_ran(&timer, timeouts, |_| ());
    let ends = AtomicBool::new(false);
    let ((with_caller, lost_again), [idle, busy]) = thread::scope(|scope| {
        let mut caller = None;
        let found = until_all_ran(&timer, timeouts, |due| {
            caller = Some(scope.spawn({
                let (timer, ends) = (&timer, &ends);
                move || call(timer, due, ends)
            }));
        });
        ends.store(true, Relaxed);
        (found, caller.expect("it was begun").join().expect("no panics"))
    });
    lost += lost_again;
    let mut faults = Faults::default();
    faults.add(Fault::Lost, lost as u64);
    faults.add(Fault::Early, early(began));
    let mut sample = Sample { faults, ..Sample::default() };
    let mut add = |name: &str, nanos: Option<f64>| {
        sample.values.extend(nanos.map(|nanos| (name.to_owned(), nanos)));
    };
    add("alone", alone.map(|time| time.as_nanos() as f64));
    add("with a caller", with_caller.map(|time| time.as_nanos() as f64));
    for (name, calls, share) in [
        ("idle call p50", &idle, 0.5),
        ("call p50", &busy, 0.5),
        ("call p99.9", &busy, 0.999),
        ("call max", &busy, 1.0),
    ] {
        add(name, (!calls.is_empty()).then(|| calls.value_at_quantile(share) as f64));
    }
    if alone.is_none() || with_caller.is_none() {
        sample.failure = Some(format!("over {TO_SCHEDULE:?} to schedule each"));
    } else if idle.is_empty() {
        sample.failure = Some(format!("no call in the {IDLE:?} before they were due"));
    }
    sample
}

/// Schedules all for one instant, and returns how long after it the last has run, and how many did
/// not. No time if they were not scheduled by then. Calls `begin` with the instant beforehand.
pub(super) fn until_all_ran<T: Threaded>(
    timer: &T,
    timeouts: usize,
    begin: impl FnOnce(Instant),
) -> (Option<Duration>, usize) {
    let ran = Arc::new(AtomicUsize::new(0));
    let due = Instant::now() + IDLE + ROOM + TO_SCHEDULE * timeouts as u32;
    for _ in 0..timeouts {
        timer.count_after(due.saturating_duration_since(Instant::now()), ran.clone());
    }
    let is_in_time = Instant::now() + IDLE <= due;
    thread::sleep((due - IDLE).saturating_duration_since(Instant::now()));
    begin(due);
    thread::sleep(due.saturating_duration_since(Instant::now()));
    while ran.load(Relaxed) < timeouts && due.elapsed() < PATIENCE {
        thread::sleep(Duration::from_micros(200));
    }
    let time = due.elapsed();
    (is_in_time.then_some(time), timeouts - ran.load(Relaxed))
}

/// Cancels and schedules until `ends`, at least once after `due`, and returns how many ns each such
/// pair took: those that began before `due`, and after it.
fn call<T: Threaded>(timer: &T, due: Instant, ends: &AtomicBool) -> [Histogram<u64>; 2] {
    const MOST: u64 = 1 << 40;
    let calls = || Histogram::new_with_max(MOST, 3).expect("three digits");
    let mut calls = [(); 2].map(|()| calls());
    let mut replace = timer.replacer();
    let mut slot = T::Slot::default();
    while !ends.load(Relaxed) || calls[1].is_empty() {
        let start = Instant::now();
        replace(&mut slot, FAR);
        let took = start.elapsed().as_nanos() as u64;
        calls[usize::from(due <= start)].saturating_record(took);
    }
    calls
}

/// In which any subject has scheduled a timeout, and for what else the machine does meanwhile.
const TO_SCHEDULE: Duration = Duration::from_micros(4);
const ROOM: Duration = Duration::from_millis(500);

/// Before they are due the caller calls an idle timer.
const IDLE: Duration = Duration::from_millis(100);

/// After which a timeout counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);
