//! Limits of real processes.

mod limit;

use limit::within_minutes;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write, stderr};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use systems::job_limits::{Cause, Ended, Job, Supervisor};
use systems::process::Process;
use tickwheel::{ManualClock, Timer};

fn supervisor() -> Supervisor {
    Supervisor::new(&Timer::new(), GRACE).expect("the system has room for one")
}

/// A supervisor on a clock that the test moves.
fn still() -> (ManualClock, Supervisor) {
    let clock = ManualClock::new();
    let timer = Timer::builder().clock(clock.clone()).build().expect("in range");
    (clock, Supervisor::new(&timer, GRACE).expect("the system has room for one"))
}

fn start(supervisor: &Supervisor, script: &str, limit: Duration) -> Job {
    let mut command = Command::new("sh");
    supervisor.start(command.args(["-c", script]), limit).expect("there is a shell")
}

fn end(job: &Job) -> Ended {
    job.wait(FOR_EVER).expect("it ends")
}

/// Starts a job that writes the number of a process, and returns both.
fn start_parent(supervisor: &Supervisor, script: &str, limit: Duration) -> (Job, u32) {
    let (reader, writer) = std::io::pipe().expect("the system has room for one");
    let mut command = Command::new("sh");
    let command = command.args(["-c", script]).stdout(writer);
    let job = supervisor.start(command, limit).expect("there is a shell");
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).expect("it writes a line");
    (job, line.trim().parse().expect("a number"))
}

