//! The life of a timer: its worker starts once, and ends once.
//!
//! A worker thread starts with the first timeout. A [`Driver`](super::Driver) is there from the
//! beginning: `stop` waits for its turn to be over, where it joins a thread.
//!
//! `stop` sets the timer's life to `Stopping`: no worker starts any more, and a second `stop`
//! waits. It closes each shard under its lock: nothing is scheduled there or taken out of the wheel
//! to be fired from then on. What was taken out before may still run. It takes out what is left, a
//! batch at a time, tells the worker, and joins it: by then the last task on the worker has ended.
//! It wakes the futures that waited. Then life says `Stopped`. A thread that could wait for ever
//! does not wait: `inside::may_wait` tells.
//!
//! | case | what happens | `tests/loom.rs` |
//! |---|---|---|
//! | scheduled while the timer stops | before its shard is closed it fires or comes back from `stop`; after that it is an error | `stopped_as_it_is_scheduled_it_fires_or_comes_back` |
//! | a task runs while the timer stops | `stop` joins the worker, so the task has ended | `no_task_runs_after_stop_has_returned` |
//! | stopped twice | the second call waits for the first, and gets nothing | `stopped_by_two_threads_each_returns_when_all_is_over` |
//! | the last handle is dropped | the same as `stop`; what comes back is dropped | `dropping_the_last_handle_waits_and_ends_the_thread` |
//! | it is dropped inside a task of its timer, or where waiting could be for ever | the same without joining: the worker ends by itself | `dropping_the_last_handle_inside_a_task_ends_the_thread`, `shedding_the_last_handle_does_not_wait_for_the_worker` |
//! | tasks of two timers stop each other | one waits; the other is told `StopError` | `tasks_of_two_timers_that_stop_each_other_do_not_wait_for_ever` |
//! | a repeating one runs on the worker while the timer stops | the worker leaves the task for the thread that stops | `repeating_and_stopped_as_it_runs_it_comes_back_once` |
//! | an executor has a repeating one while the timer stops | it has fired when `stop` returns, or comes back from `stop` | `repeating_elsewhere_and_stopped_it_has_fired_or_comes_back`, `repeating_elsewhere_and_shed_as_it_is_cancelled_it_has_one_end` |

use super::error::ScheduleErrorKind;
use super::hub::Start;
use super::inside::{self, Waits};
use super::task::Unfired;
use super::worker::{self, Engine};
use crate::platform::process_id;
use crate::sync::{Builder, Condvar, JoinHandle, Mutex, Ordering, Rank, lock, wait};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem::{forget, replace, take};
#[cfg(feature = "log")]
use core::sync::atomic::AtomicBool;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Starts and stops the worker.
pub(super) struct Life {
    pub(super) engine: Arc<Engine>,
    /// The worker is a driver, and not a thread.
    pub(super) has_driver: bool,
    phase: Mutex<LifePhase>,
    /// Threads that stop a timer that is being stopped wait here.
    stopped: Condvar,
}

enum LifePhase {
    /// Nothing was scheduled yet. The worker will be a thread of this name.
    Idle(String),
    /// The thread, unless the worker is a driver.
    Running(Option<JoinHandle<()>>),
    Stopping,
    Stopped,
}

impl Life {
    /// Makes the life of a timer whose worker will be a thread of that name, or is a driver.
    pub(super) fn new(engine: Arc<Engine>, thread_name: Option<String>) -> Self {
        let has_driver = thread_name.is_none();
        if has_driver {
            engine.hub.process.store(process_id(), Ordering::Release);
        }
        let phase = thread_name.map_or(LifePhase::Running(None), LifePhase::Idle);
        let (phase, stopped) = (Mutex::new(Rank::Life, phase), Condvar::new());
        Self { engine, has_driver, phase, stopped }
    }

    pub(super) fn is_stopped(&self) -> bool {
        matches!(*lock(&self.phase), LifePhase::Stopping | LifePhase::Stopped)
    }

    /// Drops what the worker left for the thread that stops the timer, if that has not waited.
    pub(super) fn drop_left(&self) {
        if matches!(*lock(&self.phase), LifePhase::Stopped) {
            // The lock is released first: what a task captured may call as it is dropped.
            let left = take(&mut *lock(&self.engine.left));
            self.drop_all(left);
        }
    }

    /// Returns a permit to wait for the worker, or None if that could be for ever.
    pub(super) fn may_wait(&self) -> Option<Waits> {
        self.engine.hub.may_wait()
    }

