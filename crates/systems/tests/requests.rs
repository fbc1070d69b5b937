//! Requests with a time limit, over real sockets, to a server that does not behave.

mod limit;

use futures::StreamExt;
use futures::executor::block_on;
use futures::stream::FuturesUnordered;
use limit::within_minutes;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use systems::frame::{Frame, Kind, LONGEST_BODY};
use systems::requests::{
    Account, Answer, CallError, Client, FRAME_LIMIT, Fault, Request, Seen, Server, Why,
};
use tickwheel::{ManualClock, ScheduleErrorKind, Timer};

/// A client on a clock that the test moves, and a server that gives its requests to the test.
struct Still {
    clock: ManualClock,
    timer: Timer,
    client: Client,
    requests: mpsc::Receiver<Request>,
    _server: Server,
}

impl Still {
    fn new() -> Self {
        Self::with_room_for(1_000)
    }

    fn with_room_for(pending: usize) -> Self {
        let clock = ManualClock::new();
        let builder = Timer::builder().clock(clock.clone()).max_pending(pending);
        let timer = builder.build().expect("in range");
        let (sender, requests) = mpsc::channel();
        let handle = move |request| drop(sender.send(request));
        let server = Server::start(&Timer::new(), handle, |_| {}).expect("a port");
        let client = Client::connect(server.address(), &timer).expect("it listens");
        Self { clock, timer, client, requests, _server: server }
    }

    /// Waits until the server has the next request.
    fn arrived(&self) -> Request {
        self.requests.recv_timeout(LONG).expect("the request arrives")
    }

    /// Waits until the account is as `done` says.
    fn until(&self, done: impl Fn(&Account) -> bool) -> Account {
        until(&self.client, done)
    }
}

#[test]
fn a_response_reaches_its_caller_and_cancels_the_timeout() {
    let _limit = within_minutes();
    let still = Still::new();
    let (first, second) = (still.client.call(vec![1], LIMIT), still.client.call(vec![2], LIMIT));
    let (one, two) = (still.arrived(), still.arrived());
    two.echo().unwrap();
    one.echo().unwrap();
    assert_eq!(block_on(second.into_future()), Ok(vec![2]));
    assert_eq!(first.wait(), Ok(vec![1]));
    assert_eq!(still.timer.pending(), 0);
    assert_eq!(still.timer.stats().cancelled, 2);
}

#[test]
fn a_timeout_fails_its_caller_at_the_limit_and_not_before() {
    let _limit = within_minutes();
    let still = Still::new();
    let answer = still.client.call(vec![1], LIMIT);
    still.arrived();
    still.clock.advance(LIMIT - Duration::from_nanos(1));
    assert_eq!(still.client.account().pending, 1);
    still.clock.advance(Duration::from_nanos(1));
    let error = answer.wait().unwrap_err();
    assert_eq!(error, CallError { why: Why::TimedOut(LIMIT), is_sent: true, waited: LIMIT });
    assert_eq!(error.to_string(), "no response within 5s (sent, waited 5s)");
}

#[test]
fn a_late_response_is_dropped_and_counted() {
    let _limit = within_minutes();
    let still = Still::new();
    let answer = still.client.call(vec![1], LIMIT);
    let request = still.arrived();
    still.clock.advance(LIMIT);
    request.echo().unwrap();
    let account = still.until(|account| account.late == 1);
    assert!(matches!(answer.wait().unwrap_err().why, Why::TimedOut(_)));
    let sent = Account { asked: 1, sent: 1, ..Account::default() };
    assert_eq!(account, Account { timed_out: 1, late: 1, ..sent });
}

#[test]
fn a_second_response_and_one_that_nobody_asked_for_are_counted() {
    let _limit = within_minutes();
    let still = Still::new();
    let answer = still.client.call(vec![1], LIMIT);
    let request = still.arrived();
    request.answer_another().unwrap();
    request.echo().unwrap();
    request.echo().unwrap();
    let account = still.until(|account| account.late == 1);
    assert_eq!(answer.wait(), Ok(vec![1]));
    let sent = Account { asked: 1, sent: 1, ..Account::default() };
    assert_eq!(account, Account { answered: 1, unknown: 1, late: 1, ..sent });
}

