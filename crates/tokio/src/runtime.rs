//! The timer of each runtime.
//!
//! The first use of [`time`](crate::time) inside a runtime builds a timer and spawns the task that
//! drives it. That task owns the timer: the runtime drops it when it shuts down, and then the
//! timer is stopped, whoever looks for it. Everybody else has a weak reference, because the number
//! of a runtime that has ended may be that of another.

use crate::TokioClock;
use crate::alarm::Alarm;
use crate::clock::{OwnClock, is_reached, reached_now, turn_at};
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::{pending, poll_fn};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use tickwheel::{Sleeps, Timer, WeakSleeps};
use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::time::{Duration, Instant};

/// The timer of a runtime that is alive.
pub(crate) struct Driven {
    runtime: Id,
    pub(crate) timer: Timer,
    #[cfg(feature = "test-util")]
    alarm: Arc<Alarm>,
}

/// What a sleep needs of the timer of its runtime.
pub(crate) struct Here {
    pub(crate) runtime: Id,
    pub(crate) sleeps: Sleeps,
    #[cfg(feature = "test-util")]
    pub(crate) alarm: Arc<Alarm>,
}

/// What a thread knows of the timer that it found last.
struct Known {
    runtime: Id,
    sleeps: WeakSleeps,
    #[cfg(feature = "test-util")]
    alarm: Weak<Alarm>,
}

/// Returns what a sleep needs, in the runtime that this thread is in.
///
/// # Panics
///
/// Outside of a runtime, and in one without timers, with tokio's words.
#[inline(always)]
#[track_caller]
pub(crate) fn here() -> Here {
    let runtime = Handle::current().id();
    let known = KNOWN.try_with(|known| match &*known.borrow() {
        Some(known) if known.runtime == runtime => known.upgrade(),
        _ => None,
    });
    match known {
        Ok(Some(here)) => here,
        _ => look(),
    }
}

#[cold]
#[track_caller]
fn look() -> Here {
    let driven = current();
    let here = Here {
        runtime: driven.runtime,
        sleeps: driven.timer.sleeps(),
        #[cfg(feature = "test-util")]
        alarm: Arc::clone(&driven.alarm),
    };
    // A thread that is ending looks again each time, and one that drops a timer that has ended.
    let known = here.downgrade();
    let _ = KNOWN.try_with(|it| it.try_borrow_mut().map(|mut it| *it = Some(known)));
    here
}

impl Here {
    fn downgrade(&self) -> Known {
        Known {
            runtime: self.runtime,
            sleeps: self.sleeps.downgrade(),
            #[cfg(feature = "test-util")]
            alarm: Arc::downgrade(&self.alarm),
        }
    }
}

impl Known {
    /// Returns None if the runtime has ended.
    #[inline(always)]
    fn upgrade(&self) -> Option<Here> {
        Some(Here {
            runtime: self.runtime,
            sleeps: self.sleeps.upgrade()?,
            #[cfg(feature = "test-util")]
            alarm: self.alarm.upgrade()?,
        })
    }
}

/// Returns the timer of the runtime that this thread is in.
///
/// # Panics
///
/// As [`here`].
#[track_caller]
pub(crate) fn current() -> Arc<Driven> {
    let handle = Handle::current();
    // Panics if the runtime has no timers.
    drop(tokio::time::sleep_until(Instant::now()));
    find_or_start(handle)
}

