//! Operations that wait for a condition or their timeout, and the broker that has them.

mod a_minute;

use a_minute::within_a_minute;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use systems::purgatory::{Ask, Broker, End, Operation, Purgatory};
use systems::requests::Client;
use tickwheel::{ManualClock, ScheduleErrorKind, Timer};

/// Waits until a flag is set, and writes down how it ended.
#[derive(Clone, Default)]
struct Waits {
    flag: Arc<AtomicU8>,
    ends: Arc<Mutex<Vec<End>>>,
    /// Sets the flag itself when it is asked for the first time, just too late.
    is_raced: bool,
}

impl Operation for Waits {
    fn is_satisfied(&mut self) -> bool {
        let is_set = self.flag.load(SeqCst) == 1;
        if self.is_raced {
            self.flag.store(1, SeqCst);
        }
        is_set
    }

    fn complete(self, end: End) {
        self.ends.lock().unwrap().push(end);
    }
}

/// A purgatory on a clock that the test moves.
fn still(pending: usize) -> (ManualClock, Timer, Purgatory<u32, Waits>) {
    let clock = ManualClock::new();
    let builder = Timer::builder().clock(clock.clone()).max_pending(pending);
    let timer = builder.build().expect("in range");
    let purgatory = Purgatory::new(&timer, 1_000);
    (clock, timer, purgatory)
}

#[test]
fn a_condition_that_holds_completes_at_once() {
    let (_, timer, purgatory) = still(9);
    let waits = Waits::default();
    waits.flag.store(1, SeqCst);
    assert_eq!(purgatory.complete_or_watch(waits.clone(), [1], LIMIT).ok(), Some(true));
    assert_eq!(*waits.ends.lock().unwrap(), [End::Satisfied]);
    assert_eq!((timer.pending(), purgatory.watched()), (0, 0));
}

#[test]
fn a_check_completes_what_holds_and_cancels_its_timeout() {
    let (clock, timer, purgatory) = still(9);
    let (waits, other) = (Waits::default(), Waits::default());
    assert_eq!(purgatory.complete_or_watch(waits.clone(), [1, 2], LIMIT).ok(), Some(false));
    assert_eq!(purgatory.complete_or_watch(other.clone(), [2], LIMIT).ok(), Some(false));
    assert_eq!(purgatory.check(&2), 0);
    waits.flag.store(1, SeqCst);
    assert_eq!((purgatory.check(&3), purgatory.check(&2), purgatory.check(&1)), (0, 1, 0));
    assert_eq!((timer.pending(), purgatory.delayed()), (1, 1));
    clock.advance(LIMIT);
    assert_eq!(*waits.ends.lock().unwrap(), [End::Satisfied]);
    assert_eq!(*other.ends.lock().unwrap(), [End::Expired]);
}

#[test]
fn a_timeout_expires_at_its_time_and_not_before() {
    let (clock, _, purgatory) = still(9);
    let waits = Waits::default();
    assert_eq!(purgatory.complete_or_watch(waits.clone(), [1], LIMIT).ok(), Some(false));
    clock.advance(LIMIT - Duration::from_nanos(1));
    assert_eq!(*waits.ends.lock().unwrap(), []);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(*waits.ends.lock().unwrap(), [End::Expired]);
    waits.flag.store(1, SeqCst);
    assert_eq!((purgatory.check(&1), purgatory.delayed()), (0, 0));
    assert_eq!(*waits.ends.lock().unwrap(), [End::Expired], "once");
}

#[test]
fn a_change_just_before_it_is_watched_is_not_missed() {
    let (_, timer, purgatory) = still(9);
    let waits = Waits { is_raced: true, ..Waits::default() };
    assert_eq!(purgatory.complete_or_watch(waits.clone(), [1], LIMIT).ok(), Some(true));
    assert_eq!(*waits.ends.lock().unwrap(), [End::Satisfied]);
    assert_eq!(timer.pending(), 0);
}

