//! What a recorder promises: the trace has what happened, and no caller waits for the disk.
//! `crates/cli/tests/command/record.rs` replays what is recorded.
#![cfg(all(feature = "record", not(loom)))]

use allocation_counter::measure;
use std::io::{self, ErrorKind, Write};
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{ManualClock, MissedTick, Mode, Next, Recorder, Status, Timer, Wheel};

/// A disk in memory, which a test can stop and break.
#[derive(Clone, Default)]
struct Disk(Arc<Inner>);

#[derive(Default)]
struct Inner {
    bytes: Mutex<Vec<u8>>,
    is_stopped: Mutex<bool>,
    goes_on: Condvar,
    breaks: AtomicBool,
    panics: AtomicBool,
    is_closed: AtomicBool,
}

impl Disk {
    /// Stops the disk until the guard is dropped.
    fn stop(&self) -> Stopped {
        *self.0.is_stopped.lock().unwrap() = true;
        Stopped(self.clone())
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.bytes.lock().unwrap().clone()).unwrap()
    }

    /// Returns a writer to this disk. Dropping the writer sets `is_closed`.
    fn file(&self) -> File {
        File(self.clone())
    }
}

struct Stopped(Disk);

impl Drop for Stopped {
    fn drop(&mut self) {
        *self.0.0.is_stopped.lock().unwrap() = false;
        self.0.0.goes_on.notify_all();
    }
}

struct File(Disk);

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Inner { is_stopped, goes_on, breaks, panics, .. } = &*self.0.0;
        drop(goes_on.wait_while(is_stopped.lock().unwrap(), |is_stopped| *is_stopped).unwrap());
        assert!(!panics.load(SeqCst), "as the test wants it");
        if breaks.load(SeqCst) {
            return Err(ErrorKind::StorageFull.into());
        }
        self.0.0.bytes.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.0.0.is_closed.store(true, SeqCst);
    }
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A timer of one shard that records to `disk`, and its clock.
fn recorded(disk: &Disk) -> (Timer, ManualClock) {
    let clock = ManualClock::new();
    let builder = Timer::builder().clock(clock.clone()).shards(1).record(disk.file());
    (builder.build().expect("in range"), clock)
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never came");
        thread::sleep(ms(1));
    }
}

#[test]
fn the_trace_has_what_enters_a_wheel_moves_there_and_leaves_it_early() {
    let disk = Disk::default();
    let (timer, clock) = recorded(&disk);
    let first = timer.schedule(ms(10), || {}).unwrap();
    timer.schedule(ms(20), || {}).unwrap();
    clock.advance(Duration::from_micros(5_300));
    assert!(first.reschedule(ms(30))); // 35.3, rounded up
    let mut left = 2;
    let beat = move || {
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    timer.schedule_repeating(ms(100), MissedTick::Skip, beat).unwrap();
    clock.advance(ms(20)); // the second has fired, and its place is free
    assert!(first.cancel() && !first.cancel() && !first.reschedule(ms(1)));
    timer.schedule_within(ms(5)..=ms(6), || {}).unwrap();
    {
        let mut sleep = pin!(timer.sleep(ms(50)));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        sleep.as_mut().reset(ms(60)); // to later: only the sleep knows
    }
    let never = timer.schedule(Duration::MAX, || {}).unwrap();
    clock.advance(ms(1_000));
    assert_eq!(never.status(), Status::Pending);
    assert_eq!(timer.stop().unwrap().len(), 1);

    let expected = "0,schedule,0,10\n0,schedule,1,20\n5,reschedule,0,31\n5,schedule,2,101\n\
                    25,cancel,0,\n";
    let text = disk.text();
    let lines =
        text.strip_prefix(&format!("{HEADER}{expected}")).unwrap_or_else(|| panic!("{text}"));
    // Which free place a timeout takes is the wheel's affair.
    let lines: Vec<Vec<&str>> = lines.lines().map(|line| line.split(',').collect()).collect();
    let (keys, rest): (Vec<_>, Vec<_>) =
        lines.iter().map(|line| (line[2], [line[0], line[1], line[3]])).unzip();
    let never = (u64::MAX - 25).to_string();
    assert_eq!(
        rest,
        [
            ["25", "schedule", "6"],
            ["25", "schedule", "51"],
            ["25", "cancel", ""],
            ["25", "schedule", &never],
            ["106", "schedule", "100"],
            ["1025", "end", ""],
        ]
    );
    assert_eq!(keys[1], keys[2]);
    assert!(keys[0] != keys[1] && keys[5].is_empty());
    assert!(disk.0.is_closed.load(SeqCst));
}

#[test]
fn shards_share_no_key() {
    const THREADS: u32 = 4;
    let disk = Disk::default();
    let clock = ManualClock::new();
    let builder = Timer::builder().clock(clock.clone()).shards(3).record(disk.file());
    let timer = builder.build().expect("in range");
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..100).for_each(|_| _ = timer.schedule(ms(9), || {}).unwrap()));
        }
    });
    timer.stop().unwrap();
    let text = disk.text();
    let mut keys: Vec<u32> = text
        .lines()
        .filter(|line| line.contains("schedule"))
        .map(|line| line.split(',').nth(2).unwrap().parse().unwrap())
        .collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len() as u32, THREADS * 100);
}

