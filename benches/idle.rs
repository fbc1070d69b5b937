//! What does a timer cost while nothing is due?
//!
//! An empty one, and one with a million timeouts that are one to two hours away, at a tick of 1 ms:
//! how often its worker wakes up in 30 s, and the processor's time that the whole process takes.
//!
//! `cargo bench --bench idle`, with `-- --quick` for a look at whether it works.

mod report;

use cpu_time::ProcessTime;
use report::{Report, is_quick};
use std::thread;
use std::time::Duration;
use tickwheel::{Mode, Timer};

fn main() {
    let (length, many) = match is_quick() {
        true => (Duration::from_millis(300), 100_000),
        false => (Duration::from_secs(30), 1_000_000),
    };
    println!("Nothing is due for {} s", length.as_secs_f64());
    let mut report = Report::new(["", "timeouts", "wake-ups", "CPU, ms"]);
    for mode in ["hierarchical:64", "hashed:512"] {
        for timeouts in [0, many] {
            let parsed = mode.parse::<Mode>().expect("a mode");
            let timer = Timer::builder().mode(parsed).build().expect("the default tick");
            // The worker starts with the first timeout.
            timer.schedule(Duration::ZERO, || {}).expect("it runs, and has no limit");
            for number in 0..timeouts {
                let delay = HOUR + HOUR * number / timeouts;
                timer.schedule(delay, || {}).expect("it runs, and has no limit");
            }
            thread::sleep(Duration::from_millis(100));

            let (wake_ups, before) = (timer.stats().wake_ups, ProcessTime::now());
            thread::sleep(length);
            let cpu = before.elapsed().as_secs_f64() * 1e3;
            let wake_ups = (timer.stats().wake_ups - wake_ups) as f64;

            report.row(mode, [timeouts.into(), wake_ups, cpu]);
        }
    }
    report.print();
}

const HOUR: Duration = Duration::from_secs(3_600);
