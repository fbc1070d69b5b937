//! What a timer promises on an event loop of JavaScript. `.ci/full browser` runs this under Node.
#![cfg(target_family = "wasm")]

use browser::timer;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tickwheel::{Clock, DelayQueue, Mode, ScheduleErrorKind, Timer};
use wasm_bindgen_test::wasm_bindgen_test;
use web_time::Instant;

#[wasm_bindgen_test]
async fn a_sleep_is_not_early() {
    let (timer, begun) = (timer(), Instant::now());
    timer.sleep(SHORT).await.expect("it runs");
    assert!(SHORT <= begun.elapsed());
}

#[wasm_bindgen_test]
async fn a_task_runs_and_a_cancelled_one_does_not() {
    let (timer, runs) = (timer(), Arc::new(AtomicU64::new(0)));
    let adds = |number| {
        let runs = Arc::clone(&runs);
        move || _ = runs.fetch_add(number, Ordering::Relaxed)
    };
    timer.schedule(SHORT, adds(1)).expect("it runs");
    let cancelled = timer.schedule(SHORT, adds(10)).expect("it runs");
    timer.schedule(MONTH, adds(100)).expect("it runs");
    assert!(cancelled.cancel());
    timer.sleep(2 * SHORT).await.expect("it runs");
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    assert_eq!(timer.stop().expect("outside").len(), 1);
}

/// The event loop waits for a day already when the earlier one comes.
#[wasm_bindgen_test]
async fn what_is_scheduled_earlier_comes_first() {
    let timer = timer();
    let mut queue = DelayQueue::with_timer(&timer);
    queue.insert("later", MONTH);
    timer.sleep(SHORT).await.expect("it runs");
    queue.insert("earlier", SHORT);
    assert_eq!(queue.next_due().await.expect("it runs").value, "earlier");
}

#[wasm_bindgen_test]
fn a_timer_with_a_thread_says_that_it_cannot_start_one() {
    let error = Timer::new().schedule(SHORT, || {}).map(drop).expect_err("there is no thread");
    assert!(matches!(error.kind(), ScheduleErrorKind::Worker(_)), "{error}");
}

struct Frames {
    begun: Instant,
    millis: Arc<AtomicU64>,
}

impl Clock for Frames {
    fn now(&self) -> Instant {
        self.begun + Duration::from_millis(self.millis.load(Ordering::Relaxed))
    }
}

/// As in a game, which has a turn for each picture.
#[wasm_bindgen_test]
fn a_clock_of_the_caller_and_turns_by_hand_fire_each_task_in_its_turn() {
    for mode in [Mode::hierarchical(), Mode::hashed(512).expect("in range")] {
        let present = Arc::new(AtomicU64::new(0));
        let clock = Frames { begun: Instant::now(), millis: Arc::clone(&present) };
        let builder = Timer::builder().mode(mode).shards(1).clock(clock);
        let (timer, mut driver) = builder.build_driven().expect("in range");
        let runs = Arc::new(AtomicU64::new(0));
        for delay in [1, 16, 17, 40_000] {
            let runs = Arc::clone(&runs);
            let delay = Duration::from_millis(delay);
            timer
                .schedule(delay, move || _ = runs.fetch_add(1, Ordering::Relaxed))
                .expect("it runs");
        }
        for (millis, fired) in [(0, 0), (16, 2), (32, 3), (39_999, 3), (40_000, 4)] {
            present.store(millis, Ordering::Relaxed);
            driver.turn();
            assert_eq!(runs.load(Ordering::Relaxed), fired, "{mode} at {millis}");
        }
        drop(timer);
        assert!(driver.is_stopped());
    }
}

const SHORT: Duration = Duration::from_millis(20);
const MONTH: Duration = Duration::from_secs(30 * 86_400);
