//! Executors that run inline, nest, shed and run late, on timers that tasks stop and drop from
//! everywhere: each timeout has one end, and nothing hangs.
//!
//! `TICKWHEEL_STORM` in the environment is how many timeouts there are.

use crate::common::{Numbers, asked_or_long};
use crate::help::{Count, build_driven, ms};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{ManualClock, MissedTick, Status, Timeout, Timer};

type BoxedTask = Box<dyn FnOnce() + Send>;

#[test]
fn each_timeout_has_one_end_whoever_stops_sheds_and_nests() {
    let timeouts = asked_or_long("TICKWHEEL_STORM", 10_000, 60_000) as usize;
    let watch = Arc::new(Watch::default());
    let dog = thread::spawn({
        let watch = Arc::clone(&watch);
        move || watch.bark()
    });
    let mut ends = HashMap::<_, usize>::new();
    let mut scheduled = 0;
    let start = Instant::now();
    // What tasks assert; their panics are caught.
    let panics = Count::default();
    for seed in 0.. {
        if timeouts <= scheduled {
            break;
        }
        scheduled += round(seed, &watch, &panics, &mut ends);
    }
    watch.done.store(true, SeqCst);
    dog.join().unwrap();
    println!("{scheduled} timeouts in {:?}: {ends:?}", start.elapsed());
    assert!(ends.len() >= 5, "{ends:?}");
    assert_eq!(panics.get(), 0);
}

/// Says where each thread is if nothing has happened for a minute, and ends the process.
#[derive(Default)]
struct Watch {
    done: AtomicBool,
    steps: AtomicUsize,
    places: Mutex<HashMap<thread::ThreadId, &'static str>>,
}

impl Watch {
    fn is_at(&self, place: &'static str) {
        self.steps.fetch_add(1, SeqCst);
        self.places.lock().unwrap().insert(thread::current().id(), place);
    }

    fn bark(&self) {
        let (mut seen, mut rounds) = (0, 0);
        while !self.done.load(SeqCst) {
            thread::sleep(ms(50));
            let steps = self.steps.load(SeqCst);
            rounds += 1;
            if steps != seen {
                (seen, rounds) = (steps, 0);
            } else if rounds == 1_200 {
                eprintln!("it hangs: {:?}", self.places.lock().unwrap());
                std::process::abort();
            }
        }
    }
}

/// A capture of a task that counts its end.
struct Ticket {
    fate: Arc<Fate>,
    world: Weak<World>,
    /// The task keeps a timer, and may drop its last handle.
    _timer: Option<Timer>,
}

#[derive(Default)]
struct Fate {
    runs: AtomicUsize,
    drops: AtomicUsize,
    repeats: bool,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.fate.drops.fetch_add(1, SeqCst);
    }
}

struct World {
    /// The handles; emptied as the round goes on.
    timers: Vec<Mutex<Option<Timer>>>,
    clock: ManualClock,
    watch: Arc<Watch>,
    seed: AtomicU64,
    /// Each timeout with its ticket's fate.
    timeouts: Mutex<Vec<(Timeout, Arc<Fate>)>>,
}

impl World {
    fn numbers(&self) -> Numbers {
        Numbers(self.seed.fetch_add(0x9E37_79B9_7F4A_7C15, SeqCst))
    }

    fn timer(&self, number: u64) -> Option<Timer> {
        self.timers[number as usize % self.timers.len()].lock().unwrap().clone()
    }

