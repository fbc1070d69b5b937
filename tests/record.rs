//! What a recorder promises: the trace has what happened, and no caller waits for the disk.
//! `crates/cli/tests/command/record.rs` replays what is recorded.
#![cfg(all(feature = "record", not(loom)))]

use allocation_counter::measure;
use fastrand::Rng;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind, Write};
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Condvar, Mutex, OnceLock, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{
    Clock, DelayQueue, Driver, Follower, ManualClock, MissedTick, Mode, Next, Recorder, Run, Sleep,
    Status, Timeout, Timer, Wheel, WheelStats,
};

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
    let mut rounds = 0;
    while !condition() {
        rounds += 1;
        assert!(rounds < 60_000, "it never came");
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
        let others: Vec<Timeout> = std::mem::take(&mut *others.lock().unwrap());
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

/// Who has a timeout that is due, and whose run has not begun.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Has {
    /// The worker, which wakes what waited for the task before.
    Worker,
    /// An executor that runs it on the worker.
    Inline,
    /// An executor that runs it later, and one that drops it.
    Keeps,
    Sheds,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    Cancel,
    Move,
    Stop,
}

/// A timer whose timeout is due, and what is done to it before its run begins.
struct Between {
    timer: Timer,
    act: Act,
    repeats: bool,
    /// The timeout, and one that waits all the time.
    timeouts: Mutex<Vec<Timeout>>,
    /// What an executor has.
    tasks: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    runs: AtomicUsize,
    is_over: AtomicBool,
}

impl Between {
    /// Schedules another, which must not get the name of the first, and acts.
    fn act(self: &Arc<Self>) {
        if self.is_over.swap(true, SeqCst) {
            return;
        }
        let timeouts = self.timeouts.lock().unwrap();
        let [timeout, waiting] = &timeouts[..] else { unreachable!() };
        self.timer.schedule(ms(77), || {}).unwrap();
        match self.act {
            Act::Cancel => assert_eq!(timeout.cancel(), self.repeats),
            Act::Move => assert_eq!(timeout.reschedule(ms(50)), self.repeats),
            Act::Stop => {
                let timer = self.timer.clone();
                thread::spawn(move || timer.stop().unwrap());
                // By then nothing enters the wheel, and nothing leaves it to run.
                wait_until(|| waiting.status() == Status::Stopped);
            }
        }
    }

    fn schedule(self: &Arc<Self>) {
        let this = Arc::clone(self);
        let run = move || _ = this.runs.fetch_add(1, SeqCst);
        let again = move |run: &dyn Fn()| {
            run();
            Next::After(ms(100))
        };
        let timeout = match self.repeats {
            true => self.timer.schedule_with(ms(10), move |_| again(&run)).unwrap(),
            false => self.timer.schedule(ms(10), run).unwrap(),
        };
        let waiting = self.timer.schedule(LONG, || {}).unwrap();
        *self.timeouts.lock().unwrap() = vec![timeout, waiting];
    }
}

/// Acts when it is woken.
struct ActsAwake(Arc<Between>);

impl Wake for ActsAwake {
    fn wake(self: Arc<Self>) {
        self.0.act();
    }
}

#[test]
fn taken_out_and_not_begun_each_timeout_has_the_end_that_its_handle_tells() {
    for has in [Has::Worker, Has::Inline, Has::Keeps, Has::Sheds] {
        for act in [Act::Cancel, Act::Move, Act::Stop] {
            for (repeats, drives) in [(false, false), (false, true), (true, false), (true, true)] {
                each_between(has, act, repeats, drives);
            }
        }
    }
}