#[test]
fn a_timeout_that_is_moved_or_cancelled_behind_a_task_has_its_own_key() {
    let disk = Disk::default();
    let (timer, clock) = recorded(&disk);
    let behind = Arc::new(Mutex::new(Vec::new()));
    let (others, handle) = (Arc::clone(&behind), timer.clone());
    let task = move || {
        let others: Vec<tickwheel::Timeout> = std::mem::take(&mut *others.lock().unwrap());
        // New timeouts take the places of the due ones.
        (0..4).for_each(|_| _ = handle.schedule(ms(1_000), || {}).unwrap());
        assert!(others[0].cancel() && others[1].reschedule(ms(5)));
    };
    timer.schedule(ms(10), task).unwrap();
    let due_too = [(); 2].map(|()| timer.schedule(ms(10), || {}).unwrap());
    behind.lock().unwrap().extend(due_too);
    clock.advance(ms(100));
    let stats = timer.stats();
    assert_eq!((stats.fired, stats.cancelled), (2, 1));
    timer.stop().unwrap();
    let text = disk.text();
    let after: Vec<&str> = text.lines().filter(|line| line.starts_with("10,")).collect();
    let schedules = [3, 4, 5, 6].map(|key| format!("10,schedule,{key},1000"));
    assert_eq!(after[..4], schedules);
    assert_eq!(after[4..], ["10,cancel,1,", "10,reschedule,2,5"]);
}