    /// Schedules one timeout, or moves or cancels an older one.
    fn schedule(self: &Arc<Self>, numbers: &mut Numbers) {
        self.watch.is_at("schedule");
        let Some(timer) = self.timer(numbers.below(64)) else { return };
        let most = 1 << numbers.below(14);
        let delay = Duration::from_micros(numbers.below(most));
        let repeats = numbers.below(8) == 0;
        let fate = Arc::new(Fate { repeats, ..Fate::default() });
        // If an executor drops all runs of a repeating timeout, its captures stay for ever.
        let keeps = !repeats && numbers.below(4) == 0;
        let kept = if keeps { self.timer(numbers.below(64)) } else { None };
        let ticket = Ticket { fate: Arc::clone(&fate), world: Arc::downgrade(self), _timer: kept };
        let timeout = if repeats {
            let times = numbers.below(4) as usize;
            let task = move || {
                act(&ticket);
                let goes_on = ticket.fate.runs.load(SeqCst) <= times;
                if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            timer.schedule_repeating(delay, MissedTick::Skip, task).ok()
        } else {
            timer.schedule(delay, move || act(&ticket)).ok()
        };
        // A task that was refused has been dropped with its error.
        let mut timeouts = self.timeouts.lock().unwrap();
        if let Some(timeout) = timeout {
            timeouts.push((timeout, fate));
        }
        let older = numbers.below(timeouts.len().max(1) as u64) as usize;
        match timeouts.get(older) {
            Some((older, _)) if numbers.below(4) == 0 && older.reschedule(delay * 2) => {
                assert!(older.deadline().is_some());
            }
            _ => {}
        }
    }

    fn cancel_some(&self, numbers: &mut Numbers) {
        self.watch.is_at("cancel");
        let mut timeouts = self.timeouts.lock().unwrap();
        if timeouts.is_empty() {
            return;
        }
        let index = numbers.below(timeouts.len() as u64) as usize;
        let (timeout, fate) = timeouts.swap_remove(index);
        drop(timeouts);
        if timeout.cancel() {
            assert_eq!(timeout.status(), Status::Cancelled);
            assert!(!timeout.cancel());
        }
        self.timeouts.lock().unwrap().push((timeout, fate));
    }

    fn stop_one(&self, number: u64) {
        self.watch.is_at("stop");
        if let Some(timer) = self.timer(number) {
            let unfired = timer.stop();
            self.watch.is_at("drop what stop gave back");
            drop(unfired);
        }
        self.watch.is_at("drop a clone");
    }

    fn drop_one(&self, number: u64) {
        self.watch.is_at("drop a handle");
        let timer = self.timers[number as usize % self.timers.len()].lock().unwrap().take();
        drop(timer);
    }
}

/// What a task does.
fn act(ticket: &Ticket) {
    ticket.fate.runs.fetch_add(1, SeqCst);
    let Some(world) = ticket.world.upgrade() else { return };
    let mut numbers = world.numbers();
    match numbers.below(400) {
        0 => world.stop_one(numbers.below(64)),
        1 => world.drop_one(numbers.below(64)),
        2..100 => world.schedule(&mut numbers),
        100..140 => world.cancel_some(&mut numbers),
        140..150 => world.clock.advance(Duration::from_micros(numbers.below(2_000))),
        _ => {}
    }
    world.watch.is_at("between tasks");
}

/// Returns how many timeouts there were.
fn round(
    seed: u64,
    watch: &Arc<Watch>,
    panics: &Count,
    ends: &mut HashMap<String, usize>,
) -> usize {
    watch.is_at("build");
    let clock = ManualClock::new();
    let tick = || {
        let count = panics.clone();
        Timer::builder().tick(Duration::from_micros(50)).shards(2).on_panic(move |_| count.add())
    };
    let plain = tick().build().expect("in range");
    let manual = tick().clock(clock.clone()).build().expect("in range");
    let inline = tick().executor(|task: BoxedTask| task()).build().expect("in range");
    let driven = build_driven(tick());
    let nested = {
        let outer = driven.clone();
        // What the outer timer refuses is shed.
        let executor = move |task| drop(outer.schedule(Duration::ZERO, task));
        tick().executor(executor).build().expect("in range")
    };
    let deeper = {
        let outer = nested.clone();
        let executor = move |task| drop(outer.schedule(Duration::ZERO, task));
        tick().executor(executor).build().expect("in range")
    };
    // Two timers share two threads, with room for one task; now and then these drop one.
    let (sender, receiver) = mpsc::sync_channel::<BoxedTask>(1);
    let bounded = |sender: mpsc::SyncSender<BoxedTask>| {
        tick().executor(move |task| drop(sender.send(task))).build().expect("in range")
    };
    let pool = [bounded(sender.clone()), bounded(sender)];
    let receiver = Arc::new(Mutex::new(receiver));
    let mut consumers: Vec<_> = (0..2)
        .map(|number| {
            let (receiver, watch) = (Arc::clone(&receiver), Arc::clone(watch));
            thread::spawn(move || {
                let mut numbers = Numbers(seed ^ number);
                loop {
                    let task = receiver.lock().unwrap().recv();
                    let Ok(task) = task else { break };
                    watch.is_at("a task of the pool");
                    if numbers.below(4) == 0 {
                        drop(task)
                    } else {
                        task()
                    }
                    watch.is_at("the pool waits");
                }
            })
        })
        .collect();
    // One runs its tasks late, and drops some of them much later.
    let (sender, receiver) = mpsc::channel::<BoxedTask>();
    let late = tick().executor(move |task| drop(sender.send(task))).build().expect("in range");
    consumers.push(thread::spawn({
        let watch = Arc::clone(watch);
        move || {
            let mut kept = Vec::new();
            loop {
                match receiver.recv_timeout(ms(2)) {
                    Ok(task) => kept.push(task),
                    // Those that it has may hold the timer.
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        kept.drain(..).for_each(|task: BoxedTask| task());
                    }
                    Err(mpsc::RecvTimeoutError::Disconnected) => break,
                }
                if kept.len() == 16 {
                    watch.is_at("tasks that run late");
                    kept.drain(8..).for_each(|task| task());
                    kept.truncate(4);
                }
            }
        }
    }));