#[test]
fn a_request_that_was_not_sent_says_so_and_never_arrives() {
    let _limit = within_minutes();
    let clock = ManualClock::new();
    let timer = Timer::builder().clock(clock.clone()).build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::connect(listener.local_addr().unwrap(), &timer).unwrap();
    let (stream, _) = listener.accept().unwrap();
    // Nobody reads: the system takes some megabytes, and then no more.
    let answers: Vec<_> = (0..64).map(|_| client.call(vec![7; LONGEST_BODY], LIMIT)).collect();
    clock.advance(LIMIT);
    let errors = answers.into_iter().map(|answer| answer.wait().unwrap_err());
    let not_sent = errors.filter(|error| !error.is_sent).count();
    let sent = client.account().sent;
    assert!(0 < not_sent, "{:?}", client.account());
    assert_eq!(sent + not_sent as u64, 64);
    // Now the server reads, and one request more tells the end.
    let mut reader = BufReader::new(stream);
    let _last = client.call(Vec::new(), LIMIT);
    for id in 0..sent {
        let frame = Frame::read(&mut reader).unwrap().expect("it was sent");
        assert_eq!((frame.kind, frame.id), (Kind::Request, id));
    }
    assert_eq!(Frame::read(&mut reader).unwrap().expect("the last").id, 64);
}

#[test]
fn a_connection_that_closes_in_the_middle_of_a_frame_fails_all_calls() {
    let _limit = within_minutes();
    let still = Still::new();
    let (first, second) = (still.client.call(vec![1], LIMIT), still.client.call(vec![2], LIMIT));
    still.arrived();
    still.arrived().close_in_the_middle().unwrap();
    let why = Why::Closed(ErrorKind::UnexpectedEof);
    for answer in [first, second] {
        let error = answer.wait().unwrap_err();
        assert_eq!(error, CallError { why, is_sent: true, waited: Duration::ZERO });
    }
    let after = still.client.call(vec![3], LIMIT).wait().unwrap_err();
    assert_eq!(after, CallError { why, is_sent: false, waited: Duration::ZERO });
    assert_eq!((still.client.account().failed, still.timer.pending()), (3, 0));
}

#[test]
fn what_is_not_a_response_closes_the_connection() {
    let _limit = within_minutes();
    let timer = Timer::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::connect(listener.local_addr().unwrap(), &timer).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let answer = client.call(vec![1], LIMIT);
    let mut bytes = Vec::new();
    Frame { kind: Kind::Request, id: 0, body: vec![1] }.write_to(&mut bytes).unwrap();
    stream.write_all(&bytes).unwrap();
    let why = answer.wait().unwrap_err().why;
    assert_eq!(why, Why::Closed(ErrorKind::InvalidData));
}

#[test]
fn an_answer_that_is_dropped_leaves_nothing_behind() {
    let _limit = within_minutes();
    let still = Still::new();
    let answer = still.client.call(vec![1], LIMIT);
    let request = still.arrived();
    drop(answer);
    assert_eq!((still.client.account().given_up, still.timer.pending()), (1, 0));
    request.echo().unwrap();
    still.until(|account| account.late == 1);
}

#[test]
fn a_call_beyond_the_limit_of_the_timer_fails_at_once() {
    let _limit = within_minutes();
    let still = Still::with_room_for(1);
    let _first = still.client.call(vec![1], LIMIT);
    let error = still.client.call(vec![2], LIMIT).wait().unwrap_err();
    assert_eq!((error.why, error.is_sent), (Why::Timer(ScheduleErrorKind::Full), false));
    let error = still.client.call(vec![0; LONGEST_BODY + 1], LIMIT).wait().unwrap_err();
    assert_eq!((error.why, error.is_sent), (Why::TooLong, false));
}

/// Calls until one fails at once, and keeps the others.
fn first_that_fails(
    client: &Client,
    body: &[u8],
    most: usize,
    waiting: &mut Vec<Answer>,
) -> CallError {
    for _ in 0..most {
        let failed = client.account().failed;
        let answer = client.call(body.to_vec(), LONG);
        if failed < client.account().failed {
            return answer.wait().unwrap_err();
        }
        waiting.push(answer);
    }
    panic!("all of {most} calls wait");
}

