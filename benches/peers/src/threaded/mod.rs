//! One file for each timer that has a thread of its own, or a runtime's.

mod async_io;
mod hhwt_thread;
mod pingora_timeout;
mod tickwheel_timer;
mod timerwheel;
mod tokio_sleep;

use crate::case::{Case, Sample};
use crate::subject::Kind;
use crate::workloads;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// One timer that any number of threads share.
pub(crate) trait Threaded: Sync + Sized {
    const PROFILE: ThreadedProfile;

    /// What a thread needs to use the timer.
    type Local<'a>
    where
        Self: 'a;

    /// Room for one timeout, empty at first.
    type Slot: Default;

    fn new() -> Self;

    fn enter(&self) -> Self::Local<'_>;

    /// Cancels the timeout in `slot` and schedules another one there, which counts itself in
    /// [`FIRED`] if it fires.
    fn replace(local: &mut Self::Local<'_>, slot: &mut Self::Slot, delay: Duration);

    /// Runs `task` after `delay`.
    fn after(&self, delay: Duration, task: Task);
}

pub(crate) type Task = Box<dyn FnOnce() + Send>;

/// Timeouts that fired which were to be cancelled.
pub(crate) static FIRED: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadedProfile {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
}

macro_rules! subjects {
    ($($subject:ty,)*) => {
        /// In the order of the tables: ours first.
        pub(crate) const PROFILES: &[ThreadedProfile] = &[$(<$subject>::PROFILE),*];

        /// Runs `case` with its subject; None if there is no such subject here.
        pub(crate) fn run(case: &Case) -> Option<Sample> {
            $(
                if case.subject == <$subject>::PROFILE.name {
                    return Some(workloads::run_threaded::<$subject>(case));
                }
            )*
            None
        }
    };
}

subjects! {
    tickwheel_timer::TickwheelTimer,
    tokio_sleep::TokioSleep,
    hhwt_thread::HhwtThread,
    timerwheel::Timerwheel,
    async_io::AsyncIo,
    pingora_timeout::PingoraTimeout,
}

/// A runtime for the timers that are futures.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime")
}
