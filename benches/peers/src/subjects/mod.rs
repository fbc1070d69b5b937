//! Every way to hold timeouts that is driven by its caller, and the list of all subjects.

mod bitwheel;
pub(crate) mod collections;
mod delay_queue;
mod hhwt;
mod limits;
mod nexus_timer;
mod subms;
mod tickwheel;

use crate::case::{Case, Sample};
use crate::subject::Kind::{Design, Limit, Ours, Peer};
use crate::subject::Profile;
use crate::threaded::{designs, futures, handles, hhwt_thread, netty};
use crate::workloads;

macro_rules! subjects {
    (
        driven { $($driven:expr => $subject:ty,)* }
        threaded { $($threaded:expr => $timer:ty,)* }
        unstable { $($unstable:expr => $of_tokio:ty,)* }
    ) => {
        /// In the order of the tables: ours first, limits last.
        pub(crate) const PROFILES: &[Profile] = &[
            $($driven,)*
            $(Profile { has_threads: true, ..$threaded },)*
            $(#[cfg(tokio_unstable)] Profile { has_threads: true, ..$unstable },)*
            NETTY,
        ];

        /// Runs `case` with its subject.
        pub(crate) fn run(case: &Case) -> Sample {
            match case.subject.as_str() {
                $(name if name == $driven.name => workloads::run::<$subject>(case),)*
                $(name if name == $threaded.name => workloads::run_threaded::<$timer>(case),)*
                $(
                    #[cfg(tokio_unstable)]
                    name if name == $unstable.name => workloads::run_threaded::<$of_tokio>(case),
                )*
                name if name == NETTY.name => netty::run(case),
                other => unreachable!("{other} is no subject"),
            }
        }
    };
}

subjects! {
    driven {
        Profile::new(Ours, "tickwheel") => tickwheel::Tickwheel<false>,
        Profile::new(Ours, "tickwheel-hashed") => tickwheel::Tickwheel<true>,
        Profile { cancels: false, ..Profile::new(Design, "tickwheel-new") } =>
            tickwheel::Tickwheel<false, true>,
        Profile::new(Peer, "nexus-timer") => nexus_timer::NexusTimer,
        Profile::new(Peer, "delay-queue") => delay_queue::DelayQueue,
        Profile::new(Peer, "hhwt") => hhwt::Hhwt,
        Profile::new(Peer, "subms") => subms::Subms,
        Profile::new(Peer, "bitwheel") => bitwheel::BitWheel,
        Profile::new(Peer, "btree-map") => collections::BTreeMap,
        Profile::new(Peer, "lazy-heap") => collections::LazyHeap,
        Profile { cancels: false, ..Profile::new(Limit, "sort-and-walk") } => limits::SortAndWalk<false>,
        Profile { cancels: false, ..Profile::new(Limit, "radix-and-walk") } => limits::SortAndWalk<true>,
        Profile { fires: false, ..Profile::new(Limit, "slab") } => limits::Slab,
        Profile { cancels: false, ..Profile::new(Limit, "compare") } => limits::Compare,
    }
    threaded {
        Profile::new(Ours, "tickwheel-timer") => handles::TickwheelTimer<{ handles::DEFAULT }>,
        Profile::new(Ours, "tickwheel-timer-100us") => handles::TickwheelTimer<100>,
        Profile::new(Ours, "tickwheel-timer-among-others") => handles::AmongOthers,
        Profile::new(Ours, "tickwheel-channel") => handles::TickwheelChannel,
        Profile::new(Ours, "tickwheel-sleep") => futures::OnTokio<futures::TickwheelSleep>,
        Profile::new(Peer, "tokio-sleep") => futures::OnTokio<futures::Tokio<2>>,
        Profile::new(Peer, "tokio-current-thread") => futures::OnTokio<futures::Tokio<1>>,
        Profile::new(Peer, "hhwt-thread") => hhwt_thread::HhwtThread,
        Profile::new(Peer, "timerwheel") => handles::Timerwheel,
        Profile::new(Peer, "async-io") => futures::OnTokio<futures::AsyncIo>,
        Profile::new(Peer, "pingora-timeout") => futures::OnTokio<futures::PingoraTimeout>,
        Profile::new(Design, "two-queues") => designs::TwoQueues,
        Profile::new(Design, "one-lock") => designs::OneLock,
    }
    unstable {
        Profile::new(Peer, "tokio-alt-timer") => futures::OnTokio<futures::TokioOfEachWorker>,
    }
}

pub(crate) const NETTY: Profile = Profile { has_threads: true, ..Profile::new(Peer, "netty") };
