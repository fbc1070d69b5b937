//! When timeouts fire in real time, and what becomes of the rest when a task panics.

use crate::case::Sample;
use crate::log::{Fault, Faults};
use crate::random::Delays;
use crate::threaded::Threaded;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The longest delay.
const LONGEST: Duration = Duration::from_millis(200);

/// After which a timeout counts as lost.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn run<T: Threaded>(count: usize) -> Sample {
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
    // Nobody waits meanwhile, as a task would take longer to wake somebody up.
    thread::sleep(LONGEST);
    let mut faults = Faults::default();
    let mut late = Vec::with_capacity(count);
    while late.len() < count {
        let Ok((due, at)) = waits.recv_timeout(PATIENCE) else { break };
        if at < due {
            faults.add_far(Fault::Early, 1, (due - at).as_nanos().div_ceil(1_000) as u64);
        }
        late.push(at.saturating_duration_since(due).as_nanos() as f64);
    }
    faults.add(Fault::Lost, (count - late.len()) as u64);
    faults.add(Fault::Died, u64::from(!lives_on(&timer)));
    late.sort_by(f64::total_cmp);
    let at = |share| late.get((late.len().saturating_sub(1) as f64 * share) as usize);
    let quantiles = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];
    let values = quantiles.map(|(name, share)| Some((format!("late {name}"), *at(share)?)));
    Sample { values: values.into_iter().flatten().collect(), faults, failure: None }
}

/// Whether a timeout fires after the task of another one panicked.
fn lives_on<T: Threaded>(timer: &T) -> bool {
    timer.after(Duration::from_millis(1), Box::new(|| panic!("on purpose")));
    thread::sleep(Duration::from_millis(50));
    let (fired, waits) = mpsc::channel();
    timer.after(Duration::from_millis(1), Box::new(move || fired.send(()).unwrap_or_default()));
    waits.recv_timeout(PATIENCE).is_ok()
}
