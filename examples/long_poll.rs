//! A long-poll server: a client asks what is new. The server answers when something is published,
//! or with "not modified" when the client has waited for long enough. Requests wait by the names of
//! their clients: a client that asks again replaces its request.
//!
//!     cargo run --example long_poll

use std::net::SocketAddr;
use std::time::Duration;
use tickwheel::DelayMap;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let address = serve(Duration::from_millis(100)).await?;
    assert!(ask(address, "/wait/ann").await?.contains("304 Not Modified"));

    let address = serve(Duration::from_secs(60)).await?;
    let paths = ["/wait/ann", "/wait/bob", "/wait/ann", "/wait/bob"];
    let mut asks: JoinSet<_> = paths.into_iter().map(|path| ask(address, path)).collect();
    // Of the two requests of each client, one is replaced by the other.
    for _ in 0..2 {
        println!("{:?}", asks.join_next().await.expect("four ask")??);
    }
    assert!(ask(address, "/publish/rain").await?.contains("2 clients"));
    for answer in asks.join_all().await {
        println!("{:?}", answer?);
    }
    Ok(())
}

/// Starts a server that lets a client wait for as long as `patience`.
async fn serve(patience: Duration) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr();
    let (requests, held) = mpsc::channel(1_000);
    tokio::spawn(hold(held, patience));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(tickwheel::timeout(READ, read(stream, requests.clone())));
        }
    });
    address
}

/// Holds the requests that wait, each with its connection.
async fn hold(mut requests: mpsc::Receiver<(String, TcpStream)>, patience: Duration) {
    let mut waiting = DelayMap::<String, TcpStream>::new();
    loop {
        tokio::select! {
            Ok(due) = waiting.next_due() => answer(due.value, "304 Not Modified", ""),
            Some((path, stream)) = requests.recv() => match *path.split('/').collect::<Vec<_>>() {
                ["", "wait", client] => {
                    if let Some(replaced) = waiting.insert(client.to_owned(), stream, patience) {
                        answer(replaced, "409 Conflict", "you asked again");
                    }
                }
                ["", "publish", news] => {
                    answer(stream, "200 OK", &format!("{} clients", waiting.len()));
                    waiting.drain().for_each(|(_, _, stream)| answer(stream, "200 OK", news));
                }
                _ => answer(stream, "404 Not Found", ""),
            },
            else => return,
        }
    }
}

/// Reads the head of a request. A slow client holds up nobody else, and not for long.
async fn read(stream: TcpStream, requests: mpsc::Sender<(String, TcpStream)>) -> Option<()> {
    let mut lines = BufReader::new(stream.take(8_192)).lines();
    let first = lines.next_line().await.ok()??;
    while !lines.next_line().await.ok()??.is_empty() {}
    let path = first.split(' ').nth(1)?.to_owned();
    requests.send((path, lines.into_inner().into_inner().into_inner())).await.ok()
}

fn answer(mut stream: TcpStream, status: &str, body: &str) {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    tokio::spawn(async move { stream.write_all(head.as_bytes()).await });
}

async fn ask(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

const READ: Duration = Duration::from_secs(60);
