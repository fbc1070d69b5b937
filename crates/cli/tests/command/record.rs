//! What the library records, this replays: the same timeouts fire and are cancelled.

use crate::long;
use fastrand::Rng;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs;
use std::io::{self, Cursor, Write};
use std::ops::ControlFlow;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tickwheel::{ManualClock, MissedTick, Mode, Recorder, Timer, TimerStats, Wheel};
use tickwheel_cli::study::{Configurations, Figures, Options, Study, study};
use tickwheel_cli::tick::Tick;
use tickwheel_cli::trace::{Trace, TraceError};

/// A file in memory.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn modes() -> [Mode; 3] {
    ["hierarchical:64", "hierarchical:2", "hashed:512"].map(|mode| mode.parse().unwrap())
}

fn replayed(trace: &[u8], tick: Duration) -> Result<Study, TraceError> {
    let trace = Trace::new("recorded", Cursor::new(trace.to_vec()))?;
    let configurations =
        Configurations::Given { modes: modes().into(), tick: Tick::new(tick).unwrap() };
    // However slow a mode is, and nothing is measured.
    let limits = Options { slower: u32::MAX, max_memory: u64::MAX, ..Options::default() };
    study(trace, &Options { configurations, time: Duration::ZERO, ..limits }, |_| ())
}

fn assert_is_exact(figures: &Figures) {
    assert_eq!(
        (figures.counts.replaced, figures.counts.late_cancels, figures.counts.late_reschedules),
        (0, 0, 0)
    );
    assert_eq!((figures.early, figures.max_late_ticks), (0, 0));
}

/// Runs a random program that records to `writer`, on a clock that it moves itself, and returns
/// what the timer says that it did, with the number of timeouts that were left.
fn run(seed: u64, tick: Duration, writer: impl Write + Send + 'static) -> (TimerStats, u64) {
    let mut random = Rng::with_seed(seed);
    let clock = ManualClock::new();
    let builder = Timer::builder().clock(clock.clone()).tick(tick).shards(random.usize(1..4));
    let timer = builder.record(writer).build().unwrap();
    let delays = [0, 1, 5, 30, 400, 30_000, 1 << 40];
    let delay = |random: &mut Rng| {
        let longest = delays[random.usize(..delays.len())];
        // Nothing is due at once, or it would fire while the next operation is under way.
        Duration::from_micros(random.u64(1..=1 + 1_000 * longest))
    };
    let mut timeouts = Vec::new();
    for _ in 0..3_000 {
        let chosen = random.usize(..timeouts.len().max(1));
        match random.u32(..20) {
            0..8 => {
                // Some of the tasks schedule another timeout when they run.
                let other = timer.clone();
                let next = [None, Some(Duration::ZERO), Some(delay(&mut random))];
                let next = next[random.usize(..3)];
                let task = move || {
                    if let Some(delay) = next {
                        drop(other.schedule(delay, || {}).unwrap());
                    }
                };
                timeouts.push(timer.schedule(delay(&mut random), task).unwrap());
            }
            8 => {
                let mut left = random.u32(1..5);
                let period = delay(&mut random);
                let beat = move || {
                    left -= 1;
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                };
                let repeating = timer.schedule_repeating(period, MissedTick::Skip, beat).unwrap();
                timeouts.push(repeating);
            }
            9 => {
                let within = delay(&mut random);
                timeouts.push(timer.schedule_within(within..=within * 2, || {}).unwrap());
            }
            10..13 if !timeouts.is_empty() => {
                timeouts[chosen].reschedule(delay(&mut random));
            }
            13..17 if !timeouts.is_empty() => {
                timeouts.swap_remove(chosen).cancel();
            }
            _ => clock.advance(delay(&mut random) / 8),
        }
    }
    // A recording has an end, behind its last operation.
    clock.advance(ms(random.u64(..100)));
    let stats = timer.stats();
    let left = timer.stop().unwrap().len() as u64;
    let recorded = timer.recorded().expect("it is recorded");
    assert_eq!((recorded.missing, recorded.error), (0, None));
    assert!(stats.scheduled + stats.cancelled + stats.rescheduled <= recorded.operations);
    (stats, left)
}

