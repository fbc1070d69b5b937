//! Systems at the limits of their process: files, threads and bytes. In a process of its own, one
//! test at a time, because the limits and the count of bytes are those of the process.

mod limit;

use cap::Cap;
use cpu_time::ProcessTime;
use limit::within_minutes;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketType, connect, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::alloc::System;
use std::fs::{File, read_dir, read_to_string};
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::{Builder, park, sleep};
use std::time::{Duration, Instant};
use systems::frame::{Frame, Kind, LONGEST_BODY};
use systems::heartbeats::{Server, Settings, open_files};
use systems::purgatory::{Ask, Broker};
use systems::push_server::PushServer;
use systems::requests::{self, Client, Request};
use tickwheel::{ManualClock, Timer};
use tokio::runtime::Runtime;

#[global_allocator]
static ALLOCATED: Cap<System> = Cap::new(System, usize::MAX);

/// One at a time, on one thread, which the harness neither starts nor ends meanwhile.
#[test]
fn systems_at_the_limits_of_their_process() {
    macro_rules! in_turn {
        ($($test:ident,)+) => {$({
            println!("{}", stringify!($test));
            let _limit = within_minutes();
            $test();
            sleep(Duration::from_millis(300)); // what it leaves to others ends
        })+};
    }
    in_turn! {
        // First, because it counts threads.
        a_client_without_its_threads_is_an_error_and_leaves_nothing,
        heartbeats_accept_again_as_soon_as_there_are_files,
        requests_are_accepted_again_as_soon_as_there_are_files,
        a_thread_that_cannot_be_had_ends_no_server,
        clients_that_ask_and_do_not_read_take_no_more_than_their_room_and_leave_others_theirs,
        clients_that_begin_and_do_not_go_on_take_little_and_leave_nothing,
        clients_that_left_keep_no_descriptor,
        answers_that_are_not_read_take_no_more_than_their_room,
        fetches_that_ended_leave_no_memory,
        answers_of_a_push_server_that_are_not_read_take_no_more_than_their_room,
    }
}

/// A server of heartbeats, and the runtime that it needs.
fn heartbeats(interval: Duration) -> (Server, Runtime) {
    let settings = Settings { timer: Timer::new(), interval, tell: Arc::new(|_| {}) };
    let runtime = Runtime::new().expect("threads");
    (runtime.block_on(Server::start(LOOPBACK, settings)).expect("a port"), runtime)
}

fn heartbeats_accept_again_as_soon_as_there_are_files() {
    let (server, _runtime) = heartbeats(Duration::from_secs(3_600));
    accepts_again_after_too_many_files(server.address(), Kind::Heartbeat);
}

fn requests_are_accepted_again_as_soon_as_there_are_files() {
    let server = echoes(&Timer::new());
    accepts_again_after_too_many_files(server.address(), Kind::Request);
}

fn a_thread_that_cannot_be_had_ends_no_server() {
    let server = echoes(&Timer::new());
    // Its own threads run, and have their memory.
    assert!(answers(&mut TcpStream::connect(server.address()).unwrap(), Kind::Request));
    let memory = Limited::to(Resource::As, status("VmSize") + (64 << 20));
    let mut clients: Vec<_> = (0..200).map(|_| TcpStream::connect(server.address())).collect();
    let answered = clients
        .iter_mut()
        .all(|stream| answers(stream.as_mut().expect("it listens"), Kind::Request));
    drop(memory);
    assert!(answered, "it accepts no more");
}