    /// Stops the timer, and returns what is left if this thread is the first to stop it. Waits for
    /// the worker if this thread may.
    pub(super) fn stop(&self, waits: Option<Waits>) -> Vec<Unfired> {
        let Engine { hub, shards, left, .. } = &*self.engine;
        let mut phase = lock(&self.phase);
        let worker = loop {
            match replace(&mut *phase, LifePhase::Stopping) {
                LifePhase::Idle(_) => break None,
                LifePhase::Running(worker) => break Some(worker),
                LifePhase::Stopping if waits.is_some() => phase = wait(&self.stopped, phase),
                LifePhase::Stopping => return Vec::new(),
                LifePhase::Stopped => {
                    drop(phase);
                    // The call that stopped it may not have waited for the writer.
                    hub.recording.end(&*hub.clock, waits.is_some());
                    self.has_stopped();
                    return Vec::new();
                }
            }
        };
        drop(phase);

        for shard in shards {
            shard.close();
        }
        let (mut unfired, mut wakers) = (Vec::new(), Vec::new());
        for shard in shards {
            while !shard.take_left(&mut unfired, &mut wakers) {}
        }
        // A waker that stops this timer must not wait for itself.
        let inside = inside::enter(hub.id);
        hub.park.stop();
        drop(inside);
        match worker {
            // The thread of a parent process. A thread of this one may have its number, and would
            // be detached.
            Some(Some(thread)) if !hub.is_here() => forget(thread),
            // It does not panic.
            Some(Some(thread)) if waits.is_some() => _ = thread.join(),
            Some(None) if waits.is_some() && hub.has_turned_here() => hub.park.wait_for_turn(),
            _ => {}
        }
        hub.recording.end(&*hub.clock, waits.is_some());
        drop(waits);
        unfired.append(&mut lock(left));
        // Those of each shard are sorted already.
        unfired.sort_by_key(|unfired| (unfired.deadline.is_none(), unfired.deadline));
        let inside = inside::enter(hub.id);
        for waker in wakers {
            hub.guarded(|| waker.wake());
        }
        drop(inside);
        self.has_stopped();
        unfired
    }

    /// Waits for the writer of a recording, if this thread may. While another thread stops the
    /// timer, that thread waits for the writer, if it may.
    pub(super) fn wait_for_recording(&self) {
        let mut phase = lock(&self.phase);
        if matches!(*phase, LifePhase::Stopped) {
            // Who stops it meanwhile waits for this thread.
            *phase = LifePhase::Stopping;
            drop(phase);
            let Engine { hub, .. } = &*self.engine;
            hub.recording.end(&*hub.clock, self.may_wait().is_some());
            self.has_stopped();
        }
    }

    fn has_stopped(&self) {
        *lock(&self.phase) = LifePhase::Stopped;
        self.stopped.notify_all();
    }

    /// Stops the timer, as [`stop`](Self::stop) does, and drops what is left.
    pub(super) fn end(&self, waits: Option<Waits>) {
        self.drop_all(self.stop(waits));
        // A driver's turn may have ended in between.
        self.drop_left();
    }

    /// Drops tasks, none of which waits for another: see [`Unfired`].
    fn drop_all(&self, unfired: Vec<Unfired>) {
        for unfired in unfired {
            self.engine.hub.guarded(|| drop(unfired));
        }
    }
}

impl Start for Life {
    fn start(self: Arc<Self>) -> Result<(), ScheduleErrorKind> {
        let hub = &self.engine.hub;
        let mut phase = lock(&self.phase);
        match &*phase {
            LifePhase::Running(_) => Ok(()),
            LifePhase::Stopping | LifePhase::Stopped => Err(ScheduleErrorKind::Stopped),
            LifePhase::Idle(thread_name) => {
                hub.park.starts();
                let engine = Arc::clone(&self.engine);
                let thread = Builder::new().name(thread_name.clone());
                match thread.spawn(move || worker::run(engine)) {
                    Ok(thread) => {
                        *phase = LifePhase::Running(Some(thread));
                        hub.process.store(process_id(), Ordering::Release);
                        Ok(())
                    }
                    Err(error) => {
                        hub.park.exits();
                        Err(ScheduleErrorKind::Worker(error.kind()))
                    }
                }
            }
        }
    }
}

/// The clones of a timer, counted. The last stops it.
pub(super) struct Owner {
    pub(super) life: Arc<Life>,
}

impl Owner {
    pub(super) fn new(life: Arc<Life>) -> Self {
        if !life.has_driver {
            ALIVE.fetch_add(1, Relaxed);
        }
        Self { life }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.life.end(self.life.may_wait());
        if !self.life.has_driver {
            ALIVE.fetch_sub(1, Relaxed);
        }
    }
}

/// How many timers with threads are alive in this process.
static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// Warns if there are many timers, once in a process. This calls the logger, so nothing may be
/// locked.
pub(crate) fn warn_if_many() {
    #[cfg(feature = "log")]
    {
        static WARNED: AtomicBool = AtomicBool::new(false);
        let alive = ALIVE.load(Relaxed);
        if MANY < alive && !WARNED.swap(true, Relaxed) {
            log::warn!(
                "{alive} tickwheel timers are alive in this process, and each has a thread; one \
                 timer can serve them all: clone it"
            );
        }
    }
}

/// More timers than that are likely to be a mistake, because each has a thread.
#[cfg(feature = "log")]
const MANY: usize = 64;
