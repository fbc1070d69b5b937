//! No test waits for ever.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{self, Write};
use std::process::exit;
use std::sync::LazyLock;
use std::time::Duration;
use tickwheel::{TimeoutGuard, Timer};

/// Ends the process and its children with an error unless the guard is dropped within a minute.
pub(crate) fn within_a_minute() -> TimeoutGuard {
    let late = || {
        // Past the harness, which would keep it to itself.
        let _ = writeln!(io::stderr(), "a test did not end within a minute");
        for child in children() {
            let _ = kill_process(child, Signal::KILL);
        }
        exit(1);
    };
    TIMER.schedule(Duration::from_secs(60), late).expect("it runs").cancel_on_drop()
}

/// Its thread has a name of its own, because a test looks for the threads of other timers.
static TIMER: LazyLock<Timer> = LazyLock::new(|| {
    let builder = Timer::builder().thread_name("a minute".to_owned());
    builder.build().expect("in range")
});

/// Returns the children of all threads.
fn children() -> Vec<Pid> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.map(|thread| fs::read_to_string(thread.path().join("children")));
    let numbers: Vec<String> = lists.map(Result::unwrap_or_default).collect();
    let numbers = numbers.iter().flat_map(|numbers| numbers.split_whitespace());
    numbers.filter_map(|number| Pid::from_raw(number.parse().ok()?)).collect()
}