fn each_between(has: Has, act: Act, repeats: bool, drives: bool) {
    let (disk, clock) = (Disk::default(), ManualClock::new());
    let between = Arc::new(OnceLock::<Arc<Between>>::new());
    let mut builder = Timer::builder().clock(clock.clone()).shards(1).record(disk.file());
    let executes = Arc::clone(&between);
    let execute = move |task: Box<dyn FnOnce() + Send>| {
        let between = executes.get().unwrap();
        match has {
            Has::Inline => {
                between.act();
                task();
            }
            _ => between.tasks.lock().unwrap().push(task),
        }
    };
    if has != Has::Worker {
        builder = builder.executor(execute);
    }
    let (timer, mut driver) = match drives {
        true => builder.build_driven().map(|(timer, driver)| (timer, Some(driver))).unwrap(),
        false => (builder.build().unwrap(), None),
    };
    let (timeouts, tasks, runs, is_over) = Default::default();
    let made = Between { timer, act, repeats, timeouts, tasks, runs, is_over };
    let this = Arc::clone(between.get_or_init(|| Arc::new(made)));
    let comes_due = move || {
        clock.advance(ms(10));
        driver.as_mut().map(Driver::turn);
        driver
    };
    // Dropped at the end: to drop a driver stops the timer.
    let _driver = if has == Has::Worker {
        let ((tell, told), (go, goes)) = (mpsc::channel(), mpsc::channel());
        let before = move || {
            tell.send(()).unwrap();
            goes.recv().unwrap();
        };
        let before = this.timer.schedule(ms(10), before).unwrap();
        this.schedule();
        let worker = thread::spawn(comes_due);
        told.recv().unwrap();
        let waker = Waker::from(Arc::new(ActsAwake(Arc::clone(&this))));
        let mut awaits = pin!(before.cancel_and_wait_async());
        assert!(awaits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        go.send(()).unwrap();
        worker.join().unwrap()
    } else {
        this.schedule();
        thread::spawn(comes_due).join().unwrap()
    };
    let tasks = std::mem::take(&mut *this.tasks.lock().unwrap());
    if !tasks.is_empty() {
        this.act();
    }
    // On a thread of its own: the one that stops the timer must not have run a task of it.
    let ends = move || {
        tasks.into_iter().for_each(|task| {
            if has == Has::Keeps {
                task()
            }
        })
    };
    thread::spawn(ends).join().unwrap();
    this.timer.stop().unwrap();
    let (text, case) = (disk.text(), format!("{has:?} {act:?} {repeats} {drives}"));
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let keys_of = |op, delay| {
        let of = lines.iter().filter(move |line| line[1] == op && line[3] == delay);
        of.map(|line| line[2]).collect::<Vec<_>>()
    };
    let own = keys_of("schedule", "10").last().copied().unwrap();
    let status = this.timeouts.lock().unwrap()[0].status();
    let is_cancelled = status == Status::Cancelled;
    assert_eq!(keys_of("cancel", ""), vec![own; usize::from(is_cancelled)], "{case}: {text}");
    assert!(!is_cancelled || keys_of("schedule", "77") != [own], "{case}: {text}");
    // A run that was moved is scheduled anew, and the name of the run before is free by then.
    let moved = usize::from(act == Act::Move && repeats);
    assert_eq!(keys_of("schedule", "50"), vec![own; moved], "{case}: {text}");
    assert!(!text.contains("reschedule"), "{case}: {text}");
    let expected = match (act, repeats) {
        (Act::Cancel, true) => (Status::Cancelled, 0),
        (Act::Move, true) => (Status::Stopped, 1),
        // A task of the worker comes back.
        (Act::Stop, true) if has == Has::Worker => (Status::Stopped, 1),
        _ => (Status::Fired, 1),
    };
    let runs = if has == Has::Sheds { 0 } else { expected.1 };
    assert_eq!((status, this.runs.load(SeqCst)), (expected.0, runs), "{case}");
}

/// Threads schedule, wait and repeat, each in a shard of its own, another thread cancels and moves,
/// and due timeouts wait behind slow tasks.
#[test]
fn under_load_each_recorded_timeout_has_the_end_that_its_handle_tells() {
    for mode in [Mode::hierarchical(), Mode::hashed(512).expect("in range")] {
        let disk = Disk::default();
        let builder = Timer::builder().mode(mode).shards(SHARDS).record(disk.file());
        let loaded = Arc::new(Loaded::new(builder.build().expect("in range")));
        loaded.run();
        loaded.timer.stop().unwrap();
        assert_eq!(loaded.timer.recorded().unwrap().missing, 0);
        let ends = loaded.ends(&disk.text());
        println!("{mode}: {ends:?}, {:?} behind a task", loaded.cancelled_behind);
        let kinds = ["schedule", "schedule_within", "sleep", "queue", "repeating"];
        for end in kinds.into_iter().flat_map(|kind| [(kind, "cancelled"), (kind, "fired")]) {
            assert!(ends.contains_key(&end), "{end:?}");
        }
        assert!(ends.contains_key(&("schedule", "moved")), "one was moved");
        assert!(ends.contains_key(&("repeating", "stopped")), "one was left");
    }
}

/// A timer under load, and what was scheduled in each of its shards.
struct Loaded {
    timer: Timer,
    /// In the order of the trace.
    made: [Mutex<Vec<Made>>; SHARDS],
    /// The delay of each of these, which is long, tells the runs of one from those of others.
    repeating: [Mutex<Vec<Arc<Repeats>>>; SHARDS],
    /// How many were cancelled by the task that they stood behind.
    cancelled_behind: AtomicUsize,
}

/// What has one `schedule` in the trace, of a kind, and what tells its end.
#[derive(Clone)]
enum Made {
    /// The handle, and how often it was moved.
    Timeout(&'static str, Arc<(Timeout, AtomicUsize)>),
    Future(&'static str, Arc<Woken>),
}

struct Repeats {
    timeout: Timeout,
    runs: Arc<AtomicUsize>,
}

/// The waker of a future: a wait that did not wake it was cancelled.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

enum Waits {
    Sleep(Sleep),
    Queue(Box<DelayQueue<u64>>),
}

impl Waits {
    fn is_pending(&mut self, woken: &Arc<Woken>) -> bool {
        let waker = Waker::from(Arc::clone(woken));
        let mut context = Context::from_waker(&waker);
        match self {
            Self::Sleep(sleep) => pin!(sleep).poll(&mut context).is_pending(),
            Self::Queue(queue) => queue.poll_expired(&mut context).is_pending(),
        }
    }
}

/// What the trace has of one timeout, from one `schedule` to the next under that key.
#[derive(Default)]
struct Session {
    moves: usize,
    is_cancelled: bool,
}

fn slow() {
    let start = Instant::now();
    while start.elapsed() < Duration::from_micros(30) {}
}

impl Loaded {
    fn new(timer: Timer) -> Self {
        let (made, repeating, cancelled_behind) = Default::default();
        Self { timer, made, repeating, cancelled_behind }
    }

    fn run(self: &Arc<Self>) {
        let (start, is_over) = (Barrier::new(SHARDS + 1), AtomicBool::new(false));
        thread::scope(|scope| {
            let own = self.enter();
            let (mut taken, mut working) = ([false; SHARDS], Vec::new());
            while taken.contains(&false) {
                let ((tell, told), (answer, answers)) = (mpsc::channel(), mpsc::channel());
                let start = &start;
                let thread = scope.spawn(move || {
                    let shard = self.enter();
                    tell.send(shard).unwrap();
                    if answers.recv().unwrap() {
                        start.wait();
                        self.work(shard);
                    }
                });
                let is_taken = &mut taken[told.recv().unwrap()];
                answer.send(!*is_taken).unwrap();
                working.push(thread);
                *is_taken = true;
            }
            // Alone, so that the worker has all of the row at once.
            self.row(own);
            wait_until(|| self.cancelled_behind.load(SeqCst) == 1);
            start.wait();
            let disturbs = scope.spawn(|| self.disturb(&is_over));
            working.into_iter().for_each(|thread| thread.join().unwrap());
            is_over.store(true, SeqCst);
            disturbs.join().unwrap();
            self.each_end(own);
        });
    }

    /// Returns the shard of this thread. No other thread schedules meanwhile.
    fn enter(&self) -> usize {
        let entries = || {
            let shards = self.timer.stats().shards.into_iter();
            let entries =
                |shard: WheelStats| shard.sorted + shard.timeouts_per_level.iter().sum::<usize>();
            shards.map(entries).collect::<Vec<_>>()
        };
        let before = entries();
        let timeout = self.timer.schedule(LONG, || {}).unwrap();
        let after = entries();
        let shard = (0..SHARDS).find(|&shard| before[shard] != after[shard]).unwrap();
        let made = Made::Timeout("schedule", Arc::new((timeout, AtomicUsize::new(0))));
        self.made[shard].lock().unwrap().push(made);
        shard
    }

    /// Schedules and waits, as the thread of a shard.
    fn work(self: &Arc<Self>, shard: usize) {
        let mut waiting = Vec::new();
        for number in 0..3_000 {
            let delay = Duration::from_micros(number * 37 % 3_000);
            match number % 100 {
                3 => drop(self.repeat(shard)),
                10 | 60 => self.row(shard),
                _ if number % 5 == 0 => waiting.push(self.wait(shard, number % 2 == 0, delay)),
                _ if number % 5 == 1 => _ = self.within(shard, delay),
                _ => _ = self.schedule(shard, delay),
            }
            if waiting.len() > 100 {
                let (mut waits, _) = waiting.swap_remove(number as usize % 100);
                if let Waits::Sleep(sleep) = &mut waits {
                    sleep.reset(delay / 2);
                }
            }
            if number % 10 == 0 {
                let repeating = self.repeating[shard].lock().unwrap().clone();
                repeating.iter().for_each(|repeats| self.bring(repeats));
            }
            if number % 50 == 0 {
                thread::sleep(ms(1));
            }
        }
    }

    fn once(
        &self,
        (shard, kind): (usize, &'static str),
        schedule: impl FnOnce(&Timer) -> Timeout,
    ) -> Arc<(Timeout, AtomicUsize)> {
        let mut made = self.made[shard].lock().unwrap();
        let timeout = Arc::new((schedule(&self.timer), AtomicUsize::new(0)));
        made.push(Made::Timeout(kind, Arc::clone(&timeout)));
        timeout
    }

    fn schedule(&self, shard: usize, delay: Duration) -> Arc<(Timeout, AtomicUsize)> {
        self.once((shard, "schedule"), |timer| timer.schedule(delay, slow).unwrap())
    }

    fn within(&self, shard: usize, delay: Duration) -> Arc<(Timeout, AtomicUsize)> {
        let delays = delay..=delay + ms(3);
        self.once((shard, "schedule_within"), |timer| timer.schedule_within(delays, slow).unwrap())
    }

    fn wait(&self, shard: usize, sleeps: bool, delay: Duration) -> (Waits, Arc<Woken>) {
        let (kind, mut waits) = if sleeps {
            ("sleep", Waits::Sleep(self.timer.sleep(delay)))
        } else {
            let mut queue = DelayQueue::with_timer(&self.timer);
            queue.insert(1, delay);
            ("queue", Waits::Queue(Box::new(queue)))
        };
        let woken = Arc::default();
        let mut made = self.made[shard].lock().unwrap();
        if !waits.is_pending(&woken) {
            // Its time has come before this thread, which had lost its core.
            drop(made);
            return self.wait(shard, sleeps, 2 * (delay + ms(1)));
        }
        made.push(Made::Future(kind, Arc::clone(&woken)));
        (waits, woken)
    }

    fn repeat(&self, shard: usize) -> Arc<Repeats> {
        let mut repeating = self.repeating[shard].lock().unwrap();
        let after = LONGER + LONG * repeating.len() as u32;
        let runs = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&runs);
        let task = move |run: &Run| {
            count.fetch_add(1, SeqCst);
            slow();
            if run.count() == 4 { Next::Stop } else { Next::After(after) }
        };
        let timeout = self.timer.schedule_with(after, task).unwrap();
        let repeats = Arc::new(Repeats { timeout, runs });
        repeating.push(Arc::clone(&repeats));
        repeats
    }

    /// Moves the next run to soon, unless it is soon: then the task may run, and its next run would
    /// begin with a short delay.
    fn bring(&self, repeats: &Repeats) {
        if Some(self.timer.now() + LONG) < repeats.timeout.deadline() {
            if repeats.runs.load(SeqCst) % 2 == 0 {
                repeats.timeout.reschedule(ms(1));
            } else {
                repeats.timeout.reschedule_within(ms(1)..=ms(2));
            }
        }
    }

    /// Schedules a task, and behind it three timeouts, of which the task cancels one and moves one
    /// when new ones have taken their places.
    fn row(self: &Arc<Self>, shard: usize) {
        let ((tell, told), at) = (mpsc::channel(), self.timer.now() + ms(2));
        let this = Arc::clone(self);
        let first = move || {
            let [one, other, _]: [Arc<(Timeout, AtomicUsize)>; 3] = told.recv().unwrap();
            (0..4).for_each(|_| _ = this.schedule(shard, ms(1)));
            if one.0.cancel() {
                this.cancelled_behind.fetch_add(1, SeqCst);
            }
            other.1.fetch_add(usize::from(other.0.reschedule(ms(1))), SeqCst);
        };
        let kind = (shard, "schedule");
        self.once(kind, |timer| timer.schedule_at(at, first).unwrap());
        let behind = || self.once(kind, |timer| timer.schedule_at(at, slow).unwrap());
        // The first may have been cancelled by now.
        _ = tell.send([(); 3].map(|()| behind()));
    }

    /// Cancels and moves what was scheduled last.
    fn disturb(&self, is_over: &AtomicBool) {
        let (mut rng, mut ahead) = (Rng::with_seed(1), 3 * LONG);
        while !is_over.load(SeqCst) {
            let shard = rng.usize(..SHARDS);
            let made = self.made[shard].lock().unwrap();
            let late = made[made.len() - 1 - rng.usize(..made.len().min(100))].clone();
            drop(made);
            match (late, rng.u8(..8)) {
                (Made::Timeout(_, late), 0 | 1) => {
                    late.1.fetch_add(usize::from(late.0.reschedule(ms(1))), SeqCst);
                }
                (Made::Timeout(_, late), 2) => {
                    // No range is like an earlier one, in which the timeout would stay.
                    ahead += LONG;
                    let is_moved = late.0.reschedule_within(ahead..=ahead + LONG / 2);
                    late.1.fetch_add(usize::from(is_moved), SeqCst);
                }
                (Made::Timeout(_, late), _) => _ = late.0.cancel(),
                (Made::Future(..), _) => {}
            }
            let repeating = self.repeating[shard].lock().unwrap().clone();
            if let Some(repeats) = repeating.get(rng.usize(..1_000)) {
                repeats.timeout.cancel();
            }
            if rng.u8(..50) == 0 {
                self.timer.shrink_to_fit();
            }
            thread::sleep(Duration::from_micros(50));
        }
    }

    /// Makes each kind end in each way, however busy the machine was.
    fn each_end(&self, shard: usize) {
        for delay in [ms(1), LONG] {
            let timeouts = [self.schedule(shard, delay), self.within(shard, delay)];
            let waiting = [true, false].map(|sleeps| self.wait(shard, sleeps, delay));
            let repeats = self.repeat(shard);
            if delay == LONG {
                timeouts[0].1.fetch_add(usize::from(timeouts[0].0.reschedule(2 * LONG)), SeqCst);
                assert!(timeouts.iter().all(|timeout| timeout.0.cancel()));
                assert!(repeats.timeout.cancel());
                continue;
            }
            wait_until(|| timeouts.iter().all(|timeout| timeout.0.status() == Status::Fired));
            wait_until(|| waiting.iter().all(|(_, woken)| woken.0.load(SeqCst)));
            wait_until(|| {
                self.bring(&repeats);
                repeats.timeout.status() == Status::Fired
            });
        }
        drop(self.repeat(shard));
    }

    /// Returns how many of each kind ended in which way. Panics if the trace has another end.
    fn ends(&self, text: &str) -> BTreeMap<(&'static str, &'static str), usize> {
        let mut sessions: [Vec<Session>; SHARDS] = Default::default();
        let mut runs: [BTreeMap<u64, Vec<Session>>; SHARDS] = Default::default();
        let mut current = HashMap::new();
        for line in text.lines().skip(2) {
            let columns: Vec<_> = line.split(',').collect();
            let Ok(key) = columns[2].parse::<usize>() else { continue };
            let shard = key % SHARDS;
            if columns[1] == "schedule" {
                let repeating = columns[3].parse::<u64>().unwrap() + millis(LONG) / 2;
                let number = repeating.checked_sub(millis(LONGER)).map(|over| over / millis(LONG));
                let list = match number {
                    Some(number) => runs[shard].entry(number).or_default(),
                    None => &mut sessions[shard],
                };
                current.insert(key, (number, list.len()));
                list.push(Session::default());
                continue;
            }
            let (number, index) = current[&key];
            let session = match number {
                Some(number) => &mut runs[shard].get_mut(&number).unwrap()[index],
                None => &mut sessions[shard][index],
            };
            assert!(!session.is_cancelled, "it is over: {line}");
            match columns[1] {
                "reschedule" => session.moves += 1,
                "cancel" => session.is_cancelled = true,
                _ => unreachable!("{line}"),
            }
        }
        let mut ends = BTreeMap::new();
        let mut count = |kind: &'static str, end| *ends.entry((kind, end)).or_default() += 1;
        for (made, sessions) in self.made.iter().zip(&sessions) {
            let made = made.lock().unwrap();
            assert_eq!(made.len(), sessions.len());
            for (at, (made, session)) in made.iter().zip(sessions).enumerate() {
                let (&kind, is_cancelled, is_stopped) = match made {
                    Made::Timeout(kind, timeout) => {
                        let moves = timeout.1.load(SeqCst);
                        assert_eq!(session.moves, moves, "moves of {kind} {at}");
                        if moves > 0 {
                            count(kind, "moved");
                        }
                        let status = timeout.0.status();
                        (kind, status == Status::Cancelled, status == Status::Stopped)
                    }
                    Made::Future(kind, woken) => (kind, !woken.0.load(SeqCst), false),
                };
                assert_eq!(session.is_cancelled, is_cancelled, "the end of {kind} {at}");
                let end = match (is_cancelled, is_stopped) {
                    (true, _) => "cancelled",
                    (_, true) => "stopped",
                    _ => "fired",
                };
                count(kind, end);
            }
        }
        for (repeating, runs) in self.repeating.iter().zip(&runs) {
            let repeating = repeating.lock().unwrap();
            assert_eq!(repeating.len(), runs.len());
            for (repeats, sessions) in repeating.iter().zip(runs.values()) {
                let (last, others) = sessions.split_last().unwrap();
                assert!(others.iter().all(|session| !session.is_cancelled), "it ran");
                let waited = sessions.len() - repeats.runs.load(SeqCst);
                let status = repeats.timeout.status();
                // One that is cancelled while it runs waits no more.
                let expected = match (status, waited) {
                    (Status::Fired, 0) => "fired",
                    (Status::Stopped, 1) => "stopped",
                    (Status::Stopped, 0) => "stopped as it ran",
                    (Status::Cancelled, 0) => "cancelled as it ran",
                    (Status::Cancelled, 1) => "cancelled",
                    ends => panic!("a repeating one: {ends:?}"),
                };
                assert_eq!(last.is_cancelled, expected == "cancelled", "{expected}");
                count("repeating", expected);
            }
        }
        ends
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
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

/// Calls the timer that it records, wherever it is called itself.
struct Calls(Arc<OnceLock<Timer>>);

impl Calls {
    fn call(&self) {
        if let Some(timer) = self.0.get() {
            let scheduled = timer.schedule(ms(60_000), || {});
            assert!(timer.is_stopped() || scheduled.is_ok_and(|timeout| timeout.cancel()));
        }
    }
}

impl Write for Calls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.call();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.call();
        Ok(())
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.call();
    }
}

#[test]
fn a_writer_may_call_the_timer_that_it_records() {
    let slot = Arc::new(OnceLock::new());
    let timer = Timer::builder().shards(1).record(Calls(Arc::clone(&slot))).build();
    let timer = slot.get_or_init(|| timer.expect("in range"));
    for _ in 0..10_000 {
        assert!(timer.schedule(ms(60_000), || {}).unwrap().cancel());
    }
    assert!(timer.stop().unwrap().is_empty());
    assert_eq!(timer.recorded().unwrap().error, None, "no call panicked");
}

#[test]
fn a_stopped_disk_holds_up_nobody_and_what_finds_no_room_is_counted() {
    const ALL: u64 = 400_000;
    let disk = Disk::default();
    let (timer, clock) = recorded(&disk);
    let mut stopped = disk.stop();
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
    // All but those that wait, and those that are on their way to the disk.
    let waiting = ALL + 2 - missing;
    assert!((ROOM..ROOM * 9 / 8).contains(&waiting), "{waiting}");

    for is_again in [true, false] {
        let written = timer.recorded().unwrap().operations;
        drop(stopped);
        // The thread that writes has room again when it has written.
        wait_until(|| written < timer.recorded().unwrap().operations);
        let missing = || timer.recorded().unwrap().missing;
        wait_until(|| {
            let missing = missing();
            keep.reschedule(ms(7)) && timer.recorded().unwrap().missing == missing
        });
        stopped = disk.stop();
        let before = missing();
        while is_again && missing() == before {
            assert!(keep.reschedule(ms(7)));
        }
    }
    drop(stopped);
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
fn a_wheel_s_recorder_writes_what_it_is_told() {
    let disk = Disk::default();
    let mut wheel = Wheel::new(Mode::hierarchical());
    let mut recorder = Recorder::new(disk.file(), ms(10)).unwrap();
    let keys = [100, 200].map(|deadline| wheel.schedule(deadline, ()));
    recorder.scheduled(0, keys[0], 100);
    recorder.scheduled(1, keys[1], 200);
    recorder.rescheduled(2, keys[1], 150);
    recorder.cancelled(3, keys[0]);
    assert!(format!("{recorder:?}").starts_with("Recorder { recorded: Recorded {"));
    let recorded = recorder.finish(4);
    assert_eq!((recorded.operations, recorded.missing, recorded.error), (4, 0, None));
    let lines =
        "0,schedule,0,1000\n10,schedule,1,1990\n20,reschedule,1,1480\n30,cancel,0,\n40,end,,\n";
    assert_eq!(disk.text(), format!("{HEADER}{lines}"));
}

#[test]
fn a_name_is_used_again_once_its_timeout_has_fired() {
    let disk = Disk::default();
    let (timer, clock) = recorded(&disk);
    for _ in 0..3 {
        timer.schedule(ms(1), || {}).unwrap();
        clock.advance(ms(1));
    }
    timer.stop().unwrap();
    let lines = "0,schedule,0,1\n1,schedule,0,1\n2,schedule,0,1\n3,end,,\n";
    assert_eq!(disk.text(), format!("{HEADER}{lines}"));
}

#[test]
fn after_a_shrink_no_name_in_use_is_given_again_and_free_ones_are() {
    let disk = Disk::default();
    let (timer, _clock) = recorded(&disk);
    let schedule = || timer.schedule(ms(10), || {}).unwrap();
    let handles = [schedule(), schedule(), schedule()];
    assert!(handles[1].cancel());
    timer.shrink_to_fit();
    schedule();
    assert!(handles[2].cancel());
    timer.shrink_to_fit();
    schedule();
    schedule();
    timer.stop().unwrap();
    let text = disk.text();
    let names =
        text.lines().filter_map(|line| line.strip_prefix("0,schedule,")?.strip_suffix(",10"));
    assert_eq!(names.collect::<Vec<_>>(), ["0", "1", "2", "1", "2", "3"]);
}

/// The name of one that repeats is in use while its task runs.
#[test]
fn a_task_that_repeats_and_shrinks_its_timer_keeps_its_name() {
    let disk = Disk::default();
    let (timer, clock) = recorded(&disk);
    let inner = timer.clone();
    let task = move || {
        inner.shrink_to_fit();
        inner.schedule(ms(10), || {}).unwrap();
        ControlFlow::<()>::Continue(())
    };
    timer.schedule_repeating(ms(10), MissedTick::Skip, task).unwrap();
    clock.advance(ms(10));
    timer.stop().unwrap();
    let text = disk.text();
    assert!(text.contains("0,schedule,0,10\n") && text.contains("10,schedule,1,10\n"), "{text}");
}

/// Counts how often what was written is flushed.
struct Flushed(Arc<(AtomicBool, AtomicUsize)>);

impl Write for Flushed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.0.store(true, SeqCst);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.0.0.swap(false, SeqCst) {
            self.0.1.fetch_add(1, SeqCst);
        }
        Ok(())
    }
}

#[test]
fn what_was_written_is_flushed_while_the_recording_goes_on_and_at_its_end() {
    let state = Arc::new((AtomicBool::new(false), AtomicUsize::new(0)));
    let flushed = || state.1.load(SeqCst);
    let builder = Timer::builder().clock(ManualClock::new()).record(Flushed(Arc::clone(&state)));
    let timer = builder.build().expect("in range");
    for _ in 0..2 {
        let before = flushed();
        timer.schedule(ms(1), || {}).unwrap();
        wait_until(|| before < flushed());
    }
    timer.schedule(ms(1), || {}).unwrap();
    timer.stop().unwrap();
    assert!(!state.0.load(SeqCst), "all that was written was flushed");
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

/// The thread that drops the driver has run a task for the executor, and so it does not wait.
#[test]
fn stop_waits_until_all_is_written_though_the_drop_of_the_driver_did_not() {
    let (disk, clock) = (Disk::default(), ManualClock::new());
    let builder =
        Timer::builder().clock(clock.clone()).executor(|task: Box<dyn FnOnce() + Send>| task());
    let (timer, mut driver) = builder.record(disk.file()).build_driven().unwrap();
    timer.schedule(ms(5), || {}).unwrap();
    clock.advance(ms(5));
    let stopped = disk.stop();
    let drops = move || {
        driver.turn();
        drop(driver);
    };
    thread::spawn(drops).join().unwrap();
    assert!(timer.is_stopped());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                assert!(timer.stop().unwrap().is_empty());
                assert!(disk.text().ends_with("5,end,,\n") && disk.0.is_closed.load(SeqCst));
            });
        }
        thread::sleep(ms(20));
        drop(stopped);
    });
}