/// A thread schedules, another cancels and moves, and due timeouts wait behind slow tasks.
#[test]
fn under_load_each_recorded_timeout_has_the_end_that_its_handle_tells() {
    let disk = Disk::default();
    let timer = Timer::builder().shards(1).record(disk.file()).build().expect("in range");
    let (sender, receiver) = mpsc::channel::<tickwheel::Timeout>();
    let cancels = thread::spawn(move || {
        let mut all = Vec::new();
        for (number, timeout) in receiver.into_iter().enumerate() {
            all.push(timeout);
            let other = &all[(number * 7_919) % all.len()];
            match number % 4 {
                0 => drop(other.reschedule(ms(1))),
                1 | 2 => {
                    let late = &all[all.len() - 1 - number % 100 % all.len()];
                    late.cancel();
                }
                _ => {}
            }
        }
        all
    });
    let slow = || {
        let start = Instant::now();
        while start.elapsed() < Duration::from_micros(30) {}
    };
    for number in 0..20_000 {
        let delay = Duration::from_micros(number * 37 % 3_000);
        sender.send(timer.schedule(delay, slow).unwrap()).unwrap();
        if number % 50 == 0 {
            thread::sleep(ms(1));
        }
    }
    drop(sender);
    let timeouts = cancels.join().unwrap();
    wait_until(|| timer.pending() == 0);
    timer.stop().unwrap();
    assert_eq!(timer.recorded().unwrap().missing, 0);

    // Timeouts are scheduled in one order, in one shard.
    let (mut cancelled, mut current) = (Vec::new(), std::collections::HashMap::new());
    let text = disk.text();
    for line in text.lines().skip(2) {
        let columns: Vec<_> = line.split(',').collect();
        match columns[1] {
            "schedule" => {
                current.insert(columns[2], cancelled.len());
                cancelled.push(false);
            }
            "reschedule" => assert!(!cancelled[current[columns[2]]]),
            "cancel" => {
                let session = &mut cancelled[current[columns[2]]];
                assert!(!std::mem::replace(session, true), "cancelled once");
            }
            _ => {}
        }
    }
    assert_eq!(cancelled.len(), timeouts.len());
    let is_cancelled = |timeout: &tickwheel::Timeout| timeout.status() == Status::Cancelled;
    let told: Vec<_> = timeouts.iter().map(is_cancelled).collect();
    assert!(told.contains(&true) && told.contains(&false));
    let wrong = cancelled.iter().zip(&told).filter(|(written, told)| written != told).count();
    println!("{wrong} of {} timeouts have another end in the trace", told.len());
    assert_eq!(cancelled, told);
}

/// Fails at once, and panics when it is dropped.
struct Broken;

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        panic!("as the test wants it");
    }
}

#[test]
fn a_writer_that_panics_as_it_is_dropped_loses_nothing_unsaid() {
    let timer = Timer::builder().record(Broken).build().expect("in range");
    wait_until(|| timer.recorded().unwrap().error.is_some());
    (0..10_000).for_each(|_| _ = timer.schedule(ms(60_000), || {}).unwrap());
    timer.stop().unwrap();
    let recorded = timer.recorded().unwrap();
    assert_eq!((recorded.operations, recorded.missing), (0, 10_000));
    assert_eq!(recorded.error, Some(ErrorKind::StorageFull));
}

#[test]
fn a_stopped_disk_holds_up_nobody_and_what_finds_no_room_is_counted() {
    const ALL: u64 = 400_000;
    let disk = Disk::default();
    let (timer, clock) = recorded(&disk);
    let stopped = disk.stop();
    let keep = timer.schedule(ms(1), || {}).unwrap();
    // Room for the operations that wait was allocated with the first one, and none is allocated
    // later. The wheel's stale entries come and go.
    let allocated = measure(|| {
        for _ in 0..ALL / 2 {
            assert!(timer.schedule(ms(1_000), || {}).unwrap().cancel());
        }
    });
    assert!(allocated.bytes_max < 1 << 16, "{allocated:?}");
    assert!(keep.reschedule(ms(7)));
    let missing = timer.recorded().unwrap().missing;
    assert!(ALL / 2 < missing, "{missing}");

    drop(stopped);
    // The thread that writes has room again when it has written.
    wait_until(|| timer.recorded().unwrap().operations > 0);
    wait_until(|| {
        let missing = timer.recorded().unwrap().missing;
        keep.reschedule(ms(7)) && timer.recorded().unwrap().missing == missing
    });
    clock.advance(ms(50));
    timer.stop().unwrap();
    let recorded = timer.recorded().unwrap();
    let stats = timer.stats();
    let happened = stats.scheduled + stats.rescheduled + stats.cancelled;
    assert_eq!(recorded.operations + recorded.missing, happened);

    let text = disk.text();
    let told = |op: &str| text.lines().filter(|line| line.split(',').nth(1) == Some(op)).count();
    let operations = told("schedule") + told("reschedule") + told("cancel");
    assert_eq!(operations as u64, recorded.operations);
    let missing = text.lines().filter_map(|line| line.split_once(",missing,"));
    let missing: u64 =
        missing.map(|(_, count)| count.trim_end_matches(',').parse::<u64>().unwrap()).sum();
    assert_eq!(missing, recorded.missing);
    assert!(text.ends_with("50,end,,\n"));
}

