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
pub fn on_end(handler: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let wait = listen()?;
    let wait_and_call = move || {
        wait();
        handler();
    };
    thread::Builder::new().spawn(wait_and_call).map(drop)
}

/// Returns what waits for the first signal.
#[cfg(unix)]
fn listen() -> io::Result<impl FnOnce() + Send> {
    let all = [("HUP", signal_hook::consts::SIGHUP), ("INT", SIGINT), ("TERM", SIGTERM)];
    let heard = all.into_iter().filter(|(name, _)| !is_ignored(name)).map(|(_, signal)| signal);
    let mut signals = signal_hook::iterator::Signals::new(heard)?;
    Ok(move || {
        signals.forever().next();
    })
}

/// Whether a signal is ignored. No safe call tells it, but a child inherits it.
#[cfg(unix)]
fn is_ignored(name: &str) -> bool {
    let mut shell = std::process::Command::new("sh");
    let status = shell.args(["-c", &format!("kill -s {name} $$")]).status();
    status.is_ok_and(|status| status.success())
}

/// Returns what waits for the first signal.
#[cfg(windows)]
fn listen() -> io::Result<impl FnOnce() + Send> {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGBREAK, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&is_over))?;
    }
    Ok(move || {
        while !is_over.load(Ordering::Relaxed) {
            thread::sleep(std::time::Duration::from_millis(100));
        }
    })
}
