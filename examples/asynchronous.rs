//! An echo server under tokio that closes connections on which nothing comes for a while.
//!
//! Two clients: one that talks and goes, one that talks and falls silent. All timeouts are those of
//! one timer, which does not know tokio, nor tokio it.
//!
//!     cargo run --release --example asynchronous

use std::error::Error;
use std::time::{Duration, Instant};
use tickwheel::Timer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let timer = Timer::new();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;

    let server = {
        let timer = timer.clone();
        tokio::spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                let timer = timer.clone();
                tokio::spawn(async move {
                    match echo(&timer, stream).await {
                        Ok(bytes) => println!("{peer} has gone after {bytes} bytes"),
                        Err(error) => println!("{peer} is closed: {error}"),
                    }
                });
            }
        })
    };

    let mut talks = TcpStream::connect(address).await?;
    let mut falls_silent = TcpStream::connect(address).await?;
    let mut answer = [0; 5];
    falls_silent.write_all(b"hello").await?;
    falls_silent.read_exact(&mut answer).await?;
    let silent_since = Instant::now();

    // In time each time, for longer than the other may be silent.
    let mut heartbeat = timer.interval(IDLE / 5);
    for _ in 0..8 {
        heartbeat.tick().await?;
        talks.write_all(b"hello").await?;
        talks.read_exact(&mut answer).await?;
    }
    drop(talks);

    // The server has closed it: this ends at once, and else after ten seconds, with an error.
    let mut rest = Vec::new();
    timer.timeout(Duration::from_secs(10), falls_silent.read_to_end(&mut rest)).await??;
    println!("the silent one was closed within {:?} of its last word", silent_since.elapsed());

    server.abort();
    Ok(())
}

/// Sends back what comes, until the other side goes, or is silent for too long.
async fn echo(timer: &Timer, mut stream: TcpStream) -> Result<usize, Box<dyn Error + Send + Sync>> {
    let (mut buffer, mut bytes) = ([0; 1_024], 0);
    loop {
        // It is cancelled when something is read: nothing of it is left then.
        let read = timer.timeout(IDLE, stream.read(&mut buffer)).await??;
        if read == 0 {
            return Ok(bytes);
        }
        stream.write_all(&buffer[..read]).await?;
        bytes += read;
    }
}

const IDLE: Duration = Duration::from_millis(50);
