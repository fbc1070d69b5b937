//! One file for each timer that has a thread of its own, or a runtime's.

mod async_io;
mod hhwt_thread;
mod pingora_timeout;
mod tickwheel_timer;
mod timerwheel;
mod tokio_sleep;

use crate::case::{Case, Sample};
use crate::shared::{Threaded, ThreadedProfile};
use crate::workloads;

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
