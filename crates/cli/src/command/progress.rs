//! Shows progress where there is a terminal, and listens for signals that end the process.

use super::Interrupt;
use crate::Failure;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tickwheel_cli::signals;
use tickwheel_cli::study::Progress;

/// Shows `progress` from here on, without a length if that is not known. Where there is no terminal
/// it stays hidden.
pub(crate) fn show(progress: &ProgressBar, length: Option<u64>, template: &str) {
    // Another target would leave what the first has drawn.
    if progress.is_hidden() {
        progress.set_draw_target(ProgressDrawTarget::stderr());
        progress.enable_steady_tick(Duration::from_millis(100));
    }
    progress.set_style(ProgressStyle::with_template(template).expect("the template is sound"));
    // A reset would show it again after Ctrl-C has ended it.
    progress.update(|state| {
        state.set_pos(0);
        length.into_iter().for_each(|length| state.set_len(length));
    });
    progress.reset_eta();
    // However short the phase is, it was shown.
    progress.force_draw();
}

/// Notes how far a study is. `phase` is what the bar says.
pub(crate) fn advance(progress: &ProgressBar, phase: &mut &'static str, at: Progress) {
    let (position, length, template) = match at {
        Progress::Read(operations) => {
            (operations, None, "{spinner} reading, {human_pos} operations")
        }
        Progress::Counted(done, all) => {
            (done, Some(all), "{spinner} {bar:38} counting, {pos} of {len} wheels")
        }
        Progress::Measured(share) => (
            (share * 100.0) as u64,
            Some(100),
            "{bar:40} measuring, {pos} % of the CPU time that it may take",
        ),
        _ => return,
    };
    if mem::replace(phase, template) != template {
        show(progress, length, template);
    }
    progress.set_position(position);
}

/// Ends the process at Ctrl-C, SIGTERM and SIGHUP, but not while somebody holds what it returns.
pub(crate) fn exit_when_interrupted(progress: &ProgressBar) -> Result<Interrupt, Failure> {
    let held = Arc::new(Mutex::new(()));
    let (lock, progress) = (Arc::clone(&held), progress.clone());
    on_end(move || {
        let _held = lock.lock();
        clear(&progress);
        std::process::exit(130);
    })?;
    Ok(held)
}

/// Clears the line of `progress`, unless the terminal does not take it within [`TO_CLEAR`].
pub(crate) fn clear(progress: &ProgressBar) {
    let (progress, (done, cleared)) = (progress.clone(), mpsc::channel());
    let clears = move || {
        progress.finish_and_clear();
        let _ = done.send(());
    };
    // Where no thread can be had, the line stays.
    let _ = thread::Builder::new().spawn(clears);
    let _ = cleared.recv_timeout(TO_CLEAR);
}

/// Returns a flag that Ctrl-C, SIGTERM and SIGHUP set, for work that must tidy up behind itself.
pub(crate) fn noted_when_interrupted() -> Result<Arc<AtomicBool>, Failure> {
    let noted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&noted);
    on_end(move || flag.store(true, Ordering::Relaxed))?;
    Ok(noted)
}

fn on_end(handler: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    signals::on_end(handler)
        .map_err(|error| Failure::Output(format!("cannot watch for signals: {error}")))
}

/// A terminal that takes no output keeps nobody from ending the command for longer than this.
const TO_CLEAR: Duration = Duration::from_secs(2);
