//! Wall-time limits of jobs: a supervisor of child processes, and a guard of the supervisor.
//!
//! A job is a process group. At its limit the group gets SIGTERM, and SIGKILL after a time of
//! grace. Linux only, because one thread waits for all jobs through pidfds.

mod guard;

pub use guard::{guard, when_guard_is_gone};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{Next, Status, Timeout, Timer};

/// Starts jobs, and ends each at its limit. Dropping the supervisor shuts it down.
#[derive(Debug)]
pub struct Supervisor {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    timer: Timer,
    grace: Duration,
    epoll: OwnedFd,
    /// Readable from the moment at which the supervisor shuts down.
    closing: OwnedFd,
    jobs: Mutex<Jobs>,
    no_jobs: Condvar,
}

#[derive(Debug, Default)]
struct Jobs {
    running: HashMap<u32, Running>,
    is_closed: bool,
}

/// A job whose end the reaper has not seen.
#[derive(Debug)]
struct Running {
    /// Readable when the process has ended.
    pidfd: OwnedFd,
    process: Arc<Mutex<Process>>,
    limit: Timeout,
    started: Instant,
    ended: Sender<Ended>,
}

/// The first process of a job.
#[derive(Debug)]
struct Process {
    /// None once it is reaped, because its number may then be another's.
    child: Option<Child>,
    terminated: Option<Instant>,
    is_killed: bool,
}

/// A job that was started.
#[derive(Debug)]
pub struct Job {
    pid: u32,
    ended: Receiver<Ended>,
}

/// How a job ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The status of its first process.
    pub status: ExitStatus,
    /// What ended the job.
    pub cause: Cause,
    /// The time from the start to the end, at least.
    pub ran: Duration,
}

/// What ended a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing did: it ended before its limit.
    Itself,
    /// It ended after SIGTERM, within the grace.
    Limit,
    /// It ended after SIGKILL.
    Grace,
}

impl Supervisor {
    /// Starts a supervisor with its limits on `timer`, whose jobs have `grace` from SIGTERM to
    /// SIGKILL.
    ///
    /// # Errors
    ///
    /// If the system has no file descriptors or threads left.
    pub fn new(timer: &Timer, grace: Duration) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            timer: timer.clone(),
            grace,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            closing: eventfd(0, EventfdFlags::CLOEXEC)?,
            jobs: Mutex::default(),
            no_jobs: Condvar::new(),
        });
        epoll::add(&shared.epoll, &shared.closing, EventData::new_u64(CLOSING), EventFlags::IN)?;
        let reaper = Arc::clone(&shared);
        thread::Builder::new().name("reaper".into()).spawn(move || reaper.reap())?;
        Ok(Self { shared })
    }

    /// Starts `command` as a job, in a process group of its own.
    ///
    /// # Errors
    ///
    /// Those of [`Command::spawn`]; if the system has no file descriptors left; and if the
    /// supervisor is shut down. No process is left then.
    pub fn start(&self, command: &mut Command, limit: Duration) -> io::Result<Job> {
        // Held until the job is known, so that a shut-down meets each job or refuses it.
        let mut jobs = self.shared.jobs();
        if jobs.is_closed {
            return Err(io::Error::other("the supervisor is shut down"));
        }
        let child = command.process_group(0).spawn()?;
        let pid = child.id();
        let process = Arc::new(Mutex::new(Process {
            child: Some(child),
            terminated: None,
            is_killed: false,
        }));
        let watched = self.shared.watch(pid, &process, limit);
        let (pidfd, started, limit) = watched.inspect_err(|_| {
            process.lock().expect(HOLDS).end();
        })?;
        let (sender, ended) = mpsc::channel();
        let running = Running { pidfd, process, limit, started, ended: sender };
        jobs.running.insert(pid, running);
        Ok(Job { pid, ended })
    }

    /// Returns the number of jobs that have not ended.
    #[must_use]
    pub fn running(&self) -> usize {
        self.shared.jobs().running.len()
    }

    /// Returns the number of limits that wait: one for each job that has not got SIGKILL.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.shared.timer.pending()
    }

    /// Takes no more jobs, ends each one as if its limit were over, and returns when none is left.
    /// Without grace, if the timer was stopped.
    pub fn shut_down(&self) {
        let mut jobs = self.shared.jobs();
        jobs.is_closed = true;
        jobs.running.values().for_each(|job| _ = job.limit.reschedule(Duration::ZERO));
        while !jobs.running.is_empty() {
            // They have got SIGKILL, or the timer was stopped and brings it to nobody.
            let is_over = |job: &&Running| job.limit.status() != Status::Pending;
            for job in jobs.running.values().filter(is_over) {
                job.process.lock().expect(HOLDS).kill(self.shared.timer.now());
            }
            jobs = self.shared.no_jobs.wait_timeout(jobs, LOOK).expect(HOLDS).0;
        }
        drop(jobs);
        // The reaper ends itself. It cannot fail: the number is far from its maximum.
        let _ = rustix::io::write(&self.shared.closing, &1_u64.to_ne_bytes());
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl Shared {
    /// Schedules the limit of a process, and has the reaper wait for its end.
    fn watch(
        &self,
        pid: u32,
        process: &Arc<Mutex<Process>>,
        limit: Duration,
    ) -> io::Result<(OwnedFd, Instant, Timeout)> {
        let pidfd = pidfd_open(number(pid), PidfdFlags::empty())?;
        let started = self.timer.now();
        let (grace, limited, timer) = (self.grace, Arc::clone(process), self.timer.clone());
        let limit = self
            .timer
            .schedule_with(limit, move |_| {
                limited.lock().expect(HOLDS).at_limit(timer.now(), grace)
            })
            .map_err(|error| io::Error::other(error.kind()))?;
        epoll::add(&self.epoll, &pidfd, EventData::new_u64(pid.into()), EventFlags::IN)
            .inspect_err(|_| _ = limit.cancel())?;
        Ok((pidfd, started, limit))
    }

    /// Waits for jobs to end, until the supervisor is shut down.
    fn reap(&self) {
        let mut events = Vec::with_capacity(64);
        loop {
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => unreachable!("epoll waits: {error}"),
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    CLOSING => return,
                    pid => self.ended(pid as u32),
                }
            }
        }
    }

    fn ended(&self, pid: u32) {
        // Not before the job is known, because `start` holds the lock.
        let mut jobs = self.jobs();
        let Some(job) = jobs.running.remove(&pid) else { return };
        // A process that is being started elsewhere may hold a copy of the pidfd for a moment.
        let _ = epoll::delete(&self.epoll, &job.pidfd);
        let ended = job.process.lock().expect(HOLDS).end();
        job.limit.cancel();
        if let Some((status, cause)) = ended {
            // Nobody may want to know.
            let _ = job.ended.send(Ended { status, cause, ran: self.timer.now() - job.started });
        }
        if jobs.running.is_empty() {
            self.no_jobs.notify_all();
        }
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().expect(HOLDS)
    }
}

