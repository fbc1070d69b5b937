//! Ten thousand requests to a server that delays, drops, answers twice, answers what nobody asked,
//! and at the end closes the connection in the middle of a response.
//!
//! `requests FILE NUMBER` makes so many instead, and records their timeouts into a file or a pipe:
//! `tickwheel watch --follow FILE` shows them meanwhile.

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::env::args;
use std::error::Error;
use std::fs::File;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use systems::requests::{Client, Fault, Server};
use tickwheel::Timer;

fn main() -> Result<(), Box<dyn Error>> {
    let mut timer = Timer::builder();
    if let Some(file) = args().nth(1) {
        timer = timer.record(File::create(file)?);
    }
    let (timer, servers_timer) = (timer.build()?, Timer::new());
    let requests = args().nth(2).map_or(Ok(10_000), |number| number.parse::<u32>())?;
    let (server, seen) = Server::faulty(&servers_timer)?;
    let client = Client::connect(server.address(), &timer)?;
    let limit = Duration::from_millis(100);

    println!("one at a time, and the caller blocks:");
    for fault in [Fault::None, Fault::Delay(20), Fault::Drop, Fault::Delay(150), Fault::Unknown] {
        let asked = Instant::now();
        match client.call(fault.body(), limit).wait() {
            Ok(body) => println!("  {fault:?}: {} bytes after {:?}", body.len(), asked.elapsed()),
            Err(error) => println!("  {fault:?}: {error}"),
        }
    }

    let began = Instant::now();
    futures::executor::block_on(async {
        let mut answers = FuturesUnordered::new();
        for number in 0..requests {
            let fault = match number % 100 {
                0 => Fault::Drop,
                1 => Fault::Twice,
                2 => Fault::Unknown,
                3 => Fault::Delay(200),
                _ => Fault::None,
            };
            answers.push(client.call(fault.body(), limit).into_future());
            if answers.len() == 1_000 {
                answers.next().await;
            }
        }
        while answers.next().await.is_some() {}
    });
    println!("{requests} more, a thousand at once, and the caller awaits: {:?}", began.elapsed());
    std::thread::sleep(Duration::from_millis(150)); // the last late responses
    println!("  the client: {:?}", client.account());
    let (requests, responses) = (seen.requests.load(Relaxed), seen.responses.load(Relaxed));
    println!("  the server: {requests} requests, {responses} responses");

    let waiting = client.call(Fault::Drop.body(), Duration::from_secs(30));
    println!("closed: {}", client.call(Fault::Close.body(), limit).wait().unwrap_err());
    println!("and the one before it: {}", waiting.wait().unwrap_err());
    println!("pending in the timer: {}", timer.pending());
    Ok(())
}