/// That thread waits for the writer, and this one for that.
#[test]
fn stop_waits_until_all_is_written_while_the_drop_of_the_driver_does() {
    let disk = Disk::default();
    let builder = Timer::builder().clock(ManualClock::new()).record(disk.file());
    let (timer, driver) = builder.build_driven().expect("in range");
    timer.schedule(ms(5), || {}).unwrap();
    let stopped = disk.stop();
    thread::scope(|scope| {
        scope.spawn(move || drop(driver));
        wait_until(|| timer.is_stopped());
        // It may be on its way to the writer still: then this thread is the first to wait.
        thread::sleep(ms(20));
        let stop = scope.spawn(|| {
            timer.stop().unwrap();
            disk.text()
        });
        thread::sleep(ms(20));
        drop(stopped);
        assert!(stop.join().unwrap().ends_with("end,,\n"));
    });
}

thread_local! {
    /// How often this thread has read the clock, since the test began to count.
    static READS: Cell<u32> = const { Cell::new(0) };
}

/// A clock that stands, and counts its readings.
struct Counts(Instant, Arc<AtomicUsize>);

impl Clock for Counts {
    fn now(&self) -> Instant {
        self.1.fetch_add(1, SeqCst);
        self.0
    }

    fn wait(&self, _: Duration) -> Option<Duration> {
        None
    }
}

