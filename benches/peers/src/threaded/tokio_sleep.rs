use crate::shared::{FIRED, Task, Threaded, ThreadedProfile};
use crate::subject::Kind;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::runtime::{EnterGuard, Runtime};
use tokio::time::{Sleep, sleep};

/// tokio 1.x: `sleep`, created, polled once and dropped, as `timeout` does with a future that has
/// to wait.
///
/// Driven well: on a runtime of several threads, from threads of its own, so that polls are not
/// counted against a task's budget; a sleep is made in the place of the one before, and not boxed.
pub(crate) struct TokioSleep(Runtime);

impl Threaded for TokioSleep {
    const PROFILE: ThreadedProfile = ThreadedProfile { name: "tokio-sleep", kind: Kind::Peer };

    type Local<'a> = EnterGuard<'a>;
    type Slot = Pin<Box<Option<Sleep>>>;

    fn new() -> Self {
        Self(super::runtime())
    }

    fn enter(&self) -> EnterGuard<'_> {
        self.0.enter()
    }

    #[inline]
    fn replace(_local: &mut EnterGuard<'_>, slot: &mut Self::Slot, delay: Duration) {
        slot.set(Some(sleep(delay)));
        let context = &mut Context::from_waker(Waker::noop());
        if slot.as_mut().as_pin_mut().expect("it was just set").poll(context).is_ready() {
            FIRED.fetch_add(1, Relaxed);
        }
    }

    fn after(&self, delay: Duration, task: Task) {
        let _inside = self.0.enter();
        let sleep = sleep(delay);
        self.0.spawn(async {
            sleep.await;
            task();
        });
    }
}
