//! What happens to the jobs if their supervisor is killed.

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgid, getpid, kill_process, kill_process_group,
    set_child_subreaper, wait,
};
use std::collections::HashSet;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Runs `command`, and then ends every process that it left behind: by SIGTERM, and by SIGKILL
/// after `grace`. Returns the status of `command` when none is left.
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
    let mut guarded = command.stdin(Stdio::piped()).spawn()?;
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

/// Ends all children of this process, and those that become its children because of that.
fn end_children(grace: Duration) -> io::Result<()> {
    let begun = Instant::now();
    let mut told = HashSet::new();
    loop {
        let is_over = grace <= begun.elapsed();
        for child in children()? {
            if is_over {
                signal(child, Signal::KILL);
            } else if told.insert(child) {
                signal(child, Signal::TERM);
                signal(child, Signal::CONT);
            }
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(Errno::CHILD) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        thread::sleep(PAUSE);
    }
}

/// Signals a child, and its group if it leads one. Nobody else has their numbers, because nobody
/// else reaps the child.
fn signal(child: Pid, signal: Signal) {
    let _ = match getpgid(Some(child)) {
        Ok(group) if group == child => kill_process_group(child, signal),
        _ => kill_process(child, signal),
    };
}

/// Returns the children of this process, by the list of all processes.
fn children() -> io::Result<Vec<Pid>> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        let Some(pid) = name.parse().ok().and_then(Pid::from_raw) else { continue };
        // None for one that is gone meanwhile.
        let stat = fs::read_to_string(format!("/proc/{name}/stat")).unwrap_or_default();
        // The name of the program, in brackets, can hold anything; the state and the parent follow.
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        if parent.and_then(|parent| parent.parse().ok()) == Some(getpid().as_raw_pid()) {
            children.push(pid);
        }
    }
    Ok(children)
}

/// Between two looks at whether all have ended.
const PAUSE: Duration = Duration::from_millis(10);
