//! One thread with an event loop and a timer: a server that forgets clients that are silent. The
//! timer has no thread of its own. Its hook wakes the loop by a datagram to itself.

use std::collections::HashMap;
use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::channel;
use std::time::Duration;
use tickwheel::{Timeout, Timer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let address = socket.local_addr()?;
    let (timer, mut driver) = Timer::builder().shards(1).build_driven()?;
    let waker = UdpSocket::bind("127.0.0.1:0")?;
    let wakes_up = waker.local_addr()?;
    driver.on_wake(move |_| drop(waker.send_to(&[], address)));

    // Two clients, of which one has more to say.
    for (name, messages) in [("terse", 1), ("chatty", 5)] {
        std::thread::spawn(move || -> Result<(), Error> {
            let client = UdpSocket::bind("127.0.0.1:0")?;
            for _ in 0..messages {
                client.send_to(name.as_bytes(), address)?;
                std::thread::sleep(SILENCE / 4);
            }
            Ok(())
        });
    }

    let (silent, forgotten) = channel::<SocketAddr>();
    let mut clients: HashMap<SocketAddr, (String, Timeout)> = HashMap::new();
    let (mut buffer, mut seen) = ([0; 512], 0);
    loop {
        let next = driver.turn();
        for client in forgotten.try_iter() {
            if let Some((name, _)) = clients.remove(&client) {
                println!("{name} is silent");
            }
        }
        if seen == 6 && clients.is_empty() {
            break;
        }
        // A socket cannot wait for no time at all.
        let wait = next.map(|next| next.saturating_duration_since(timer.now()));
        socket.set_read_timeout(wait.map(|wait| wait.max(Duration::from_millis(1))))?;
        match socket.recv_from(&mut buffer) {
            Ok((_, from)) if from == wakes_up => {}
            Ok((length, from)) => {
                seen += 1;
                if clients.get(&from).is_some_and(|(_, timeout)| timeout.reschedule(SILENCE)) {
                    continue;
                }
                let silent = silent.clone();
                let timeout = timer.schedule(SILENCE, move || _ = silent.send(from))?;
                let name = String::from_utf8_lossy(&buffer[..length]).into_owned();
                clients.insert(from, (name, timeout));
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error.into()),
        }
    }
    println!("{} messages, {} timeouts fired, no thread", seen, timer.stats().fired);
    Ok(())
}

const SILENCE: Duration = Duration::from_millis(40);
