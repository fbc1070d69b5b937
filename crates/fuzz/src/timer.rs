//! A timer on a manual clock, whose driver has its turns on this thread, among odd foreign code.

use crate::bytes::Bytes;
use crate::odd::{Habit, act, fates};
use crate::zoo::executors::{Fate, Kept, executor};
use crate::zoo::values::{Herd, Odd};
use crate::zoo::wakers::Task;
use crate::zoo::{self, caught, panics};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tickwheel::{
    DelayKey, DelayMap, DelayQueue, DelayReceiver, DelaySender, Driver, ExpiringMap, Key,
    ManualClock, MissedTick, ScheduleError, ScheduleErrorKind, Sleep, Status, Timeout, Timer,
    delay_channel,
};

/// Schedules tasks and waits for values on a timer that is turned by hand.
pub fn timer(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let mut run = Run::new(&mut bytes);
    for op in bytes.program(read).iter().take(MOST_OPS) {
        run.apply(op);
        run.look();
    }
    run.end();
}

/// What a task does when it runs, and a waker when it wakes. A number names a timeout.
#[derive(Clone, Copy, Debug)]
enum Act {
    Nothing,
    Panic,
    Schedule(Duration),
    Cancel(u64),
    Move(u64, Duration),
    Stop,
    Advance(Duration),
}

