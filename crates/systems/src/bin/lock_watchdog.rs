//! Locks in Redis, and what becomes of them when a holder is killed or stopped, or Redis restarts.

use rustix::process::Signal;
use std::env::{args, current_exe};
use std::error::Error;
use std::sync::mpsc;
use std::thread::sleep;
use std::time::{Duration, Instant};
use systems::lock_watchdog::{LockError, Locks, hold, start_holder};
use systems::redis_server::RedisServer;
use tickwheel::Timer;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = args().collect();
    if let [_, hold_, url, lease] = &words[..] {
        assert_eq!(hold_, "hold", "the program needs no arguments");
        return hold(url, Duration::from_millis(lease.parse()?));
    }
    let mut server = match RedisServer::start() {
        Ok(server) => server,
        Err(error) => return Err(format!("no redis-server: {error}").into()),
    };

    let (lost, losses) = mpsc::channel();
    let timer = Timer::builder().tick(Duration::from_millis(10)).build()?;
    let tell = move |name: &str, _| lost.send(name.to_owned()).unwrap_or_default();
    let locks = Locks::new(&server.url(), &timer, LEASE, tell)?;
    let names: Vec<String> = (0..1_000).map(|number| format!("order {number}")).collect();
    let held: Result<Vec<_>, _> = names.iter().map(|name| locks.try_lock(name, "ann")).collect();
    let held = held?;
    sleep(LEASE);
    let (renewals, pipelines) = locks.renewals();
    println!("{} locks: {renewals} renewals in {pipelines} pipelines", held.len());

    let holder = start_holder(&current_exe()?, &server.url(), LEASE)?;
    holder.signal(Signal::KILL)?;
    let killed = Instant::now();
    let stock = loop {
        match locks.try_lock("stock", "ann") {
            Err(LockError::Taken(left)) => sleep(left.min(Duration::from_millis(10))),
            result => break result?,
        }
    };
    println!("a holder was killed, and its lock was free after {:?}", killed.elapsed());
    stock.unlock()?;

    let mut holder = start_holder(&current_exe()?, &server.url(), LEASE)?;
    holder.signal(Signal::STOP)?;
    sleep(LEASE * 2);
    let mut other = start_holder(&current_exe()?, &server.url(), LEASE)?;
    other.tell("write")?;
    println!("a holder was stopped, and the next one has {}", other.answer()?);
    for word in ["write", "write unchecked"] {
        holder.tell(word)?;
    }
    holder.signal(Signal::CONT)?;
    println!("it goes on: its check says {}, its write was {}", holder.answer()?, holder.answer()?);

    server.restart(true)?;
    sleep(LEASE);
    let still = held.iter().filter(|lock| lock.is_held()).count();
    println!("Redis restarted: {still} locks are held, {} lost", losses.try_iter().count());
    server.restart(false)?;
    sleep(LEASE);
    let still = held.iter().filter(|lock| lock.is_held()).count();
    println!("and with nothing on disk: {still} are held, {} lost", losses.try_iter().count());
    Ok(())
}

/// Two thirds of it are for a busy machine to hold up the process that renews.
const LEASE: Duration = Duration::from_secs(6);
