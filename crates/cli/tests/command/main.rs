//! What the command `tickwheel` promises, a file per subcommand.

mod choose;
mod generate;
// Only with all features, because `cargo test` needs nothing but Rust.
#[cfg(feature = "png")]
mod progress;
#[cfg(feature = "record")]
mod record;
mod replay;
mod report;
#[cfg(feature = "png")]
mod terminal;
mod watch;

use std::io::Write;
use std::path::{Path, PathBuf};

/// `few`, or `many` if `TICKWHEEL_LONG` is set, as `.ci/full long` sets it.
fn long<T>(few: T, many: T) -> T {
    if std::env::var_os("TICKWHEEL_LONG").is_some() { many } else { few }
}

/// `few`, or `many` under CI or if tests are long.
fn under_ci<T>(few: T, many: T) -> T {
    if long(false, true) || std::env::var_os("CI").is_some() { many } else { few }
}

/// The folder of the recorded traces; None where it is absent, and says so. They are not public, so
/// that nobody can install them.
fn recorded() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    if !folder.is_dir() {
        // Written past the capture of the test runner.
        let mut output = std::io::stderr();
        writeln!(output, "SKIPPED: no recorded trace was run: {} is absent", folder.display())
            .unwrap();
        return None;
    }
    Some(folder)
}

/// Whether who started the tests has `signal` ignored, as `nohup` has HUP and a shell has INT in what
/// it runs behind it. The command heeds that.
#[cfg(unix)]
fn is_ignored(signal: &str) -> bool {
    let line = format!("kill -s {signal} $$");
    std::process::Command::new("sh").args(["-c", &line]).status().unwrap().success()
}
