//! Operations that wait for a condition or their timeout, and the broker that has them.

mod limit;

use limit::within_minutes;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketType, connect, socket};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use systems::frame::{Frame, Kind, LONGEST_BODY};
use systems::purgatory::{Ask, Broker, End, LONGEST_WAIT, Operation, Purgatory};
use systems::requests::{Client, FRAME_LIMIT, Why};
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

/// Panics when it ends.
struct Panics;

impl Operation for Panics {
    fn is_satisfied(&mut self) -> bool {
        false
    }

    fn complete(self, _: End) {
        panic!("as it was meant to");
    }
}

#[test]
fn an_operation_that_panics_keeps_no_other_from_its_end() {
    let timer = Timer::new();
    let purgatory = Purgatory::new(&timer, 1_000);
    for _ in 0..3 {
        assert_eq!(purgatory.complete_or_watch(Panics, [1], LONG).ok(), Some(false));
    }
    let cancel = || purgatory.cancel(&1);
    assert!(catch_unwind(AssertUnwindSafe(cancel)).is_err(), "the caller learns of it");
    assert_eq!((timer.pending(), purgatory.delayed(), purgatory.watched()), (0, 0, 0));
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
    let _limit = within_minutes();
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
        assert!(began.elapsed() < Duration::from_secs(300), "{purgatory:?}");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(timer.stop().expect("not inside a task").len(), 0);
    assert!(ends.each.iter().all(|times| times.load(SeqCst) == 1));
    let (satisfied, expired) = (ends.satisfied.load(SeqCst), ends.expired.load(SeqCst));
    println!("{satisfied} satisfied, {expired} expired, {} entries left", purgatory.watched());
    assert_eq!(satisfied + expired, (THREADS * EACH) as u64, "each for a reason, none early");
    assert!(100_000 < satisfied && 100_000 < expired, "{satisfied} and {expired}");
}

/// A broker with one partition, on a clock that the test moves.
struct Brokers {
    clock: ManualClock,
    timer: Timer,
    broker: Broker,
    client: Client,
    _real: Timer,
}

impl Brokers {
    fn new(followers: u8) -> Self {
        let (clock, real) = (ManualClock::new(), Timer::new());
        let timer = Timer::builder().clock(clock.clone()).build().expect("in range");
        let broker = Broker::start(&timer, 1, followers).expect("a port");
        let client = Client::connect(broker.address(), &real).expect("it listens");
        Self { clock, timer, broker, client, _real: real }
    }

    fn ask(&self, ask: &Ask) -> systems::requests::Answer {
        self.client.call(ask.body(), LONG)
    }

    /// Waits until so many producers and fetches wait.
    fn until(&self, delayed: (usize, usize)) {
        until(|| self.broker.delayed() == delayed);
    }

    /// Connects a client that reads what and when the test likes.
    fn raw(&self) -> TcpStream {
        let stream = TcpStream::connect(self.broker.address()).expect("it listens");
        stream.set_read_timeout(Some(LONG)).expect("not zero");
        stream
    }