#[test]
fn a_full_disk_is_told_and_the_timer_goes_on() {
    let disk = Disk::default();
    let (timer, clock) = recorded(&disk);
    disk.0.breaks.store(true, SeqCst);
    timer.schedule(ms(5), || {}).unwrap();
    clock.advance(ms(10));
    assert_eq!(timer.stats().fired, 1);
    timer.stop().unwrap();
    let recorded = timer.recorded().unwrap();
    assert_eq!(recorded.error, Some(ErrorKind::StorageFull));
    assert_eq!((recorded.operations, recorded.missing), (0, 1));
    assert!(disk.0.is_closed.load(SeqCst));
}

#[test]
fn a_writer_that_panics_is_told_and_the_recorder_goes_on() {
    let disk = Disk::default();
    disk.0.panics.store(true, SeqCst);
    let mut wheel = Wheel::new(Mode::hierarchical());
    let mut recorder = Recorder::new(disk.file(), ms(1)).unwrap();
    for deadline in 0..1_000 {
        recorder.scheduled(0, wheel.schedule(deadline, ()), deadline);
    }
    let recorded = recorder.finish(0);
    assert_eq!((recorded.operations, recorded.missing), (0, 1_000));
    assert_eq!(recorded.error, Some(ErrorKind::Other));
}

#[test]
fn what_happened_is_on_the_disk_before_the_recording_ends() {
    let disk = Disk::default();
    let (timer, _clock) = recorded(&disk);
    timer.schedule(ms(5), || {}).unwrap();
    wait_until(|| disk.text() == format!("{HEADER}0,schedule,0,5\n"));
    // As if the process ended here.
    std::mem::forget(timer);
}

#[test]
fn dropping_ends_the_recording_inside_a_task_too() {
    let disk = Disk::default();
    let mut wheel = Wheel::new(Mode::hierarchical());
    let mut recorder = Recorder::new(disk.file(), ms(10)).unwrap();
    recorder.scheduled(2, wheel.schedule(7, ()), 7);
    drop(recorder);
    assert_eq!(disk.text(), format!("{HEADER}20,schedule,0,50\n20,end,,\n"));

    let disk = Disk::default();
    let timer = Timer::builder().record(disk.file()).build().unwrap();
    let last = timer.clone();
    timer.schedule(ms(1), move || drop(last)).unwrap();
    drop(timer);
    wait_until(|| disk.0.is_closed.load(SeqCst));
    assert!(disk.text().ends_with(",end,,\n"));
}

#[test]
fn a_timer_that_is_not_recorded_says_so() {
    assert_eq!(Timer::new().recorded(), None);
}

#[test]
fn on_the_system_s_clock_times_do_not_decrease() {
    let disk = Disk::default();
    let timer = Timer::builder().record(disk.file()).build().unwrap();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    let timeout = timer.schedule(ms(3), || {}).unwrap();
                    timeout.reschedule(ms(2));
                    timeout.cancel();
                }
            });
        }
        let mut runs = 0;
        let task = move |_: &tickwheel::Run| {
            runs += 1;
            sender.send(()).unwrap();
            if runs == 20 { Next::Stop } else { Next::After(ms(1)) }
        };
        timer.schedule_with(ms(1), task).unwrap();
    });
    assert_eq!(receiver.iter().count(), 20);
    timer.stop().unwrap();
    let text = disk.text();
    let times = text.lines().skip(1).map(|line| line.split(',').next().unwrap().parse().unwrap());
    let times: Vec<u64> = times.collect();
    assert!(times.is_sorted());
    let recorded = timer.recorded().unwrap();
    assert_eq!(times.len() as u64, recorded.operations + 2);
    let stats = timer.stats();
    // Each run of the repeating one is a `schedule` of its own.
    let happened = stats.scheduled + stats.rescheduled + stats.cancelled + 19;
    assert_eq!(recorded.operations + recorded.missing, happened);
}

const HEADER: &str = "time_ms,op,key,delay_ms\n0,begin,,\n";