fn a_client_without_its_threads_is_an_error_and_leaves_nothing() {
    let (server, timer) = (echoes(&Timer::new()), Timer::new());
    // All threads run that are not the client's own.
    timer.schedule(Duration::ZERO, || {}).unwrap();
    assert!(answers(&mut TcpStream::connect(server.address()).unwrap(), Kind::Request));
    let threads = status("Threads");
    drop(Client::connect(server.address(), &timer).unwrap());
    // The system counts one for a moment more than it can be joined.
    until(|| status("Threads") == threads);
    let mut others: Vec<_> = (0..2).map(|_| Builder::new().spawn(park).unwrap()).collect();
    sleep(Duration::from_millis(100));
    // Room for other things, and not for one more stack: only those of threads that are gone serve.
    let memory = Limited::to(Resource::As, status("VmSize") + (1 << 20));
    while let Ok(other) = Builder::new().spawn(park) {
        others.push(other);
    }
    let before = (descriptors(), status("Threads"));
    // No thread is left, then one, and then both.
    let connected = [0, 1, 2].map(|threads| {
        for other in others.drain(..threads) {
            other.thread().unpark();
            other.join().unwrap();
        }
        let client = Client::connect(server.address(), &timer);
        let is_connected = client.is_ok();
        drop(client);
        until(|| descriptors() <= before.0 && status("Threads") + threads as u64 == before.1);
        while let Ok(other) = Builder::new().spawn(park) {
            others.push(other);
        }
        is_connected && before.1 == status("Threads")
    });
    for other in others {
        other.thread().unpark();
    }
    drop(memory);
    assert_eq!(connected, [false, false, true]);
}

fn clients_that_ask_and_do_not_read_take_no_more_than_their_room_and_leave_others_theirs() {
    let (beats, _runtime) = heartbeats(Duration::from_secs(3_600));
    // Nobody is closed because it is slow.
    let still = Timer::builder().clock(ManualClock::new()).build().expect("in range");
    let echoes = echoes(&still);
    for server in [beats.address(), echoes.address()] {
        let before = ALLOCATED.allocated();
        let bytes = frame(Kind::Request, vec![7; LONGEST_BODY]);
        let mut clients = Vec::new();
        let mut held = |number| {
            clients.resize_with(number, || write_all_it_takes(server, &bytes));
            ALLOCATED.allocated().saturating_sub(before)
        };
        let (few, many) = (held(10), held(30));
        println!("bytes held of 10 clients: {few}, of 30: {many}");
        assert!(few < 10 * MOST_OF_ONE + (8 << 20), "{few} bytes");
        assert!(many < MOST_OF_ALL + (16 << 20), "{many} bytes");
        for _ in 0..3 {
            let mut honest = TcpStream::connect(server).unwrap();
            assert!(is_answered(&mut honest, &bytes), "all room is theirs");
        }
        clients.clear();
        until(|| ALLOCATED.allocated() < before + (4 << 20));
    }
}

fn clients_that_begin_and_do_not_go_on_take_little_and_leave_nothing() {
    let clients = 1_000.min(open_files().unwrap() as usize / 4);
    let still = Timer::builder().clock(ManualClock::new()).build().expect("in range");
    let (beats, _runtime) = heartbeats(LONG);
    let (echoes, push) = (echoes(&still), PushServer::start(LOOPBACK, LONG, LONG).unwrap());
    let asks = frame(Kind::Request, vec![7; 1_000]);
    let get: &[u8] = b"GET /poll?user=ann HTTP/1.1\r\nCookie: a";
    let attacks = [(beats.address(), &asks[..100]), (echoes.address(), &asks[..100])];
    for (server, begin) in attacks.into_iter().chain([(push.address, get)]) {
        let before = (ALLOCATED.allocated(), descriptors());
        let all: Vec<_> = (0..clients)
            .map(|_| {
                let mut stream = TcpStream::connect(server).unwrap();
                stream.write_all(begin).unwrap();
                stream
            })
            .collect();
        // Those of the test before may still go.
        until(|| before.1 + 2 * (clients as u64) < descriptors() + 100);
        sleep(Duration::from_millis(200)); // what has come is read
        let each = ALLOCATED.allocated().saturating_sub(before.0) / clients;
        drop(all);
        until(|| descriptors() <= before.1);
        until(|| ALLOCATED.allocated() < before.0 + (4 << 20));
        println!("{clients} clients: {each} bytes each, and no descriptor when they left");
        assert!(each < 32 << 10, "{each} bytes");
    }
}

