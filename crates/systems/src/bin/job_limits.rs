//! Jobs with limits: real processes, of which one ignores SIGTERM, one leaves a child behind, and
//! three lose their supervisor.

use rustix::process::{Pid, Signal, kill_process};
use std::error::Error;
use std::process::{Command, Stdio, exit};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs, thread};
use systems::job_limits::{Supervisor, guard, when_guard_is_gone};
use systems::process::Process;
use tickwheel::Timer;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => show(),
        ["guarded"] => {
            guard(Command::new(env::current_exe()?).arg("supervise"), GRACE)?;
            Ok(())
        }
        ["guarded", script, grace] => {
            guard(&mut shell(script), Duration::from_millis(grace.parse()?))?;
            Ok(())
        }
        ["supervise"] => supervise(),
        _ => Err("expected `guarded`, `guarded SCRIPT MILLISECONDS` or nothing".into()),
    }
}

fn show() -> Result<(), Box<dyn Error>> {
    let supervisor = Supervisor::new(&Timer::new(), GRACE)?;
    let second = Duration::from_secs(1);
    println!("limit 1 s, grace {GRACE:?}:");
    let jobs = [
        ("takes half a second", "sleep 0.5"),
        ("takes an hour", "sleep 3600"),
        ("ignores SIGTERM", "trap '' TERM; while :; do sleep 0.1; done"),
        ("waits for a child", "sleep 3600 & wait"),
    ]
    .map(|(name, script)| (name, supervisor.start(&mut shell(script), second)));
    for (name, job) in jobs {
        let ended = job?.wait(HOUR).ok_or("no end")?;
        println!("  {name}: {:?} after {:.2?}, {}", ended.cause, ended.ran, ended.status);
    }

    let begun = Instant::now();
    let jobs: Result<Vec<_>, _> =
        (0..300).map(|_| supervisor.start(&mut Command::new("true"), HOUR)).collect();
    let ended = jobs?.iter().filter_map(|job| job.wait(HOUR)).count();
    let pending = supervisor.pending();
    println!("{ended} short jobs in {:.2?}; limits that wait: {pending}", begun.elapsed());

    let mut guard = Process::talk(Command::new(env::current_exe()?).arg("guarded"))?;
    // The supervisor, and its jobs.
    let mut left = Vec::new();
    for _ in 0..4 {
        let line = guard.answer()?;
        let (name, pid) = line.split_once(' ').ok_or("a line without a number")?;
        left.push((name.to_owned(), pid.parse()?));
    }
    kill_process(Pid::from_raw(left.remove(0).1).ok_or("no process")?, Signal::KILL)?;
    let killed = Instant::now();
    println!("a supervisor of three jobs is killed:");
    while !left.is_empty() {
        left.retain(|(name, pid)| {
            let is_left = fs::exists(format!("/proc/{pid}")).unwrap_or(false);
            if !is_left {
                println!("  {name} is gone after {:.2?}", killed.elapsed());
            }
            is_left
        });
        thread::sleep(Duration::from_millis(1));
    }
    guard.wait()?;
    Ok(())
}

/// Starts three jobs, which say their numbers, and waits.
fn supervise() -> Result<(), Box<dyn Error>> {
    let supervisor = Arc::new(Supervisor::new(&Timer::new(), GRACE)?);
    let guarded = Arc::clone(&supervisor);
    when_guard_is_gone(move || {
        guarded.shut_down();
        exit(1);
    })?;
    println!("supervisor {}", std::process::id());
    let scripts = [
        "echo polite $$; exec sleep 3600",
        "trap '' TERM; echo stubborn $$; while :; do sleep 0.1; done",
        "setsid sleep 3600 & echo escaped $!; wait",
    ];
    let start = |script| supervisor.start(shell(script).stdin(Stdio::null()), HOUR);
    let jobs: Vec<_> = scripts.into_iter().map(start).collect::<Result<_, _>>()?;
    jobs.iter().for_each(|job| _ = job.wait(HOUR));
    Ok(())
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

const GRACE: Duration = Duration::from_millis(500);
const HOUR: Duration = Duration::from_secs(3_600);