impl Process {
    /// Ends the job a step further, and says when the next step is due.
    fn at_limit(&mut self, now: Instant, grace: Duration) -> Next {
        match self.terminated {
            None => {
                self.signal(Signal::TERM);
                // A stopped process would only then learn of it.
                self.signal(Signal::CONT);
                self.terminated = Some(now);
                Next::After(grace)
            }
            // The shut-down came between.
            Some(terminated) if now - terminated < grace => Next::After(grace - (now - terminated)),
            Some(_) => {
                self.kill(now);
                Next::Stop
            }
        }
    }

    fn kill(&mut self, now: Instant) {
        self.signal(Signal::KILL);
        self.terminated.get_or_insert(now);
        self.is_killed = true;
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.child.as_ref().map(Pid::from_child) {
            // Fails if it has left its group, and nobody else is there; and if it is another user's.
            let is_sent = kill_process_group(pid, signal).is_ok();
            if !is_sent || signal == Signal::KILL {
                let _ = kill_process(pid, signal);
            }
        }
    }

    /// Kills what is left of the group, reaps its leader, and returns how that ended.
    fn end(&mut self) -> Option<(ExitStatus, Cause)> {
        self.signal(Signal::KILL);
        let status = self.child.take()?.wait().ok()?;
        let cause = match (self.terminated, self.is_killed) {
            (None, _) => Cause::Itself,
            (Some(_), false) => Cause::Limit,
            (Some(_), true) => Cause::Grace,
        };
        Some((status, cause))
    }
}

impl Job {
    /// Returns the number of the job's first process, and of its group.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until the job has ended, `at_most` this long, and returns how it ended: once.
    #[must_use]
    pub fn wait(&self, at_most: Duration) -> Option<Ended> {
        self.ended.recv_timeout(at_most).ok()
    }
}

fn number(pid: u32) -> Pid {
    Pid::from_raw(pid as i32).expect("no child has the number 0")
}

const HOLDS: &str = "nothing panics while it holds the lock";

/// No process has this number.
const CLOSING: u64 = u64::MAX;

/// How often a shut-down looks whether the timer was stopped.
const LOOK: Duration = Duration::from_millis(100);