#[test]
fn cancelling_a_key_ends_all_under_it() {
    let (_, timer, purgatory) = still(9);
    let all = [Waits::default(), Waits::default(), Waits::default()];
    for (waits, key) in all.iter().zip([1, 1, 2]) {
        assert_eq!(purgatory.complete_or_watch(waits.clone(), [key], LIMIT).ok(), Some(false));
    }
    assert_eq!(purgatory.cancel(&1), 2);
    assert_eq!(*all[0].ends.lock().unwrap(), [End::Cancelled]);
    assert_eq!((timer.pending(), purgatory.delayed(), purgatory.watched()), (1, 1, 1));
}

#[test]
fn a_timer_without_room_gives_the_operation_back() {
    let (_, _, purgatory) = still(1);
    let waits = Waits::default();
    assert_eq!(purgatory.complete_or_watch(waits.clone(), [1], LIMIT).ok(), Some(false));
    let (kind, back) = purgatory.complete_or_watch(waits.clone(), [1], LIMIT).err().unwrap();
    assert_eq!(kind, ScheduleErrorKind::Full);
    assert!(Arc::ptr_eq(&back.ends, &waits.ends) && waits.ends.lock().unwrap().is_empty());
    assert_eq!((purgatory.delayed(), purgatory.watched()), (1, 1));
}

#[test]
fn what_has_ended_is_purged_from_the_lists() {
    let (clock, _, purgatory) = still(1_000_000);
    let mut most = 0;
    for round in 0..100 {
        for number in 0..1_000 {
            let waits = Waits::default();
            // Nobody ever looks at these keys again.
            let keys = [round * 1_000 + number, 1_000_000 + number];
            assert_eq!(purgatory.complete_or_watch(waits, keys, LIMIT).ok(), Some(false));
        }
        clock.advance(LIMIT);
        most = most.max(purgatory.watched());
    }
    assert_eq!(purgatory.delayed(), 0);
    assert!(most <= 2 * 1_001, "{most} entries of a thousand operations");
}

/// Waits until two numbers together have reached another.
struct Reaches {
    numbers: Arc<Vec<AtomicU64>>,
    keys: [usize; 2],
    at_least: u64,
    timer: Timer,
    deadline: Instant,
    ends: Arc<Ends>,
    number: usize,
}

/// How often each operation ended, and how.
struct Ends {
    each: Vec<AtomicU8>,
    satisfied: AtomicU64,
    expired: AtomicU64,
}

impl Reaches {
    fn holds(&self) -> bool {
        let sum: u64 = self.keys.iter().map(|key| self.numbers[*key].load(SeqCst)).sum();
        self.at_least <= sum
    }
}

impl Operation for Reaches {
    fn is_satisfied(&mut self) -> bool {
        self.holds()
    }

    fn complete(self, end: End) {
        self.ends.each[self.number].fetch_add(1, SeqCst);
        let count = match end {
            End::Satisfied => {
                assert!(self.holds());
                &self.ends.satisfied
            }
            End::Expired => {
                assert!(self.deadline <= self.timer.now(), "early");
                &self.ends.expired
            }
            End::Cancelled => panic!("nobody cancels"),
        };
        count.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_million_operations_of_eight_threads_end_once_each() {
    let _limit = within_a_minute();
    const THREADS: usize = 8;
    const EACH: usize = 125_000;
    const KEYS: usize = 1_000;
    let timer = Timer::new();
    let purgatory = Purgatory::new(&timer, 1_000);
    let numbers = Arc::new((0..KEYS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
    let each = (0..THREADS * EACH).map(|_| AtomicU8::new(0)).collect();
    let (satisfied, expired) = Default::default();
    let ends = Arc::new(Ends { each, satisfied, expired });
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (timer, purgatory, numbers, ends) = (&timer, &purgatory, &numbers, &ends);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread as u64);
                for number in 0..EACH {
                    let keys = [random.usize(..KEYS), random.usize(..KEYS)];
                    let reached = numbers[keys[0]].load(SeqCst);
                    // Some only expire, some only come to hold, and some do what is first.
                    let (at_least, limit) = match random.u32(..8) {
                        0 => (u64::MAX, Duration::from_millis(random.u64(..100))),
                        1 => (reached + random.u64(..100), Duration::from_secs(3_600)),
                        _ => (reached + random.u64(..100), Duration::from_millis(random.u64(..50))),
                    };
                    let operation = Reaches {
                        at_least,
                        keys,
                        numbers: Arc::clone(numbers),
                        deadline: timer.now() + limit,
                        timer: timer.clone(),
                        ends: Arc::clone(ends),
                        number: thread * EACH + number,
                    };
                    assert!(purgatory.complete_or_watch(operation, keys, limit).is_ok());
                    let changed = random.usize(..KEYS);
                    numbers[changed].fetch_add(1, SeqCst);
                    purgatory.check(&changed);
                }
            });
        }
    });
    for (key, number) in numbers.iter().enumerate() {
        number.fetch_add(1_000_000, SeqCst);
        purgatory.check(&key);
    }
    let began = Instant::now();
    while purgatory.delayed() != 0 {
        assert!(began.elapsed() < Duration::from_secs(30), "{purgatory:?}");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(timer.stop().expect("not inside a task").len(), 0);
    assert!(ends.each.iter().all(|times| times.load(SeqCst) == 1));
    let (satisfied, expired) = (ends.satisfied.load(SeqCst), ends.expired.load(SeqCst));
    println!("{satisfied} satisfied, {expired} expired, {} entries left", purgatory.watched());
    assert_eq!(satisfied + expired, (THREADS * EACH) as u64, "each for a reason, none early");
    assert!(100_000 < satisfied && 100_000 < expired, "{satisfied} and {expired}");
}