impl Act {
    fn read(bytes: &mut Bytes<'_>) -> Self {
        match bytes.byte() % 8 {
            0 | 1 => Self::Nothing,
            2 => Self::Panic,
            3 => Self::Schedule(bytes.duration()),
            4 => Self::Cancel(bytes.number()),
            5 => Self::Move(bytes.number(), bytes.duration()),
            6 => Self::Stop,
            _ => Self::Advance(bytes.duration()),
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Schedule(Duration, Act, Act),
    ScheduleAt(Duration, bool),
    Within(Duration, Duration),
    Repeat(Duration, MissedTick, Act, u8),
    Cancel(u64),
    CancelAndWait(u64),
    Move(u64, Duration),
    Advance(Duration),
    Turn,
    /// Turns until nothing is due.
    Rest,
    /// Runs so many of the tasks that the executor keeps, or drops them.
    Executor(usize, bool),
    Sleep(Duration),
    PollSleep(usize, Habit, Act),
    ResetSleep(usize, Duration),
    DropSleep(usize),
    Insert(usize, Duration),
    Remove(usize, u64),
    Reset(usize, u64, Duration),
    Poll(usize, Habit, Act),
    /// Calls a shared map with a key, which may panic.
    Map(u8, u64, Duration, (zoo::values::Act, usize)),
    Shrink,
    DropSender,
    Stop(bool),
    DropDriver,
}

fn read(bytes: &mut Bytes<'_>, code: u8) -> Op {
    match code % 32 {
        0..=2 => Op::Schedule(bytes.duration(), Act::read(bytes), Act::read(bytes)),
        3 => {
            let (call, key, delay) = (bytes.byte(), bytes.number(), bytes.duration());
            Op::Map(call, key, delay, (act(bytes), bytes.count()))
        }
        4 => Op::ScheduleAt(bytes.duration(), bytes.byte() & 1 == 0),
        5 => Op::Within(bytes.duration(), bytes.duration()),
        6 | 7 => {
            let missed = [MissedTick::Burst, MissedTick::Delay, MissedTick::Skip];
            let missed = missed[usize::from(bytes.byte() % 3)];
            Op::Repeat(bytes.duration(), missed, Act::read(bytes), bytes.byte() % 16)
        }
        8 | 9 => Op::Cancel(bytes.number()),
        10 => Op::CancelAndWait(bytes.number()),
        11 => Op::Move(bytes.number(), bytes.duration()),
        12..=14 => Op::Advance(bytes.duration()),
        15 => Op::Turn,
        16 | 17 => Op::Rest,
        18 => Op::Executor(bytes.count(), bytes.byte() & 1 == 0),
        19 => Op::Sleep(bytes.duration()),
        20 => Op::PollSleep(bytes.count(), Habit::read(bytes), Act::read(bytes)),
        21 => Op::ResetSleep(bytes.count(), bytes.duration()),
        22 => Op::DropSleep(bytes.count()),
        23 | 24 => Op::Insert(bytes.count(), bytes.duration()),
        25 => Op::Remove(bytes.count(), bytes.number()),
        26 => Op::Reset(bytes.count(), bytes.number(), bytes.duration()),
        27 | 28 => Op::Poll(bytes.count(), Habit::read(bytes), Act::read(bytes)),
        29 => Op::Shrink,
        30 => match bytes.byte() % 4 {
            0 => Op::DropDriver,
            _ => Op::DropSender,
        },
        _ => Op::Stop(bytes.byte() & 1 == 0),
    }
}

/// What tasks know.
struct World {
    timer: Mutex<Option<Timer>>,
    clock: ManualClock,
    start: Instant,
    has_executor: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tasks: Vec<Known>,
    /// No task may begin, because `stop` has returned.
    is_over: bool,
    /// The promises that were broken where a panic would be caught.
    broken: Vec<String>,
}

/// A task that the timer took.
struct Known {
    timeout: Option<Arc<Timeout>>,
    /// None means never.
    earliest: Option<Instant>,
    repeats: bool,
    runs: u32,
    is_cancelled: bool,
    drops: u32,
}

impl World {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn timer(&self) -> Option<Timer> {
        self.timer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn expect(&self, is_so: bool, what: &str) {
        if !is_so {
            self.state().broken.push(what.to_owned());
        }
    }

    /// Makes place for a task that may run after `delay`.
    fn token(self: &Arc<Self>, earliest: Option<Instant>, repeats: bool, drop: Act) -> Token {
        let mut state = self.state();
        let (timeout, runs, is_cancelled, drops) = (None, 0, false, 0);
        state.tasks.push(Known { timeout, earliest, repeats, runs, is_cancelled, drops });
        Token { id: state.tasks.len() - 1, world: Arc::clone(self), drop }
    }

    fn name(&self, number: u64) -> Option<(usize, Arc<Timeout>)> {
        let state = self.state();
        let id = (number as usize).checked_rem(state.tasks.len())?;
        let id = state.tasks.len() - 1 - id;
        Some((id, Arc::clone(state.tasks[id].timeout.as_ref()?)))
    }

    fn schedule(self: &Arc<Self>, delay: Duration, act: Act, drop: Act) {
        let Some(timer) = self.timer() else { return };
        let token = self.token(self.clock.now().checked_add(delay), false, drop);
        let id = token.id;
        let scheduled = timer.schedule(delay, move || token.run(act));
        self.add(id, scheduled);
    }

    /// Notes the handle of a task that the timer took. Otherwise its token was dropped.
    fn add<F>(&self, id: usize, timeout: Result<Timeout, ScheduleError<F>>) {
        match timeout {
            Ok(timeout) => self.state().tasks[id].timeout = Some(Arc::new(timeout)),
            Err(error) => {
                let kind = error.kind();
                caught(|| drop(error));
                let is_known = [ScheduleErrorKind::Stopped, ScheduleErrorKind::Full];
                self.expect(is_known.contains(&kind), "a task is refused for a reason");
                self.expect(self.state().tasks[id].drops == 1, "a refused task comes back");
            }
        }
    }

    fn cancel(&self, number: u64) {
        let Some((id, timeout)) = self.name(number) else { return };
        let was_pending = timeout.status() == Status::Pending;
        let is_cancelled = caught(|| timeout.cancel());
        self.cancelled(id, &timeout, was_pending, is_cancelled.unwrap_or(true));
    }

    fn cancelled(&self, id: usize, timeout: &Timeout, was_pending: bool, is_cancelled: bool) {
        self.expect(is_cancelled == was_pending, "what is pending can be cancelled");
        if is_cancelled {
            self.state().tasks[id].is_cancelled = true;
            self.expect(timeout.status() == Status::Cancelled, "it was cancelled");
            let state = self.state();
            let is_dropped = state.tasks[id].repeats || state.tasks[id].drops == 1;
            drop(state);
            self.expect(is_dropped, "a cancelled task is dropped when the call returns");
        }
    }

    fn shift(&self, number: u64, delay: Duration) {
        let Some((id, timeout)) = self.name(number) else { return };
        let was_pending = timeout.status() == Status::Pending;
        let earliest = self.clock.now().checked_add(delay);
        // Before it moves, because it may run at once on an executor.
        let is_moved = timeout.reschedule(delay);
        self.expect(is_moved == was_pending, "what is pending can be moved");
        if is_moved {
            let task = &mut self.state().tasks[id];
            // If the executor has a run, this is for the run after that.
            let is_later = task.repeats && self.has_executor;
            task.earliest =
                if is_later { task.earliest.into_iter().chain(earliest).min() } else { earliest };
        }
    }

    /// Moves the clock, but not to where ticks end.
    fn advance(&self, duration: Duration) {
        let passed = self.clock.now().saturating_duration_since(self.start);
        if passed.saturating_add(duration) < LONGEST {
            self.clock.jump(duration);
        }
    }

    fn act(self: &Arc<Self>, act: Act) {
        match act {
            Act::Nothing => {}
            Act::Panic => panics(),
            Act::Schedule(delay) => self.schedule(delay, Act::Nothing, Act::Nothing),
            Act::Cancel(number) => self.cancel(number),
            Act::Move(number, delay) => self.shift(number, delay),
            Act::Stop => {
                if let Some(timer) = self.timer() {
                    let is_stopped = timer.is_stopped();
                    self.expect(timer.stop().is_err() || is_stopped, "it would wait for itself");
                }
            }
            Act::Advance(duration) => self.advance(duration),
        }
    }
}

/// Captured by a task: notes that it runs, and that it is dropped.
struct Token {
    id: usize,
    world: Arc<World>,
    /// What its `Drop` does.
    drop: Act,
}

impl Token {
    fn run(&self, act: Act) {
        let now = self.world.clock.now();
        let mut state = self.world.state();
        let is_over = state.is_over;
        let task = &mut state.tasks[self.id];
        task.runs += 1;
        let is_early = task.earliest.is_none_or(|earliest| now < earliest);
        let (is_again, is_cancelled) = (!task.repeats && task.runs > 1, task.is_cancelled);
        drop(state);
        self.world.expect(!is_over, "after stop nothing begins");
        self.world.expect(!is_early, "nothing is early");
        self.world.expect(!is_again, "nothing runs twice");
        self.world.expect(!is_cancelled, "nothing runs that was cancelled");
        self.world.act(act);
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.world.state().tasks[self.id].drops += 1;
        if !matches!(self.drop, Act::Stop | Act::Advance(_)) {
            self.world.act(self.drop);
        }
    }
}

/// A sleep, and until when it lasts; None means for ever.
struct Asleep {
    sleep: Pin<Box<Sleep>>,
    until: Option<Instant>,
    waits: Option<Task>,
}

/// What holds values, and hands them out by the timer.
enum Held {
    Queue(DelayQueue<usize>),
    Map(DelayMap<usize, usize>),
    Channel(Option<DelaySender<usize>>, DelayReceiver<usize>),
}

/// How a value is named by who holds it.
#[derive(Clone, Copy)]
enum Named {
    Queue(Key),
    Channel(DelayKey),
}

struct Holder {
    held: Held,
    /// The values by their numbers.
    values: BTreeMap<usize, (Option<Named>, Option<Instant>)>,
    next: usize,
    waits: Option<Task>,
}

/// A map that threads may share, and what it holds.
struct Shared {
    map: ExpiringMap<Odd, Odd>,
    keys: Herd,
    values: Herd,
    /// By key: the number of its value, and its deadline; None if a call panicked.
    known: BTreeMap<u64, Option<(u64, Option<Instant>)>>,
    next: u64,
}

impl Shared {
    fn new(timer: &Timer) -> Self {
        let map = ExpiringMap::builder().shards(1).build(timer);
        let (keys, values) = Default::default();
        Self { map, keys, values, known: BTreeMap::new(), next: 0 }
    }

    fn call(&mut self, call: u8, key: u64, delay: Duration, clock: &ManualClock, tick: Duration) {
        let (now, key, id) = (clock.now(), key % 8, self.next);
        let until = now.checked_add(delay);
        self.next += 1;
        let Self { map, keys, values, known, .. } = self;
        let found = caught(|| match call % 6 {
            0 | 1 => {
                let stored = map.insert(keys.make(key), values.make(id), delay);
                stored.expect("it has no limit").map(|value| value.number)
            }
            2 => map.get(&keys.make(key)).map(|value| value.number),
            3 => map.get_and_reset(&keys.make(key), delay).map(|value| value.number),
            4 => map.remove(&keys.make(key)).map(|value| value.number),
            _ => map.peek(&keys.make(key)).map(|value| value.number),
        });
        keys.disarm();
        let Some(found) = found else {
            known.insert(key, None);
            return;
        };
        match known.get(&key) {
            Some(None) => {}
            Some(&Some((id, until))) => {
                assert!(found.is_none_or(|found| found == id), "it is the last that was stored");
                let ends = until.and_then(|until| until.checked_add(tick));
                assert!(found.is_none() || ends.is_none_or(|ends| now < ends), "it has expired");
                let is_there = until.is_none_or(|until| now < until);
                assert!(found.is_some() || !is_there, "it is there until its deadline");
            }
            None => assert_eq!(found, None, "nothing was stored"),
        }
        match (call % 6, found) {
            (0 | 1, _) => _ = known.insert(key, Some((id, until))),
            (3, Some(found)) => _ = known.insert(key, Some((found, until))),
            (4, _) => _ = known.remove(&key),
            _ => {}
        }
    }

    /// Panics unless each key and each value is in the map, or gone.
    fn look(&self) {
        let [keys, values] = [&self.keys, &self.values].map(Herd::alive);
        assert_eq!((keys, values), (self.map.len(), self.map.len()), "each is there, or gone");
    }
}

struct Run {
    world: Arc<World>,
    driver: Option<Driver>,
    tick: Duration,
    fates: Vec<Fate>,
    /// The tasks that the executor keeps.
    kept: Kept,
    has_limit: bool,
    sleeps: Vec<Asleep>,
    holders: [Holder; 3],
    shared: Shared,
}

impl Run {
    fn new(bytes: &mut Bytes<'_>) -> Self {
        let mode = bytes.mode();
        let ticks = [1_000_000, 1_000, 7_000_000, 3_600_000_000_000, 10_000];
        let tick = Duration::from_nanos(ticks[usize::from(bytes.byte() % 5)]);
        let (fates, kept) = (fates(bytes), Kept::default());
        let limit = usize::from(bytes.byte() % 32);
        let clock = ManualClock::new();
        let state = Mutex::new(State::default());
        let world = Arc::new(World {
            timer: Mutex::new(None),
            clock: clock.clone(),
            start: clock.now(),
            has_executor: !fates.is_empty(),
            state,
        });
        let mut builder = Timer::builder().mode(mode).tick(tick).clock(clock).shards(1 + limit % 3);
        if 0 < limit {
            builder = builder.max_pending(limit);
        }
        if !fates.is_empty() {
            builder = builder.executor(executor(fates.clone(), {
                let kept = kept.clone();
                move |task| kept.put(task)
            }));
        }
        let (timer, driver) = builder.build_driven().expect("in range");
        let (sender, receiver) = delay_channel(&timer);
        let holders = [
            Held::Queue(DelayQueue::with_timer(&timer)),
            Held::Map(DelayMap::with_timer(&timer)),
            Held::Channel(Some(sender), receiver),
        ];
        let holders =
            holders.map(|held| Holder { held, values: BTreeMap::new(), next: 0, waits: None });
        let shared = Shared::new(&timer);
        *world.timer.lock().expect("nobody panicked") = Some(timer);
        let (driver, has_limit) = (Some(driver), 0 < limit);
        Self { world, driver, tick, fates, kept, has_limit, sleeps: Vec::new(), holders, shared }
    }

    fn now(&self) -> Instant {
        self.world.clock.now()
    }

    fn timer(&self) -> Timer {
        self.world.timer().expect("it is there to the end")
    }

    /// Whether what may end at `earliest` has had to end.
    fn is_due(&self, earliest: Option<Instant>) -> bool {
        earliest
            .and_then(|earliest| earliest.checked_add(self.tick))
            .is_some_and(|at| at <= self.now())
    }

    /// Turns until nothing is due. Then nothing that was due is left, and everybody was woken.
    fn rest(&mut self) {
        let Some(driver) = &mut self.driver else { return };
        let clock = self.world.clock.clone();
        let mut turns = 0;
        let next = loop {
            let next = driver.turn();
            if next.is_none_or(|next| clock.now() < next) {
                break next;
            }
            turns += 1;
            // A repeating task that an executor drops goes on for as long as the clock has jumped.
            if MOST_TURNS < turns
                && self.fates.iter().any(|fate| matches!(fate, Fate::IsShed | Fate::Panics))
            {
                return;
            }
            assert!(turns < 1_000 * MOST_TURNS, "the turns come to an end");
        };
        let timer = self.timer();
        if timer.is_stopped() {
            return;
        }
        // A waker or a drop may have moved the clock after the last look.
        if timer.next_deadline().is_some_and(|next| next <= self.now()) {
            return;
        }
        // A turn may come for what was cancelled, though nothing else is pending.
        if let Some(deadline) = timer.next_deadline() {
            assert!(next.is_some_and(|next| next <= deadline), "the next turn is in time");
        }
        for (id, task) in self.world.state().tasks.iter().enumerate() {
            let Some(timeout) = &task.timeout else { continue };
            if !task.repeats && timeout.status() == Status::Pending {
                assert!(!self.is_due(task.earliest), "task {id} is late");
            }
        }
        for sleep in &self.sleeps {
            if let Some(task) = &sleep.waits {
                assert!(!self.is_due(sleep.until) || task.is_woken(), "a sleep is woken");
            }
        }
        for holder in &self.holders {
            self.woken(holder);
        }
    }

    /// Panics if something is due, or nothing is left, and the task that waits was not woken.
    fn woken(&self, holder: &Holder) {
        if holder.waits.as_ref().is_none_or(Task::is_woken) {
            return;
        }
        let is_due = holder.values.values().any(|(_, earliest)| self.is_due(*earliest));
        assert!(!is_due, "who waits for a value is woken");
        let ends = match &holder.held {
            Held::Queue(_) | Held::Map(_) => true,
            Held::Channel(sender, _) => sender.is_none(),
        };
        assert!(!ends || !holder.values.is_empty(), "who waits for nothing is woken");
    }

    fn stop(&mut self, runs: bool) {
        let Ok(unfired) = self.timer().stop() else {
            assert!(!self.fates.is_empty(), "nobody would wait");
            return;
        };
        // What an executor has may still run.
        self.world.state().is_over = self.fates.is_empty();
        assert_eq!(self.timer().pending(), 0);
        for sleep in &self.sleeps {
            assert!(sleep.waits.as_ref().is_none_or(|woken| woken.is_woken()), "a sleep ends");
        }
        let mut last = None;
        for unfired in unfired {
            let deadline = unfired.deadline();
            assert!(last.is_none_or(|last| deadline.is_none() || last <= deadline), "in order");
            last = deadline.map(Some);
            let task = unfired.into_task();
            if runs {
                let is_over = std::mem::replace(&mut self.world.state().is_over, false);
                let early: Vec<_> = {
                    let mut state = self.world.state();
                    let now = Some(self.world.clock.now());
                    state
                        .tasks
                        .iter_mut()
                        .map(|task| std::mem::replace(&mut task.earliest, now))
                        .collect()
                };
                caught(|| task.run());
                let mut state = self.world.state();
                state.is_over = is_over;
                for (task, earliest) in state.tasks.iter_mut().zip(early) {
                    task.earliest = earliest;
                }
            } else {
                caught(|| drop(task));
            }
        }
    }

    fn waker(&self, habit: Habit, act: Act) -> Task {
        let world = Arc::clone(&self.world);
        let act = if matches!(act, Act::Stop | Act::Panic) { Act::Nothing } else { act };
        Task::with(habit.habits(move || world.act(act)))
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Schedule(delay, act, drop) => self.world.schedule(delay, act, drop),
            Op::ScheduleAt(offset, is_past) => {
                let now = self.now();
                let at = if is_past { now.checked_sub(offset) } else { now.checked_add(offset) };
                let Some(at) = at else { return };
                let token = self.world.token(Some(at), false, Act::Nothing);
                let id = token.id;
                let scheduled = self.timer().schedule_at(at, move || token.run(Act::Nothing));
                self.world.add(id, scheduled);
            }
            Op::Within(first, width) => {
                let token = self.world.token(self.now().checked_add(first), false, Act::Nothing);
                let id = token.id;
                let latest = self.now().checked_add(first.saturating_add(width));
                let delays = first..=first.saturating_add(width);
                let scheduled =
                    self.timer().schedule_within(delays, move || token.run(Act::Nothing));
                self.world.add(id, scheduled);
                let mut state = self.world.state();
                if let Some(timeout) = &state.tasks[id].timeout {
                    let deadline = timeout.deadline();
                    let earliest = state.tasks[id].earliest;
                    drop(state);
                    assert!(deadline.is_none() || earliest <= deadline, "nothing is early");
                    let latest = latest.and_then(|latest| latest.checked_add(self.tick));
                    assert!(latest.is_none() || deadline < latest, "it is in the range");
                    state = self.world.state();
                    state.tasks[id].earliest = deadline;
                }
            }
            Op::Repeat(period, missed, act, runs) => {
                let token = self.world.token(self.now().checked_add(period), true, Act::Nothing);
                let (id, mut left) = (token.id, runs);
                let scheduled = self.timer().schedule_repeating(period, missed, move || {
                    token.run(act);
                    left = left.saturating_sub(1);
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                self.world.add(id, scheduled);
            }
            Op::Cancel(number) => self.world.cancel(number),
            Op::CancelAndWait(number) => {
                // It would wait for an executor that keeps the task.
                let Some((id, timeout)) = self.world.name(number) else { return };
                if self.fates.is_empty() {
                    let was_pending = timeout.status() == Status::Pending;
                    let is_cancelled = caught(|| timeout.cancel_and_wait());
                    let is_cancelled = is_cancelled.unwrap_or(Ok(true)).expect("outside of tasks");
                    self.world.cancelled(id, &timeout, was_pending, is_cancelled);
                }
            }
            Op::Move(number, delay) => self.world.shift(number, delay),
            Op::Advance(duration) => self.world.advance(duration),
            Op::Turn => {
                if let Some(driver) = &mut self.driver {
                    driver.turn();
                }
            }
            Op::Rest => self.rest(),
            Op::Executor(count, is_run) => {
                for _ in 0..count {
                    let Some(task) = self.kept.next() else { break };
                    caught(|| if is_run { task() } else { drop(task) });
                }
            }
            Op::Sleep(delay) => {
                let sleep = Box::pin(self.timer().sleep(delay));
                let until = self.now().checked_add(delay);
                self.sleeps.push(Asleep { sleep, until, waits: None });
            }
            Op::PollSleep(nth, habit, act) => {
                if self.sleeps.is_empty() {
                    return;
                }
                let task = self.waker(habit, act);
                let (now, timer) = (self.now(), self.timer());
                let Some(sleep) = pick(&mut self.sleeps, nth) else { return };
                let polled = task.poll(|context| Future::poll(sleep.sleep.as_mut(), context));
                sleep.waits = match polled {
                    Some(Poll::Pending) => Some(task),
                    Some(Poll::Ready(Ok(()))) => {
                        assert!(sleep.until.is_some_and(|until| until <= now), "no sleep is short");
                        None
                    }
                    Some(Poll::Ready(Err(error))) => {
                        assert!(timer.is_stopped() || self.has_limit, "{error}");
                        None
                    }
                    None => None,
                };
            }
            Op::ResetSleep(nth, delay) => {
                let until = self.now().checked_add(delay);
                let Some(sleep) = pick(&mut self.sleeps, nth) else { return };
                caught(|| sleep.sleep.reset(delay));
                sleep.until = until;
                // If it was woken, it wakes nobody until it is polled again.
                sleep.waits = sleep.waits.take().filter(|woken| !woken.is_woken());
            }
            Op::DropSleep(nth) => {
                if let Some(nth) = nth.checked_rem(self.sleeps.len()) {
                    let sleep = self.sleeps.remove(nth);
                    caught(|| drop(sleep));
                }
            }
            Op::Insert(nth, delay) => {
                let (timer, earliest) = (self.timer(), self.now().checked_add(delay));
                let Holder { held, values, next, .. } = &mut self.holders[nth % 3];
                let id = *next;
                *next += 1;
                let key = match held {
                    Held::Queue(queue) => caught(|| Named::Queue(queue.insert(id, delay))),
                    Held::Map(map) => caught(|| map.insert(id, id, delay)).and(None),
                    Held::Channel(Some(sender), _) => {
                        let is_refused = timer.is_stopped();
                        match caught(|| sender.insert(id, delay)) {
                            Some(Err(error)) => {
                                assert!(timer.is_stopped(), "the receiver is there");
                                assert_eq!(error.into_value(), id);
                                return;
                            }
                            Some(Ok(key)) => {
                                assert!(!is_refused, "nobody waits for it");
                                Some(Named::Channel(key))
                            }
                            None => None,
                        }
                    }
                    Held::Channel(None, _) => return,
                };
                values.insert(id, (key, earliest));
            }
            Op::Remove(nth, number) => {
                let Holder { held, values, next, .. } = &mut self.holders[nth % 3];
                let Some(id) = (number as usize).checked_rem(*next) else { return };
                let key = values.get(&id).and_then(|(key, _)| *key);
                let removed = match (held, key) {
                    (Held::Queue(queue), Some(Named::Queue(key))) => caught(|| queue.remove(key)),
                    (Held::Map(map), _) => caught(|| map.remove(&id)),
                    (Held::Channel(Some(sender), _), Some(Named::Channel(key))) => {
                        caught(|| sender.remove(key))
                    }
                    _ => return,
                };
                let was_there = values.remove(&id).is_some();
                if let Some(removed) = removed {
                    assert_eq!(removed, was_there.then_some(id), "it is there until it comes");
                }
            }
            Op::Reset(nth, number, delay) => {
                let earliest = self.now().checked_add(delay);
                let Holder { held, values, next, .. } = &mut self.holders[nth % 3];
                let Some(id) = (number as usize).checked_rem(*next) else { return };
                let key = values.get(&id).and_then(|(key, _)| *key);
                let moved = match (held, key) {
                    (Held::Queue(queue), Some(Named::Queue(key))) => {
                        caught(|| queue.reset(key, delay))
                    }
                    (Held::Map(map), _) => caught(|| map.reset(&id, delay)),
                    (Held::Channel(Some(sender), _), Some(Named::Channel(key))) => {
                        caught(|| sender.reset(key, delay))
                    }
                    _ => return,
                };
                let place = values.get_mut(&id);
                assert!(moved.is_none_or(|moved| moved == place.is_some()), "it is there");
                if let Some((_, at)) = place {
                    *at = earliest;
                }
            }
            Op::Poll(nth, habit, act) => self.poll(nth % 3, habit, act),
            Op::Map(call, key, delay, (act, after)) => {
                if after < 16 {
                    self.shared.keys.panic_at(Some(act), after);
                }
                self.shared.call(call, key, delay, &self.world.clock, self.tick);
            }
            Op::Shrink => {
                self.timer().shrink_to_fit();
                for holder in &mut self.holders {
                    match &mut holder.held {
                        Held::Queue(queue) => queue.shrink_to_fit(),
                        Held::Map(map) => map.shrink_to_fit(),
                        Held::Channel(_, receiver) => receiver.shrink_to_fit(),
                    }
                }
            }
            Op::DropSender => {
                if let Held::Channel(sender, _) = &mut self.holders[2].held {
                    let sender = sender.take();
                    caught(|| drop(sender));
                }
            }
            Op::Stop(runs) => self.stop(runs),
            Op::DropDriver => {
                let driver = self.driver.take();
                caught(|| drop(driver));
                assert!(self.timer().is_stopped(), "nobody turns it");
            }
        }
    }

    fn poll(&mut self, nth: usize, habit: Habit, act: Act) {
        let task = self.waker(habit, act);
        let (now, timer) = (self.now(), self.timer());
        let holder = &mut self.holders[nth];
        let polled = task.poll(|context: &mut Context<'_>| match &mut holder.held {
            Held::Queue(queue) => {
                queue.poll_expired(context).map(|due| due.map(|due| due.map(|due| due.value)))
            }
            Held::Map(map) => {
                map.poll_expired(context).map(|due| due.map(|due| due.map(|due| due.value)))
            }
            Held::Channel(_, receiver) => {
                receiver.poll_expired(context).map(|due| due.map(|due| due.map(|due| due.value)))
            }
        });
        holder.waits = None;
        match polled {
            None => {}
            Some(Poll::Pending) => {
                self.holders[nth].waits = Some(task);
                self.woken(&self.holders[nth]);
            }
            Some(Poll::Ready(Some(Ok(id)))) => {
                let (_, earliest) = holder.values.remove(&id).expect("it was there");
                assert!(earliest.is_some_and(|earliest| earliest <= now), "no value is early");
            }
            Some(Poll::Ready(None)) => {
                // After an error it may say so once, whatever it holds.
                let is_over = timer.is_stopped() || self.has_limit;
                assert!(holder.values.is_empty() || is_over, "nothing is there");
            }
            Some(Poll::Ready(Some(Err(error)))) => {
                assert!(timer.is_stopped() || self.has_limit, "{error}");
            }
        }
    }

    /// Panics if a promise was broken.
    fn look(&self) {
        self.shared.look();
        let state = self.world.state();
        assert!(state.broken.is_empty(), "{:?}", state.broken);
        for task in &state.tasks {
            assert!(task.drops <= 1, "a task is dropped once");
            assert!(task.timeout.is_some() || task.drops == 1, "a refused task is dropped");
            let Some(timeout) = &task.timeout else { continue };
            match timeout.status() {
                Status::Pending => assert!(task.drops == 0 && !task.is_cancelled, "it waits"),
                Status::Cancelled => assert!(task.is_cancelled, "somebody cancelled it"),
                _ => assert!(!task.is_cancelled, "it has one end"),
            }
        }
    }

    /// Ends the timer. Then each task has been dropped, and the accounts balance.
    fn end(mut self) {
        self.rest();
        self.look();
        let stats = self.timer().stats();
        assert_eq!(stats.pending, self.timer().pending());
        self.stop(false);
        self.apply(&Op::DropDriver);
        for sleep in self.sleeps.drain(..) {
            caught(|| drop(sleep));
        }
        for holder in self.holders {
            caught(|| drop(holder));
        }
        let timer = self.world.timer.lock().expect("nobody panicked").take();
        caught(|| drop(timer));
        loop {
            let Some(task) = self.kept.next() else { break };
            caught(|| drop(task));
        }
        let state = self.world.state();
        assert!(state.broken.is_empty(), "{:?}", state.broken);
        for (id, task) in state.tasks.iter().enumerate() {
            assert_eq!(task.drops, 1, "task {id} was dropped");
            if let Some(timeout) = &task.timeout {
                assert_ne!(timeout.status(), Status::Pending, "task {id} has an end");
            }
        }
        drop(state);
        let tasks = std::mem::take(&mut self.world.state().tasks);
        drop(tasks);
    }
}

fn pick<T>(values: &mut [T], nth: usize) -> Option<&mut T> {
    let nth = nth.checked_rem(values.len())?;
    values.get_mut(nth)
}

/// The operations after which a run ends.
const MOST_OPS: usize = 2_000;
/// The turns after which a rest ends that might be endless.
const MOST_TURNS: usize = 100;
/// The time that passes at most: a century.
const LONGEST: Duration = Duration::from_secs(3_155_760_000);