    let [first, second] = pool;
    let driven_by_hand = build_driven(tick().clock(clock.clone()));
    let timers: [Timer; TIMERS as usize] =
        [plain, manual, inline, driven, nested, deeper, driven_by_hand, first, second, late];
    let world = Arc::new(World {
        timers: timers.into_iter().map(|timer| Mutex::new(Some(timer))).collect(),
        clock,
        watch: Arc::clone(watch),
        seed: AtomicU64::new(seed),
        timeouts: Mutex::default(),
    });
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let mut numbers = world.numbers();
                for _ in 0..A_ROUND / THREADS {
                    world.schedule(&mut numbers);
                    match numbers.below(200) {
                        0..20 => world.cancel_some(&mut numbers),
                        20..22 => {
                            world.watch.is_at("advance");
                            world.clock.advance(Duration::from_micros(numbers.below(2_000)));
                        }
                        _ => {}
                    }
                }
                for number in 0..TIMERS {
                    match numbers.below(3) {
                        0 => world.stop_one(number),
                        1 => world.drop_one(number),
                        _ => {}
                    }
                }
            })
        })
        .collect();
    watch.is_at("join");
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for number in 0..TIMERS {
        world.stop_one(number);
        world.drop_one(number);
    }
    // Tasks that wait may hold a timer that no handle is left of, and stop it when they are
    // dropped.
    for _ in 0..TIMERS {
        world.clock.advance(ms(100));
    }
    // The consumers end when the last executor is gone, and with it the last task.
    watch.is_at("join the executors");
    consumers.into_iter().for_each(|thread| thread.join().unwrap());
    watch.is_at("account");
    let timeouts = std::mem::take(&mut *world.timeouts.lock().unwrap());
    let mut rounds = 0;
    for (timeout, fate) in &timeouts {
        // A worker that no thread waited for may still run one.
        while fate.drops.load(SeqCst) == 0 || timeout.status() == Status::Pending {
            rounds += 1;
            assert!(rounds < 60_000, "{timeout:?} has no end");
            thread::sleep(ms(1));
        }
        let (runs, status) = (fate.runs.load(SeqCst), timeout.status());
        assert_eq!(fate.drops.load(SeqCst), 1);
        match status {
            Status::Cancelled | Status::Stopped => assert!(runs == 0 || fate.repeats),
            Status::Fired => assert!(runs <= 1 || fate.repeats),
            status => panic!("{status:?}"),
        }
        assert!(!timeout.cancel() && !timeout.reschedule(Duration::ZERO));
        let kind = if fate.repeats { "repeating" } else { "once" };
        let ran = if runs == 0 { "never ran" } else { "ran" };
        *ends.entry(format!("{kind} {status:?}, {ran}")).or_default() += 1;
    }
    timeouts.len()
}

const A_ROUND: usize = 2_000;
const THREADS: usize = 3;
const TIMERS: u64 = 10;