/// Whether the process can do anything: not if it only waits to be reaped by init.
fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// What the system says of a process; None if there is none.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// Waits until all are gone.
fn until_gone(pids: &[u32]) {
    let begun = Instant::now();
    while pids.iter().any(|&pid| is_alive(pid)) {
        if FOR_EVER < begun.elapsed() {
            pids.iter().for_each(|&pid| kill(pid));
            panic!("{pids:?} live on");
        }
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_job_that_ends_in_time_is_left_alone_and_its_limit_is_cancelled() {
    let _limit = within_minutes();
    let supervisor = supervisor();
    let ended = end(&start(&supervisor, "exit 3", HOUR));
    assert_eq!((ended.cause, ended.status.code()), (Cause::Itself, Some(3)));
    assert_eq!((supervisor.running(), supervisor.pending()), (0, 0));
}

#[test]
fn a_job_gets_sigterm_at_its_limit_and_not_before() {
    let _limit = within_minutes();
    let (clock, supervisor) = still();
    let script = "trap 'exit 7' TERM; echo $$; while :; do sleep 0.01; done";
    let (job, _) = start_parent(&supervisor, script, LIMIT);
    clock.advance(LIMIT - NANOSECOND);
    assert!(job.wait(WHILE).is_none());
    clock.advance(NANOSECOND);
    let ended = end(&job);
    assert_eq!((ended.cause, ended.status.code()), (Cause::Limit, Some(7)));
    assert_eq!(ended.ran, LIMIT);
}

#[test]
fn a_job_that_ignores_sigterm_is_killed_after_the_grace_and_not_before() {
    let _limit = within_minutes();
    let (clock, supervisor) = still();
    let script = "trap '' TERM; echo $$; while :; do sleep 0.01; done";
    let (job, _) = start_parent(&supervisor, script, LIMIT);
    clock.advance(LIMIT + GRACE - NANOSECOND);
    assert!(job.wait(WHILE).is_none());
    clock.advance(NANOSECOND);
    let ended = end(&job);
    assert_eq!((ended.cause, ended.status.signal()), (Cause::Grace, Some(9)));
    assert_eq!(ended.ran, LIMIT + GRACE);
}

#[test]
fn a_job_that_is_stopped_ends_at_its_limit() {
    let _limit = within_minutes();
    let (clock, supervisor) = still();
    let script = "trap 'exit 7' TERM; echo $$; kill -STOP $$; while :; do :; done";
    let (job, pid) = start_parent(&supervisor, script, LIMIT);
    while state(pid) != Some('T') {
        thread::sleep(Duration::from_millis(2));
    }
    clock.advance(LIMIT);
    let ended = end(&job);
    assert_eq!((ended.cause, ended.status.code()), (Cause::Limit, Some(7)));
}

#[test]
fn grandchildren_die_at_the_limit() {
    let _limit = within_minutes();
    let (clock, supervisor) = still();
    let (job, grandchild) = start_parent(&supervisor, "sleep 3600 & echo $!; wait", LIMIT);
    assert!(is_alive(grandchild));
    clock.advance(LIMIT);
    assert_eq!(end(&job).cause, Cause::Limit);
    until_gone(&[grandchild]);
}

#[test]
fn a_grandchild_that_ignores_sigterm_dies_with_its_job() {
    let _limit = within_minutes();
    let (clock, supervisor) = still();
    let script =
        "(trap '' TERM; echo $(exec sh -c 'echo $PPID'); while :; do sleep 0.1; done) & wait";
    let (job, grandchild) = start_parent(&supervisor, script, LIMIT);
    assert!(is_alive(grandchild));
    clock.advance(LIMIT);
    assert_eq!(end(&job).cause, Cause::Limit);
    until_gone(&[grandchild]);
}

#[test]
fn what_a_job_leaves_behind_dies_when_it_ends() {
    let _limit = within_minutes();
    let supervisor = supervisor();
    let (job, left) = start_parent(&supervisor, "sleep 3600 >&- & echo $!", HOUR);
    assert_eq!(end(&job).cause, Cause::Itself);
    until_gone(&[left]);
}

#[test]
fn a_thousand_short_jobs_end_once_each_and_leave_nothing() {
    let _limit = within_minutes();
    let supervisor = supervisor();
    let mut causes = [0; 3];
    // Many ends and limits come together: each takes some milliseconds.
    let jobs: Vec<_> = (0..1_000)
        .map(|number| {
            let limit = if number % 2 == 0 { HOUR } else { Duration::from_millis(number % 10) };
            (number, start(&supervisor, &format!("exit {}", number % 100), limit))
        })
        .collect();
    for (number, job) in &jobs {
        let ended = end(job);
        causes[ended.cause as usize] += 1;
        match ended.cause {
            Cause::Itself => assert_eq!(ended.status.code(), Some(*number as i32 % 100)),
            _ => assert_eq!(number % 2, 1, "{ended:?}"),
        }
        assert!(job.wait(Duration::ZERO).is_none(), "it ended twice");
    }
    assert_eq!((supervisor.running(), supervisor.pending()), (0, 0), "{causes:?}");
    let pids: Vec<_> = jobs.iter().map(|(_, job)| job.pid()).collect();
    let left = pids.iter().filter(|pid| fs::exists(format!("/proc/{pid}")).unwrap_or(true));
    assert_eq!(left.count(), 0, "all are reaped");
}

#[test]
fn a_shut_down_ends_all_jobs_with_grace_and_takes_no_more() {
    let _limit = within_minutes();
    let (clock, supervisor) = still();
    let polite = start(&supervisor, "exec sleep 3600", HOUR);
    let script = "trap '' TERM; echo $$; while :; do sleep 0.01; done";
    let (stubborn, _) = start_parent(&supervisor, script, HOUR);
    thread::scope(|threads| {
        threads.spawn(|| supervisor.shut_down());
        assert_eq!(end(&polite).cause, Cause::Limit);
        clock.advance(GRACE - NANOSECOND);
        assert!(stubborn.wait(WHILE).is_none());
        clock.advance(NANOSECOND);
        assert_eq!(end(&stubborn).cause, Cause::Grace);
    });
    assert!(supervisor.start(&mut Command::new("true"), HOUR).is_err());
}

#[test]
fn a_shut_down_ends_all_jobs_though_the_timer_was_stopped_before_or_meanwhile() {
    let _limit = within_minutes();
    for is_before in [true, false] {
        let timer = Timer::builder().clock(ManualClock::new()).build().expect("in range");
        let supervisor = Supervisor::new(&timer, GRACE).expect("the system has room for one");
        let script = "trap '' TERM; echo $$; while :; do sleep 0.01; done";
        let (stubborn, _) = start_parent(&supervisor, script, HOUR);
        let stop = || drop(timer.stop().expect("outside"));
        if is_before {
            stop();
        }
        thread::scope(|threads| {
            threads.spawn(|| supervisor.shut_down());
            if !is_before {
                assert!(stubborn.wait(WHILE).is_none());
                stop();
            }
            assert_eq!(end(&stubborn).cause, Cause::Grace);
        });
    }
}

#[test]
fn durations_saturate() {
    let _limit = within_minutes();
    let timer = Timer::new();
    let supervisor = Supervisor::new(&timer, Duration::MAX).expect("the system has room for one");
    let limited = start(&supervisor, "exec sleep 3600", Duration::from_millis(100));
    let free = start(&supervisor, "exit 3", Duration::MAX);
    assert_eq!([&limited, &free].map(|job| end(job).cause), [Cause::Limit, Cause::Itself]);
}

#[test]
fn a_command_that_does_not_exist_is_an_error_and_leaves_no_limit() {
    let _limit = within_minutes();
    let supervisor = supervisor();
    assert!(supervisor.start(&mut Command::new("/no such program"), HOUR).is_err());
    assert_eq!((supervisor.running(), supervisor.pending()), (0, 0));
}

/// The program with its guard: its jobs end when it is dropped.
struct Guarded {
    guard: Process,
    supervisor: u32,
    jobs: HashMap<String, u32>,
}

impl Guarded {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_job_limits"));
        let mut guard = Process::talk(command.arg("guarded")).expect("it is built");
        let mut jobs = HashMap::new();
        for _ in 0..4 {
            let line = guard.answer().expect("it writes four lines");
            let (name, pid) = line.split_once(' ').expect("a name and a number");
            jobs.insert(name.to_owned(), pid.parse().expect("a number"));
        }
        let supervisor = jobs.remove("supervisor").expect("the first line");
        Self { guard, supervisor, jobs }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.guard.kill();
        for &pid in self.jobs.values().chain([&self.supervisor]).filter(|&&pid| is_alive(pid)) {
            kill(pid);
        }
    }
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid as i32).expect("no process has the number 0");
    // It may have ended.
    let _ = kill_process(pid, Signal::KILL);
}

