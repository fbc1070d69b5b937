//! A small HTTP server on tokio: each request's head has a time limit, an idle connection is
//! closed, and a handler that takes too long is answered for.
//!
//!     cargo run --example server

use std::io;
use tickwheel_tokio::time::{Duration, Instant, sleep, timeout}; // instead of tokio::time
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

async fn serve(listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(connection(BufReader::new(stream)));
    }
}

async fn connection(mut stream: BufReader<TcpStream>) -> io::Result<()> {
    // Until the first byte of a request.
    while !timeout(IDLE, stream.fill_buf()).await??.is_empty() {
        let Ok(path) = timeout(HEAD, read_head(&mut stream)).await else {
            return stream.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").await;
        };
        let reply = match timeout(ANSWER, answer(&path?)).await {
            Ok(body) => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
            Err(_) => "HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 0\r\n\r\n".to_owned(),
        };
        stream.write_all(reply.as_bytes()).await?;
    }
    Ok(())
}

/// Reads to the empty line, and returns the path.
async fn read_head(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head.split(' ').nth(1).unwrap_or("/").to_owned())
}

async fn answer(path: &str) -> String {
    if path == "/slow" {
        sleep(ANSWER * 100).await;
    }
    format!("this is {path}")
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener));
    let requests = [
        "GET /quick HTTP/1.1\r\n\r\nGET /again HTTP/1.1\r\n\r\n",
        "GET /slow HTTP/1.1\r\n\r\n",
        "GET /never-ending HTTP/1.1\r\n",
    ];
    for request in requests {
        let (start, mut replies) = (Instant::now(), String::new());
        let mut client = TcpStream::connect(address).await?;
        client.write_all(request.as_bytes()).await?;
        // Until the server has closed the connection: an error, if it had not read all.
        let _ = client.read_to_string(&mut replies).await;
        let lines = replies.lines().filter(|line| line.starts_with("HTTP"));
        println!("{:?} after {:?}", lines.collect::<Vec<_>>(), start.elapsed());
    }
    Ok(())
}

const IDLE: Duration = Duration::from_millis(60);
const HEAD: Duration = Duration::from_millis(30);
const ANSWER: Duration = Duration::from_millis(20);
