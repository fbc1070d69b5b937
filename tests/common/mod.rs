//! What the tests share: the macro that stamps a situation for each mode, how long a test is, and
//! random numbers.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::LazyLock;

/// Its hashes are the same in each run. So are the steps and the bytes of a map, which are a few
/// more if hashes happen to fall together.
#[allow(dead_code, reason = "not every test file counts what a map takes")]
pub(crate) type SameHashes = BuildHasherDefault<DefaultHasher>;

/// Makes a module of tests for each mode out of situations: a name, and the situation as text for
/// `tests/wheel/script.rs`; or a function that takes a `Mode`, or a type that is `From<Mode>`.
///
/// A function that is not named here is dead code, which a lint denies.
macro_rules! in_each_mode {
    (@ $module:ident, $mode:literal, $($situation:ident $(: $($script:literal)+)?,)*) => {
        mod $module {
            $(
                #[test]
                fn $situation() {
                    if !crate::common::is_run($mode) {
                        return;
                    }
                    let mode: tickwheel::Mode = $mode.parse().expect("a mode");
                    in_each_mode! { @run mode, $situation $($($script)+)? }
                }
            )*
        }
    };
    (@run $mode:ident, $situation:ident) => { super::$situation($mode.into()) };
    (@run $mode:ident, $situation:ident $($script:literal)+) => {
        crate::script::run($mode, concat!($($script),+))
    };
    ($($situations:tt)*) => {
        in_each_mode! { @ hierarchical_2, "hierarchical:2", $($situations)* }
        in_each_mode! { @ hierarchical_64, "hierarchical:64", $($situations)* }
        in_each_mode! { @ hierarchical_256, "hierarchical:256", $($situations)* }
        in_each_mode! { @ hashed_1, "hashed:1", $($situations)* }
        in_each_mode! { @ hashed_8, "hashed:8", $($situations)* }
        in_each_mode! { @ hashed_512, "hashed:512", $($situations)* }
    };
}

/// `few`, or `many` if `TICKWHEEL_LONG` is set, as `.ci/full long` sets it.
#[allow(dead_code, reason = "not every test file has something long")]
pub(crate) fn long<T>(few: T, many: T) -> T {
    static IS_LONG: LazyLock<bool> = LazyLock::new(|| std::env::var_os("TICKWHEEL_LONG").is_some());
    if *IS_LONG { many } else { few }
}

/// `few`, or `many` under CI or if tests are long.
#[allow(dead_code, reason = "not every test file has something long")]
pub(crate) fn under_ci<T>(few: T, many: T) -> T {
    if long(false, true) || std::env::var_os("CI").is_some() { many } else { few }
}

/// Whether situations run in `mode`. All but those of the usual sizes do only if tests are long, or
/// under CI.
#[allow(dead_code, reason = "not every test file stamps situations")]
pub(crate) fn is_run(mode: &str) -> bool {
    under_ci(false, true) || ["hierarchical:64", "hashed:512"].contains(&mode)
}

/// Returns the number in the environment variable `name`.
#[allow(dead_code, reason = "not every test file has something long")]
pub(crate) fn asked(name: &str) -> Option<u64> {
    let asked = std::env::var(name).ok()?;
    Some(asked.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Returns that number, or else what [`long`] returns.
#[allow(dead_code, reason = "not every test file has something long")]
pub(crate) fn asked_or_long(name: &str, few: u64, many: u64) -> u64 {
    asked(name).unwrap_or_else(|| long(few, many))
}

/// A stream of numbers that is the same in every run.
#[allow(dead_code, reason = "not every test file draws numbers")]
pub(crate) struct Numbers(pub(crate) u64);

#[allow(dead_code, reason = "not every test file draws numbers")]
impl Numbers {
    pub(crate) fn draw(&mut self) -> u64 {
        let mut rng = fastrand::Rng::with_seed(self.0);
        let drawn = rng.u64(..);
        self.0 = rng.get_seed();
        drawn
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }

    /// A number of any size, small ones as likely as huge ones.
    pub(crate) fn of_any_size(&mut self) -> u64 {
        let shift = self.below(64);
        self.draw() >> shift
    }
}