/// A broker with one partition and two followers, on a clock that the test moves.
struct Brokers {
    clock: ManualClock,
    broker: Broker,
    client: Client,
    _real: Timer,
}

impl Brokers {
    fn new() -> Self {
        let (clock, real) = (ManualClock::new(), Timer::new());
        let timer = Timer::builder().clock(clock.clone()).build().expect("in range");
        let broker = Broker::start(&timer, 1, 2).expect("a port");
        let client = Client::connect(broker.address(), &real).expect("it listens");
        Self { clock, broker, client, _real: real }
    }

    fn ask(&self, ask: &Ask) -> systems::requests::Answer {
        self.client.call(ask.body(), Duration::from_secs(30))
    }

    /// Waits until so many producers and fetches wait.
    fn until(&self, delayed: (usize, usize)) {
        let began = Instant::now();
        while self.broker.delayed() != delayed {
            assert!(began.elapsed() < Duration::from_secs(30), "{:?}", self.broker.delayed());
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn produce(bytes: &str) -> Ask {
    Ask::Produce { partition: 0, millis: 5_000, bytes: bytes.into() }
}

fn fetch(follower: u8, offset: u32, least: u32) -> Ask {
    Ask::Fetch { partition: 0, millis: 5_000, follower, offset, least }
}

#[test]
fn a_producer_is_answered_when_all_followers_have_it() {
    let _limit = within_a_minute();
    let brokers = Brokers::new();
    let consumer = brokers.ask(&fetch(0, 0, 1));
    let first = brokers.ask(&fetch(1, 0, 1));
    brokers.until((0, 2));
    let producer = brokers.ask(&produce("tea"));
    assert_eq!(first.wait(), Ok(b"tea".to_vec()), "the follower had waited for it");
    let _first = brokers.ask(&fetch(1, 3, 1)); // which says that it has it
    brokers.until((1, 2));
    assert_eq!(brokers.ask(&fetch(2, 0, 1)).wait(), Ok(b"tea".to_vec()));
    let _second = brokers.ask(&fetch(2, 3, 1));
    assert_eq!(producer.wait(), Ok(vec![1]));
    assert_eq!(consumer.wait(), Ok(b"tea".to_vec()));
    brokers.until((0, 2));
}

#[test]
fn a_producer_without_followers_and_a_fetch_without_data_are_answered_at_their_time() {
    let _limit = within_a_minute();
    let brokers = Brokers::new();
    let (producer, consumer) = (brokers.ask(&produce("tea")), brokers.ask(&fetch(0, 0, 1)));
    brokers.until((1, 1));
    brokers.clock.advance(Duration::from_millis(4_999));
    assert_eq!(brokers.broker.delayed(), (1, 1));
    brokers.clock.advance(Duration::from_millis(1));
    assert_eq!(producer.wait(), Ok(vec![0]));
    assert_eq!(consumer.wait(), Ok(Vec::new()));
}

const LIMIT: Duration = Duration::from_secs(5);
