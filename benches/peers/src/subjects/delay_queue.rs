use crate::log::Log;
use crate::subject::{Setup, Subject};
use std::cell::RefCell;
use std::future::poll_fn;
use std::ptr;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::{Builder, EnterGuard, Runtime};
use tokio::time::{self, Instant};
use tokio_util::time::delay_queue::{self, Key};

/// tokio-util 0.7's `DelayQueue`: a hierarchical wheel of lists through a slab, woken by one
/// tokio sleep.
///
/// Driven well: on tokio's paused clock, which jumps to the next wake-up where there is nothing
/// else to do; where a workload says what time it is, the clock is moved only if something may be
/// due, as a real clock moves at no cost. Polls are not counted against tokio's budget for a task.
pub(crate) struct DelayQueue {
    queue: delay_queue::DelayQueue<u64>,
    start: Instant,
    /// Of the caller's time, in nanoseconds.
    unit: u64,
    /// What tokio's clock says, in the caller's unit.
    clock: u64,
    /// Nothing is due before.
    wake: u64,
    runtime: &'static Runtime,
}

thread_local! {
    /// The runtime that timers find, which is that of the queue whose turn it is.
    static INSIDE: RefCell<Option<(&'static Runtime, EnterGuard<'static>)>> =
        const { RefCell::new(None) };
}

impl DelayQueue {
    fn instant(&self, time: u64) -> Instant {
        self.start + Duration::from_nanos(time * self.unit)
    }

    /// Has timers find its runtime.
    fn enter(&self) {
        INSIDE.with_borrow_mut(|inside| {
            if inside.as_ref().is_none_or(|(runtime, _)| !ptr::eq(*runtime, self.runtime)) {
                // One guard at a time, as they have to be dropped in the reverse order.
                *inside = None;
                *inside = Some((self.runtime, self.runtime.enter()));
            }
        });
    }

    /// One poll; None if nothing is pending.
    fn poll(&mut self) -> Poll<Option<u64>> {
        self.enter();
        let polled = self.queue.poll_expired(&mut Context::from_waker(Waker::noop()));
        polled.map(|expired| expired.map(delay_queue::Expired::into_inner))
    }

    fn move_clock(&mut self, now: u64) {
        if self.clock < now {
            let step = Duration::from_nanos((now - self.clock) * self.unit);
            self.runtime.block_on(time::advance(step));
            self.clock = now;
        }
    }
}

impl Subject for DelayQueue {
    type Key = Key;

    fn new(setup: &Setup) -> Self {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build();
        // It lives as long as the process, which measures once and ends.
        let runtime: &'static Runtime = Box::leak(Box::new(runtime.expect("a runtime")));
        let unit = TICK / setup.units_a_tick;
        let inside = runtime.enter();
        let (queue, start) = (delay_queue::DelayQueue::new(), Instant::now());
        drop(inside);
        Self { queue, start, unit, clock: 0, wake: u64::MAX, runtime }
    }

    fn schedule(&mut self, deadline: u64, value: u64) -> Key {
        self.enter();
        self.wake = self.wake.min(deadline);
        self.queue.insert_at(value, self.instant(deadline))
    }

    fn cancel(&mut self, key: Key, value: u64) -> bool {
        self.enter();
        self.queue.try_remove(&key).is_some_and(|removed| removed.into_inner() == value)
    }

    fn reschedule(&mut self, key: Key, deadline: u64, _value: u64) -> Key {
        self.enter();
        self.wake = self.wake.min(deadline);
        self.queue.reset_at(&key, self.instant(deadline));
        key
    }

    /// One poll.
    fn expire_some(&mut self, now: u64, log: &mut Log) -> bool {
        self.pass_time(now);
        match self.poll() {
            Poll::Ready(Some(value)) => {
                log.values.push(value);
                return true;
            }
            // It does not tell when it has to be polled again.
            Poll::Pending => self.wake = self.wake.max(self.clock + 1),
            Poll::Ready(None) => self.wake = u64::MAX,
        }
        false
    }

    fn next_wake(&mut self) -> Option<u64> {
        if self.queue.is_empty() { None } else { Some(self.wake) }
    }

    fn pass_time(&mut self, now: u64) {
        if self.wake <= now {
            self.move_clock(now);
        }
    }

    fn wait(&mut self, now: u64, log: &mut Log) -> Option<u64> {
        self.move_clock(now);
        let next = poll_fn(|context| self.queue.poll_expired(context));
        let first = self.runtime.block_on(tokio::task::unconstrained(next))?;
        self.enter();
        let elapsed = Instant::now() - self.start;
        self.clock = (elapsed.as_nanos() / u128::from(self.unit)) as u64;
        log.values.push(first.into_inner());
        while let Poll::Ready(Some(value)) = self.poll() {
            log.values.push(value);
        }
        log.end_batch(self.clock, self.clock);
        self.wake = self.clock + 1;
        Some(self.clock)
    }
}

const TICK: u64 = 1_000_000;
