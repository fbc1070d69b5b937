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
            &[$(<$driven as Subject>::PROFILE,)* $(<$threaded as Threaded>::PROFILE,)*];

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
    threaded::ours::TickwheelTimer,
    threaded::ours::Fine,
    threaded::ours::AmongOthers,
    threaded::ours::TickwheelSleep,
    threaded::futures::Tokio<2>,
    threaded::futures::Tokio<1>,
    threaded::hhwt_thread::HhwtThread,
    threaded::timerwheel::Timerwheel,
    threaded::futures::AsyncIo,
    threaded::futures::PingoraTimeout,
    threaded::designs::TwoQueues,
    threaded::designs::OneLock,
    ]
}

/// What is known of the subject of that name.
pub(crate) fn profile(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}
