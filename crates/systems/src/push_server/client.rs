//! A client on one connection.

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HOST;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::error::Error;
use std::net::SocketAddr;
use tokio::net::TcpStream;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A client that keeps one connection to a server.
#[derive(Debug)]
pub struct Client {
    requests: SendRequest<Full<Bytes>>,
    host: String,
}

impl Client {
    /// Connects to the server at `address`.
    ///
    /// # Errors
    ///
    /// If nobody listens there.
    pub async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        let (requests, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { requests, host: address.to_string() })
    }

    /// Asks for `path`, and returns the status and the JSON of the answer.
    ///
    /// # Errors
    ///
    /// If the connection breaks, or the answer is not JSON.
    pub async fn get(&mut self, path: &str) -> Result<(u16, Value)> {
        self.ask(Method::GET, path, "").await
    }

    /// Sends `body` to `path` and waits for the answer.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Self::get).
    pub async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> Result<(u16, Value)> {
        self.ask(Method::POST, path, body).await
    }

    async fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<(u16, Value)> {
        let request = Request::builder().method(method).uri(path).header(HOST, &self.host);
        let request = request.body(Full::new(body.into()))?;
        self.requests.ready().await?;
        let answer = self.requests.send_request(request).await?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        Ok((status, serde_json::from_slice(&body)?))
    }
}
