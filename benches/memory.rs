//! Does a cancelled timeout give its memory back at once?
//!
//! A million timeouts, each with a kilobyte in its task, are scheduled and then cancelled: in the
//! order in which they were scheduled, the other way round, and in no order. Beside what is
//! allocated stands what the process has resident, which is up to the allocator as well: the same
//! boxes without a timer show what it keeps. That of glibc gives back only the free end of its heap,
//! and a few boxes that a thread keeps in its cache for the next allocation can lie there, so all of
//! it is measured without that cache too (on other systems that makes no difference).
//!
//! `cargo bench --bench memory`, with `-- --quick` for a look at whether it works.

mod report;

use cap::Cap;
use memory_stats::memory_stats;
use report::{Goal, goal, is_quick, rounded, table};
use std::alloc::System;
use std::hint::black_box;
use std::process::Command;
use std::time::Duration;
use tickwheel::{Timeout, Timer};

/// Counts, and leaves all else to the system's.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const CAPTURED: usize = 1_024;
const DELAY: Duration = Duration::from_secs(3_600);

const SUBJECTS: [&str; 2] = ["tickwheel", "boxes alone"];
const ORDERS: [&str; 3] = ["first to last", "last to first", "random"];
/// What glibc is told by its environment.
const CACHES: [(&str, &str); 2] = [("", ""), ("no cache", "glibc.malloc.tcache_count=0")];

fn main() {
    let given = |name: &&&str| std::env::args().any(|argument| argument == **name);
    match (SUBJECTS.iter().find(given), ORDERS.iter().find(given)) {
        (Some(subject), Some(order)) => measure(subject, order),
        _ => measure_all(),
    }
}

/// Each in a process of its own, as pages that one keeps would serve the next.
fn measure_all() {
    println!("{} timeouts with {CAPTURED} bytes each; MB", timeouts());
    let mut table = table([
        "",
        "scheduled: allocated",
        "resident",
        "cancelled: allocated",
        "resident",
        "handles gone: allocated",
        "resident",
    ]);
    let mut goals = Vec::new();
    for order in ORDERS {
        for (cache, tunables) in CACHES {
            for subject in SUBJECTS {
                let figures = measure_apart(subject, order, tunables);
                let mut name = format!("{subject}, {order}");
                if !cache.is_empty() {
                    name = format!("{name}, {cache}");
                }
                let cells = figures.iter().map(|&megabytes| rounded(megabytes).to_string());
                table.add_row([name.clone()].into_iter().chain(cells));
                if subject == SUBJECTS[0] {
                    let percent = |index: usize| figures[index + 2] / figures[index] * 100.0;
                    goals.push((format!("{name}: allocated that stays, %"), percent(0)));
                    goals.push((format!("{name}: resident that stays, %"), percent(1)));
                }
            }
        }
    }
    println!("{table}");
    for (what, percent) in goals {
        goal(&what, percent, Goal::AtMost(10.0));
    }
}

fn measure_apart(subject: &str, order: &str, tunables: &str) -> Vec<f64> {
    let output = Command::new(std::env::current_exe().expect("a program"))
        .args(std::env::args().skip(1))
        .args([subject, order])
        .env("GLIBC_TUNABLES", tunables)
        .output()
        .expect("it starts again");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = String::from_utf8(output.stdout).expect("numbers");
    output.split_whitespace().map(|figure| figure.parse().expect("a number")).collect()
}

fn measure(subject: &str, order: &str) {
    let figures = if subject == SUBJECTS[0] {
        let timer = Timer::builder().build().expect("the default tick");
        // The worker is there.
        timer.schedule(Duration::ZERO, || {}).expect("it runs, and has no limit");
        figures(
            order,
            |number| {
                let captured = captured(number);
                let timeout = timer.schedule(DELAY, move || _ = black_box(captured));
                timeout.expect("it runs, and has no limit")
            },
            |timeout| assert!(timeout.as_ref().is_some_and(Timeout::cancel)),
        )
    } else {
        figures(order, |number| Box::new(captured(number)), |captured| *captured = None)
    };
    println!("{}", figures.map(|figure| figure.to_string()).join(" "));
}

fn timeouts() -> usize {
    if is_quick() { 50_000 } else { 1_000_000 }
}

fn captured(number: usize) -> [u8; CAPTURED] {
    [number as u8; CAPTURED]
}

/// In MB, beyond what it was before anything was scheduled: allocated and resident with all of them
/// scheduled, with all cancelled, and with their handles gone.
fn figures<H>(
    order: &str,
    mut schedule: impl FnMut(usize) -> H,
    mut cancel: impl FnMut(&mut Option<H>),
) -> [f64; 6] {
    let mut cancels: Vec<_> = (0..timeouts()).collect();
    match order {
        "last to first" => cancels.reverse(),
        "random" => cancels.sort_by_key(|&number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        _ => {}
    }
    // The room for the handles is the caller's business.
    let mut handles: Vec<Option<H>> = (0..timeouts()).map(|_| None).collect();

    let before = memory();
    let mut figures = [0.0; 6];
    let mut note = |index: usize| {
        let now = memory();
        figures[index] = now[0] - before[0];
        figures[index + 1] = now[1] - before[1];
    };
    for (number, handle) in handles.iter_mut().enumerate() {
        *handle = Some(schedule(number));
    }
    note(0);
    for &number in &cancels {
        cancel(&mut handles[number]);
    }
    note(2);
    handles.fill_with(|| None);
    note(4);
    figures
}

/// Allocated and resident, in MB.
fn memory() -> [f64; 2] {
    let resident = memory_stats().expect("a system that tells").physical_mem;
    [ALLOCATOR.allocated() as f64 / 1e6, resident as f64 / 1e6]
}
