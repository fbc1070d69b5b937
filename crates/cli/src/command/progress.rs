//! Shows progress where there is a terminal, and listens for signals that end the process.

use crate::Failure;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io;
use std::mem;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tickwheel_cli::signals;
use tickwheel_cli::study::Progress;
use tickwheel_cli::trace::{Trace, TraceError};

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

/// Opens the trace in `file`, or that on standard input if `file` is `-`, and shows how much of it is
/// read.
pub(crate) fn open(file: &Path, progress: &ProgressBar) -> Result<Trace, TraceError> {
    let show_operations = || show(progress, None, "{spinner} {human_pos} operations ({per_sec})");
    if file == Path::new("-") {
        show_operations();
        return Trace::new("standard input", io::stdin());
    }
    Trace::open_through(file, |file| {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            show_operations();
            return Ok(ProgressBar::hidden().wrap_read(file));
        }
        let template = "{bar:40} {binary_bytes} of {binary_total_bytes} ({eta})";
        show(progress, Some(metadata.len()), template);
        Ok(progress.wrap_read(file))
    })
}

/// Notes how far a study is. `phase` is what the bar says since reading is over.
pub(crate) fn advance(progress: &ProgressBar, phase: &mut &'static str, at: Progress) {
    let (position, length, template) = match at {
        Progress::Counted(done, all) => {
            (done, all, "{spinner} {bar:38} counting, {pos} of {len} wheels")
        }
        Progress::Measured(share) => {
            ((share * 100.0) as u64, 100, "{bar:40} measuring, {eta} at most")
        }
        Progress::Read(operations) if progress.length().is_none() => {
            return progress.set_position(operations);
        }
        _ => return,
    };
    if mem::replace(phase, template) != template {
        show(progress, Some(length), template);
    }
    progress.set_position(position);
}

/// What happens at Ctrl-C, SIGTERM and SIGHUP.
pub(crate) struct Interrupt {
    held: Arc<Mutex<()>>,
}

impl Interrupt {
    /// Ends the process, but not while [`hold`](Self::hold) holds it.
    pub(crate) fn exits(progress: &ProgressBar) -> Result<Self, Failure> {
        let held = Arc::new(Mutex::new(()));
        let (lock, progress) = (Arc::clone(&held), progress.clone());
        on_end(move || {
            let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
            progress.finish_and_clear();
            std::process::exit(130);
        })?;
        Ok(Self { held })
    }

    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a flag that is set, for work that must tidy up behind itself.
    pub(crate) fn is_noted() -> Result<Arc<AtomicBool>, Failure> {
        let noted = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&noted);
        on_end(move || flag.store(true, Ordering::Relaxed))?;
        Ok(noted)
    }
}

fn on_end(handler: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    signals::on_end(handler)
        .map_err(|error| Failure::Output(format!("cannot watch for signals: {error}")))
}
