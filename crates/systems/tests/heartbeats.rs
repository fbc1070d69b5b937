//! Heartbeats over real sockets: times by a clock that the test moves where that is possible, and
//! servers that are killed and stopped where it is not.

mod limit;

use limit::within_minutes;
use rustix::process::Signal;
use std::io::{BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use systems::frame::{Frame, Kind};
use systems::heartbeats::{Client, Event, Server, ServerProcess, Settings, open_files};
use tickwheel::{ManualClock, Timer};
use tokio::runtime::Runtime;

/// A timer on a clock that the test moves, and what happened, each with its time.
struct Still {
    clock: ManualClock,
    timer: Timer,
    start: Instant,
    runtime: Runtime,
    sender: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
}

impl Still {
    fn new() -> Self {
        Self::on(Runtime::new().expect("threads"))
    }

    fn on(runtime: Runtime) -> Self {
        let clock = ManualClock::new();
        let timer = Timer::builder().clock(clock.clone()).build().expect("in range");
        let (sender, events) = mpsc::channel();
        Self { start: clock.now(), clock, timer, runtime, sender, events }
    }

    /// Its clients run only when the test drives them.
    fn undriven() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Self::on(runtime.expect("it needs no thread"))
    }

    /// Lets the clients run until something happens, and returns what did.
    fn drive(&self, until: impl Fn(&Event) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        while !events.iter().any(&until) {
            self.runtime.block_on(async {
                tokio::time::sleep(Duration::from_millis(5)).await;
            });
            events.extend(self.events.try_iter());
        }
        events
    }

    fn settings(&self) -> Settings {
        let sender = self.sender.clone();
        let tell = Arc::new(move |event| _ = sender.send(event));
        Settings { timer: self.timer.clone(), interval: INTERVAL, tell }
    }

    fn client(&self, server: SocketAddr) -> Client {
        let _inside = self.runtime.enter();
        Client::start(server, self.settings())
    }

    fn server(&self) -> Server {
        let server = Server::start(LOOPBACK, self.settings());
        self.runtime.block_on(server).expect("a port")
    }

    /// Waits until something more than `scheduled` is in the timer, and nothing but that, because
    /// a client has lost its connection and pauses. Returns for how long.
    fn pause(&self, scheduled: u64) -> Duration {
        self.until(|| self.timer.stats().scheduled == scheduled + 1 && self.timer.pending() == 1);
        self.timer.next_deadline().expect("it pauses") - self.clock.now()
    }

    fn until(&self, done: impl Fn() -> bool) {
        let began = Instant::now();
        while !done() {
            assert!(began.elapsed() < LONG, "it does not come");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for the next event, and returns it with its time in seconds.
    fn next(&self) -> (&'static str, f64) {
        let (name, at) = match self.events.recv_timeout(LONG).expect("something happens") {
            Event::Connected(at) => ("connected", at),
            Event::Asked(at) => ("asked", at),
            Event::Alive(at) => ("alive", at),
            Event::Silent(at) => ("silent", at),
            Event::Closed(at) => ("closed", at),
        };
        (name, (at - self.start).as_secs_f64())
    }
}

#[test]
fn a_client_asks_after_an_interval_and_connects_again_after_three() {
    let _limit = within_minutes();
    let (still, listener) = (Still::new(), TcpListener::bind(LOOPBACK).unwrap());
    let _client = still.client(listener.local_addr().unwrap());
    // Nobody reads what the first connection brings.
    let (_first, _) = listener.accept().unwrap();
    assert_eq!(still.next(), ("connected", 0.0));
    let scheduled = still.timer.stats().scheduled;
    still.clock.advance(INTERVAL * 3);
    assert_eq!(still.next(), ("asked", 10.0));
    assert_eq!(still.next(), ("asked", 20.0));
    assert_eq!(still.next(), ("silent", 30.0));
    let pause = still.pause(scheduled);
    still.clock.advance(pause);
    listener.accept().unwrap();
    assert_eq!(still.next(), ("connected", (INTERVAL * 3 + pause).as_secs_f64()));
}

#[test]
fn a_hook_that_panics_ends_neither_a_connection_nor_a_client() {
    let _limit = within_minutes();
    let (still, listener) = (Still::new(), TcpListener::bind(LOOPBACK).unwrap());
    let Settings { tell, timer, interval } = still.settings();
    let tell = Arc::new(move |event| {
        tell(event);
        panic!("as it was meant to");
    });
    let _inside = still.runtime.enter();
    let _client = Client::start(listener.local_addr().unwrap(), Settings { timer, interval, tell });
    for _ in 0..2 {
        let (mut stream, _) = listener.accept().unwrap();
        assert_eq!(still.next().0, "connected");
        still.clock.advance(INTERVAL);
        assert_eq!(still.next().0, "asked");
        assert_eq!(read(&mut stream).kind, Kind::Heartbeat);
        write(&mut stream, &Frame::heartbeat(Kind::Alive));
        assert_eq!(still.next().0, "alive");
        let scheduled = still.timer.stats().scheduled;
        drop(stream);
        assert_eq!(still.next().0, "closed");
        let pause = still.pause(scheduled);
        still.clock.advance(pause);
    }
}

#[test]
fn pauses_double_until_a_connection_lives() {
    let _limit = within_minutes();
    let (still, listener) = (Still::new(), TcpListener::bind(LOOPBACK).unwrap());
    let _client = still.client(listener.local_addr().unwrap());
    let lose = |lives: u32| {
        let (mut stream, _) = listener.accept().unwrap();
        assert_eq!(still.next().0, "connected");
        for _ in 0..lives {
            still.clock.advance(INTERVAL);
            assert_eq!(still.next().0, "asked");
            write(&mut stream, &Frame::heartbeat(Kind::Alive));
            assert_eq!(still.next().0, "alive");
        }
        let scheduled = still.timer.stats().scheduled;
        drop(stream);
        assert_eq!(still.next().0, "closed");
        let pause = still.pause(scheduled);
        still.clock.advance(pause);
        pause
    };
    for (lives, longest) in [(0, 1), (0, 2), (15, 4), (0, 8), (0, 16), (0, 16), (17, 1), (0, 2)] {
        let (pause, longest) = (lose(lives), INTERVAL * longest);
        assert!(longest / 2 <= pause && pause <= longest, "{pause:?} of {longest:?}");
    }
}

#[test]
fn clients_that_lose_a_server_at_once_do_not_come_back_at_once() {
    let _limit = within_minutes();
    let (still, listener) = (Still::undriven(), TcpListener::bind(LOOPBACK).unwrap());
    let address = listener.local_addr().unwrap();
    let _clients: Vec<_> = (0..100).map(|_| still.client(address)).collect();
    let mut connected = 0;
    while connected < 100 {
        let events = still.drive(|event| matches!(event, Event::Connected(_)));
        connected += events.len();
    }
    still.clock.advance(INTERVAL * 3);
    let mut silent = 0;
    while silent < 100 {
        let events = still.drive(|event| matches!(event, Event::Silent(_)));
        silent += events.iter().filter(|event| matches!(event, Event::Silent(_))).count();
    }
    // Nobody drives them, so the pauses are all that the timer has.
    let mut times = Vec::new();
    while let Some(next) = still.timer.next_deadline() {
        times.push(next - still.start);
        still.clock.advance(next - still.clock.now());
    }
    let (first, last) = (times[0], times[times.len() - 1]);
    assert!(INTERVAL * 7 / 2 <= first && last <= INTERVAL * 4, "{first:?} to {last:?}");
    assert!(50 < times.len(), "{times:?}");
}

#[test]
fn a_client_that_is_late_itself_reads_before_it_believes_in_silence() {
    let _limit = within_minutes();
    for _ in 0..10 {
        let (still, listener) = (Still::undriven(), TcpListener::bind(LOOPBACK).unwrap());
        let _client = still.client(listener.local_addr().unwrap());
        still.drive(|event| matches!(event, Event::Connected(_)));
        let (mut stream, _) = listener.accept().unwrap();
        write(&mut stream, &Frame::heartbeat(Kind::Alive));
        still.clock.advance(INTERVAL * 3);
        let is_told = |event: &Event| !matches!(event, Event::Asked(_));
        let events = still.drive(is_told);
        let told = events.into_iter().find(is_told);
        assert_eq!(told, Some(Event::Alive(still.clock.now())));
    }
}

#[test]
fn a_frame_that_does_not_end_closes_the_connection_after_three_intervals() {
    let _limit = within_minutes();
    let still = Still::new();
    let server = still.server();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    assert_eq!(still.next(), ("connected", 0.0));
    let mut bytes = Vec::new();
    Frame { kind: Kind::Request, id: 1, body: vec![1; 9] }.write_to(&mut bytes).unwrap();
    stream.write_all(&bytes[..15]).unwrap();
    still.until(|| still.timer.pending() == 2);
    drips_until_it_is_closed(&still, &mut stream, &bytes[15..]);
}

#[test]
fn a_client_that_asks_and_does_not_read_is_closed_three_intervals_later() {
    let _limit = within_minutes();
    let still = Still::new();
    let server = still.server();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let mut asks = stream.try_clone().unwrap();
    assert_eq!(still.next(), ("connected", 0.0));
    let mut bytes = Vec::new();
    Frame { kind: Kind::Request, id: 1, body: vec![1; 100_000] }.write_to(&mut bytes).unwrap();
    let mut lives = |at| {
        write(&mut stream, &Frame::heartbeat(Kind::Alive));
        assert_eq!(still.next(), ("alive", at));
    };
    // Until the server has read all that came, and an answer is not taken: not in a while either.
    lives(0.0);
    let mut looks = 0;
    while looks < 100 {
        if still.timer.pending() == 1 {
            asks.write_all(&bytes).unwrap();
            looks = 0;
        } else {
            std::thread::sleep(Duration::from_millis(10));
            looks += 1;
        }
        lives(0.0);
    }
    for step in 0..5 {
        lives(f64::from(step * 6));
        still.clock.advance(INTERVAL * 3 / 5);
    }
    assert_eq!(still.next(), ("closed", 30.0));
}

/// The connection is never silent, and is closed in time nevertheless.
fn drips_until_it_is_closed(still: &Still, stream: &mut TcpStream, bytes: &[u8]) {
    for byte in &bytes[..5] {
        assert_eq!(still.events.try_recv(), Err(mpsc::TryRecvError::Empty));
        // It is closed when it should be, whether the server has read that or not.
        stream.write_all(&[*byte]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        still.clock.advance(INTERVAL * 3 / 5);
    }
    assert_eq!(still.next().1, 30.0);
}

#[test]
fn a_server_that_stops_reading_is_left_three_intervals_later() {
    let _limit = within_minutes();
    let (still, listener) = (Still::new(), TcpListener::bind(LOOPBACK).unwrap());
    let _client = still.client(listener.local_addr().unwrap());
    let (mut stream, _) = listener.accept().unwrap();
    assert_eq!(still.next(), ("connected", 0.0));
    for beat in 1..=5 {
        still.clock.advance(INTERVAL);
        assert_eq!(still.next(), ("asked", f64::from(beat * 10)));
        assert_eq!(read(&mut stream).kind, Kind::Heartbeat);
        write(&mut stream, &Frame::heartbeat(Kind::Alive));
        assert_eq!(still.next(), ("alive", f64::from(beat * 10)));
    }
    still.clock.advance(INTERVAL * 3);
    let events: Vec<_> = (0..3).map(|_| still.next()).collect();
    assert_eq!(events, [("asked", 60.0), ("asked", 70.0), ("silent", 80.0)]);
}

#[test]
fn a_server_closes_after_three_silent_intervals_and_not_before() {
    let _limit = within_minutes();
    let still = Still::new();
    let server = still.server();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    assert_eq!(still.next(), ("connected", 0.0));
    still.clock.advance(INTERVAL * 2);
    write(&mut stream, &Frame::heartbeat(Kind::Heartbeat));
    assert_eq!(read(&mut stream).kind, Kind::Alive);
    still.clock.advance(INTERVAL * 3 - Duration::from_nanos(1));
    assert_eq!(still.events.try_recv(), Err(mpsc::TryRecvError::Empty));
    still.clock.advance(Duration::from_nanos(1));
    assert_eq!(still.next(), ("silent", 50.0));
    stream.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it is closed");
    assert_eq!(still.timer.pending(), 0);
}

#[test]
fn a_client_does_not_ask_while_there_is_traffic_both_ways() {
    let _limit = within_minutes();
    let (still, listener) = (Still::new(), TcpListener::bind(LOOPBACK).unwrap());
    let client = still.client(listener.local_addr().unwrap());
    let (mut stream, _) = listener.accept().unwrap();
    assert_eq!(still.next(), ("connected", 0.0));
    for _ in 0..10 {
        still.clock.advance(INTERVAL * 2 / 3);
        still.runtime.block_on(client.send(Frame { kind: Kind::Request, id: 1, body: vec![1] }));
        assert_eq!(read(&mut stream).kind, Kind::Request);
        write(&mut stream, &Frame::heartbeat(Kind::Alive));
        assert_eq!(still.next().0, "alive");
    }
}

#[test]
fn a_client_that_only_hears_asks_too() {
    let _limit = within_minutes();
    let (still, listener) = (Still::new(), TcpListener::bind(LOOPBACK).unwrap());
    let _client = still.client(listener.local_addr().unwrap());
    let (mut stream, _) = listener.accept().unwrap();
    assert_eq!(still.next(), ("connected", 0.0));
    still.clock.advance(INTERVAL / 2);
    write(&mut stream, &Frame::heartbeat(Kind::Alive));
    assert_eq!(still.next(), ("alive", 5.0));
    still.clock.advance(INTERVAL / 2);
    assert_eq!(still.next(), ("asked", 10.0), "nothing was written");
}

#[test]
fn a_connection_that_closes_when_it_is_given_up_ends_once() {
    let _limit = within_minutes();
    for _ in 0..10 {
        // Both reasons are there before the client looks.
        let (still, listener) = (Still::undriven(), TcpListener::bind(LOOPBACK).unwrap());
        let _client = still.client(listener.local_addr().unwrap());
        still.drive(|event| matches!(event, Event::Connected(_)));
        drop(listener.accept().unwrap());
        still.clock.advance(INTERVAL * 3);
        let is_end = |event: &Event| matches!(event, Event::Silent(_) | Event::Closed(_));
        let events = still.drive(is_end);
        assert_eq!(events.iter().filter(|event| is_end(event)).count(), 1, "{events:?}");
    }
}

#[test]
fn what_is_not_a_frame_closes_the_connection() {
    let _limit = within_minutes();
    let still = Still::new();
    let server = still.server();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    assert_eq!(still.next(), ("connected", 0.0));
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(still.next(), ("closed", 0.0));
}

#[test]
fn a_timer_that_stops_closes_what_it_watched() {
    let _limit = within_minutes();
    let still = Still::new();
    let server = still.server();
    let _client = still.client(server.address());
    assert_eq!([still.next(), still.next()], [("connected", 0.0); 2]);
    drop(still.timer.stop().expect("not inside a task"));
    assert_eq!([still.next(), still.next()], [("closed", 0.0); 2]);
}

#[test]
fn a_thousand_connections_on_one_timer_beat_at_their_times() {
    let _limit = within_minutes();
    open_files().unwrap();
    let still = Still::new();
    let server = still.server();
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.extend((0..100).map(|_| still.client(server.address())));
        for _ in 0..200 {
            assert_eq!(still.next(), ("connected", 0.0), "both ends");
        }
    }
    assert_eq!(still.timer.pending(), 2_000);
    for beat in 1..=10 {
        still.clock.advance(INTERVAL);
        let mut events: Vec<_> = (0..2_000).map(|_| still.next()).collect();
        events.sort_by(|one, other| one.0.cmp(other.0));
        let at = f64::from(beat * 10);
        assert_eq!(events, [[("alive", at); 1_000], [("asked", at); 1_000]].concat());
    }
    assert_eq!(still.timer.pending(), 2_000);
    drop(server);
    for _ in 0..1_000 {
        assert_eq!(still.next(), ("closed", 100.0));
    }
}

#[test]
fn all_clients_of_a_server_that_was_killed_are_back() {
    let _limit = within_minutes();
    open_files().unwrap();
    // Also where a busy machine holds up a process for three seconds.
    let interval = Duration::from_secs(1);
    let server = ServerProcess::start(program(), LOOPBACK, interval).unwrap();
    let crowd = Crowd::new(1_000, server.address, interval);
    crowd.until(1_000);
    let address = server.address;
    drop(server); // by SIGKILL
    crowd.until(0);
    let server = ServerProcess::start(program(), address, interval).unwrap();
    crowd.until(1_000);
    drop(server);
    crowd.until(0);
    let _server = ServerProcess::start(program(), address, interval).unwrap();
    crowd.until(1_000);
}

#[test]
fn a_server_that_was_stopped_and_goes_on_has_all_clients_again() {
    let _limit = within_minutes();
    open_files().unwrap();
    // Also where a busy machine holds up a process for three seconds.
    let interval = Duration::from_secs(1);
    let server = ServerProcess::start(program(), LOOPBACK, interval).unwrap();
    let crowd = Crowd::new(100, server.address, interval);
    crowd.until(100);
    server.process.signal(Signal::STOP).unwrap();
    // The system still takes connections, so that nothing but silence tells.
    crowd.until_silent(100);
    server.process.signal(Signal::CONT).unwrap();
    crowd.until_answered();
    crowd.until(100);
}

/// Clients in real time.
struct Crowd {
    _clients: Vec<Client>,
    _runtime: Runtime,
    state: Arc<Mutex<State>>,
}

/// What each client has: when it connected, if it is, and when it had an answer since.
#[derive(Clone, Default)]
struct Seen {
    connected: Option<Instant>,
    alive: Option<Instant>,
}

#[derive(Default)]
struct State {
    clients: Vec<Seen>,
    silent: usize,
}

impl Crowd {
    fn new(clients: usize, server: SocketAddr, interval: Duration) -> Self {
        let (runtime, timer) = (Runtime::new().unwrap(), Timer::new());
        let state = Arc::new(Mutex::new(State::default()));
        state.lock().unwrap().clients.resize_with(clients, Seen::default);
        let clients = (0..clients).map(|number| {
            let state = Arc::clone(&state);
            let tell = Arc::new(move |event| {
                let mut state = state.lock().unwrap();
                let seen = &mut state.clients[number];
                match event {
                    Event::Connected(at) => *seen = Seen { connected: Some(at), alive: None },
                    Event::Alive(at) => seen.alive = Some(at),
                    Event::Asked(_) => {}
                    Event::Closed(_) => *seen = Seen::default(),
                    Event::Silent(at) => {
                        let last = seen.alive.or(seen.connected).expect("it was connected");
                        // An answer may come in just after the connection was given up.
                        assert!(at < last || interval * 3 <= at - last, "early: {:?}", at - last);
                        *seen = Seen::default();
                        state.silent += 1;
                    }
                }
            });
            let _inside = runtime.enter();
            Client::start(server, Settings { timer: timer.clone(), interval, tell })
        });
        let clients = clients.collect();
        Self { _clients: clients, _runtime: runtime, state }
    }

    fn until(&self, connected: usize) {
        self.wait(|state| {
            state.clients.iter().filter(|seen| seen.connected.is_some()).count() == connected
        });
    }

    fn until_silent(&self, times: usize) {
        self.wait(|state| times <= state.silent);
    }

    fn until_answered(&self) {
        self.wait(|state| state.clients.iter().all(|seen| seen.alive.is_some()));
    }

    fn wait(&self, done: impl Fn(&State) -> bool) {
        let began = Instant::now();
        while !done(&self.state.lock().unwrap()) {
            assert!(began.elapsed() < LONG, "it does not come");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn read(stream: &mut TcpStream) -> Frame {
    stream.set_read_timeout(Some(LONG)).unwrap();
    Frame::read(&mut BufReader::new(stream)).unwrap().expect("a frame comes")
}

fn write(stream: &mut TcpStream, frame: &Frame) {
    let mut bytes = Vec::new();
    frame.write_to(&mut bytes).unwrap();
    stream.write_all(&bytes).unwrap();
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_heartbeats"))
}

const INTERVAL: Duration = Duration::from_secs(10);
/// No test waits as long as this for one thing.
const LONG: Duration = Duration::from_secs(300);
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
