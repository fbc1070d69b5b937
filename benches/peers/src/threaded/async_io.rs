use crate::shared::{FIRED, Task, Threaded, ThreadedProfile};
use crate::subject::Kind;
use async_io::Timer;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::runtime::Runtime;

/// async-io 2.x: `Timer`, created, polled once and dropped; its reactor holds a `BTreeMap` behind
/// a lock.
///
/// Its own thread drives it; tasks that wait for it run on tokio.
pub(crate) struct AsyncIo(Runtime);

impl Threaded for AsyncIo {
    const PROFILE: ThreadedProfile = ThreadedProfile { name: "async-io", kind: Kind::Peer };

    type Local<'a> = ();
    type Slot = Option<Timer>;

    fn new() -> Self {
        Self(super::runtime())
    }

    fn enter(&self) {}

    #[inline]
    fn replace((): &mut (), slot: &mut Self::Slot, delay: Duration) {
        let timer = slot.insert(Timer::after(delay));
        if Pin::new(timer).poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            FIRED.fetch_add(1, Relaxed);
        }
    }

    fn after(&self, delay: Duration, task: Task) {
        let timer = Timer::after(delay);
        self.0.spawn(async {
            timer.await;
            task();
        });
    }
}
