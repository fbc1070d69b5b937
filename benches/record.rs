//! What does it cost a caller that its timer is recorded?
//!
//! One thread schedules, moves and cancels, and a recorder writes to a file. The processor's time
//! of that thread counts, with the recorder and without, in turns. And the same for a bare wheel,
//! whose caller knows the time already.
//!
//! `cargo bench --features record --bench record`, with `-- --quick` for a look at whether it
//! works.

mod report;

use cpu_time::ThreadTime;
use report::{Report, is_quick};
use std::fs::File;
use std::hint::black_box;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use tickwheel::{Mode, Recorder, Timer, Wheel};

/// An operation's time in ns: of schedule, of reschedule, and of cancel.
type Times = [f64; 3];

fn main() {
    let repetitions = if is_quick() { 10 } else { 300 };
    let mut report = Report::new(["ns per operation", "without", "with", "more", "ratio"]);
    for (name, run) in [("timer", timer as fn(bool) -> Times), ("wheel", wheel)] {
        // Neither has the better moments.
        let mut times: [[Vec<f64>; 3]; 2] = Default::default();
        for repetition in 0..repetitions * 2 {
            let is_recorded = repetition % 2 == 1;
            for (times, time) in times[usize::from(is_recorded)].iter_mut().zip(run(is_recorded)) {
                times.push(time);
            }
        }
        let [without, with] = times.map(|times| times.map(median));
        for (number, operation) in ["schedule", "reschedule", "cancel"].into_iter().enumerate() {
            let (without, with) = (without[number], with[number]);
            let name = format!("{name}: {operation}");
            report.row(&name, [without, with, with - without, with / without]);
        }
    }
    report.print();
}

fn timer(is_recorded: bool) -> Times {
    let builder = Timer::builder().shards(1);
    let builder = if is_recorded { builder.record(file()) } else { builder };
    let timer = builder.build().expect("it starts");
    // An earlier one, so that the worker sleeps on, and the threads and arrays are there.
    timer.schedule(DELAY / 2, || {}).expect("it runs");
    let mut timeouts = Vec::with_capacity(ROUNDS as usize);
    let mut round = || {
        let schedule = |_| timeouts.push(timer.schedule(DELAY, || {}).expect("it runs"));
        let schedule = time(|| (0..ROUNDS).for_each(schedule));
        let reschedule = time(|| timeouts.iter().for_each(|timeout| _ = timeout.reschedule(DELAY)));
        let cancel = time(|| timeouts.iter().for_each(|timeout| _ = timeout.cancel()));
        timeouts.clear();
        [schedule, reschedule, cancel]
    };
    round();
    thread::sleep(Duration::from_millis(5));
    let times = round();
    timer.stop().expect("outside of tasks");
    if is_recorded {
        assert_eq!(timer.recorded().map(|recorded| recorded.missing), Some(0));
    }
    times
}

fn wheel(is_recorded: bool) -> Times {
    let mut recorder =
        is_recorded.then(|| Recorder::new(file(), Duration::from_millis(1)).expect("it starts"));
    let mut wheel = Wheel::new(Mode::default());
    let mut keys = Vec::with_capacity(ROUNDS as usize);
    let mut round = || {
        let schedule = time(|| {
            for deadline in 30_000..30_000 + u64::from(ROUNDS) {
                let key = wheel.schedule(black_box(deadline), ());
                if let Some(recorder) = &mut recorder {
                    recorder.scheduled(7, key, deadline);
                }
                keys.push(key);
            }
        });
        let reschedule = time(|| {
            for &key in &keys {
                assert!(wheel.reschedule(key, black_box(40_000)));
                if let Some(recorder) = &mut recorder {
                    recorder.rescheduled(8, key, 40_000);
                }
            }
        });
        let cancel = time(|| {
            for &key in &keys {
                assert!(wheel.cancel(key).is_some());
                if let Some(recorder) = &mut recorder {
                    recorder.cancelled(9, key);
                }
            }
        });
        keys.clear();
        [schedule, reschedule, cancel]
    };
    round();
    thread::sleep(Duration::from_millis(5));
    let times = round();
    if let Some(recorder) = recorder {
        assert_eq!(recorder.finish(10).missing, 0);
    }
    times
}

/// The processor's time of this thread for each of the rounds, in ns.
fn time(work: impl FnOnce()) -> f64 {
    let start = ThreadTime::now();
    work();
    start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

fn file() -> File {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("recorded.csv");
    File::create(path).expect("a file can be made")
}

const DELAY: Duration = Duration::from_secs(30);
/// Fewer than may wait to be written, so that none is left out on a busy machine.
const ROUNDS: u32 = 10_000;