#[test]
fn jobs_outlive_a_killed_supervisor_by_the_grace_at_most() {
    let _limit = within_minutes();
    let mut guarded = Guarded::start();
    let jobs: Vec<_> = guarded.jobs.values().copied().collect();
    assert!(jobs.iter().all(|&job| is_alive(job)));
    let begun = Instant::now();
    kill(guarded.supervisor);
    until_gone(&jobs);
    let gone = begun.elapsed();
    assert!(ITS_GRACE <= gone, "one ignores SIGTERM, and has its grace: {gone:?}");
    assert!(guarded.guard.wait().expect("it ends").success());
}

#[test]
fn jobs_outlive_a_killed_guard_by_the_grace_at_most() {
    let _limit = within_minutes();
    let guarded = Guarded::start();
    let begun = Instant::now();
    kill(guarded.guard.id());
    // One has left its group: only the guard would have found it.
    until_gone(&[guarded.jobs["polite"], guarded.jobs["stubborn"], guarded.supervisor]);
    let gone = begun.elapsed();
    assert!(ITS_GRACE <= gone, "one ignores SIGTERM, and has its grace: {gone:?}");
}

/// Runs `script` in a shell under a guard, as the program does.
fn guarded(script: &str, grace: Duration) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_job_limits"));
    let grace = grace.as_millis().to_string();
    Process::talk(command.args(["guarded", script, &grace])).expect("it is built")
}