/// A thread that counts its readings waits twice after the second.
struct Stalls(ManualClock, Arc<Barrier>);

impl Clock for Stalls {
    fn now(&self) -> Instant {
        let now = self.0.now();
        if 0 < READS.get() {
            READS.set(READS.get() + 1);
            if READS.get() == 3 {
                self.1.wait();
                self.1.wait();
            }
        }
        now
    }

    fn wait(&self, duration: Duration) -> Option<Duration> {
        Clock::wait(&self.0, duration)
    }

    fn follow(&self, follower: Follower) {
        self.0.follow(follower);
    }
}

/// Its thread sleeps for a second at a time.
#[test]
fn an_idle_recording_hardly_reads_the_clock() {
    let reads = Arc::new(AtomicUsize::new(0));
    let clock = Counts(Instant::now(), Arc::clone(&reads));
    let timer = Timer::builder().clock(clock).record(io::sink()).build().unwrap();
    let _pending = timer.schedule(ms(1), || {}).unwrap();
    let is_idle = (0..50).any(|_| {
        let before = reads.load(SeqCst);
        thread::sleep(ms(200));
        before == reads.load(SeqCst)
    });
    assert!(is_idle, "{reads:?} times");
}

/// A thread that loses its core after it has read the clock for the trace is late.
#[test]
fn a_name_is_not_used_again_before_its_timeout_is_due() {
    let (disk, clock) = (Disk::default(), ManualClock::new());
    let stalls = Arc::new(Barrier::new(2));
    let odd = Stalls(clock.clone(), Arc::clone(&stalls));
    let timer = Timer::builder().clock(odd).shards(1).record(disk.file()).build().unwrap();
    timer.schedule(ms(10), || {}).unwrap();
    clock.advance(ms(9));
    thread::scope(|scope| {
        scope.spawn(|| {
            READS.set(1);
            timer.schedule(ms(50), || {}).unwrap();
        });
        stalls.wait();
        clock.advance(ms(1));
        assert_eq!(timer.stats().fired, 1);
        stalls.wait();
    });
    timer.stop().unwrap();
    let lines = "0,schedule,0,10\n10,schedule,0,49\n10,end,,\n";
    assert_eq!(disk.text(), format!("{HEADER}{lines}"));
}