fn clients_that_left_keep_no_descriptor() {
    const CLIENTS: usize = 2_000;
    let files = open_files().unwrap() as usize / 4;
    let clients = CLIENTS.min(files);
    let broker = Broker::start(&Timer::new(), 1, 0).unwrap();
    let before = descriptors();
    let ask = Ask::Fetch { partition: 0, millis: u32::MAX, follower: 0, offset: 0, least: 1 };
    let bytes = frame(Kind::Request, ask.body());
    let all: Vec<_> = (0..clients)
        .map(|_| {
            let mut stream = TcpStream::connect(broker.address()).unwrap();
            stream.write_all(&bytes).unwrap();
            stream
        })
        .collect();
    until(|| broker.delayed() == (0, clients));
    let while_they_wait = descriptors() - before;
    drop(all);
    until(|| broker.delayed() == (0, 0));
    until(|| descriptors() <= before);
    println!("{clients} clients: {while_they_wait} descriptors, and none when they left");
}

fn answers_that_are_not_read_take_no_more_than_their_room() {
    let broker = Broker::start(&Timer::new(), 1, 0).unwrap();
    let client = Client::connect(broker.address(), &Timer::new()).unwrap();
    let bytes = vec![7; LONGEST_BODY - 100];
    let produce = Ask::Produce { partition: 0, millis: 0, bytes };
    assert_eq!(client.call(produce.body(), LONG).wait(), Ok(vec![1]));
    let before = ALLOCATED.allocated();
    // All of them expire, and are answered with a megabyte each: 2,000 in sum.
    let (millis, least) = (2_000, 1 << 20);
    let ask = Ask::Fetch { partition: 0, millis, follower: 0, offset: 1, least };
    let bytes = frame(Kind::Request, ask.body());
    let clients: Vec<_> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(broker.address()).unwrap();
            stream.write_all(&bytes.repeat(20)).unwrap();
            stream
        })
        .collect();
    let mut most = 0;
    while broker.delayed() != (0, 0) || most == 0 {
        most = most.max(ALLOCATED.allocated().saturating_sub(before));
        sleep(Duration::from_millis(1));
    }
    for _ in 0..100 {
        most = most.max(ALLOCATED.allocated().saturating_sub(before));
        sleep(Duration::from_millis(1));
    }
    println!("bytes held of 2,000 answers that nobody reads: {most}");
    assert!(most < MOST_OF_ALL + (16 << 20), "{most} bytes");
    // Nobody waits for an answer that had no room.
    for stream in clients {
        stream.set_read_timeout(Some(LONG / 5)).unwrap();
        let mut reader = BufReader::new(stream);
        let error = (0..20).find_map(|_| match Frame::read(&mut reader) {
            Ok(Some(_)) => None,
            Ok(None) => Some(None),
            Err(error) => Some(error.raw_os_error()),
        });
        assert_ne!(error, Some(Some(11)), "it is neither answered nor closed");
    }
}

fn fetches_that_ended_leave_no_memory() {
    let (timer, real) = (Timer::new(), Timer::new());
    let broker = Broker::start(&timer, 1, 0).unwrap();
    let client = Client::connect(broker.address(), &real).unwrap();
    let mut left = Vec::new();
    // Each waits for another length.
    for round in 0..10 {
        let fetch = |least| Ask::Fetch { partition: 0, millis: 0, follower: 0, offset: 0, least };
        let asks = (1..=5_000).map(|least| fetch(round * 5_000 + least).body());
        let answers: Vec<_> = asks.map(|ask| client.call(ask, LONG)).collect();
        assert!(answers.into_iter().all(|answer| answer.wait() == Ok(Vec::new())));
        left.push(ALLOCATED.allocated());
    }
    println!("bytes after each 5,000 fetches: {left:?}");
    assert!(left[9] < left[0] + (1 << 20), "it grows");
}

