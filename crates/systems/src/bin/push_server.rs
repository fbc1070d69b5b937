//! A push server, and a thousand clients whose polls it holds. With a port, as in
//! `push_server 8080`, it serves a page for the browser there until it is ended.

use std::env::args;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread::park;
use std::time::{Duration, Instant};
use systems::push_server::{Client, PushServer};
use tokio::task::JoinSet;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let seconds = Duration::from_secs;
    if let Some(port) = args().nth(1) {
        let address = (Ipv4Addr::LOCALHOST, port.parse()?).into();
        let server = PushServer::start(address, seconds(25), seconds(10))?;
        println!("http://{}/?user=ann, until it is interrupted", server.address);
        loop {
            park();
        }
    }

    let hold = seconds(3);
    let server = PushServer::start((Ipv4Addr::LOCALHOST, 0).into(), hold, seconds(60))?;
    let mut polls = JoinSet::new();
    for user in 0..1_000 {
        polls.spawn(user_of(server.address, user));
    }
    let mut publisher = Client::connect(server.address).await?;
    while publisher.get("/waiting").await?.1["waiting"] != 1_000 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("held: {}", publisher.get("/waiting").await?.1);
    println!(
        "to one of them: {}",
        publisher.post("/publish?to=user17", "your taxi is here").await?.1
    );
    println!("to all of them: {}", publisher.post("/publish", "it rains").await?.1);

    let mut waits = Vec::new();
    while let Some(wait) = polls.join_next().await {
        waits.push(wait??);
    }
    waits.sort();
    let [first, last] = [waits[0], waits[waits.len() - 1]];
    println!(
        "{} polls were told to reconnect, after {first:?} to {last:?} of {hold:?}",
        waits.len()
    );
    assert!(hold <= first);
    Ok(())
}

/// Polls until there is no message after one that came, and returns how long the last poll took.
async fn user_of(address: SocketAddr, user: u32) -> Result<Duration> {
    let mut client = Client::connect(address).await?;
    let mut after = 0;
    loop {
        let begun = Instant::now();
        let (_, said) = client.get(&format!("/poll?user=user{user}&after={after}")).await?;
        match said["messages"].as_array().and_then(|messages| messages.last()) {
            Some(last) => after = last[0].as_u64().ok_or("a message has a number")?,
            None if after != 0 => return Ok(begun.elapsed()),
            None => {}
        }
    }
}
