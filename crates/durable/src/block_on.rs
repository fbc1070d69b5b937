//! Waiting for a future on a thread.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

/// Polls the future on this thread until it completes.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    block_on_until(future, None).expect("without a limit it completes")
}

/// Polls the future on this thread until it completes, or until this moment.
pub(crate) fn block_on_until<F: Future>(future: F, until: Option<Instant>) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        let Some(until) = until else {
            thread::park();
            continue;
        };
        match until.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => thread::park_timeout(left),
            _ => return None,
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
