//! What is done to the parts while they work.

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// One kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// A process is stopped, and goes on.
    Stop,
    /// One of its threads is, while the others run.
    StopThread,
    /// A process has so little memory for a while that the system takes its pages of files.
    Memory,
    /// Threads that do nothing else have the cores.
    Busy,
    /// Many timeouts at once.
    Burst,
    /// A durable part is killed, and another takes its place.
    Kill,
    /// The clock of the one with a file is set.
    Clock,
    /// The database is stopped, and goes on.
    StopDatabase,
    /// Its connections are closed.
    Disconnect,
}

impl Trouble {
    pub(crate) const ALL: [Self; 9] = [
        Self::Stop,
        Self::StopThread,
        Self::Memory,
        Self::Busy,
        Self::Burst,
        Self::Kill,
        Self::Clock,
        Self::StopDatabase,
        Self::Disconnect,
    ];
}

/// Most are short, and some longer than a lease or a heartbeat lasts.
pub(crate) fn a_while() -> Duration {
    Duration::from_millis(match fastrand::u32(..10) {
        0 => fastrand::u64(5_000..20_000),
        1..4 => fastrand::u64(500..5_000),
        _ => fastrand::u64(1..500),
    })
}

/// Stops one thread for a while, as its debugger.
pub(crate) fn stop_thread(thread: Pid) {
    // It may have ended, or the system may not allow it.
    if ptrace::seize(thread, Options::empty()).is_err() {
        return;
    }
    if ptrace::interrupt(thread).is_ok() && waitpid(thread, Some(WaitPidFlag::__WALL)).is_ok() {
        thread::sleep(a_while());
    }
    let _ = ptrace::detach(thread, None::<Signal>);
}

/// Keeps all cores busy for a while.
pub(crate) fn keep_busy() {
    let end = Instant::now() + a_while().min(Duration::from_secs(5));
    let threads: Vec<_> =
        (0..8).map(|_| thread::spawn(move || while Instant::now() < end {})).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
}

/// A group of processes whose memory can be limited.
#[derive(Debug)]
pub(crate) struct Group {
    folder: PathBuf,
    limit: &'static str,
    usage: &'static str,
    unlimited: &'static str,
}

impl Group {
    /// None where the system has none, or does not allow it.
    pub(crate) fn new() -> Option<Self> {
        let name = format!("soak-{}", std::process::id());
        let groups = [
            ("/sys/fs/cgroup", "memory.high", "memory.current", "max"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "-1"),
        ];
        groups.into_iter().find_map(|(root, limit, usage, unlimited)| {
            let folder = PathBuf::from(root).join(&name);
            fs::create_dir(&folder).ok()?;
            let group = Self { folder, limit, usage, unlimited };
            // Dropped, and so removed, if it has no such limit.
            fs::exists(group.folder.join(limit)).is_ok_and(|exists| exists).then_some(group)
        })
    }

    pub(crate) fn add(&self, pid: Pid) {
        // What is not in the group has no trouble with memory.
        let _ = fs::write(self.folder.join("cgroup.procs"), pid.to_string());
    }

    /// Leaves the processes a little more than what they have now, for a while, and as little as can
    /// be had at the beginning.
    pub(crate) fn press(&self) {
        let usage = fs::read_to_string(self.folder.join(self.usage));
        let Some(usage) = usage.ok().and_then(|usage| usage.trim().parse::<u64>().ok()) else {
            return;
        };
        let least = (1..=10).map(|tenths| usage * tenths / 10 + (4 << 20));
        // Refused while so much cannot be taken back.
        let limit = self.folder.join(self.limit);
        let pressed = least.into_iter().find(|least| fs::write(&limit, least.to_string()).is_ok());
        let more = pressed.map(|pressed| pressed + (16 << 20));
        let _ = more.map(|more| fs::write(&limit, more.to_string()));
        thread::sleep(a_while().min(Duration::from_secs(5)));
        let _ = fs::write(&limit, self.unlimited);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Processes that end leave it.
        let _ = fs::remove_dir(&self.folder);
    }
}
