//! An echo server under tokio that closes connections on which nothing comes for a while.
//!
//! Two clients: one that talks and goes, one that says nothing. All timeouts are those of one
//! timer, which does not know tokio, nor tokio it.
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

    let (mut silent, since) = (TcpStream::connect(address).await?, Instant::now());
    if let Err(error) = talk(&timer, TcpStream::connect(address).await?).await {
        println!("it was silent too, on a busy machine: {error}");
    }

    // The server has closed it: this ends at once.
    assert_eq!(silent.read(&mut [0]).await?, 0);
    println!("the silent one was closed within {:?}", since.elapsed());

    server.abort();
    Ok(())
}

/// Talks for longer than another may be silent.
async fn talk(timer: &Timer, mut stream: TcpStream) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (mut heartbeat, mut answer) = (timer.interval(IDLE / 5), [0; 5]);
    for _ in 0..8 {
        heartbeat.tick().await?;
        stream.write_all(b"hello").await?;
        stream.read_exact(&mut answer).await?;
    }
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
