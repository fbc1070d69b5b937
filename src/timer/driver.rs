//! A worker without a thread: an event loop or a runtime gives it its turns.

use super::hub::Hub;
use super::inside::{self, Inside};
use super::life::Life;
use super::park::{Bell, Hook, Rest};
use super::shard::KeepsShard;
use crate::panics::swallow;
use crate::platform::{Instant, process_id};
use crate::sync::Ordering;
use alloc::sync::Arc;
use core::fmt;
use core::future::poll_fn;
use core::mem::replace;
use core::pin::pin;
use core::sync::atomic::Ordering::Relaxed;
use core::task::{Poll, Waker};

/// Fires what is due on a [`Timer`](crate::Timer) that has no thread of its own, from
/// [`TimerBuilder::build_driven`](crate::TimerBuilder::build_driven).
///
/// Everything else is like on any timer: handles, queues, maps, channels and futures work, and
/// the guarantees hold, with the differences below. There are two ways to give a driver its turns:
///
/// - **An event loop** calls [`turn`](Self::turn) and waits until the instant that `turn` returns,
///   or until the hook of [`on_wake`](Self::on_wake) tells it to come earlier.
/// - **A runtime** polls [`run`](Self::run), in a task or a thread's `block_on`.
///
/// ```
/// # futures::executor::block_on(async {
/// use std::time::Duration;
/// use tickwheel::{ScheduleErrorKind, Timer};
///
/// let (timer, driver) = Timer::builder().build_driven().expect("in range");
/// // On smol: a task, whose timer is smol's own. There is no other thread.
/// let driven = smol::spawn(driver.run(|at| smol::Timer::at(at)));
/// timer.sleep(Duration::from_millis(5)).await?;
///
/// drop(timer.stop());
/// driven.await; // it has ended
/// # Ok::<(), ScheduleErrorKind>(())
/// # }).unwrap();
/// ```
///
/// # What differs from a worker thread
///
/// - **Late**: a task is late by less than one tick, plus the time until the driver has its turn.
///   Tasks run inside the turn, so a slow one holds up the event loop or the runtime's thread: give
///   the timer an [`Executor`](crate::Executor), or only futures.
/// - **Stop**: [`Timer::stop`](crate::Timer::stop) and the drop of the last clone wait for a turn
///   that another thread is in the middle of, and for nothing else. Inside a turn `stop` is an
///   error, as inside every task. Outside of turns it returns at once, on the thread of the event
///   loop or of the runtime, too. Once that thread has run a task for the timer's executor, `stop`
///   is an error there, as on every such thread.
/// - **Blocking**: on the thread that turns the driver, [`recv`](crate::Delayed::recv) and its kin
///   hold up the driver until they return. They never return if nobody else inserts a value, or if
///   the value waits for a clock that does not say [how long](crate::Clock::wait). Block other
///   threads, or await.
/// - **[`Clock::wait`](crate::Clock::wait)** has no say in how long the driver rests: `turn`
///   returns the instant of the next timeout by the timer's clock. So with a `BootClock` what came
///   due in a suspend fires when that wait is over, late by the whole suspend. An event loop that
///   has to fire it earlier waits for 10 s at most, say, and turns. So does the future that `run`
///   is given: it may end earlier than the instant.
/// - **Drop**: dropping the driver ends the timer, as the drop of the last clone does, but does not
///   wait for a thread that stops it. Sleeps, receivers and queues end with
///   [`Stopped`](crate::ScheduleErrorKind::Stopped), and scheduling gives the task back. A runtime
///   that shuts down drops its tasks, and so the driver.
/// - **A driver that nobody turns** fires nothing, and nothing tells the caller: `Debug` of the
///   timer shows `turns: 0`, as [`wake_ups`](crate::TimerStats::wake_ups) does.
/// - **A [`ManualClock`](crate::ManualClock)** does not wait for a driver: what came due fires in
///   the next turn.
/// - **Many timers**: a driver has no thread, so its timer is not among those of which the log says
///   that they are too many.
/// - **After `fork`** the child has the driver, too, and each process turns its own.
///
/// A driver may move between threads from turn to turn.
pub struct Driver {
    life: Arc<Life>,
    hook: Option<Arc<Hook>>,
}

