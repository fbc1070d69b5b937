//! One file for each way to hold timeouts that is driven by its caller.

mod btree_map;
mod compare;
mod delay_queue;
mod hhwt;
mod lazy_heap;
mod nexus_timer;
mod slab;
mod sort_and_walk;
mod subms;
mod tickwheel;

use crate::case::{Case, Sample};
use crate::subject::{Profile, Subject};
use crate::workloads;

macro_rules! subjects {
    ($($subject:ty,)*) => {
        /// In the order of the tables: ours first, limits last.
        pub(crate) const PROFILES: &[Profile] = &[$(<$subject>::PROFILE),*];

        /// Runs `case` with its subject; None if there is no such subject here.
        pub(crate) fn run(case: &Case) -> Option<Sample> {
            $(
                if case.subject == <$subject>::PROFILE.name {
                    return Some(workloads::run::<$subject>(case));
                }
            )*
            None
        }
    };
}

subjects! {
    tickwheel::Hierarchical,
    tickwheel::Hashed,
    nexus_timer::NexusTimer,
    delay_queue::DelayQueue,
    hhwt::Hhwt,
    subms::Subms,
    btree_map::BTreeMap,
    lazy_heap::LazyHeap,
    sort_and_walk::SortAndWalk,
    slab::Slab,
    compare::Compare,
}
