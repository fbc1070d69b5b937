//! Does a cancelled timeout give its memory back at once?
//!
//! The benchmark schedules a million timeouts, each with a kilobyte in its task, and cancels them:
//! in the order of scheduling, in the reverse order, and in random order. It counts the allocated
//! bytes and the resident bytes of the process. The resident bytes also depend on the allocator:
//! the same boxes without a timer show what the allocator keeps. glibc's allocator gives back only
//! the free end of its heap. A few boxes that a thread keeps in its cache can lie there, so
//! everything is measured without that cache too (on other systems this makes no difference).
//!
//! A second table tells what a timer and a channel hold when a million are over. Two more are of
//! wheels, queues and maps of few timeouts, beside tokio-util's `DelayQueue`. The last one tells what
//! it costs that the system provides the memory of a new wheel, with and without `reserve`.
//!
//! `cargo bench --bench memory`, with `cancelled`, `left`, `few` or `first` for one of them, and
//! `-- --quick` for a look at whether it works.

mod report;

use cap::Cap;
use cpu_time::ThreadTime;
use memory_stats::memory_stats;
use report::{Report, is_asked_for, is_quick};
use std::alloc::System;
use std::cell::Cell;
use std::hint::black_box;
use std::process::Command;
use std::time::Duration;
use tickwheel::{
    DelayMap, DelayQueue, ManualClock, Mode, Timeout, Timer, Wheel, WheelMap, delay_channel,
};
use tokio_util::time;

/// Counts, and leaves all else to the system's.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