/// What the driver needs after a turn.
enum Turned {
    /// Another turn, at once.
    Again,
    /// A turn at that instant, if there is one, or when it is woken.
    Rests(Option<Instant>),
    /// No more turns: the timer is stopped.
    Ends,
}

impl Driver {
    pub(super) fn new(life: &Arc<Life>) -> Self {
        Self { life: Arc::clone(life), hook: None }
    }

    /// Sets a hook that tells the event loop to call [`turn`](Self::turn) earlier than the last
    /// turn said: it writes to an eventfd or a pipe, posts a message, or moves a timer of the
    /// system.
    ///
    /// The hook gets the instant at which the next turn is due, which is not in the future if that
    /// is at once. The thread that schedules something earlier, stops the timer or moves its clock
    /// calls the hook, with no lock held, each time that this instant becomes earlier. It is called
    /// by one thread at a time. While it runs, others leave it to that thread to call it once more,
    /// so a slow hook makes what they schedule late. A call may come before `turn` has returned: a
    /// loop that clears a flag, an eventfd or a pipe does so before it calls `turn`, and not after
    /// that. The timer ignores a panic of the hook. The hook takes effect at the end of the next
    /// turn. So set it before the first one.
    pub fn on_wake(&mut self, hook: impl Fn(Instant) + Send + Sync + 'static) {
        let hub = &self.life.engine.hub;
        let (ticks, clock) = (hub.ticks, Arc::clone(&hub.clock));
        self.hook = Some(Arc::new(move |tick| match ticks.instant(tick) {
            // Ticks may be counted from the future.
            Some(first) if tick == 0 => hook(first.min(clock.now())),
            Some(at) => hook(at),
            // A tick that no instant can hold does not come.
            None => {}
        }));
    }