/// The last clone goes inside of a task, where nothing waits.
#[test]
fn the_drop_of_a_driver_that_goes_last_waits_until_all_is_written() {
    let disk = Disk::default();
    let (timer, mut driver) = Timer::builder().record(disk.file()).build_driven().unwrap();
    let last = timer.clone();
    timer.schedule(Duration::ZERO, move || drop(last)).unwrap();
    drop(timer);
    let stopped = disk.stop();
    while !driver.is_stopped() {
        driver.turn();
    }
    let disk = &disk;
    thread::scope(|scope| {
        scope.spawn(move || {
            drop(driver);
            assert!(disk.text().ends_with(",end,,\n") && disk.0.is_closed.load(SeqCst));
        });
        thread::sleep(ms(20));
        drop(stopped);
    });
}

#[test]
fn after_more_milliseconds_than_it_can_count_all_is_recorded_at_the_last() {
    let clock = ManualClock::new();
    let builder = Timer::builder().tick(Duration::from_secs(1)).clock(clock.clone());
    let timer = builder.shards(1).record(io::sink()).build().unwrap();
    clock.advance(Duration::new(1 << 55, 999_000_000));
    let timeout = timer.schedule(Duration::from_secs(1), || {}).unwrap();
    clock.advance(Duration::from_secs(2));
    assert_eq!(timeout.status(), Status::Fired);
    timer.stop().unwrap();
    let recorded = timer.recorded().unwrap();
    assert_eq!((recorded.operations, recorded.missing, recorded.error), (1, 0, None));
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
        let task = move |_: &Run| {
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

/// The operations of one wheel that wait at most, as documented.
const ROOM: u64 = 1 << 16;
const HEADER: &str = "time_ms,op,key,delay_ms\n0,begin,,\n";
/// The shards of a timer under load.
const SHARDS: usize = 3;
/// A delay that is not over while a test runs, and the shortest of one that repeats.
const LONG: Duration = Duration::from_secs(600);
const LONGER: Duration = Duration::from_secs(3_600);
