//! Time limits for hyper, by a timer of this crate.

use super::Sleep;
use crate::Timer;
use crate::platform::Instant;
use alloc::boxed::Box;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use hyper::rt;

/// Counts the time for hyper's servers and clients: give a clone of the timer to the `timer` method
/// of hyper's builder. It needs the feature `hyper`.
///
/// Moving a time limit, as hyper does with each request, allocates nothing. If the timer is stopped
/// or has no room, a time limit is over at once, because without one a connection might hang. So
/// stop a timer only after the servers and clients that use it.
///
/// ```
/// use hyper::server::conn::http1;
/// use std::time::Duration;
/// use tickwheel::Timer;
///
/// let timer = Timer::new();
/// let mut server = http1::Builder::new();
/// server.timer(timer.clone()).header_read_timeout(Duration::from_secs(30));
/// ```
impl rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Limit(self.sleep(duration)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Limit(self.sleep_until(deadline)))
    }

    fn now(&self) -> Instant {
        self.shard().hub.clock.now()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn rt::Sleep>>, new_deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Limit>() {
            Some(limit) => limit.get_mut().0.reset_at(new_deadline),
            None => *sleep = rt::Timer::sleep_until(self, new_deadline),
        }
    }
}

/// A sleep that has no error: it ends then.
struct Limit(Sleep);

impl Future for Limit {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context).map(drop)
    }
}

impl rt::Sleep for Limit {}