#[test]
fn a_recorded_timer_fires_and_cancels_as_many_when_it_is_replayed() {
    for seed in 0..long(3, 15) {
        // Whole milliseconds, as in a trace.
        let tick = ms([1, 2, 10][seed as usize % 3]);
        let shared = Shared::default();
        let (stats, left) = run(seed, tick, shared.clone());
        let report = replayed(&shared.bytes(), tick).unwrap();
        assert_eq!(report.gaps.to_string(), "");
        assert_eq!(report.candidates.len(), 3);
        for figures in report.candidates.iter().map(|candidate| &candidate.figures) {
            assert_is_exact(figures);
            assert_eq!(figures.fired_in_span, stats.fired, "seed {seed}");
            assert_eq!(figures.counts.cancelled, stats.cancelled, "seed {seed}");
            assert_eq!(figures.counts.rescheduled, stats.rescheduled, "seed {seed}");
            assert_eq!(figures.live_at_end, left, "seed {seed}");
        }
        assert!(0 < stats.fired && 0 < stats.cancelled && 0 < stats.rescheduled && 0 < left);
    }
}

#[test]
fn packed_or_not_the_trace_is_the_same() {
    for seed in 0..long(1, 2) {
        let (plain, packed) = (Shared::default(), Shared::default());
        let (stats, _) = run(seed, ms(1), plain.clone());
        run(seed, ms(1), GzEncoder::new(packed.clone(), Compression::fast()));
        assert!(packed.bytes().len() < plain.bytes().len() / 2);
        for trace in [plain, packed] {
            let report = replayed(&trace.bytes(), ms(1)).unwrap();
            assert_eq!(report.candidates[0].figures.fired_in_span, stats.fired);
            assert_eq!(report.candidates[0].figures.counts.cancelled, stats.cancelled);
        }
    }
}

#[test]
fn a_recorded_wheel_fires_and_cancels_as_many_when_it_is_replayed() {
    for (seed, mode) in (0..long(3, 12)).zip(modes().into_iter().cycle()) {
        let mut random = Rng::with_seed(seed);
        let tick = ms([1, 2, 10][seed as usize % 3]);
        let shared = Shared::default();
        let mut recorder = Recorder::new(shared.clone(), tick).unwrap();
        let mut wheel = Wheel::new(mode);
        let (mut now, mut keys) = (0, Vec::new());
        let (mut fired, mut cancelled, mut rescheduled) = (0, 0, 0);
        for _ in 0..5_000 {
            let chosen = random.usize(..keys.len().max(1));
            // A wheel takes any deadline, and the next tick is the first that can come.
            let longest = 1 << random.u32(..24);
            let deadline = now + random.u64(1..=longest);
            match random.u32(..10) {
                0..4 => {
                    let key = wheel.schedule(deadline, ());
                    recorder.scheduled(now, key, deadline);
                    keys.push(key);
                }
                4..6 if !keys.is_empty() && wheel.reschedule(keys[chosen], deadline) => {
                    recorder.rescheduled(now, keys[chosen], deadline);
                    rescheduled += 1;
                }
                6..8 if !keys.is_empty() && wheel.cancel(keys[chosen]).is_some() => {
                    recorder.cancelled(now, keys[chosen]);
                    keys.swap_remove(chosen);
                    cancelled += 1;
                }
                _ => {
                    now += random.u64(..longest.min(1 << 16));
                    fired += wheel.extract_due(now).count() as u64;
                }
            }
        }
        now += 1_000;
        fired += wheel.extract_due(now).count() as u64;
        let recorded = recorder.finish(now);
        assert_eq!((recorded.missing, recorded.error), (0, None));

        for candidate in replayed(&shared.bytes(), tick).unwrap().candidates {
            let figures = candidate.figures;
            assert_is_exact(&figures);
            assert_eq!(figures.ops, recorded.operations);
            assert_eq!(
                (figures.counts.cancelled, figures.counts.rescheduled),
                (cancelled, rescheduled)
            );
            assert_eq!((figures.fired_in_span, figures.live_at_end), (fired, wheel.len() as u64));
        }
        assert!(0 < fired && 0 < cancelled && 0 < rescheduled);
    }
}