    /// Asks for a megabyte that is there, until an answer is not taken. Each ask but the last was
    /// answered, and the one after an answer waits.
    fn clog(&self, stream: &mut TcpStream) {
        let pending = self.timer.pending();
        let is_taken = || self.timer.pending() == pending;
        while is_taken() || {
            thread::sleep(Duration::from_secs(1));
            is_taken()
        } {
            let looks = self.broker.looks();
            write(stream, &fetch(0, 0, 1));
            until(|| self.broker.looks() != looks || self.timer.pending() != pending);
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn until(done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < LONG, "it does not come");
        thread::sleep(Duration::from_millis(1));
    }
}

fn write(stream: &mut TcpStream, ask: &Ask) {
    let mut bytes = Vec::new();
    Frame { kind: Kind::Request, id: 7, body: ask.body() }.write_to(&mut bytes).unwrap();
    stream.write_all(&bytes).unwrap();
}

fn produce(bytes: &str) -> Ask {
    Ask::Produce { partition: 0, millis: 5_000, bytes: bytes.into() }
}

fn fetch(follower: u8, offset: u32, least: u32) -> Ask {
    Ask::Fetch { partition: 0, millis: 5_000, follower, offset, least }
}

#[test]
fn a_producer_is_answered_when_all_followers_have_it() {
    let _limit = within_minutes();
    let brokers = Brokers::new(2);
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
    let _limit = within_minutes();
    let brokers = Brokers::new(2);
    let (producer, consumer) = (brokers.ask(&produce("tea")), brokers.ask(&fetch(0, 0, 1)));
    brokers.until((1, 1));
    brokers.clock.advance(Duration::from_millis(4_999));
    assert_eq!(brokers.broker.delayed(), (1, 1));
    brokers.clock.advance(Duration::from_millis(1));
    assert_eq!(producer.wait(), Ok(vec![0]));
    assert_eq!(consumer.wait(), Ok(Vec::new()));
}

#[test]
fn a_reader_that_drips_does_not_hold_up_the_timer() {
    let _limit = within_minutes();
    let (timer, real) = (Timer::new(), Timer::new());
    let broker = Broker::start(&timer, 2, 0).unwrap();
    let client = Client::connect(broker.address(), &real).unwrap();
    let big = Ask::Produce { partition: 1, millis: 0, bytes: vec![7; BIG] };
    assert_eq!(client.call(big.body(), LONG).wait(), Ok(vec![1]));
    // Answers of a megabyte, at their timeouts and so on the timer's worker. They go out in small
    // pieces, so that a time limit for each piece would never be over.
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    set_socket_recv_buffer_size(&socket, 4_096).unwrap();
    connect(&socket, &broker.address()).unwrap();
    let mut drips = TcpStream::from(socket);
    for millis in 100..116 {
        let least = 2 * LONGEST_BODY as u32;
        write(&mut drips, &Ask::Fetch { partition: 1, millis, follower: 0, offset: 1, least });
    }
    let stop = Arc::new(AtomicU8::new(0));
    thread::scope(|scope| {
        let reading = Arc::clone(&stop);
        scope.spawn(move || {
            let mut bytes = [0; 4_096];
            while reading.load(SeqCst) == 0 && drips.read(&mut bytes).is_ok_and(|read| read != 0) {
                thread::sleep(Duration::from_millis(400));
            }
        });
        thread::sleep(Duration::from_millis(500)); // the worker is where it was held
        let ask = Ask::Fetch { partition: 0, millis: 100, follower: 0, offset: 0, least: 1 };
        let answer = client.call(ask.body(), LONG).wait();
        stop.store(1, SeqCst);
        assert_eq!(answer, Ok(Vec::new()));
    });
}

#[test]
fn an_answer_that_is_not_taken_in_time_closes_the_connection_and_ends_what_waits() {
    let _limit = within_minutes();
    let brokers = Brokers::new(0);
    let mut drips = brokers.raw();
    assert_eq!(brokers.ask(&produce(&"x".repeat(BIG))).wait(), Ok(vec![1]));
    let (millis, offset) = (20_000, BIG as u32);
    write(&mut drips, &Ask::Fetch { partition: 0, millis, follower: 0, offset, least: 9 });
    brokers.until((0, 1));
    brokers.clog(&mut drips);
    // It takes some, and that is not enough.
    brokers.clock.advance(FRAME_LIMIT / 2);
    drips.read_exact(&mut [0; 100_000]).unwrap();
    thread::sleep(Duration::from_millis(100)); // the server writes that much
    brokers.clock.advance(FRAME_LIMIT / 2 - Duration::from_nanos(1));
    assert_eq!(brokers.ask(&produce("")).wait(), Ok(vec![1]), "others are answered");
    assert_eq!(brokers.broker.delayed(), (0, 1), "it is not closed before");
    brokers.clock.advance(Duration::from_nanos(1));
    brokers.until((0, 0));
    assert_eq!(brokers.timer.pending(), 0);
}

#[test]
fn no_operation_waits_longer_than_the_broker_lets_it() {
    let _limit = within_minutes();
    let brokers = Brokers::new(2);
    let produce = Ask::Produce { partition: 0, millis: u32::MAX, bytes: vec![1] };
    let fetch = Ask::Fetch { partition: 0, millis: u32::MAX, follower: 0, offset: 0, least: 1 };
    let (producer, consumer) = (brokers.ask(&produce), brokers.ask(&fetch));
    brokers.until((1, 1));
    brokers.clock.advance(LONGEST_WAIT - Duration::from_nanos(1));
    assert_eq!(brokers.broker.delayed(), (1, 1));
    brokers.clock.advance(Duration::from_nanos(1));
    assert_eq!(brokers.broker.delayed(), (0, 0));
    assert_eq!((producer.wait(), consumer.wait()), (Ok(vec![0]), Ok(Vec::new())));
}

#[test]
fn what_a_client_waited_for_ends_when_it_leaves() {
    let _limit = within_minutes();
    let brokers = Brokers::new(2);
    let (mut leaves, mut stays) = (brokers.raw(), brokers.raw());
    for stream in [&mut leaves, &mut stays] {
        write(stream, &fetch(0, 0, 1));
        write(stream, &produce("tea"));
    }
    brokers.until((2, 2));
    drop(leaves);
    brokers.until((1, 1));
    assert_eq!(brokers.timer.pending(), 2);
}

#[test]
fn a_follower_cannot_have_what_nobody_wrote() {
    let _limit = within_minutes();
    let brokers = Brokers::new(2);
    let producer = brokers.ask(&produce("tea"));
    brokers.until((1, 0));
    for (follower, offset) in [(1, 4), (2, u32::MAX), (0, 4), (3, 0)] {
        let mut lies = brokers.raw();
        write(&mut lies, &fetch(follower, offset, 1));
        assert_eq!(lies.read(&mut [0]).unwrap(), 0, "{follower} {offset}");
    }
    assert_eq!(brokers.broker.delayed(), (1, 0));
    brokers.clock.advance(LIMIT);
    assert_eq!(producer.wait(), Ok(vec![0]), "nobody has it");
}

#[test]
fn what_all_followers_had_does_not_go_back() {
    let _limit = within_minutes();
    let brokers = Brokers::new(2);
    let producer = brokers.ask(&produce("tea"));
    brokers.until((1, 0));
    let _read = [brokers.ask(&fetch(1, 3, 1)), brokers.ask(&fetch(2, 3, 1))];
    assert_eq!(producer.wait(), Ok(vec![1]));
    let again = brokers.ask(&fetch(1, 0, 1));
    assert_eq!(again.wait(), Ok(b"tea".to_vec()));
    assert_eq!(brokers.ask(&fetch(0, 0, 1)).wait(), Ok(b"tea".to_vec()));
}

#[test]
fn an_ask_that_makes_no_sense_closes_the_connection() {
    let _limit = within_minutes();
    let brokers = Brokers::new(2);
    let wrong = Ask::Produce { partition: 1, millis: 1, bytes: vec![1] };
    for body in [wrong.body(), Vec::new(), vec![b'F', 0, 0, 0, 0, 0, 1, 0], b"Xabcde".to_vec()] {
        let client = Client::connect(brokers.broker.address(), &brokers._real).unwrap();
        let error = client.call(body, LONG).wait().unwrap_err();
        assert!(matches!(error.why, Why::Closed(_)), "{error}");
    }
}

#[test]
fn a_log_takes_no_more_than_its_limit() {
    let _limit = within_minutes();
    let brokers = Brokers::new(0);
    let produce = |bytes: usize| brokers.ask(&produce(&"x".repeat(bytes))).wait();
    for _ in 0..(64 << 20) / BIG {
        assert_eq!(produce(BIG), Ok(vec![1]));
    }
    assert!(matches!(produce(BIG).unwrap_err().why, Why::Closed(_)));
}

#[test]
fn a_fetch_that_asks_for_more_than_a_frame_holds_gets_a_full_one_at_once() {
    let _limit = within_minutes();
    let brokers = Brokers::new(0);
    for _ in 0..2 {
        assert_eq!(brokers.ask(&produce(&"x".repeat(BIG))).wait(), Ok(vec![1]));
    }
    let answer = brokers.ask(&fetch(0, 0, u32::MAX));
    // Answers come in the order in which asks end.
    assert_eq!(brokers.ask(&produce("")).wait(), Ok(vec![1]));
    assert_eq!(brokers.client.account().pending, 0, "it waits for more than a frame");
    assert_eq!(answer.wait().map(|bytes| bytes.len()), Ok(LONGEST_BODY));
}

#[test]
fn a_fetch_does_not_look_at_others_that_wait() {
    let _limit = within_minutes();
    const CLIENTS: usize = 4;
    const EACH: usize = 4_000;
    let brokers = Brokers::new(2);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| brokers.raw()).collect();
    for stream in &mut clients {
        for number in 0..EACH {
            write(stream, &fetch(number as u8 % 3, 0, 10 + number as u32 % 100));
        }
    }
    // One looks twice, and waits before the second time.
    let waits = |delayed, looks| {
        brokers.until(delayed);
        until(|| looks <= brokers.broker.looks());
        brokers.broker.looks()
    };
    let looks = waits((0, CLIENTS * EACH), 2 * (CLIENTS * EACH) as u64);
    let _another = brokers.ask(&fetch(1, 0, 50));
    let then = waits((0, CLIENTS * EACH + 1), looks + 2);
    assert_eq!(then, looks + 2, "it looked at others");
    // Nor does a producer, but at those that get what they wait for.
    let _producer = brokers.ask(&produce("tea"));
    let last = waits((1, CLIENTS * EACH + 1), then + 2);
    assert_eq!(last, then + 2, "it looked at those that want more");
    println!("looks: {last}");
}

const LIMIT: Duration = Duration::from_secs(5);
/// About as many bytes as a frame holds.
const BIG: usize = LONGEST_BODY - 100;
/// No test waits as long as this for one thing.
const LONG: Duration = Duration::from_secs(300);
