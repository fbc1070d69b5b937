//! Requests over connections that stay open, to a server that gives each request's head ten
//! seconds. Prints the CPU time in seconds.

use cpu_time::ProcessTime;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::convert::Infallible;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn answer(_: Request<hyper::body::Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(b"here"))))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), std::io::Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(10));
        while let Ok((stream, _)) = listener.accept().await {
            let connection = builder.serve_connection(TokioIo::new(stream), service_fn(answer));
            tokio::spawn(connection.into_owned());
        }
    });

    let start = ProcessTime::now();
    let clients = (0..CONNECTIONS).map(|_| {
        tokio::spawn(async move {
            let mut stream = TcpStream::connect(address).await?;
            let mut buffer = [0; 1_024];
            for _ in 0..REQUESTS {
                stream.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await?;
                let mut length = 0;
                while !buffer[..length].ends_with(b"here") {
                    length += stream.read(&mut buffer[length..]).await?;
                }
            }
            Ok::<_, std::io::Error>(())
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("it ends")?;
    }
    println!("{:.3}", start.elapsed().as_secs_f64());
    Ok(())
}

const CONNECTIONS: usize = 50;
const REQUESTS: usize = 3_000;
