//! What happens to the jobs if their supervisor is killed.

use crate::process::{Target, children};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, set_child_subreaper, wait};
use std::collections::HashSet;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Runs `command`, and then ends every process that it left behind: by SIGTERM, and by SIGKILL
/// after `grace`. Returns the status of `command` when none is left. `command` gets a process group
/// of its own.
///
/// The calling process becomes the reaper of all its descendants, so it should do nothing else.
/// Those whose parents have ended become its children, whatever groups and sessions they are in,
/// and if their parents were killed. The standard input of `command` is a pipe that closes when the
/// guard ends: [`when_guard_is_gone`] waits for that.
///
/// # Errors
///
/// Those of [`Command::spawn`], and if the list of processes cannot be read.
pub fn guard(command: &mut Command, grace: Duration) -> io::Result<ExitStatus> {
    set_child_subreaper(Some(getpid()))?;
    let mut guarded = command.stdin(Stdio::piped()).process_group(0).spawn()?;
    let _closes_at_the_end = guarded.stdin.take();
    let guarded = Pid::from_child(&guarded);
    let status = loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == guarded => break status,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    };
    end_children(grace)?;
    Ok(ExitStatus::from_raw(status.as_raw()))
}

/// Calls `then` on a thread of its own when the [`guard`] of this process has ended. Takes the
/// standard input.
///
/// # Errors
///
/// If the system has no threads left.
pub fn when_guard_is_gone(then: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let until_it_is = || {
        // Ends at the end of the pipe, and nobody writes into it.
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        then();
    };
    thread::Builder::new().name("guard is gone".into()).spawn(until_it_is)?;
    Ok(())
}

/// Ends all children of this process, and those that become its children because of that. A whole
/// group gets each signal at once. So a process that starts another and ends, again and again,
/// does not outrun it, unless each time it leaves the group, too.
fn end_children(grace: Duration) -> io::Result<()> {
    let begun = Instant::now();
    let mut told = HashSet::new();
    loop {
        let is_over = grace <= begun.elapsed();
        let children = children()?;
        let many = children.len();
        // Each group once: the system looks at all of its processes, and those that have ended may
        // be many.
        for target in children.into_iter().map(Target::of).collect::<HashSet<_>>() {
            // It may have ended.
            let _ = if is_over {
                target.signal(Signal::KILL)
            } else if told.insert(target) {
                target.signal(Signal::TERM).and_then(|()| target.signal(Signal::CONT))
            } else {
                Ok(())
            };
        }
        // They may end as fast as they are reaped: after as many as there were, the next look.
        for _ in 0..=many {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((child, _))) => {
                    // Its number may be another's now.
                    told.remove(&Target::Process(child));
                }
                Err(Errno::INTR) => {}
                Ok(None) => {
                    thread::sleep(PAUSE);
                    break;
                }
                Err(Errno::CHILD) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Between two looks at whether all have ended.
const PAUSE: Duration = Duration::from_millis(10);
