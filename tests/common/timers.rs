//! The tools of the situations of timers and futures: a timer on a clock that the test moves, a log
//! of the tasks that ran, and a task that the test polls.

use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{Clock, Driver, ManualClock, MissedTick, Mode, Timeout, Timer, TimerBuilder};

pub(crate) use crate::zoo::executors::{BoxedTask, Kept};

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A timer on the system's clock.
pub(crate) fn build(with: impl FnOnce(TimerBuilder) -> TimerBuilder) -> Timer {
    with(Timer::builder()).build().expect("in range")
}

/// A timer on the system's clock, whose driver takes its turns on a thread of its own.
pub(crate) fn build_driven(builder: TimerBuilder) -> Timer {
    let (timer, driver) = builder.build_driven().expect("in range");
    thread::spawn(|| drive(driver));
    timer
}

/// Takes the turns of a driver until its timer is stopped.
pub(crate) fn drive(mut driver: Driver) {
    let this = thread::current();
    driver.on_wake(move |_| this.unpark());
    loop {
        let next = driver.turn();
        // After the turn: one that begins when the timer is being stopped returns None, and then
        // nobody calls the hook.
        if driver.is_stopped() {
            return;
        }
        match next {
            Some(next) => thread::park_timeout(next.saturating_duration_since(Instant::now())),
            None => thread::park(),
        }
    }
}

/// A timer with ticks of 1 ms, its clock, and a log of its tasks.
pub(crate) struct Manual {
    pub(crate) clock: ManualClock,
    pub(crate) timer: Timer,
    pub(crate) log: Log,
    start: Instant,
}

impl Manual {
    pub(crate) fn new(mode: Mode) -> Self {
        Self::built(mode, |builder| builder)
    }

    pub(crate) fn built(mode: Mode, with: impl FnOnce(TimerBuilder) -> TimerBuilder) -> Self {
        let clock = ManualClock::new();
        let builder = Timer::builder().mode(mode).tick(ms(1)).clock(clock.clone());
        let timer = with(builder).build().expect("in range");
        let log = Log::new(&clock);
        Self { start: clock.now(), clock, timer, log }
    }

    pub(crate) fn with(with: impl FnOnce(TimerBuilder) -> TimerBuilder) -> Self {
        Self::built(Mode::default(), with)
    }

    /// Schedules a task, `delay` milliseconds from now.
    pub(crate) fn after(&self, delay: u64, task: impl FnOnce() + Send + 'static) -> Timeout {
        self.timer.schedule(ms(delay), task).expect("it runs")
    }

    /// Schedules a task that writes `number`, `delay` milliseconds from now.
    pub(crate) fn once(&self, delay: u64, number: u32) -> Timeout {
        self.after(delay, self.log.task(number))
    }

    /// Schedules a task that does nothing, `delay` milliseconds from now.
    pub(crate) fn idle(&self, delay: u64) -> Timeout {
        self.after(delay, || {})
    }

    /// Schedules a repeating task, each `period` milliseconds.
    pub(crate) fn every(
        &self,
        period: u64,
        missed: MissedTick,
        task: impl FnMut() -> ControlFlow<()> + Send + 'static,
    ) -> Timeout {
        self.timer.schedule_repeating(ms(period), missed, task).expect("it runs")
    }

    /// Milliseconds from the start to an instant.
    pub(crate) fn millis(&self, at: Instant) -> u64 {
        u64::try_from((at - self.start).as_millis()).expect("not so late")
    }

    /// Milliseconds since the start.
    pub(crate) fn now(&self) -> u64 {
        self.log.now()
    }

    pub(crate) fn at(&self, millis: u64) -> Instant {
        self.start + ms(millis)
    }

    /// Lets `millis` milliseconds pass, until all that came due has fired, and returns the tasks
    /// that ran meanwhile, and when.
    pub(crate) fn advance(&self, millis: u64) -> Vec<(u64, u32)> {
        self.clock.advance(ms(millis));
        self.log.take()
    }

    /// Returns when all tasks that are due have been woken.
    pub(crate) fn settle(&self) {
        self.clock.advance(Duration::ZERO);
    }

    /// Lets `millis` milliseconds pass in one jump, and returns the tasks that ran, and when.
    pub(crate) fn jump(&self, millis: u64) -> Vec<(u64, u32)> {
        self.clock.jump(ms(millis));
        self.log.take()
    }
}

impl From<Mode> for Manual {
    fn from(mode: Mode) -> Self {
        Self::new(mode)
    }
}

/// The numbers of the tasks that ran, with the milliseconds since the start.
#[derive(Clone)]
pub(crate) struct Log {
    clock: ManualClock,
    start: Instant,
    runs: Arc<Mutex<Vec<(u64, u32)>>>,
}

impl Log {
    pub(crate) fn new(clock: &ManualClock) -> Self {
        Self { clock: clock.clone(), start: clock.now(), runs: Arc::default() }
    }

    pub(crate) fn start(&self) -> Instant {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.runs.lock().unwrap().len()
    }

    pub(crate) fn now(&self) -> u64 {
        let passed = Clock::now(&self.clock) - self.start;
        u64::try_from(passed.as_millis()).expect("not so late")
    }

