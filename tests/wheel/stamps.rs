//! The modes that a situation is stamped for, beside `in_each_mode`.

use crate::common::is_run;
use tickwheel::Mode;

/// As `in_each_mode`, for what only a hierarchical wheel does.
macro_rules! in_each_hierarchical_mode {
    ($($situations:tt)*) => {
        in_each_mode! { @ only_hierarchical_2, "hierarchical:2", $($situations)* }
        in_each_mode! { @ only_hierarchical_64, "hierarchical:64", $($situations)* }
        in_each_mode! { @ only_hierarchical_256, "hierarchical:256", $($situations)* }
    };
}

/// As `in_each_mode`, for what only a hashed wheel does.
macro_rules! in_each_hashed_mode {
    ($($situations:tt)*) => {
        in_each_mode! { @ only_hashed_1, "hashed:1", $($situations)* }
        in_each_mode! { @ only_hashed_8, "hashed:8", $($situations)* }
        in_each_mode! { @ only_hashed_512, "hashed:512", $($situations)* }
    };
}

/// As `in_each_mode`, with more buckets too: for what few of them would not show.
macro_rules! in_each_mode_and_large {
    ($($situations:tt)*) => {
        in_each_mode! { $($situations)* }
        in_each_mode! { @ hierarchical_4096, "hierarchical:4096", $($situations)* }
        in_each_mode! { @ hashed_4096, "hashed:4096", $($situations)* }
        in_each_mode! { @ hashed_65536, "hashed:65536", $($situations)* }
        in_each_mode! { @ hashed_1048576, "hashed:1048576", $($situations)* }
    };
}

/// The modes that `in_each_mode` stamps for, to compare them within one test.
pub(crate) fn modes() -> impl Iterator<Item = Mode> {
    ["hierarchical:2", "hierarchical:64", "hierarchical:256", "hashed:1", "hashed:8", "hashed:512"]
        .into_iter()
        .filter(|mode| is_run(mode))
        .map(|mode| mode.parse().expect("a mode"))
}
