//! What the driver waits for: one sleep of tokio's.
//!
//! The thread that registers something earlier moves that sleep itself. It could wake the driver's
//! task, but tokio would put the task where no other worker takes it, behind the task that runs on
//! this thread: if that one blocked, it would hold up all sleeps of the runtime. The thread that
//! tokio's timer is on wakes the driver when the sleep ends.
//!
//! The driver forgets what it was told before its turn, because that turn sees to it. What it is
//! told after that it finds when it sets the sleep at the end of the turn. So no call is lost.
//!
//! tokio's timer may have come to a deadline before the driver has its turn, and then a sleep of
//! tokio's is ready at any poll. So is one of ours: while a driver is late, each poll that would wait
//! asks tokio's timer. No driver is late whose sleep has yet to end, because nothing is due before.

use crate::clock::{is_ending, reached_now, turn_at};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use tickwheel::Driver;
use tokio::runtime::Handle;
use tokio::task::coop;
use tokio::time::{Instant, Sleep, sleep_until};

#[derive(Debug)]
pub(crate) struct Alarm {
    runtime: Handle,
    call: Arc<Call>,
    state: Mutex<AlarmState>,
}

#[derive(Debug, Default)]
struct AlarmState {
    /// None if nothing is pending, so that a paused clock does not jump.
    sleep: Option<Pin<Box<Sleep>>>,
    /// The earliest that threads told since the last turn began.
    told: Option<Instant>,
}

/// Wakes the driver's task.
#[derive(Debug, Default)]
struct Call {
    /// Set by the first turn of its task, which comes by itself.
    driver: OnceLock<Waker>,
    /// The driver was called and has yet to have its turn.
    is_late: AtomicBool,
}

impl Alarm {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { runtime, call: Arc::default(), state: Mutex::default() }
    }

    /// Takes a turn of the driver, and waits for the next one. Ready when the timer is stopped.
    pub(crate) fn poll_turn(&self, driver: &mut Driver, context: &mut Context<'_>) -> Poll<()> {
        self.lock().told = None;
        let now = reached_now();
        // This wakes tasks, so nothing is locked.
        let next = turn_at(self.runtime.id(), now, || driver.turn());
        if driver.is_stopped() {
            return Poll::Ready(());
        }
        self.call.driver.get_or_init(|| context.waker().clone());
        let mut state = self.lock();
        // What follows finds a call that came before this.
        self.call.answers();
        let next = next.map(Instant::from_std);
        match [next, state.told].into_iter().flatten().min() {
            None => state.sleep = None,
            Some(at) if at <= now => self.call.wake_by_ref(),
            Some(at) => _ = state.sleeps_until(at, &self.call),
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
        if is_ending() {
            return self.call.wake_by_ref();
        }
        // This thread may be outside of the runtime.
        let _inside = state.sleep.is_none().then(|| self.runtime.enter());
        if state.sleeps_until(at, &self.call) {
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
    /// Calls the driver at `at`, and returns whether that is over.
    fn sleeps_until(&mut self, at: Instant, call: &Arc<Call>) -> bool {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if sleep.deadline() != at || sleep.is_elapsed() {
            sleep.as_mut().reset(at);
        }
        let waker = Waker::from(Arc::clone(call));
        let context = &mut Context::from_waker(&waker);
        let is_over = Pin::new(&mut coop::unconstrained(sleep.as_mut())).poll(context).is_ready();
        if is_over {
            call.wake_by_ref();
        }
        is_over
    }
}

impl Call {
    fn answers(&self) {
        if self.is_late.swap(false, Ordering::Relaxed) {
            LATE.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_late.swap(true, Ordering::Relaxed) {
            LATE.fetch_add(1, Ordering::Relaxed);
        }
        self.driver.get().into_iter().for_each(Waker::wake_by_ref);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.answers();
    }
}

/// Returns whether a driver of this process may have something to do that tokio's timer has come to.
#[inline]
pub(crate) fn is_one_late() -> bool {
    0 < LATE.load(Ordering::Relaxed)
}

/// When this is dropped, with a sleep or after it was moved, the driver looks again if the clock
/// may be paused: it would jump to a deadline that is gone.
#[cfg(feature = "test-util")]
#[derive(Debug)]
pub(crate) struct LooksAgain(pub(crate) Arc<Alarm>);

#[cfg(feature = "test-util")]
impl LooksAgain {
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
            self.0.call.wake_by_ref();
        }
    }
}

#[cfg(feature = "test-util")]
impl Drop for LooksAgain {
    fn drop(&mut self) {
        self.looks();
    }
}

/// How many drivers are late.
static LATE: AtomicUsize = AtomicUsize::new(0);
