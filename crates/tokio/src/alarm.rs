//! What the driver waits for: one sleep of tokio's.
//!
//! The thread that registers something earlier moves that sleep itself. It could wake the driver's
//! task, but tokio would put the task where no other worker takes it, behind the task that runs on
//! this thread: if that one blocked, it would hold up all sleeps of the runtime. The thread that
//! tokio's timer is on wakes the driver when the sleep ends.
//!
//! The driver forgets what it was told before its turn, because that turn sees to it. What it is
//! told after that it finds when it sets the sleep at the end of the turn. So no call is lost.

use crate::clock::{is_ending, reached_now, turn_at};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tickwheel::Driver;
use tokio::runtime::Handle;
#[cfg(feature = "test-util")]
use tokio::runtime::RuntimeFlavor;
use tokio::task::coop;
use tokio::time::{Instant, Sleep, sleep_until};

#[derive(Debug)]
pub(crate) struct Alarm {
    runtime: Handle,
    state: Mutex<AlarmState>,
}

#[derive(Debug, Default)]
struct AlarmState {
    /// None if nothing is pending, so that a paused clock does not jump.
    sleep: Option<Pin<Box<Sleep>>>,
    /// The earliest that threads told since the last turn began.
    told: Option<Instant>,
    /// Of the driver's task, after its first turn.
    waker: Option<Waker>,
}

impl Alarm {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { runtime, state: Mutex::default() }
    }

    /// Takes a turn of the driver, and waits for the next one. Ready when the timer is stopped.
    pub(crate) fn poll_turn(&self, driver: &mut Driver, context: &mut Context<'_>) -> Poll<()> {
        self.lock().told = None;
        let now = reached_now();
        // This wakes tasks, so nothing is locked.
        let next = turn_at(now, || driver.turn());
        if driver.is_stopped() {
            return Poll::Ready(());
        }
        let mut state = self.lock();
        if state.waker.is_none() {
            state.waker = Some(context.waker().clone());
        }
        let next = next.map(Instant::from_std);
        match [next, state.told].into_iter().flatten().min() {
            None => state.sleep = None,
            Some(at) if at <= now => context.waker().wake_by_ref(),
            Some(at) => _ = state.sleeps_until(at, context),
        }
        Poll::Pending
    }

    /// Makes the driver take a turn at `at`, at the latest.
    pub(crate) fn tell(&self, at: Instant) {
        let mut state = self.lock();
        if state.told.is_some_and(|told| told <= at) {
            return;
        }
        state.told = Some(at);
        if state.sleep.as_ref().is_some_and(|sleep| sleep.deadline() <= at) {
            return;
        }
        // Without a waker the first turn is still to come.
        let Some(waker) = state.waker.clone() else { return };
        if is_ending() {
            return waker.wake();
        }
        // This thread may be outside of the runtime.
        let _inside = state.sleep.is_none().then(|| self.runtime.enter());
        if state.sleeps_until(at, &mut Context::from_waker(&waker)) {
            // This takes the place of the driver behind the task that runs on this thread.
            self.runtime.spawn(async {});
        }
    }

    fn lock(&self) -> MutexGuard<'_, AlarmState> {
        // Polling tokio's sleep panics once the runtime is gone.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AlarmState {
    /// Makes `context` wake the driver at `at`, and returns whether it did already.
    fn sleeps_until(&mut self, at: Instant, context: &mut Context<'_>) -> bool {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if sleep.deadline() != at || sleep.is_elapsed() {
            sleep.as_mut().reset(at);
        }
        let is_over = Pin::new(&mut coop::unconstrained(sleep.as_mut())).poll(context).is_ready();
        if is_over {
            context.waker().wake_by_ref();
        }
        is_over
    }
}

/// When this is dropped, with a sleep or after it was moved, the driver looks again if the clock
/// may be paused: it would jump to a deadline that is gone.
#[cfg(feature = "test-util")]
#[derive(Debug)]
pub(crate) struct LooksAgain(pub(crate) std::sync::Arc<Alarm>);

#[cfg(feature = "test-util")]
impl LooksAgain {
    /// Returns whether tokio can pause the clock, which it cannot with several threads.
    pub(crate) fn is_pausable(&self) -> bool {
        self.0.runtime.runtime_flavor() != RuntimeFlavor::MultiThread
    }

    pub(crate) fn looks(&self) {
        if is_ending() {
            return;
        }
        // This thread may be outside of the runtime, whose clock it is.
        let _inside = self.0.runtime.enter();
        let before = std::time::Instant::now();
        let now = Instant::now();
        let is_real = (before..=std::time::Instant::now()).contains(&now.into_std());
        if is_real {
            return;
        }
        let mut state = self.0.lock();
        if state.sleep.take().is_some() {
            // A paused clock has one thread, and its next turn sets the sleep anew.
            state.waker.iter().for_each(Waker::wake_by_ref);
        }
    }
}

#[cfg(feature = "test-util")]
impl Drop for LooksAgain {
    fn drop(&mut self) {
        self.looks();
    }
}
