//! Does a cancelled timeout give its memory back at once?
//!
//! The benchmark schedules a million timeouts, each with a kilobyte in its task, and cancels them:
//! in the order of scheduling, in the reverse order, and in random order. It counts the allocated
//! bytes and the resident bytes of the process. The resident bytes also depend on the allocator:
//! the same boxes without a timer show what the allocator keeps. glibc's allocator gives back only
//! the free end of its heap. A few boxes that a thread keeps in its cache can lie there, so
//! everything is measured without that cache too (on other systems this makes no difference).
//!
//! A second table tells what a timer and a channel hold when a million are over.
//!
//! `cargo bench --bench memory`, with `cancelled` or `left` for one of them, and `-- --quick` for a
//! look at whether it works.

mod report;

use cap::Cap;
use memory_stats::memory_stats;
use report::{Report, is_asked_for, is_quick};
use std::alloc::System;
use std::cell::Cell;
use std::hint::black_box;
use std::process::Command;
use std::time::Duration;
use tickwheel::{ManualClock, Timeout, Timer, delay_channel};

/// Counts, and leaves all else to the system's.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

fn main() {
    let given = |name: &&&str| std::env::args().any(|argument| argument == **name);
    match (SUBJECTS.iter().find(given), ORDERS.iter().find(given)) {
        (Some(subject), Some(order)) => measure(subject, order),
        _ => {
            if is_asked_for("cancelled") {
                measure_all();
            }
            if is_asked_for("left") {
                what_is_left();
            }
        }
    }
}

/// Each in a process of its own, as pages that one keeps would serve the next.
fn measure_all() {
    println!("{} timeouts with {CAPTURED} bytes each; MB", timeouts());
    let heads = ["scheduled: allocated", "cancelled: allocated", "handles gone: allocated"];
    let heads = heads.iter().flat_map(|head| [head, "resident"]);
    let mut report = Report::new([""].into_iter().chain(heads));
    for order in ORDERS {
        for (cache, tunables) in CACHES {
            for subject in SUBJECTS {
                let figures = measure_apart(subject, order, tunables);
                report.row(&format!("{subject}, {order}{cache}"), figures);
            }
        }
    }
    report.print();
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
    if subject != SUBJECTS[0] {
        return print_figures(order, Box::new, |boxed| *boxed = None);
    }
    let timer = Timer::builder().build().expect("the default tick");
    // The worker is there.
    timer.schedule(Duration::ZERO, || {}).expect("it runs, and has no limit");
    let schedule = |captured| {
        let timeout = timer.schedule(DELAY, move || _ = black_box(captured));
        timeout.expect("it runs, and has no limit")
    };
    let cancel = |timeout: &mut Option<Timeout>| {
        assert!(timeout.as_ref().is_some_and(Timeout::cancel));
    };
    print_figures(order, schedule, cancel);
}

fn timeouts() -> usize {
    if is_quick() { 50_000 } else { 1_000_000 }
}

/// In MB, beyond what it was before anything was scheduled: allocated and resident with all of them
/// scheduled, with all cancelled, and with their handles gone.
fn print_figures<H>(
    order: &str,
    schedule: impl Fn([u8; CAPTURED]) -> H,
    cancel: impl Fn(&mut Option<H>),
) {
    let mut cancels: Vec<_> = (0..timeouts()).collect();
    match order {
        "last to first" => cancels.reverse(),
        "random" => fastrand::Rng::with_seed(1).shuffle(&mut cancels),
        _ => {}
    }
    // The room for the handles is the caller's business.
    let mut handles: Vec<Option<H>> = (0..timeouts()).map(|_| None).collect();

    // Not allocated later, as it could keep the heap from shrinking.
    let mut figures = Vec::with_capacity(6);
    let before = memory();
    let mut note = || figures.extend([0, 1].map(|at| memory()[at] - before[at]));
    for (number, handle) in handles.iter_mut().enumerate() {
        *handle = Some(schedule([number as u8; CAPTURED]));
    }
    note();
    cancels.iter().for_each(|&number| cancel(&mut handles[number]));
    note();
    handles.fill_with(|| None);
    note();
    figures.iter().for_each(|figure| println!("{figure}"));
}

/// With small tasks, whose boxes take nothing.
fn what_is_left() {
    println!("\nwhat {} leave behind; MB allocated", timeouts());
    let mut report = Report::new(["", "at most", "when they are over"]);
    let mut row = |name, over: &dyn Fn(&mut dyn FnMut())| {
        let before = memory()[0];
        let mut most = 0.0;
        over(&mut || most = memory()[0] - before);
        report.row(name, [most, memory()[0] - before]);
    };
    let clock = ManualClock::new();
    let timer = || Timer::builder().clock(clock.clone()).build().expect("the default tick");
    let schedule = |timer: &Timer| {
        let schedule = |_| timer.schedule(DELAY, || {}).expect("it runs, and has no limit");
        (0..timeouts()).map(schedule).collect::<Vec<_>>()
    };
    let (cancelled, fired) = (timer(), timer());
    row("a timer, all cancelled", &|note| {
        let timeouts = schedule(&cancelled);
        note();
        timeouts.iter().for_each(|timeout| assert!(timeout.cancel()));
    });
    row("a timer, all fired", &|note| {
        drop(schedule(&fired));
        note();
        clock.jump(DELAY);
    });
    let kept = Cell::new(None);
    row("a timer that was dropped, with one handle kept", &|note| {
        let timer = timer();
        kept.set(schedule(&timer).pop());
        note();
    });
    let (sender, _receiver) = delay_channel(&cancelled);
    row("a channel, all removed", &|note| {
        let insert = |value| sender.insert(value, DELAY).expect("the receiver is there");
        let keys: Vec<_> = (0..timeouts()).map(insert).collect();
        note();
        keys.into_iter().for_each(|key| assert!(sender.remove(key).is_some()));
    });
    report.print();
}

/// Allocated and resident, in MB.
fn memory() -> [f64; 2] {
    let resident = memory_stats().expect("a system that tells").physical_mem;
    [ALLOCATOR.allocated() as f64 / 1e6, resident as f64 / 1e6]
}

const CAPTURED: usize = 1_024;
const DELAY: Duration = Duration::from_secs(3_600);

const SUBJECTS: [&str; 2] = ["tickwheel", "boxes alone"];
const ORDERS: [&str; 3] = ["first to last", "last to first", "random"];
/// What glibc is told by its environment.
const CACHES: [(&str, &str); 2] = [("", ""), (", no cache", "glibc.malloc.tcache_count=0")];