#[test]
fn a_call_that_finds_too_many_before_it_fails_at_once() {
    let _limit = within_minutes();
    let (timer, listener) = (Timer::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    let client = Client::connect(listener.local_addr().unwrap(), &timer).unwrap();
    // Nobody reads: the first ones fill the connection.
    let big = (0..16).map(|_| client.call(vec![7; LONGEST_BODY], LONG));
    let mut answers: Vec<_> = big.collect();
    // All of those may be gone by now.
    let error = first_that_fails(&client, &[], (1 << 16) + 1, &mut answers);
    assert_eq!((error.why, error.is_sent), (Why::Busy, false));
    drop(answers);
    assert_eq!((client.account().pending, timer.pending()), (0, 0));
}

#[test]
fn calls_with_too_many_bytes_before_them_fail_at_once() {
    let _limit = within_minutes();
    let (timer, listener) = (Timer::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    let client = Client::connect(listener.local_addr().unwrap(), &timer).unwrap();
    // Nobody reads. The connection takes some megabytes, and 64 wait.
    let mut answers = Vec::new();
    let error = first_that_fails(&client, &[7; LONGEST_BODY], 100, &mut answers);
    assert_eq!((error.why, error.is_sent), (Why::Busy, false));
    assert!((64..100).contains(&client.account().pending), "{:?}", client.account());
    // What has ended gives its room back.
    drop(answers);
    let again: Vec<_> = (0..64).map(|_| client.call(vec![7; LONGEST_BODY], LONG)).collect();
    assert_eq!(client.account().pending, 64);
    drop(again);
}

#[test]
fn callbacks_that_panic_close_their_connection_and_no_other() {
    let _limit = within_minutes();
    let timer = Timer::new();
    let handle = |request: Request| match request.body[0] {
        1 => drop(request.echo()),
        _ => panic!("handle"),
    };
    let server = Server::start(&timer, handle, |_| panic!("gone")).unwrap();
    let [good, bad] = [(); 2].map(|()| Client::connect(server.address(), &timer).unwrap());
    for _ in 0..2 {
        assert_eq!(good.call(vec![1], LONG).wait(), Ok(vec![1]));
        assert!(matches!(bad.call(vec![2], LONG).wait().unwrap_err().why, Why::Closed(_)));
    }
}

#[test]
fn a_frame_that_does_not_end_closes_the_connection_at_its_limit_and_not_before() {
    let _limit = within_minutes();
    let clock = ManualClock::new();
    let timer = Timer::builder().clock(clock.clone()).build().unwrap();
    let server = Server::start(&timer, drop, |_| {}).unwrap();
    let mut frame = Vec::new();
    Frame { kind: Kind::Request, id: 1, body: vec![1; 9] }.write_to(&mut frame).unwrap();
    // In its header, and in its body.
    for length in [1, 14] {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(&frame[..length]).unwrap();
        // The header's own limit ends before that of the body begins.
        while timer.pending() != 1 || timer.stats().scheduled < length as u64 / 7 {
            thread::sleep(Duration::from_millis(1));
        }
        clock.advance(FRAME_LIMIT / 2);
        stream.write_all(&frame[length..=length]).unwrap(); // more of it begins no new time
        thread::sleep(Duration::from_millis(20));
        clock.advance(FRAME_LIMIT / 2 - Duration::from_nanos(1));
        assert_eq!(timer.pending(), 1, "it is not closed before");
        clock.advance(Duration::from_nanos(1));
        // With an error, if what came last was not read.
        let end = stream.read(&mut [0]).map_err(|error| error.kind());
        assert!(
            matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)),
            "it is not closed: {end:?}"
        );
    }
}

