//! Systems at the limits of their process: files, threads and bytes. In a process of its own, one
//! test at a time, because the limits and the count of bytes are those of the process.

mod a_minute;

use a_minute::within_a_minute;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::{File, read_dir};
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use systems::frame::{Frame, Kind};
use systems::heartbeats::{Server, Settings};
use tickwheel::Timer;
use tokio::runtime::Runtime;

/// A server of heartbeats, and the runtime that it needs.
fn heartbeats(interval: Duration) -> (Server, Runtime) {
    let settings = Settings { timer: Timer::new(), interval, tell: Arc::new(|_| {}) };
    let runtime = Runtime::new().expect("threads");
    let address = ([127, 0, 0, 1], 0).into();
    (runtime.block_on(Server::start(address, settings)).expect("a port"), runtime)
}

#[test]
fn heartbeats_accept_again_as_soon_as_there_are_files() {
    let _alone = alone();
    let (server, _runtime) = heartbeats(Duration::from_secs(3_600));
    accepts_again_after_too_many_files(server.address(), Kind::Heartbeat);
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
    drop(full);
    assert!(answers(&mut second, kind), "it still rests");
    drop(files);
}

/// Asks, and waits for the answer.
fn answers(stream: &mut TcpStream, kind: Kind) -> bool {
    let mut bytes = Vec::new();
    Frame { kind, id: 1, body: Vec::new() }.write_to(&mut bytes).unwrap();
    stream.write_all(&bytes).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    matches!(Frame::read(&mut BufReader::new(stream)), Ok(Some(_)))
}

/// How many descriptors this process has.
fn descriptors() -> u64 {
    read_dir("/proc/self/fd").unwrap().count() as u64
}

/// A limit of this process, until it is dropped.
struct Limited(Resource, Rlimit);

impl Limited {
    fn to(resource: Resource, current: u64) -> Self {
        let was = getrlimit(resource);
        setrlimit(resource, Rlimit { current: Some(current), ..was }).unwrap();
        Self(resource, was)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        setrlimit(self.0, self.1).unwrap();
    }
}

/// One test at a time, and none for ever.
fn alone() -> (MutexGuard<'static, ()>, tickwheel::TimeoutGuard) {
    static ALONE: Mutex<()> = Mutex::new(());
    (ALONE.lock().unwrap_or_else(PoisonError::into_inner), within_a_minute())
}

/// No test waits as long as this for one thing.
const LONG: Duration = Duration::from_secs(25);
