//! Every way to hold timeouts that is driven by its caller, and the list of all subjects.

pub(crate) mod btree_map;
mod delay_queue;
mod hhwt;
mod lazy_heap;
mod limits;
mod nexus_timer;
mod subms;
mod tickwheel;

use crate::case::{Case, Sample};
use crate::subject::{Profile, Subject};
use crate::threaded::{self, Threaded};
use crate::workloads;

macro_rules! subjects {
    (driven: [$($driven:ty,)*], threaded: [$($threaded:ty,)*]) => {
        /// In the order of the tables: ours first, limits last.
        pub(crate) const PROFILES: &[Profile] =
            &[
                $(<$driven as Subject>::PROFILE,)*
                $(Profile { has_threads: true, ..<$threaded as Threaded>::PROFILE },)*
            ];

        /// Runs `case` with its subject.
        pub(crate) fn run(case: &Case) -> Sample {
            match case.subject.as_str() {
                $(name if name == <$driven>::PROFILE.name => workloads::run::<$driven>(case),)*
                $(name if name == <$threaded>::PROFILE.name => {
                    workloads::run_threaded::<$threaded>(case)
                })*
                other => unreachable!("{other} is no subject"),
            }
        }
    };
}

subjects! {
    driven: [
    tickwheel::Hierarchical,
    tickwheel::Hashed,
    nexus_timer::NexusTimer,
    delay_queue::DelayQueue,
    hhwt::Hhwt,
    subms::Subms,
    btree_map::BTreeMap,
    lazy_heap::LazyHeap,
    limits::SortAndWalk,
    limits::Slab,
    limits::Compare,
    ],
    threaded: [
    threaded::handles::TickwheelTimer<1_000>,
    threaded::handles::TickwheelTimer<100>,
    threaded::handles::AmongOthers,
    threaded::futures::OnTokio<threaded::futures::TickwheelSleep>,
    threaded::futures::OnTokio<threaded::futures::Tokio<2>>,
    threaded::futures::OnTokio<threaded::futures::Tokio<1>>,
    threaded::hhwt_thread::HhwtThread,
    threaded::handles::Timerwheel,
    threaded::futures::OnTokio<threaded::futures::AsyncIo>,
    threaded::futures::OnTokio<threaded::futures::PingoraTimeout>,
    threaded::designs::TwoQueues,
    threaded::designs::OneLock,
    ]
}
