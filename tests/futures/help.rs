//! The tools of the situations: a task that the test polls, and a timer on a clock that it moves.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tickwheel::{ManualClock, Mode, Timer, TimerBuilder};

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A timer of ticks of 1 ms, with its clock.
pub(crate) struct Manual {
    pub(crate) clock: ManualClock,
    pub(crate) timer: Timer,
    start: Instant,
}

impl Manual {
    pub(crate) fn new(mode: Mode) -> Self {
        Self::built(mode, |builder| builder)
    }

    pub(crate) fn built(mode: Mode, with: impl FnOnce(TimerBuilder) -> TimerBuilder) -> Self {
        let clock = ManualClock::new();
        let builder = Timer::builder().mode(mode).clock(clock.clone());
        Self { timer: with(builder).build().expect("in range"), start: clock.now(), clock }
    }

    pub(crate) fn at(&self, millis: u64) -> Instant {
        self.start + ms(millis)
    }

    /// Lets `millis` milliseconds pass, and returns when all tasks that came due have been woken.
    pub(crate) fn advance(&self, millis: u64) {
        self.clock.advance(ms(millis));
    }

    /// Returns when all tasks that are due have been woken.
    pub(crate) fn settle(&self) {
        self.clock.advance(Duration::ZERO);
    }
}

/// A task that the test polls, and that counts how often it is woken.
pub(crate) struct Hand {
    woken: Arc<Woken>,
    waker: Waker,
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Hand {
    pub(crate) fn new() -> Self {
        let woken = Arc::<Woken>::default();
        Self { waker: Waker::from(Arc::clone(&woken)), woken }
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context::from_waker(&self.waker)
    }

    pub(crate) fn poll<F: Future + Unpin>(&self, future: &mut F) -> Poll<F::Output> {
        Pin::new(future).poll(&mut self.context())
    }

    /// Polls a future once and drops it.
    pub(crate) fn poll_once<F: Future>(&self, future: F) -> Poll<F::Output> {
        pin!(future).poll(&mut self.context())
    }

    /// Returns how often it was woken since the last call.
    pub(crate) fn woken(&self) -> usize {
        self.woken.0.swap(0, SeqCst)
    }

    /// Returns how many clones of its waker there are elsewhere.
    pub(crate) fn wakers(&self) -> usize {
        Arc::strong_count(&self.woken) - 2
    }
}

/// Waits until `condition` holds; gives up after a minute, which no test takes.
pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never came");
        std::thread::sleep(ms(1));
    }
}
