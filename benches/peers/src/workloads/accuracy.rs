//! When timeouts fire in real time, and what becomes of the rest when a task panics.

use crate::case::Sample;
use crate::log::Faults;
use crate::random::Delays;
use crate::threaded::Threaded;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// The longest delay.
const LONGEST: Duration = Duration::from_millis(200);

/// After which a timeout counts as lost.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn run<T: Threaded>(count: usize) -> Sample {
    let timer = T::new();
    let epoch = Instant::now();
    let fired: Arc<[Fired]> = (0..count).map(|_| Fired::default()).collect();
    let delays = Delays::uniform(LONGEST.as_micros() as u64 - 1_000);
    let mut rng = fastrand::Rng::with_seed(7);
    let mut due = Vec::with_capacity(count);
    for which in 0..count {
        let delay = Duration::from_micros(1_000 + delays.draw(&mut rng));
        let fired = Arc::clone(&fired);
        due.push(epoch.elapsed() + delay);
        let task = move || {
            fired[which].at.store(epoch.elapsed().as_nanos() as u64, SeqCst);
            fired[which].times.fetch_add(1, SeqCst);
        };
        timer.after(delay, Box::new(task));
        // Not all at once, so that they meet the timer at different parts of its tick.
        if which % 16 == 0 {
            thread::sleep(Duration::from_micros(100));
        }
    }
    thread::sleep(LONGEST);
    let patience = Instant::now();
    while patience.elapsed() < PATIENCE && fired.iter().any(|fired| fired.times.load(SeqCst) == 0) {
        thread::sleep(Duration::from_millis(1));
    }

    let mut faults = Faults::default();
    let mut late = Vec::with_capacity(count);
    for (fired, due) in fired.iter().zip(&due) {
        match fired.times.load(SeqCst) {
            0 => faults.lost += 1,
            times => {
                faults.duplicated += times - 1;
                let due = due.as_nanos() as u64;
                let at = fired.at.load(SeqCst);
                if at < due {
                    faults.early += 1;
                    faults.earliest = faults.earliest.max((due - at).div_ceil(1_000));
                }
                late.push(at.saturating_sub(due));
            }
        }
    }
    faults.died = !lives_on(&timer);
    late.sort_unstable();
    let late = |share: f64| match late.len() {
        0 => f64::NAN,
        fired => late[((fired - 1) as f64 * share) as usize] as f64,
    };
    let quantiles = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];
    let values = quantiles.map(|(name, share)| (format!("late {name}"), late(share)));
    Sample { values: values.into(), faults, ..Sample::default() }
}

#[derive(Default)]
struct Fired {
    /// In ns.
    at: AtomicU64,
    times: AtomicU64,
}

/// Whether a timeout fires after the task of another one panicked.
fn lives_on<T: Threaded>(timer: &T) -> bool {
    timer.after(Duration::from_millis(1), Box::new(|| panic!("on purpose")));
    thread::sleep(Duration::from_millis(50));
    let (fired, waits) = mpsc::channel();
    timer.after(Duration::from_millis(1), Box::new(move || fired.send(()).unwrap_or_default()));
    waits.recv_timeout(PATIENCE).is_ok()
}
