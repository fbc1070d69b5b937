//! A durable timer with producers and a consumer. It tells the supervisor all that it is told, which
//! keeps the account, because this process may be killed.

use super::{Figures, Over, nap, say, word};
use fastrand::Rng;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tickwheel_durable::{Cancelled, DurableTimer, Error};

pub(super) fn durable(place: &str, life: u64) -> Result<(), Error> {
    let (over, figures, clock) = (Over::default(), Figures::new(), Arc::<Clock>::default());
    let timer = if place.contains("://") {
        again(|| DurableTimer::connect(place))
    } else {
        let moved = Arc::clone(&clock);
        DurableTimer::builder().clock(move || moved.now()).open(place)?
    };
    let consumer = {
        let (timer, figures, clock) = (timer.clone(), Arc::clone(&figures), Arc::clone(&clock));
        thread::spawn(move || consume(&timer, &figures, &clock))
    };
    let producers: Vec<_> = (0..2)
        .map(|producer| {
            let (timer, over, clock) = (timer.clone(), over.clone(), Arc::clone(&clock));
            thread::spawn(move || produce(&timer, &format!("{life}/{producer}"), &clock, &over))
        })
        .collect();
    let told = timer.clone();
    figures.tell(&over, move || told.stats().near);
    while let Some(word) = word() {
        if let Some(millis) = word.strip_prefix("clock ").and_then(|millis| millis.parse().ok()) {
            clock.step(millis);
        }
    }
    over.end();
    producers.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    clock.step(0);
    loop {
        let (near, far) = left(&timer, &clock);
        if near == 0 {
            far.iter().for_each(|name| say(&format!("left {name}")));
            break;
        }
        thread::sleep(Duration::from_millis(500));
    }
    again(|| timer.clone().close());
    consumer.join().expect("it does not panic");
    Ok(())
}

/// Calls until it is no error: what the store is for may be stopped. A timer that was closed is.
fn again<T>(call: impl Fn() -> Result<T, Error>) -> T {
    loop {
        match call() {
            Ok(answer) => return answer,
            Err(error) => say(&format!("error {error}")),
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// The system's clock, and by how many milliseconds it was set, last and before.
#[derive(Debug, Default)]
struct Clock {
    set: AtomicI64,
    before: AtomicI64,
}

impl Clock {
    fn step(&self, millis: i64) {
        self.before.store(self.set.load(SeqCst), SeqCst);
        self.set.store(millis, SeqCst);
    }

    fn now(&self) -> SystemTime {
        at(milliseconds(SystemTime::now()) + self.set.load(SeqCst))
    }

    /// What it shows, or would show if it had not been set the last time: what was handed out
    /// before may be looked at after.
    fn latest(&self) -> i64 {
        let set = self.set.load(SeqCst).max(self.before.load(SeqCst));
        milliseconds(SystemTime::now()) + set
    }
}

fn at(millis: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(millis).expect("it is not so early"))
}

fn milliseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).expect("it is after 1970");
    i64::try_from(since.as_millis()).expect("it is not so late")
}

/// Schedules, moves and cancels. Of each it says before what it will do, and afterwards the answer.
fn produce(timer: &DurableTimer, names: &str, clock: &Clock, over: &Over) {
    let (mut rng, mut open) = (Rng::new(), VecDeque::new());
    for number in 0_u64.. {
        if over.is_over() {
            return;
        }
        let name = format!("{names}/{number}");
        let soon = |rng: &mut Rng| clock.now() + Duration::from_millis(rng.u64(..20_000));
        let schedule = |deadline: SystemTime| {
            say(&format!("asks {name}"));
            again(|| timer.schedule(&name, deadline, b"payload")?.wait());
            say(&format!("scheduled {name}"));
        };
        schedule(match rng.u32(..500) {
            0 => clock.now() + Duration::from_secs(90 * 86_400),
            _ => soon(&mut rng),
        });
        if rng.u32(..8) == 0 {
            schedule(soon(&mut rng));
        }
        open.push_back(name);
        if 500 < open.len() {
            let name = open.pop_front().expect("many are open");
            if rng.u32(..2) == 0 {
                say(&format!("cancels {name}"));
                // Tried again after an error, it may be unknown because the first try was made.
                match again(|| timer.cancel(&name)?.wait()) {
                    Cancelled::Cancelled => say(&format!("cancelled {name}")),
                    Cancelled::Firing | Cancelled::Unknown => say(&format!("gone {name}")),
                }
            }
        }
        nap(Duration::from_millis(10));
    }
}

fn consume(timer: &DurableTimer, figures: &Figures, clock: &Clock) {
    let mut rng = Rng::new();
    loop {
        let due = match timer.recv() {
            Ok(Some(due)) => due,
            Ok(None) | Err(Error::Closed) => return,
            Err(error) => {
                say(&format!("error {error}"));
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let (deadline, latest) = (milliseconds(due.deadline()), clock.latest());
        assert!(deadline <= latest, "{} is early by {} ms", due.name(), deadline - latest);
        figures.late(1_000 * (latest - deadline).unsigned_abs() as u128);
        say(&format!("fired {}", due.name()));
        match rng.u32(..200) {
            0 => drop(due),
            1..10 => due.retry(Duration::from_millis(20)),
            _ => due.ack(),
        }
    }
}

/// How many are due within the hour, and the names of the others.
fn left(timer: &DurableTimer, clock: &Clock) -> (usize, Vec<String>) {
    let soon = clock.now() + Duration::from_secs(3_600);
    let pending: Vec<_> = again(|| timer.iter().collect::<Result<_, _>>());
    let (near, far): (Vec<_>, Vec<_>) = pending.iter().partition(|each| each.deadline() < soon);
    (near.len(), far.iter().map(|each| each.name().to_owned()).collect())
}
