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
    first(|| listener.accept(), sleep).await.0
}

async fn first<T, A, R>(accept: impl Fn() -> A, rest: impl Fn(Duration) -> R) -> T
where
    A: Future<Output = io::Result<T>>,
    R: Future,
{
    loop {
        match accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_of_one(&error) => {}
            Err(_) => drop(rest(REST).await),
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
    use std::cell::{Cell, RefCell};
    use std::future::ready;

    /// The rests before a connection is accepted, after a thousand errors.
    fn rests(kind: ErrorKind) -> Vec<Duration> {
        let (left, rests) = (Cell::new(1_000), RefCell::<Vec<_>>::default());
        let accept = || {
            ready(match left.replace(left.get() - 1) {
                0 => Ok(()),
                _ => Err(kind.into()),
            })
        };
        let rest = |time| {
            rests.borrow_mut().push(time);
            ready(())
        };
        first(accept, rest).now_or_never().expect("nothing else is waited for");
        rests.into_inner()
    }

    #[test]
    fn a_connection_that_failed_holds_up_no_other_and_a_want_of_files_is_waited_out() {
        assert!(rests(ErrorKind::ConnectionAborted).is_empty());
        let rests = rests(ErrorKind::OutOfMemory);
        assert_eq!(rests.len(), 1_000);
        let short = Duration::from_millis(1)..=Duration::from_millis(100);
        assert!(rests.iter().all(|rest| short.contains(rest)), "it spins, or it comes late");
    }
}
