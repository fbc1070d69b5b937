//! A thousand clients on one timer lose their server and find it again; then ten thousand idle
//! connections, and the CPU time that they take.

use cpu_time::ProcessTime;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};
use systems::heartbeats::{Client, Event, ServerProcess, Settings, open_files, serve};
use tickwheel::Timer;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, server, address, millis] = &arguments[..]
        && server == "server"
    {
        return serve(address, millis);
    }
    let (program, files) = (std::env::current_exe()?, open_files()?);
    let runtime = tokio::runtime::Runtime::new()?;
    let _inside = runtime.enter();
    // Some files are other things than connections.
    let clients = files.saturating_sub(100).min(10_000);
    lose_the_server(&program, clients.min(1_000))?;
    idle(&program, clients, Duration::from_secs(60))?;
    idle(&program, clients, Duration::from_secs(5))
}

fn lose_the_server(program: &Path, clients: u64) -> Result<(), Box<dyn Error>> {
    let interval = Duration::from_secs(2);
    let server = ServerProcess::start(program, ([127, 0, 0, 1], 0).into(), interval)?;
    let (clients, counts) = start(&server, clients, interval)?;
    let (address, began) = (server.address, Instant::now());
    drop(server);
    counts.until(0);
    println!("the server was killed: 0 connections after {:?}", began.elapsed());
    sleep(interval);
    let (_server, began) = (ServerProcess::start(program, address, interval)?, Instant::now());
    counts.until(clients.len() as i64);
    println!("it is back: {} connections after {:?}", clients.len(), began.elapsed());
    Ok(())
}

fn idle(program: &Path, clients: u64, interval: Duration) -> Result<(), Box<dyn Error>> {
    let mut server = ServerProcess::start(program, ([127, 0, 0, 1], 0).into(), interval)?;
    let (_clients, counts) = start(&server, clients, interval)?;
    sleep(Duration::from_secs(1)); // what connecting leaves behind
    let (began, here, there) = (Instant::now(), ProcessTime::now(), server.cpu_time()?);
    let asked = counts.asked.load(Relaxed);
    sleep(Duration::from_secs(4));
    let (here, there) = (here.elapsed(), server.cpu_time()? - there);
    let asked = counts.asked.load(Relaxed) - asked;
    let percent = |cpu: Duration| 100.0 * cpu.as_secs_f64() / began.elapsed().as_secs_f64();
    println!("  {asked} heartbeats in {:?}", began.elapsed());
    println!(
        "  the clients: {:.2} % of a core, the server: {:.2} %",
        percent(here),
        percent(there)
    );
    if let Some(each) = (here + there).checked_div(u32::try_from(asked)?) {
        println!("  a heartbeat, with its answer: {each:?} of CPU time");
    }
    println!("  the timer woke up {} times in all", counts.timer.stats().wake_ups);
    Ok(())
}

fn start(
    server: &ServerProcess,
    clients: u64,
    interval: Duration,
) -> Result<(Vec<Client>, Arc<Counts>), Box<dyn Error>> {
    let counts = Arc::new(Counts::default());
    let (told, began) = (Arc::clone(&counts), Instant::now());
    let tell = Arc::new(move |event| told.tell(event));
    let settings = Settings { timer: counts.timer.clone(), interval, tell };
    let clients: Vec<_> =
        (0..clients).map(|_| Client::start(server.address, settings.clone())).collect();
    counts.until(clients.len() as i64);
    println!(
        "{} connections, a heartbeat each {interval:?}, on one timer: connected after {:?}",
        clients.len(),
        began.elapsed(),
    );
    Ok((clients, counts))
}

#[derive(Default)]
struct Counts {
    timer: Timer,
    connected: AtomicI64,
    asked: AtomicU64,
}

impl Counts {
    fn tell(&self, event: Event) {
        match event {
            Event::Connected(_) => drop(self.connected.fetch_add(1, Relaxed)),
            Event::Silent(_) | Event::Closed(_) => drop(self.connected.fetch_sub(1, Relaxed)),
            Event::Asked(_) => drop(self.asked.fetch_add(1, Relaxed)),
            Event::Alive(_) => {}
        }
    }

    fn until(&self, connected: i64) {
        while self.connected.load(Relaxed) != connected {
            sleep(Duration::from_millis(1));
        }
    }
}