fn answers_of_a_push_server_that_are_not_read_take_no_more_than_their_room() {
    let server = PushServer::start(LOOPBACK, LONG, LONG).unwrap();
    let send = |request: &str| {
        // The system holds little of an answer.
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        set_socket_recv_buffer_size(&socket, 4_096).unwrap();
        connect(&socket, &server.address).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let says = |request: &str| {
        let mut answer = String::new();
        BufReader::new(send(request)).read_line(&mut answer).unwrap();
        answer
    };
    let publish = |text: &str| {
        let length = text.len();
        says(&format!("POST /publish?to=ann HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{text}"))
    };
    const GET: &str = "GET /waiting HTTP/1.1\r\n\r\n";
    let poll = "GET /poll?user=ann HTTP/1.1\r\n\r\n";
    let ann = send(poll);
    until(|| publish("hello").contains("200"));
    drop(ann);
    // Six bytes of an answer are one of these.
    let text = "\u{1}".repeat(16 << 10);
    assert!((0..100).all(|_| publish(&text).contains("200")));
    let before = ALLOCATED.allocated();
    let clients: Vec<_> = (0..160).map(|_| send(&poll.repeat(6))).collect();
    assert!(says(GET).contains("200"), "others are answered");
    let (mut most, mut same) = (0, 0);
    while same < 20 {
        sleep(Duration::from_millis(20));
        let held = ALLOCATED.allocated().saturating_sub(before);
        same = if held <= most { same + 1 } else { 0 };
        most = most.max(held);
    }
    println!("bytes held of answers that 160 browsers do not read: {most}");
    assert!(most < MOST_OF_ALL + (32 << 20), "{most} bytes");
    assert!(publish("hello").contains("200"), "who wants little finds room");
    drop(clients);
    until(|| ALLOCATED.allocated() < before + (4 << 20));
}

/// A server that answers each request with its body.
fn echoes(timer: &Timer) -> requests::Server {
    let echo = |request: Request| drop(request.echo());
    requests::Server::start(timer, echo, |_| {}).expect("a port")
}

/// Connects, and writes frames until the other side takes no more.
fn write_all_it_takes(server: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    while stream.write_all(bytes).is_ok() {}
    stream
}

/// A number of this process: bytes, where it is one of kilobytes.
fn status(name: &str) -> u64 {
    let status = read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let mut words = line.expect("it is there").split_whitespace();
    let number: u64 = words.next().expect("a number").parse().unwrap();
    number * if words.next() == Some("kB") { 1_024 } else { 1 }
}

fn until(done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < LONG, "it does not come");
        sleep(Duration::from_millis(5));
    }
}

/// Leaves the server no file for a connection, and then some.
fn accepts_again_after_too_many_files(server: SocketAddr, kind: Kind) {
    let mut first = TcpStream::connect(server).unwrap();
    assert!(answers(&mut first, kind));
    let files = Limited::to(Resource::Nofile, descriptors() + 8);
    let mut full: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    full.pop();
    // The last file is that of this side.
    let mut second = TcpStream::connect(server).unwrap();
    // The server takes turns, so it has tried to accept the second before it answers the first.
    assert!(answers(&mut first, kind));
    let (began, cpu) = (Instant::now(), ProcessTime::now());
    sleep(Duration::from_millis(500));
    assert!(cpu.elapsed() < began.elapsed() / 5, "it tries without a rest");
    drop(full);
    assert!(answers(&mut second, kind), "it still rests");
    drop(files);
}

/// Asks, and waits for the answer.
fn answers(stream: &mut TcpStream, kind: Kind) -> bool {
    is_answered(stream, &frame(kind, Vec::new()))
}

fn is_answered(stream: &mut TcpStream, frame: &[u8]) -> bool {
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(frame).is_ok()
        && matches!(Frame::read(&mut BufReader::new(stream)), Ok(Some(_)))
}

fn frame(kind: Kind, body: Vec<u8>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Frame { kind, id: 1, body }.write_to(&mut bytes).unwrap();
    bytes
}

/// How many descriptors this process has.
fn descriptors() -> u64 {
    read_dir("/proc/self/fd").unwrap().count() as u64
}

/// A limit of this process, until it is dropped.
struct Limited(Resource, Rlimit);

impl Limited {
    fn to(resource: Resource, current: u64) -> Self {
        let before = getrlimit(resource);
        setrlimit(resource, Rlimit { current: Some(current), ..before }).unwrap();
        Self(resource, before)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        setrlimit(self.0, self.1).unwrap();
    }
}

const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// No test waits as long as this for one thing.
const LONG: Duration = Duration::from_secs(300);

/// What the README says that one connection may hold, and all of them.
const MOST_OF_ONE: usize = 4 << 20;
const MOST_OF_ALL: usize = 64 << 20;