/// Waits for its end, and returns how long that took.
fn until_ended(guard: &mut Process) -> Duration {
    let begun = Instant::now();
    while guard.ended().expect("it is a child").is_none() {
        assert!(begun.elapsed() < FOR_EVER, "the guard is held");
        thread::sleep(Duration::from_millis(2));
    }
    begun.elapsed()
}

/// Says so if there is none; under CI that is a failure.
fn there_is_perl() -> bool {
    let is_there = Command::new("perl").arg("-v").output().is_ok();
    if !is_there {
        assert!(std::env::var_os("CI").is_none(), "apt-get install perl-base");
        // Past the harness, which would keep it to itself.
        let _ = writeln!(stderr(), "skipped: no perl; apt-get install perl-base");
    }
    is_there
}

#[test]
fn a_job_that_leaves_its_group_ends_at_its_limit() {
    let _limit = within_minutes();
    if !there_is_perl() {
        return;
    }
    let (clock, supervisor) = still();
    // The group of the test, alone or with a child that stays behind.
    for (child, causes) in [("", Cause::Limit), ("fork or exec qw(sleep 3600);", Cause::Grace)] {
        let leave = format!("{child} setpgrp(0, getpgrp(getppid)); print qq($$\\n); sleep 3600");
        let script = format!("exec perl -e '$| = 1; {leave}'");
        let (job, _) = start_parent(&supervisor, &script, LIMIT);
        clock.advance(LIMIT);
        if causes == Cause::Grace {
            assert!(job.wait(WHILE).is_none(), "SIGTERM is that of the group");
            clock.advance(GRACE);
        }
        assert_eq!(end(&job).cause, causes);
    }
}

/// Signals that reach one process at a time come too late for the next.
#[test]
fn a_whole_group_gets_each_signal_of_the_guard_at_once() {
    let _limit = within_minutes();
    // The leader of the group is gone. The guard's child ignores SIGTERM, and waits for its own.
    let script = "setsid sh -s <<'END' & echo $$; exec sleep 3600
        ( (trap 'exit 0' TERM; echo traps; while :; do sleep 0.1; done) &
          trap '' TERM; echo ignores; wait $!; echo told) &
END";
    let mut guard = guarded(script, HOUR);
    let lines: Vec<_> = (0..3).map(|_| guard.answer().expect("a line")).collect();
    kill(lines.iter().find_map(|line| line.parse().ok()).expect("a number"));
    assert_eq!(guard.answer().expect("a line"), "told", "{lines:?}");
    assert!(guard.wait().expect("it ends").success());
}

#[test]
fn processes_that_start_the_next_and_end_do_not_hold_the_guard() {
    let _limit = within_minutes();
    if !there_is_perl() {
        return;
    }
    // They end by themselves, if not by the guard.
    let next = r#"$SIG{TERM} = "IGNORE"; $end = time + 150; while (time < $end) { exit if fork }"#;
    for start in ["", "setsid"] {
        let script = format!("for _ in 1 2 3 4 5 6 7 8; do {start} perl -e '{next}' & done; wait");
        let mut guard = guarded(&script, GRACE);
        let took = until_ended(&mut guard);
        println!("{start} perl: the guard ended after {took:?}, with a grace of {GRACE:?}");
    }
}

const LIMIT: Duration = Duration::from_secs(3);
const GRACE: Duration = Duration::from_secs(2);
const NANOSECOND: Duration = Duration::from_nanos(1);
/// Time for what must not happen to happen.
const WHILE: Duration = Duration::from_millis(100);
/// The grace of the program.
const ITS_GRACE: Duration = Duration::from_millis(500);
const HOUR: Duration = Duration::from_secs(3_600);
/// Only what hangs takes as long.
const FOR_EVER: Duration = Duration::from_secs(100);