#[test]
fn a_client_that_asks_faster_than_it_reads_waits_and_gets_all_answers() {
    const REQUESTS: u64 = 40;
    let _limit = within_minutes();
    let echo = |request: Request| drop(request.echo());
    // Nobody is closed because it is slow.
    let still = Timer::builder().clock(ManualClock::new()).build().unwrap();
    let server = Server::start(&still, echo, |_| {}).unwrap();
    let stream = TcpStream::connect(server.address()).unwrap();
    let mut asks = stream.try_clone().unwrap();
    let asks = thread::spawn(move || {
        for id in 0..REQUESTS {
            let mut bytes = Vec::new();
            Frame { kind: Kind::Request, id, body: vec![7; LONGEST_BODY] }
                .write_to(&mut bytes)
                .unwrap();
            asks.write_all(&bytes).unwrap();
        }
    });
    thread::sleep(Duration::from_millis(300)); // the server takes what it takes
    let mut reader = BufReader::new(stream);
    for id in 0..REQUESTS {
        let frame = Frame::read(&mut reader).unwrap().expect("an answer");
        assert_eq!((frame.id, frame.body.len()), (id, LONGEST_BODY));
    }
    asks.join().unwrap();
}

/// The system does, which says so in a list of all connections.
#[test]
fn a_quiet_client_is_asked_whether_it_is_there() {
    let _limit = within_minutes();
    let server = Server::start(&Timer::new(), drop, |_| {}).unwrap();
    let client = TcpStream::connect(server.address()).unwrap();
    let port = |address: SocketAddr| format!(":{:04X}", address.port());
    let ends = [port(server.address()), port(client.local_addr().unwrap())];
    let began = Instant::now();
    loop {
        let list = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let mut lines = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|line| (0..2).all(|end| line[end + 1].ends_with(&ends[end])));
        if line.is_some_and(|line| line[5].starts_with("02:")) {
            break;
        }
        assert!(began.elapsed() < LONG, "{list}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_timer_that_stops_fails_the_calls_that_it_had() {
    let _limit = within_minutes();
    let still = Still::new();
    let answer = still.client.call(vec![1], LIMIT);
    let request = still.arrived();
    drop(still.timer.stop().expect("not inside a task"));
    assert_eq!(answer.wait().unwrap_err().why, Why::Timer(ScheduleErrorKind::Stopped));
    request.echo().unwrap();
    still.until(|account| account.late == 1 && account.failed == 1);
}

#[test]
fn of_a_hundred_thousand_requests_the_accounts_balance() {
    let _limit = within_minutes();
    let (timer, servers_timer) = (Timer::new(), Timer::new());
    let counts = Counts::default();
    thread::scope(|scope| {
        for connection in 0..4 {
            let (timer, servers_timer, counts) = (&timer, &servers_timer, &counts);
            scope.spawn(move || {
                let (server, seen) = Server::faulty(servers_timer).expect("a port");
                let client = Client::connect(server.address(), timer).expect("it listens");
                let due = AtomicU64::new(0);
                let ended = |fault: Fault, outcome: &_| {
                    counts.add(fault, outcome);
                    due.fetch_add(responses_to(fault, outcome), SeqCst);
                };
                // Blocking callers, and beside them one thread that awaits hundreds.
                thread::scope(|scope| {
                    for caller in 0..4 {
                        let (client, ended) = (&client, &ended);
                        scope.spawn(move || {
                            for number in 0..500 {
                                let (fault, limit) = fault(connection + caller + number);
                                ended(fault, &client.call(fault.body(), limit).wait());
                            }
                        });
                    }
                    block_on(await_many(&client, 23_000, ended));
                });
                // Late responses are on their way.
                let due = due.load(SeqCst);
                let written = || seen.responses.load(SeqCst);
                until(&client, |account| responses(account) == due && written() == due);
                balances(&client.account(), Some(&seen));
            });
        }
        // And connections that close in the middle of a frame, again and again.
        let (server, _) = Server::faulty(&servers_timer).expect("a port");
        for _ in 0..20 {
            let client = Client::connect(server.address(), &timer).expect("it listens");
            let waiting = FuturesUnordered::new();
            for number in 0..200 {
                let (fault, limit) =
                    if number == 150 { (Fault::Close, LONG) } else { fault(number) };
                let answer = client.call(fault.body(), limit);
                waiting.push(async move { (fault, answer.await) });
            }
            block_on(waiting.for_each(async |(fault, outcome)| counts.add(fault, &outcome)));
            balances(&client.account(), None);
        }
    });
    assert_eq!(counts.all.load(SeqCst), 4 * 25_000 + 20 * 200);
    assert_eq!(timer.pending(), 0);
    for (name, count) in [
        ("answered", &counts.answered),
        ("timed out", &counts.timed_out),
        ("closed", &counts.closed),
    ] {
        println!("{name}: {}", count.load(SeqCst));
        assert!(0 < count.load(SeqCst), "nothing {name}");
    }
}

async fn await_many(
    client: &Client,
    many: usize,
    ended: impl Fn(Fault, &Result<Vec<u8>, CallError>),
) {
    let mut waiting = FuturesUnordered::new();
    for number in 0..many {
        let (fault, limit) = fault(number);
        let answer = client.call(fault.body(), limit);
        waiting.push(async move { (fault, answer.await) });
        if waiting.len() == 500
            && let Some((fault, outcome)) = waiting.next().await
        {
            ended(fault, &outcome);
        }
    }
    waiting.for_each(async |(fault, outcome)| ended(fault, &outcome)).await;
}

/// What request `number` asks the server for, and how long the caller waits.
fn fault(number: usize) -> (Fault, Duration) {
    match number % 50 {
        7 => (Fault::Drop, SHORT),
        17 => (Fault::Twice, LONG),
        27 => (Fault::Unknown, SHORT),
        // Before the limit, at it, and after it.
        37 => (Fault::Delay(30 + (number % 40) as u8), SHORT),
        _ => (Fault::None, LONG),
    }
}

/// How many responses the server sends to a request that ended so.
fn responses_to(fault: Fault, outcome: &Result<Vec<u8>, CallError>) -> u64 {
    match (outcome, fault) {
        (Err(CallError { is_sent: false, .. }), _) | (_, Fault::Drop | Fault::Close) => 0,
        (_, Fault::Twice) => 2,
        (_, Fault::None | Fault::Delay(_) | Fault::Unknown) => 1,
    }
}

/// What the callers saw.
#[derive(Default)]
struct Counts {
    all: AtomicU64,
    answered: AtomicU64,
    timed_out: AtomicU64,
    closed: AtomicU64,
}

impl Counts {
    fn add(&self, fault: Fault, outcome: &Result<Vec<u8>, CallError>) {
        self.all.fetch_add(1, SeqCst);
        let count = match outcome {
            Ok(body) => {
                assert_eq!(*body, fault.body(), "the answer of another");
                assert!(!matches!(fault, Fault::Drop | Fault::Unknown | Fault::Close), "{fault:?}");
                &self.answered
            }
            Err(CallError { why: Why::TimedOut(limit), waited, .. }) => {
                assert!(limit <= waited, "early: {limit:?}, {waited:?}");
                assert!(!matches!(fault, Fault::None | Fault::Twice), "{fault:?}");
                &self.timed_out
            }
            Err(CallError { why: Why::Closed(_), .. }) => &self.closed,
            Err(error) => panic!("{error}"),
        };
        count.fetch_add(1, SeqCst);
    }
}

/// The account adds up, and that of the server too, unless the connection was closed.
fn balances(account: &Account, seen: Option<&Arc<Seen>>) {
    assert_eq!(account.pending, 0);
    assert_eq!(
        account.asked,
        account.answered + account.timed_out + account.failed + account.given_up,
        "{account:?}"
    );
    if let Some(seen) = seen {
        assert_eq!(account.sent, seen.requests.load(SeqCst), "{account:?}");
        assert_eq!(responses(account), seen.responses.load(SeqCst), "{account:?}");
        assert!(0 < account.late && 0 < account.unknown, "{account:?}");
    }
}

fn responses(account: &Account) -> u64 {
    account.answered + account.late + account.unknown
}

fn until(client: &Client, done: impl Fn(&Account) -> bool) -> Account {
    let began = Instant::now();
    loop {
        let account = client.account();
        if done(&account) {
            return account;
        }
        assert!(began.elapsed() < LONG, "{account:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

const LIMIT: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(50);
/// No test waits as long as this.
const LONG: Duration = Duration::from_secs(300);