fn main() {
    let is_given = |name: &str| std::env::args().any(|argument| argument == name);
    let given = |names: &[&'static str]| names.iter().copied().find(|name| is_given(name));
    let span = SPANS.into_iter().find(|(name, _)| is_given(name));
    match (given(&SUBJECTS), given(&ORDERS), given(&WHEELS), span) {
        (Some(subject), Some(order), ..) => measure(subject, order),
        (.., Some(wheel), Some((_, longest))) => pass(wheel, longest),
        _ => {
            if is_asked_for("cancelled") {
                measure_all();
            }
            if is_asked_for("left") {
                what_is_left();
            }
            if is_asked_for("few") {
                few();
            }
            if is_asked_for("first") {
                first();
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
        .args(std::env::args().skip(1).filter(|argument| argument.starts_with('-')))
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

/// Of values of eight bytes, and keys of as many.
fn few() {
    let (runtime, clock) = (tokio::runtime::Builder::new_current_thread(), ManualClock::new());
    let runtime = { runtime }.enable_time().start_paused(true).build().expect("a runtime");
    let _entered = runtime.enter();
    let timer = Timer::builder().clock(clock).build().expect("the default tick");
    let (start, start_of_tokio) = (timer.now(), tokio::time::Instant::now());
    let delay = |at: u64| Duration::from_millis(DELAYS[at as usize % DELAYS.len()]);
    let wheel = || Wheel::new(Mode::hierarchical());
    let hashed = || Wheel::new(Mode::hashed(512).expect("a mode"));
    let put: fn(&mut Wheel<u64>, u64) = |wheel, at| {
        wheel.schedule(DELAYS[at as usize % DELAYS.len()], at);
    };
    let mut subjects = [
        Few::of("Wheel", wheel, put),
        Few::of("Wheel, hashed:512", hashed, put),
        Few::of(
            "DelayQueue",
            || DelayQueue::with_timer(&timer),
            |queue, at| {
                queue.insert_at(at, start + delay(at));
            },
        ),
        Few::of(
            "WheelMap",
            || WheelMap::new(Mode::hierarchical()),
            |map, at| {
                map.insert(at, at, DELAYS[at as usize % DELAYS.len()]);
            },
        ),
        Few::of(
            "DelayMap",
            || DelayMap::with_timer(&timer),
            |map, at| {
                map.insert_at(at, at, start + delay(at));
            },
        ),
        Few::of("tokio-util's DelayQueue", time::DelayQueue::new, |queue, at| {
            queue.insert_at(at, start_of_tokio + delay(at));
        }),
    ];
    println!("\none with so many timeouts; bytes, its own included");
    let mut report = Report::new(["", "0", "1", "4", "10", "64"]);
    for subject in &mut subjects {
        let bytes = [0, 1, 4, 10, 64].map(|timeouts| (subject.measure)(1, timeouts)[0]);
        report.row(subject.name, bytes);
    }
    report.print();
    let count = if is_quick() { 1_000 } else { 100_000 };
    println!("\n{count} with four timeouts each; per one of them, the median of {TURNS} turns");
    let heads = ["", "bytes", "make, ns", "fill, ns", "drop, ns"];
    let mut report = Report::new(heads);
    // In turns, so that what disturbs the machine for a while disturbs all.
    let mut turns = || subjects.iter_mut().map(|few| (few.measure)(count, 4)).collect::<Vec<_>>();
    let turns: Vec<_> = (0..TURNS).map(|_| turns()).collect();
    for (at, subject) in subjects.iter().enumerate() {
        let figures = [0, 1, 2, 3].map(|figure| {
            let mut samples: Vec<_> = turns.iter().map(|turn| turn[at][figure]).collect();
            samples.sort_by(f64::total_cmp);
            samples[samples.len() / 2]
        });
        report.row(subject.name, figures);
    }
    report.print();
}

/// What can hold a few timeouts.
struct Few<'a> {
    name: &'static str,
    /// Makes so many with so many timeouts each. Returns, for one of them, the bytes, and the
    /// nanoseconds to make, to fill and to drop it.
    measure: Box<dyn FnMut(usize, u64) -> [f64; 4] + 'a>,
}

impl<'a> Few<'a> {
    fn of<H>(
        name: &'static str,
        make: impl Fn() -> H + 'a,
        put: impl Fn(&mut H, u64) + 'a,
    ) -> Self {
        let measure = move |count: usize, timeouts: u64| {
            let before = ALLOCATOR.allocated();
            let begun = ThreadTime::now();
            let mut all: Vec<H> = Vec::with_capacity(count);
            all.extend((0..count).map(|_| make()));
            let made = ThreadTime::now();
            all.iter_mut().for_each(|one| (0..timeouts).for_each(|at| put(one, at)));
            let filled = ThreadTime::now();
            let bytes = ALLOCATOR.allocated() - before;
            let full = ThreadTime::now();
            drop(black_box(all));
            let spans = [made.duration_since(begun), filled.duration_since(made), full.elapsed()];
            let [make, fill, drop] = spans.map(|span| span.as_nanos() as f64);
            [bytes as f64, make, fill, drop].map(|figure| figure / count as f64)
        };
        Self { name, measure: Box::new(measure) }
    }
}

/// Each in a process of its own, in turns, as pages that one keeps would serve the next.
fn first() {
    println!("\nall of {} scheduled and fired; ns each, the median of {TURNS} turns", timeouts());
    let mut report = Report::new(["delays, and the wheel", "ns", "of a used one"]);
    for (span, _) in SPANS {
        let turn = |_| WHEELS.map(|wheel| measure_apart(wheel, span, "")[0]);
        let turns: Vec<_> = (0..TURNS).map(turn).collect();
        for (at, wheel) in WHEELS.iter().enumerate() {
            let median = |of: &dyn Fn(&[f64; WHEELS.len()]) -> f64| {
                let mut samples: Vec<_> = turns.iter().map(of).collect();
                samples.sort_by(f64::total_cmp);
                samples[samples.len() / 2]
            };
            let figures = [median(&|turn| turn[at]), median(&|turn| turn[at] / turn[0])];
            report.row(&format!("up to {span}, {wheel}"), figures);
        }
    }
    report.print();
}

/// Prints what a pass takes.
fn pass(wheel: &str, longest: u64) {
    let mut rng = fastrand::Rng::with_seed(1);
    let delays: Vec<_> = (0..timeouts()).map(|_| 1 + rng.u64(..longest)).collect();
    let mut subject = Wheel::new(Mode::hierarchical());
    if wheel == "reserved" {
        subject.reserve(delays.len());
    }
    let mut run = || {
        let (begun, now) = (ThreadTime::now(), subject.now());
        delays.iter().for_each(|delay| _ = subject.schedule(now + delay, *delay));
        while let Some(wake) = subject.next_wake() {
            subject.extract_due(wake).for_each(|expired| _ = black_box(expired));
        }
        begun.elapsed().as_nanos() as f64 / delays.len() as f64
    };
    if wheel == "used" {
        run();
    }
    println!("{}", run());
}

/// Allocated and resident, in MB.
fn memory() -> [f64; 2] {
    let resident = memory_stats().expect("a system that tells").physical_mem;
    [ALLOCATOR.allocated() as f64 / 1e6, resident as f64 / 1e6]
}

/// In milliseconds: neither in order nor against it.
const DELAYS: [u64; 8] = [3_000, 30_000, 10_000, 60_000, 1_000, 45_000, 20_000, 5_000];
/// How often each is measured.
const TURNS: usize = 9;
const CAPTURED: usize = 1_024;
const DELAY: Duration = Duration::from_secs(3_600);

const WHEELS: [&str; 3] = ["used", "new", "reserved"];
/// In milliseconds.
const SPANS: [(&str, u64); 2] = [("60s", 60_000), ("24h", 86_400_000)];

const SUBJECTS: [&str; 2] = ["tickwheel", "boxes alone"];
const ORDERS: [&str; 3] = ["first to last", "last to first", "random"];
/// What glibc is told by its environment.
const CACHES: [(&str, &str); 2] = [("", ""), (", no cache", "glibc.malloc.tcache_count=0")];
