//! One thread with an event loop on mio, and a timer that has no thread of its own: a server that
//! forgets clients that are silent. Another thread, which plays the operator, ends the pauses early.
//!
//!     cargo run --example driver

use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token, Waker};
use std::collections::HashMap;
use std::error::Error;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;
use tickwheel::{Timeout, Timer};

fn main() -> Result<(), Box<dyn Error>> {
    let mut poll = Poll::new()?;
    let mut socket = UdpSocket::bind("127.0.0.1:0".parse()?)?;
    poll.registry().register(&mut socket, CLIENTS, Interest::READABLE)?;
    let waker = Waker::new(poll.registry(), TIMER)?;
    let (timer, mut driver) = Timer::builder().shards(1).build_driven()?;
    driver.on_wake(move |_| waker.wake().expect("the system has room"));

    // Two clients, of which one has more to say, and a thread that schedules.
    let address = socket.local_addr()?;
    let clients = [("terse", 1), ("chatty", 5)]
        .map(|(name, count)| thread::spawn(move || say(address, name, count)));
    let other = timer.clone();
    let operator = thread::spawn(move || other.schedule(SILENCE / 2, || println!("half a pause")));

    let (silent, forgotten) = channel();
    let mut server = Server { timer: timer.clone(), silent, clients: HashMap::new(), seen: 0 };
    let mut events = Events::with_capacity(16);
    loop {
        let next = driver.turn();
        for client in forgotten.try_iter() {
            if let Some((name, _)) = server.clients.remove(&client) {
                println!("{name} is silent");
            }
        }
        if server.seen == 6 && server.clients.is_empty() {
            break;
        }
        let wait = next.map(|next| next.saturating_duration_since(timer.now()));
        match poll.poll(&mut events, wait) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
            _ => server.receive(&socket)?,
        }
    }
    drop(operator.join().expect("it ends")?);
    for client in clients {
        client.join().expect("it ends")?;
    }
    println!("{} messages, {} timeouts fired, no thread", server.seen, timer.stats().fired);
    Ok(())
}

struct Server {
    timer: Timer,
    /// Of clients whose timeouts fired.
    silent: Sender<SocketAddr>,
    clients: HashMap<SocketAddr, (String, Timeout)>,
    seen: usize,
}

impl Server {
    /// Takes all messages that have come, and gives each sender more time.
    fn receive(&mut self, socket: &UdpSocket) -> Result<(), Box<dyn Error>> {
        let mut buffer = [0; 512];
        loop {
            let (length, from) = match socket.recv_from(&mut buffer) {
                Ok(message) => message,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            self.seen += 1;
            if self.clients.get(&from).is_some_and(|(_, timeout)| timeout.reschedule(SILENCE)) {
                continue;
            }
            let silent = self.silent.clone();
            let timeout = self.timer.schedule(SILENCE, move || _ = silent.send(from))?;
            let name = String::from_utf8_lossy(&buffer[..length]).into_owned();
            self.clients.insert(from, (name, timeout));
        }
    }
}

fn say(address: SocketAddr, name: &str, count: u32) -> io::Result<()> {
    let client = std::net::UdpSocket::bind("127.0.0.1:0")?;
    for _ in 0..count {
        client.send_to(name.as_bytes(), address)?;
        thread::sleep(SILENCE / 4);
    }
    Ok(())
}

const CLIENTS: Token = Token(0);
const TIMER: Token = Token(1);
const SILENCE: Duration = Duration::from_millis(40);
