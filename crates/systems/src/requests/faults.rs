//! A server that does not behave.

use super::server::{Request, Server};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tickwheel::Timer;

/// What the server does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It answers at once.
    None,
    /// It answers after some milliseconds.
    Delay(u8),
    /// It does not answer.
    Drop,
    /// It answers twice.
    Twice,
    /// It answers a request that was never made, and not this one.
    Unknown,
    /// It closes the connection in the middle of the response.
    Close,
}

/// What the server has seen and done.
#[derive(Debug, Default)]
pub struct Seen {
    pub requests: AtomicU64,
    pub responses: AtomicU64,
}

impl Fault {
    /// The body of a request that asks for this.
    #[must_use]
    pub fn body(self) -> Vec<u8> {
        match self {
            Self::None => vec![0],
            Self::Delay(millis) => vec![1, millis],
            Self::Drop => vec![2],
            Self::Twice => vec![3],
            Self::Unknown => vec![4],
            Self::Close => vec![5],
        }
    }

    fn of(body: &[u8]) -> Self {
        match *body {
            [1, millis, ..] => Self::Delay(millis),
            [2, ..] => Self::Drop,
            [3, ..] => Self::Twice,
            [4, ..] => Self::Unknown,
            [5, ..] => Self::Close,
            _ => Self::None,
        }
    }
}

impl Server {
    /// Starts a server that does with each request what that asks for. `timer` sets its delays.
    ///
    /// # Errors
    ///
    /// If there is no free port.
    pub fn faulty(timer: &Timer) -> io::Result<(Self, Arc<Seen>)> {
        let seen = Arc::new(Seen::default());
        let (sets, counts) = (timer.clone(), Arc::clone(&seen));
        let handle = move |request: Request| {
            counts.requests.fetch_add(1, Relaxed);
            let responses = move |written: &[io::Result<()>], counts: &Seen| {
                let written = written.iter().filter(|written| written.is_ok()).count() as u64;
                counts.responses.fetch_add(written, Relaxed);
            };
            match Fault::of(&request.body) {
                Fault::None => responses(&[request.echo()], &counts),
                Fault::Delay(millis) => {
                    let counts = Arc::clone(&counts);
                    let later = move || responses(&[request.echo()], &counts);
                    // A server that stops answers nobody.
                    let _ = sets.schedule(Duration::from_millis(millis.into()), later);
                }
                Fault::Drop => {}
                Fault::Twice => responses(&[request.echo(), request.echo()], &counts),
                Fault::Unknown => responses(&[request.answer_another()], &counts),
                Fault::Close => drop(request.close_in_the_middle()),
            }
        };
        Ok((Self::start(timer, handle, |_| {})?, seen))
    }
}