    /// Fires what is due, with a bounded amount of work, and returns the instant at which the next
    /// turn is due by the timer's clock. Returns None if nothing is pending that will ever be due,
    /// or the timer was stopped: then no turn is due until the [hook](Self::on_wake) says so.
    ///
    /// The instant is the present if more is due than one turn fires, which is a few rounds of each
    /// shard, or if turns are to free the memory of many timeouts that are gone. It may be earlier
    /// than the next deadline, never later: it may be that of a timeout that was cancelled, even if
    /// no other will ever be due. A turn before that instant does no harm.
    ///
    /// This costs a look at each shard. A loop that has one thread takes one
    /// [shard](crate::TimerBuilder::shards).
    ///
    /// Cost: O(1) amortised, O(p) in one call, and O(n / buckets) more if hashed.
    ///
    /// ```
    /// use std::sync::mpsc::{RecvTimeoutError, channel};
    /// use std::time::Duration;
    /// use tickwheel::Timer;
    ///
    /// let (timer, mut driver) = Timer::builder().shards(1).build_driven()?;
    /// let (events, inbox) = channel();
    /// let wake = events.clone();
    /// driver.on_wake(move |_| wake.send("look at the timer").unwrap());
    /// timer.schedule(Duration::from_millis(5), move || events.send("stop").unwrap())?;
    ///
    /// loop {
    ///     let next = driver.turn();
    ///     let wait = next.map(|next| next.saturating_duration_since(timer.now()));
    ///     match inbox.recv_timeout(wait.unwrap_or(Duration::MAX)) {
    ///         Ok("stop") => break,
    ///         Ok(_) | Err(RecvTimeoutError::Timeout) => {}
    ///         Err(RecvTimeoutError::Disconnected) => unreachable!("the hook has a sender"),
    ///     }
    /// }
    /// assert_eq!(timer.stats().fired, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn turn(&mut self) -> Option<Instant> {
        let hook = self.hook.clone();
        match self.turn_told_by(|tick| hook.map(|hook| Bell::Hook(hook, tick))) {
            Turned::Again => Some(self.life.engine.hub.clock.now()),
            Turned::Rests(next) => next,
            Turned::Ends => None,
        }
    }

    /// Drives the timer until it is stopped, on any runtime. `sleep_until` returns a future of that
    /// runtime that ends at an instant of the timer's clock.
    ///
    /// Whoever schedules something earlier wakes the task that polls this. Between two turns with
    /// something due this future yields, so that others of its thread run. Dropping it drops the
    /// driver, and so ends the timer.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::Timer;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(
    /// // #[tokio::main]
    /// async {
    ///     let (timer, driver) = Timer::builder().build_driven()?;
    ///     tokio::spawn(driver.run(|at| tokio::time::sleep_until(at.into())));
    ///     timer.sleep(Duration::from_millis(5)).await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// }
    /// # )?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn run<F: Future>(mut self, mut sleep_until: impl FnMut(Instant) -> F) {
        let mut sleep = pin!(None);
        let mut until = None;
        let mut waker = Arc::new(Waker::noop().clone());
        let turns = poll_fn(|context| {
            if !waker.will_wake(context.waker()) {
                waker = Arc::new(context.waker().clone());
            }
            match self.turn_told_by(|_| Some(Bell::Waker(Arc::clone(&waker)))) {
                Turned::Again => context.waker().wake_by_ref(),
                Turned::Rests(next) => {
                    if replace(&mut until, next) != next {
                        sleep.set(next.map(&mut sleep_until));
                    }
                    let is_over = |sleep| F::poll(sleep, context).is_ready();
                    if sleep.as_mut().as_pin_mut().is_some_and(is_over) {
                        until = None;
                        sleep.set(None);
                        context.waker().wake_by_ref();
                    }
                }
                Turned::Ends => return Poll::Ready(()),
            }
            Poll::Pending
        });
        turns.await;
    }

    /// Returns whether the timer was stopped, or is about to be: it needs no more turns.
    ///
    /// Ask this after each turn, and before you wait: a turn that begins while the timer is being
    /// stopped returns None, and no hook is called after it.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.life.is_stopped()
    }

    /// Takes a turn. After that `bell`, which gets the tick of the next one, tells the driver, if
    /// it rests.
    fn turn_told_by(&mut self, bell: impl FnOnce(u64) -> Option<Bell>) -> Turned {
        let hub = &self.life.engine.hub;
        // Before it begins, so that a thread that stops the timer knows.
        if !hub.has_turned_here() {
            hub.turned_in.store(process_id(), Ordering::Release);
        }
        let (asked, last_bell) = hub.park.begin_turn();
        let _turning = asked.map(|_| Turning::new(hub));
        swallow(last_bell);
        match asked.map_or(Rest::Ends, |asked| self.life.engine.turn(asked)) {
            Rest::Looks(_) => Turned::Again,
            Rest::Sleeps(mut state, _) => {
                let until = state.told_by(bell);
                drop(state);
                Turned::Rests(hub.ticks.instant(until))
            }
            Rest::Ends => {
                self.life.drop_left();
                Turned::Ends
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // A thread that stops the timer may wait for this one, in a waker.
        self.life.end(None);
        self.life.wait_for_recording();
        // The hook may hold what holds the timer.
        swallow(self.life.engine.hub.park.take_bell());
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let turns = self.life.engine.hub.counters.wake_ups.load(Relaxed);
        f.debug_struct("Driver").field("turns", &turns).finish_non_exhaustive()
    }
}

/// While it lives, this thread takes a turn of the driver.
struct Turning<'a> {
    hub: &'a Hub,
    _inside: Inside,
    _keeps: KeepsShard,
}

impl<'a> Turning<'a> {
    fn new(hub: &'a Hub) -> Self {
        hub.counters.wakes_up();
        Self { hub, _inside: inside::enter_turn(hub.id), _keeps: KeepsShard::new() }
    }
}

impl Drop for Turning<'_> {
    fn drop(&mut self) {
        self.hub.park.end_turn();
    }
}
