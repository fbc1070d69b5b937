use crate::shared::{FIRED, Task, Threaded, ThreadedProfile};
use crate::subject::Kind;
use pingora_timeout::fast_timeout::FastOrTokioTimeout;
use pingora_timeout::{Timeout, timeout};
use std::future::{Pending, pending};
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::runtime::Runtime;

/// pingora-timeout 0.9: `timeout` around a future that has to wait, polled once and dropped.
/// Timeouts of the same 10 ms share one entry of a `BTreeMap` that each thread has for itself, and
/// which is not cleaned up before those 10 ms have come.
///
/// Driven well: it is made in the place of the one before.
pub(crate) struct PingoraTimeout(Runtime);

impl Threaded for PingoraTimeout {
    const PROFILE: ThreadedProfile = ThreadedProfile { name: "pingora-timeout", kind: Kind::Peer };

    type Local<'a> = ();
    type Slot = Pin<Box<Option<Timeout<Pending<()>, FastOrTokioTimeout>>>>;

    fn new() -> Self {
        Self(super::runtime())
    }

    fn enter(&self) {}

    #[inline]
    fn replace((): &mut (), slot: &mut Self::Slot, delay: Duration) {
        slot.set(Some(timeout(delay, pending())));
        let context = &mut Context::from_waker(Waker::noop());
        if slot.as_mut().as_pin_mut().expect("it was just set").poll(context).is_ready() {
            FIRED.fetch_add(1, Relaxed);
        }
    }

    fn after(&self, delay: Duration, task: Task) {
        self.0.spawn(async move {
            pingora_timeout::sleep(delay).await;
            task();
        });
    }
}
