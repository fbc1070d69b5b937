//! What a server does when `accept` fails: the same in all servers here.

use std::io::{self, ErrorKind};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// Accepts the next connection. If `accept` fails, this tries again: at once if the error is that
/// of the one connection, and else after 10 ms, because the system has no more files or memory,
/// and has some when a connection closes.
///
/// Dropping the future loses no connection. It needs a runtime with a timer.
pub async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) if is_of_one(&error) => {}
            Err(_) => sleep(REST).await,
        }
    }
}

/// Linux hands out what became of a connection before it was accepted, and network errors.
fn is_of_one(error: &io::Error) -> bool {
    let kinds = [
        ErrorKind::ConnectionAborted,
        ErrorKind::ConnectionReset,
        ErrorKind::HostUnreachable,
        ErrorKind::NetworkDown,
        ErrorKind::NetworkUnreachable,
        ErrorKind::PermissionDenied,
    ];
    kinds.contains(&error.kind())
}

/// A server without files looks this often whether there are some.
const REST: Duration = Duration::from_millis(10);
