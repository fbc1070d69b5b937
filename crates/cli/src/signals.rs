//! Listens for the signals that ask a process to end.

use signal_hook::consts::{SIGINT, SIGTERM};
use std::io;
use std::thread;

/// Calls `handler`, on a thread of its own, when a signal asks the process to end: INT, as Ctrl-C
/// sends it, TERM or HUP. A signal that is ignored, as HUP is under `nohup`, stays ignored.
///
/// # Errors
///
/// An error if the system lets nobody listen.
#[cfg(unix)]
pub fn on_end(handler: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let all = [("HUP", signal_hook::consts::SIGHUP), ("INT", SIGINT), ("TERM", SIGTERM)];
    let heard = all.into_iter().filter(|(name, _)| !is_ignored(name)).map(|(_, signal)| signal);
    let mut signals = signal_hook::iterator::Signals::new(heard)?;
    let wait = move || {
        if signals.forever().next().is_some() {
            handler();
        }
    };
    thread::Builder::new().spawn(wait).map(drop)
}

/// Whether a signal is ignored. No safe call tells it, but a child inherits it.
#[cfg(unix)]
fn is_ignored(name: &str) -> bool {
    let shell =
        std::process::Command::new("sh").args(["-c", &format!("kill -s {name} $$")]).status();
    shell.is_ok_and(|status| status.success())
}

/// Calls `handler`, on a thread of its own, when Ctrl-C or the like asks the process to end.
///
/// # Errors
///
/// An error if the system lets nobody listen.
#[cfg(windows)]
pub fn on_end(handler: impl FnOnce() + Send + 'static) -> io::Result<()> {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGBREAK, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&is_over))?;
    }
    let wait = move || {
        while !is_over.load(Ordering::Relaxed) {
            thread::sleep(std::time::Duration::from_millis(100));
        }
        handler();
    };
    thread::Builder::new().spawn(wait).map(drop)
}
