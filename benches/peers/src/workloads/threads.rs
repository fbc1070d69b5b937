//! Timers with threads: how fast several threads are, and how late timeouts fire.

use crate::case::Sample;
use crate::log::{Fault, Faults};
use crate::random::Delays;
use crate::threaded::{FAR, Threaded, early};
use cpu_time::ProcessTime;
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Timeouts that are scheduled and cancelled by several threads at once.
pub(super) fn throughput<T: Threaded>(threads: usize, milliseconds: u64) -> Sample {
    let began = Instant::now();
    let timer = T::new();
    let warm = Barrier::new(threads + 1);
    let stop = AtomicBool::new(false);
    let (elapsed, done, processors) = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut replace = timer.replacer();
                    let mut kept: Vec<_> = (0..KEPT).map(|_| T::Slot::default()).collect();
                    let mut round = || kept.iter_mut().for_each(|slot| replace(slot, FAR));
                    (0..10).for_each(|_| round());
                    warm.wait();
                    let mut rounds = 0;
                    while !stop.load(Relaxed) {
                        round();
                        rounds += 1;
                    }
                    rounds * KEPT
                })
            })
            .collect();
        warm.wait();
        let (started, cpu) = (Instant::now(), ProcessTime::now());
        thread::sleep(Duration::from_millis(milliseconds));
        let processors = cpu.elapsed().as_secs_f64() / started.elapsed().as_secs_f64();
        stop.store(true, Relaxed);
        let joined = workers.into_iter().map(|worker| worker.join().expect("it does not panic"));
        let done: usize = joined.sum();
        (started.elapsed(), done, processors)
    });
    let each = elapsed.as_nanos() as f64 / done as f64;
    let mut faults = Faults::default();
    faults.add(Fault::Early, early(began));
    let values = [
        ("schedule + cancel", each),
        ("behind", behind(&timer).as_nanos() as f64),
        // Fewer than threads: the machine was busy, and the rate says nothing.
        ("processors", processors),
    ];
    Sample::of(faults, &values)
}

/// How long a call takes where there are more threads than cores, so that one that holds a lock, or
/// has begun to write, may lose its core.
pub(super) fn oversubscribed<T: Threaded>(threads: usize, milliseconds: u64) -> Sample {
    const MOST: u64 = 1 << 40;
    let histogram = || Histogram::<u64>::new_with_max(MOST, 3).expect("three digits");
    let began = Instant::now();
    let timer = T::new();
    let begin = Barrier::new(threads + 1);
    let stop = AtomicBool::new(false);
    let mut calls = histogram();
    let elapsed = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut replace = timer.replacer();
                    let mut kept: Vec<_> = (0..FEW_KEPT).map(|_| T::Slot::default()).collect();
                    let mut calls = histogram();
                    begin.wait();
                    while !stop.load(Relaxed) {
                        for slot in &mut kept {
                            let start = Instant::now();
                            replace(slot, FAR);
                            calls.saturating_record(start.elapsed().as_nanos() as u64);
                        }
                    }
                    calls
                })
            })
            .collect();
        // Before they begin: this thread may be the last of all to have a core again.
        let started = Instant::now();
        begin.wait();
        thread::sleep(Duration::from_millis(milliseconds));
        stop.store(true, Relaxed);
        for worker in workers {
            calls.add(worker.join().expect("it does not panic")).expect("the same range");
        }
        started.elapsed()
    });
    let mut faults = Faults::default();
    faults.add(Fault::Early, early(began));
    let at = |share| calls.value_at_quantile(share) as f64;
    let each = elapsed.as_nanos() as f64 / calls.len() as f64;
    let values = [
        ("call p99.9", at(0.999)),
        ("call p99.99", at(0.9999)),
        ("call max", at(1.0)),
        ("call p50", at(0.5)),
        ("schedule + cancel", each),
    ];
    Sample::of(faults, &values)
}

/// How late a timeout of 1 ms is now: what was handed to the timer's thread may still have to be
/// worked through.
fn behind(timer: &impl Threaded) -> Duration {
    const MOST: Duration = Duration::from_secs(10);
    let due = Instant::now() + Duration::from_millis(1);
    timer.fire_one(MOST).map_or(MOST, |at| at.saturating_duration_since(due))
}

/// When timeouts fire in real time, and what becomes of the rest when a task panics.
pub(super) fn accuracy<T: Threaded>(count: usize) -> Sample {
    let timer = T::new();
    let delays = Delays::uniform(LONGEST.as_micros() as u64 - 1_000);
    let mut rng = fastrand::Rng::with_seed(7);
    let (fired, waits) = mpsc::channel();
    for which in 0..count {
        let delay = Duration::from_micros(1_000 + delays.draw(&mut rng));
        let fired = fired.clone();
        let due = Instant::now() + delay;
        timer.after(delay, Box::new(move || _ = fired.send((due, Instant::now()))));
        // Not all at once, so that they meet the timer at different parts of its tick.
        if which % 16 == 0 {
            thread::sleep(Duration::from_micros(100));
        }
    }
    // Where all that is left is lost, nobody can send.
    drop(fired);
    // Nobody waits meanwhile, as a task would take longer to wake somebody up.
    thread::sleep(LONGEST);
    let mut faults = Faults::default();
    let mut late = Vec::with_capacity(count);
    while late.len() < count {
        let Ok((due, at)) = waits.recv_timeout(PATIENCE) else { break };
        let early = due.saturating_duration_since(at).as_nanos().div_ceil(1_000) as u64;
        faults.add_far(Fault::Early, at < due, early);
        late.push(at.saturating_duration_since(due).as_nanos() as f64);
    }
    faults.add(Fault::Lost, (count - late.len()) as u64);

    timer.after(Duration::from_millis(1), Box::new(|| panic!("on purpose")));
    thread::sleep(Duration::from_millis(50));
    faults.add(Fault::Died, timer.fire_one(PATIENCE).is_none());

    late.sort_by(f64::total_cmp);
    let at = |share| late.get((late.len().saturating_sub(1) as f64 * share) as usize);
    let quantiles = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];
    let values = quantiles.map(|(name, share)| Some((format!("late {name}"), *at(share)?)));
    Sample { values: values.into_iter().flatten().collect(), faults, failure: None }
}

/// The timeouts that each thread keeps.
const KEPT: usize = 1_000;

/// The same of many threads.
const FEW_KEPT: usize = 100;

/// The longest delay.
const LONGEST: Duration = Duration::from_millis(200);

/// After which a timeout counts as lost.
const PATIENCE: Duration = Duration::from_secs(20);
