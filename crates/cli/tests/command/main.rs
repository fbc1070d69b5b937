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

/// `few`, or `many` if `TICKWHEEL_LONG` is set, as `.ci/full long` sets it.
fn long<T>(few: T, many: T) -> T {
    if std::env::var_os("TICKWHEEL_LONG").is_some() { many } else { few }
}

/// `few`, or `many` under CI or if tests are long.
fn under_ci<T>(few: T, many: T) -> T {
    if long(false, true) || std::env::var_os("CI").is_some() { many } else { few }
}

/// Whether who started the tests has `signal` ignored, as `nohup` has HUP and a shell has INT in what
/// it runs behind it. The command heeds that.
#[cfg(unix)]
fn is_ignored(signal: &str) -> bool {
    let line = format!("kill -s {signal} $$");
    std::process::Command::new("sh").args(["-c", &line]).status().unwrap().success()
}
