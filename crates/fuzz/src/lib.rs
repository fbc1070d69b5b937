//! Searches for calls that break a promise of tickwheel.
//!
//! A *target* reads bytes as a program of public calls, makes them, and panics if an answer, the
//! counted steps or the counted bytes are not as documented. Each target runs on one thread and
//! does the same with the same bytes, so an input that fails is a test.
//!
//! `.ci/fuzz TARGET MINUTES` searches with AFL++, which changes inputs so that they reach new
//! branches, and keeps the smallest inputs that reach all of them in `corpus/TARGET`. The test
//! `corpus` replays these, and `cargo run -p fuzz TARGET FILE` replays one.

mod bounds;
mod bytes;
mod damaged;
mod frames;
mod mode;
mod odd;
mod recurring;
mod timer;
mod trace;
mod wheel;
mod wheel_map;
#[path = "../../../tests/zoo/mod.rs"]
mod zoo;

pub use damaged::damaged;
pub use frames::frames;
pub use mode::mode;
pub use recurring::recurring;
pub use timer::timer;
pub use trace::trace;
pub use wheel::wheel;
pub use wheel_map::wheel_map;

/// A target by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("damaged", damaged),
    ("frames", frames),
    ("mode", mode),
    ("recurring", recurring),
    ("timer", timer),
    ("trace", trace),
    ("wheel", wheel),
    ("wheel_map", wheel_map),
];