/// Says how many operations can be read of `trace`, and after how many it breaks off.
fn torn(trace: &[u8]) -> (u64, Option<u64>) {
    let mut trace = Trace::new("torn", Cursor::new(trace.to_vec())).unwrap();
    let operations = trace.by_ref().inspect(|it| assert!(it.is_ok())).count();
    (operations as u64, trace.gaps().torn_after)
}

#[test]
fn a_torn_trace_is_replayed_up_to_the_tear() {
    let shared = Shared::default();
    run(1, ms(1), shared.clone());
    let whole = shared.bytes();
    let lines = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte == b'\n').count() as u64;
    // Without the header and the marks of the recorder.
    assert_eq!(torn(&whole), (lines(&whole) - 3, None));
    let first = whole.iter().position(|&byte| byte == b'\n').unwrap() + "0,begin,,\n".len() + 40;
    for cut in (first..whole.len())
        .step_by(long(3_970, 397))
        .chain((whole.len() - 60..whole.len()).step_by(long(7, 1)))
    {
        let operations = (lines(&whole[..cut]) - 2).min(lines(&whole) - 3);
        assert_eq!(torn(&whole[..cut]), (operations, Some(operations)), "cut at {cut}");
    }
}

#[test]
fn torn_gzip_is_replayed_up_to_the_tear() {
    let shared = Shared::default();
    run(1, ms(1), GzEncoder::new(shared.clone(), Compression::fast()));
    let whole = shared.bytes();
    let (all, tear) = torn(&whole);
    assert_eq!(tear, None);
    let mut most = 0;
    for cut in (500..whole.len())
        .step_by(long(5_010, 501))
        .chain((whole.len() - 20..whole.len()).step_by(long(3, 1)))
    {
        let (operations, tear) = torn(&whole[..cut]);
        assert_eq!(tear, Some(operations), "cut at {cut}");
        assert!(most <= operations && operations <= all);
        most = operations;
    }
    assert_eq!(most, all);
}

#[test]
fn the_command_warns_of_what_is_not_in_the_trace() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("trace.csv");
    let text = "time_ms,op,key,delay_ms\n0,begin,,\n0,schedule,1,5\n7,schedule,1,9\n\
                7,missing,1234,\n7,missing,1,\n8,cancel,1,\n";
    let run = |command: &str, text: &str| {
        fs::write(&file, text).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_tickwheel"))
            .args([command, file.to_str().unwrap()])
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), output.stdout.is_empty(), stderr)
    };
    let missing = "tickwheel: warning: trace.csv: 1,235 operations are missing: the recorder could \
                   not write them in time\n";
    let torn = "tickwheel: warning: trace.csv: the trace breaks off after 3 operations: the \
                program was killed or still runs, or the file was cut\n";
    for command in ["replay", "choose"] {
        let whole = format!("{text}9,end,,\n");
        assert_eq!(run(command, &whole), (Some(0), false, missing.into()));
        assert_eq!(run(command, text), (Some(0), false, format!("{torn}{missing}")));
        let cut = format!("{text}9,sched");
        assert_eq!(run(command, &cut), (Some(0), false, format!("{torn}{missing}")));
        let behind = format!("{text}9,end,,\n9,schedule,1,2\n");
        let (code, is_empty, stderr) = run(command, &behind);
        assert_eq!((code, is_empty), (Some(2), true));
        assert!(stderr.contains(":9: found `9,schedule,1,2` behind `end`, expected no more lines"));
    }
}