fn find_or_start(handle: Handle) -> Arc<Driven> {
    let runtime = handle.id();
    if let Some(driven) = find(&lock_all(), runtime) {
        return driven;
    }
    let probe = handle.spawn(pending::<()>());
    // A runtime that shuts down, or has, takes no task.
    if probe.is_finished() {
        return Arc::new(Driven {
            runtime,
            timer: STOPPED.clone(),
            #[cfg(feature = "test-util")]
            alarm: Arc::new(Alarm::new(handle)),
        });
    }
    probe.abort();
    let mut all = lock_all();
    if let Some(driven) = find(&all, runtime) {
        return driven;
    }
    let shards = handle.metrics().num_workers().saturating_mul(SHARDS_PER_WORKER).clamp(1, 256);
    let mut builder =
        Timer::builder().shards(shards).clock(OwnClock(TokioClock::new(handle.clone())));
    // As tokio's timer does.
    builder = builder.wakes_together();
    if let Some(tick) = tick_of_tokio() {
        builder = builder.ticks_from(tick);
    }
    let (timer, mut driver) = builder.build_driven().expect("all numbers are in range");
    let alarm = Arc::new(Alarm::new(handle.clone()));
    let told = Arc::clone(&alarm);
    driver.on_wake(move |at| told.tell(at.into()));
    // From now on the alarm is told, whenever the task that drives has its first turn.
    turn_at(runtime, reached_now(), || driver.turn());
    let driven = Arc::new(Driven {
        runtime,
        timer,
        #[cfg(feature = "test-util")]
        alarm: Arc::clone(&alarm),
    });
    all.retain(|_, driven| 0 < driven.strong_count());
    all.insert(runtime, Arc::downgrade(&driven));
    let owned = Arc::clone(&driven);
    // Before others find the timer: nothing else would wake their sleeps.
    handle.spawn(async move {
        let _owned = owned;
        poll_fn(|context| alarm.poll_turn(&mut driver, context)).await;
    });
    drop(all);
    if handle.runtime_flavor() != RuntimeFlavor::CurrentThread {
        // This takes the place of the driver in the slot of this worker from which no other takes
        // it: the task that spawns both may block.
        handle.spawn(async {});
    }
    driven
}

/// Looks at none of other runtimes: this might have the last reference to one, whose drop wakes
/// tasks, and the lock is held.
fn find(all: &HashMap<Id, Weak<Driven>>, runtime: Id) -> Option<Arc<Driven>> {
    all.get(&runtime)?.upgrade()
}

fn lock_all() -> MutexGuard<'static, HashMap<Id, Weak<Driven>>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an instant at which a tick of this runtime's own timer began.
///
/// With ticks that begin together, a deadline is rounded up once, and what is due at one tick of
/// tokio's is due at one of ours. tokio does not tell, but a sleep is elapsed as soon as it is
/// moved if its deadline is not after the tick that the runtime's timer has reached. A search finds
/// the last such deadline to the nanosecond. None if the timer goes on meanwhile each time, or
/// after the runtime was shut down: then every sleep is elapsed, and a poll, unlike this, would
/// panic.
fn tick_of_tokio() -> Option<std::time::Instant> {
    if is_reached(Instant::now() + Duration::from_secs(3_600)) {
        return None;
    }
    for _ in 0..SEARCHES {
        let now = Instant::now();
        let mut back = Duration::from_millis(1);
        while !is_reached(now.checked_sub(back)?) {
            back = back.checked_mul(2)?;
        }
        // Reached this long ago, and not reached.
        let (mut reached, mut ahead) = (back, Duration::ZERO);
        while ahead + Duration::from_nanos(1) < reached {
            let middle = ahead + (reached - ahead) / 2;
            if is_reached(now - middle) { reached = middle } else { ahead = middle }
        }
        if is_reached(now - reached) && !is_reached(now - ahead) {
            return Some((now - reached).into_std());
        }
    }
    None
}

thread_local! {
    static KNOWN: RefCell<Option<Known>> = const { RefCell::new(None) };
}

/// The timers of all runtimes, and of some that are gone.
static ALL: LazyLock<Mutex<HashMap<Id, Weak<Driven>>>> = LazyLock::new(Mutex::default);

/// For runtimes that have ended. Its driver is dropped at once.
static STOPPED: LazyLock<Timer> =
    LazyLock::new(|| Timer::builder().shards(1).build_driven().expect("one is in range").0);

/// With one for each, two busy workers would soon meet at one.
const SHARDS_PER_WORKER: usize = 4;

/// A search fails if tokio's next tick comes meanwhile, which is seldom.
const SEARCHES: usize = 16;
