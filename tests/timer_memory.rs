//! Counts the allocations of a timer: for a timeout hardly more than its boxed task.

use allocation_counter::{AllocationInfo, measure};
use std::time::Duration;
use tickwheel::{ManualClock, Mode, Timer};

const DELAY: Duration = Duration::from_secs(30);

fn timer(mode: Mode) -> Timer {
    Timer::builder().mode(mode).clock(ManualClock::new()).build().expect("in range")
}

fn allocations(run: impl FnOnce()) -> (u64, i64) {
    let AllocationInfo { count_total, count_current, .. } = measure(run);
    (count_total, count_current)
}

#[test]
fn scheduling_and_cancelling_allocates_the_task_alone() {
    for mode in [Mode::default(), Mode::hashed(512).expect("in range")] {
        let timer = timer(mode);
        let other = || timer.schedule(DELAY, || {}).expect("it runs");
        let others: Vec<_> = (0..1_000).map(|_| other()).collect();
        let captured = [1_u64; 100];
        let round = || {
            let task = move || assert_eq!(captured[0], 1);
            let timeout = timer.schedule(DELAY, task).expect("it runs");
            assert!(timeout.reschedule(DELAY * 2));
            assert!(timeout.cancel());
        };
        // The first ones make the wheel's arrays. These grow and shrink now and then, as the entries
        // of what was cancelled are cleared away many at a time.
        const FEW: u64 = 500;
        (0..10_000).for_each(|_| round());
        let (count, _) = allocations(|| (0..10_000).for_each(|_| round()));
        assert!((10_000..10_000 + FEW).contains(&count), "{count} allocations");
        // A task that captures nothing needs no box.
        let small = || assert!(timer.schedule(DELAY, || {}).expect("it runs").cancel());
        let (count, _) = allocations(|| (0..10_000).for_each(|_| small()));
        assert!(count < FEW, "{count} allocations");
        drop(others);
    }
}

#[test]
fn cancelling_all_gives_back_what_they_captured() {
    for mode in [Mode::default(), Mode::hashed(512).expect("in range")] {
        let timer = timer(mode);
        timer.schedule(DELAY, || {}).expect("it runs");
        let live = measure(|| {
            let schedule = |delay| {
                let captured = [1_u8; 1_024];
                let task = move || assert_eq!(captured[0], 1);
                timer.schedule(DELAY + Duration::from_millis(delay), task).expect("it runs")
            };
            let timeouts: Vec<_> = (0..10_000).map(schedule).collect();
            assert!(timeouts.iter().all(tickwheel::Timeout::cancel));
        });
        // Of 10 MB of captures nothing is left but the wheel's arrays.
        assert!(live.bytes_max > 10_240_000);
        assert!(live.bytes_current < 1_000_000, "{live:?}");
        assert_eq!(timer.pending(), 1);
    }
}