    pub(crate) fn write(&self, number: u32) {
        self.runs.lock().unwrap().push((self.now(), number));
    }

    /// Returns the entries since the last call.
    pub(crate) fn take(&self) -> Vec<(u64, u32)> {
        std::mem::take(&mut self.runs.lock().unwrap())
    }

    /// A task that writes `number`.
    pub(crate) fn task(&self, number: u32) -> impl FnOnce() + Send + 'static {
        let log = self.clone();
        move || log.write(number)
    }

    /// A task that writes `number` in each of `times` runs, and then ends.
    pub(crate) fn repeat(
        &self,
        number: u32,
        times: u32,
    ) -> impl FnMut() -> ControlFlow<()> + Send + 'static {
        let log = self.clone();
        let mut left = times;
        move || {
            log.write(number);
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
}

/// Counts, from any thread.
#[derive(Clone, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, SeqCst);
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(SeqCst)
    }

    /// A task that counts.
    pub(crate) fn task(&self) -> impl FnOnce() + Send + 'static {
        let count = self.clone();
        move || count.add()
    }

    /// A task that counts when it is dropped, run or not.
    pub(crate) fn dropped(&self) -> impl FnOnce() + Send + 'static {
        let captured = CountsDrop(self.clone());
        move || drop(captured)
    }

    pub(crate) fn wait_for(&self, count: usize) {
        wait_until(|| self.get() == count);
    }
}

/// A gate inside a task: the task waits there until the test opens it.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    begun: Count,
    open: Count,
    ended: Count,
}

impl Gate {
    pub(crate) fn open(&self) {
        self.open.add();
    }

    /// Waits until the gate is open.
    pub(crate) fn pass(&self) {
        self.begun.add();
        wait_until(|| 0 < self.open.get());
        self.ended.add();
    }

    /// A task that waits until the gate is open.
    pub(crate) fn task(&self) -> impl FnOnce() + Send + 'static {
        let gate = self.clone();
        move || gate.pass()
    }

    /// Waits until a task waits at the gate.
    pub(crate) fn reached(&self) {
        wait_until(|| 0 < self.begun.get());
    }

    /// Returns how many have passed.
    pub(crate) fn passed(&self) -> usize {
        self.ended.get()
    }
}

/// Waits for the next task that an executor keeps.
pub(crate) fn taken(kept: &Kept) -> BoxedTask {
    wait_until(|| 0 < kept.len());
    kept.next().expect("nobody else takes it")
}

/// An executor that starts a thread for each task.
pub(crate) fn a_thread_each(task: BoxedTask) {
    thread::spawn(task);
}

/// Something to capture, that counts when it is dropped.
pub(crate) struct CountsDrop(pub(crate) Count);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        self.0.add();
    }
}

/// A task that the test polls, and that counts how often it is woken.
pub(crate) struct Hand {
    woken: Arc<Woken>,
    waker: Waker,
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Hand {
    pub(crate) fn new() -> Self {
        let woken = Arc::<Woken>::default();
        Self { waker: Waker::from(Arc::clone(&woken)), woken }
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context::from_waker(&self.waker)
    }

    pub(crate) fn poll<F: Future + Unpin>(&self, future: &mut F) -> Poll<F::Output> {
        Pin::new(future).poll(&mut self.context())
    }

    /// Polls a future once and drops it.
    pub(crate) fn poll_once<F: Future>(&self, future: F) -> Poll<F::Output> {
        pin!(future).poll(&mut self.context())
    }

    /// Returns how often it was woken since the last call.
    pub(crate) fn woken(&self) -> usize {
        self.woken.0.swap(0, SeqCst)
    }

    /// Returns how many clones of its waker there are elsewhere.
    pub(crate) fn wakers(&self) -> usize {
        Arc::strong_count(&self.woken) - 2
    }
}

/// Waits until `condition` holds; gives up after a minute, which no test takes. A minute of this
/// thread: while the whole machine pauses, nothing else goes on either.
pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) {
    let mut rounds = 0;
    while !condition() {
        rounds += 1;
        assert!(rounds < 60_000, "it never came");
        thread::sleep(ms(1));
    }
}

/// Waits for the next message as [`wait_until`] does.
pub(crate) fn received<T>(receiver: &mpsc::Receiver<T>) -> Result<T, mpsc::RecvTimeoutError> {
    let timed_out = mpsc::RecvTimeoutError::Timeout;
    (0..600)
        .map(|_| receiver.recv_timeout(ms(100)))
        .find(|answer| !matches!(answer, Err(error) if *error == timed_out))
        .unwrap_or(Err(timed_out))
}

/// The threads of this process by that name; None if the system does not say.
pub(crate) fn threads_named(name: &str) -> Option<usize> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    Some(names.filter(|found| found.trim_end() == name).count())
}

/// Runs `body` on a thread of its own, and fails if it has not returned after a minute, which no
/// test takes: `what` then says what hangs.
pub(crate) fn returns<T: Send + 'static>(
    what: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || sender.send(body()));
    match received(&receiver) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what} hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(payload) => std::panic::resume_unwind(payload),
            Ok(_) => unreachable!("it sent nothing"),
        },
    }
}
