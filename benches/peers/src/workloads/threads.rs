//! Timeouts that are scheduled and cancelled by several threads at once.

use crate::case::Sample;
use crate::log::{Fault, Faults};
use crate::threaded::{FIRED, Threaded};
use cpu_time::ProcessTime;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// The timeouts that each thread keeps.
const KEPT: usize = 1_000;

const DELAY: Duration = Duration::from_secs(30);

pub(super) fn run<T: Threaded>(threads: usize, milliseconds: u64) -> Sample {
    let timer = T::new();
    let warm = Barrier::new(threads + 1);
    let stop = AtomicBool::new(false);
    let (elapsed, done, processors) = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut replace = timer.replacer();
                    let mut kept: Vec<_> = (0..KEPT).map(|_| T::Slot::default()).collect();
                    let mut round = || kept.iter_mut().for_each(|slot| replace(slot, DELAY));
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
    faults.add(Fault::Early, FIRED.load(Relaxed));
    let values = [
        ("schedule + cancel", each),
        ("rate", 1e3 / each),
        ("behind", behind(&timer).as_nanos() as f64),
        // Fewer than threads: the machine was busy, and the rate says nothing.
        ("processors", processors),
    ];
    Sample::of(faults, &values)
}

/// How late a timeout of 1 ms is now: what was handed to the timer's thread may still have to be
/// worked through.
fn behind<T: Threaded>(timer: &T) -> Duration {
    const DELAY: Duration = Duration::from_millis(1);
    const MOST: Duration = Duration::from_secs(10);
    let (fired, waits) = mpsc::channel();
    let started = Instant::now();
    timer.after(DELAY, Box::new(move || fired.send(Instant::now()).unwrap_or_default()));
    match waits.recv_timeout(MOST) {
        Ok(at) => (at - started).saturating_sub(DELAY),
        Err(_) => MOST,
    }
}
