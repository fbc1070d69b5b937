//! A hyper server cuts off a client that is slow to send its header:
//!     cargo run --features hyper --example slow_header

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use std::{convert::Infallible, error::Error, time::Duration};
use tickwheel::Timer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn answer(_: Request<Incoming>) -> Result<Response<String>, Infallible> {
    Ok(Response::new("hello".to_owned()))
}

async fn serve(listener: TcpListener) -> std::io::Result<()> {
    let mut server = http1::Builder::new();
    server.timer(Timer::new()).header_read_timeout(Duration::from_millis(200));
    loop {
        let io = TokioIo::new(listener.accept().await?.0);
        tokio::spawn(server.serve_connection(io, service_fn(answer)));
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener));
    for header in
        ["GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n", "GET / HTTP/1.1\r\n"]
    {
        let (mut client, mut reply) = (TcpStream::connect(address).await?, String::new());
        client.write_all(header.as_bytes()).await?;
        // An error, if the server had not read all when it closed the connection.
        let _ = client.read_to_string(&mut reply).await;
        println!("{} bytes in reply to {header:?}", reply.len());
    }
    Ok(())
}
