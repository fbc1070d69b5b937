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
    first(|| listener.accept()).await.0
}

async fn first<T, F: Future<Output = io::Result<T>>>(accept: impl Fn() -> F) -> T {
    loop {
        match accept().await {
            Ok(accepted) => return accepted,
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::cell::Cell;
    use std::future::ready;

    /// Whether a connection is accepted in one step, after a thousand errors.
    fn is_accepted_at_once(kind: ErrorKind) -> bool {
        let left = Cell::new(1_000);
        let accept = || {
            ready(match left.replace(left.get() - 1) {
                0 => Ok(()),
                _ => Err(kind.into()),
            })
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _inside = runtime.enter();
        first(accept).now_or_never().is_some()
    }

    #[test]
    fn a_connection_that_failed_holds_up_no_other_and_a_want_of_files_is_waited_out() {
        assert!(is_accepted_at_once(ErrorKind::ConnectionAborted));
        assert!(!is_accepted_at_once(ErrorKind::OutOfMemory));
    }
}
