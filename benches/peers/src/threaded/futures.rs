//! Timers whose timeouts are futures: created, polled once and dropped.

use super::{InPlace, Task, Threaded, replace_future, runtime};
use crate::subject::{Kind, Profile};
use pingora_timeout::fast_timeout::FastOrTokioTimeout;
use std::future::{Pending, pending};
use std::time::Duration;
use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};
use tokio::time::{Sleep, sleep};

/// tokio 1.x: `sleep`, on a runtime of two threads, or of the current one.
///
/// Driven well: from threads that are not the runtime's, so that polls are not counted against a
/// task's budget; a sleep is made in the place of the one before, and not boxed.
pub(crate) struct Tokio<const THREADS: usize>(Handle);

impl<const THREADS: usize> Threaded for Tokio<THREADS> {
    const PROFILE: Profile = match THREADS {
        1 => Profile::threaded("tokio-current-thread", Kind::Peer),
        _ => Profile::threaded("tokio-sleep", Kind::Peer),
    };

    type Local<'a> = EnterGuard<'a>;
    type Slot = InPlace<Sleep>;

    fn new() -> Self {
        let runtime = match THREADS {
            1 => Builder::new_current_thread().enable_time().build().expect("a runtime"),
            _ => runtime(),
        };
        let handle = runtime.handle().clone();
        std::thread::spawn(move || runtime.block_on(pending::<()>()));
        Self(handle)
    }

    fn enter(&self) -> EnterGuard<'_> {
        self.0.enter()
    }

    fn replace(_local: &mut EnterGuard<'_>, slot: &mut Self::Slot, delay: Duration) {
        replace_future(slot, sleep(delay));
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

/// async-io 2.x: `Timer`; its reactor holds a `BTreeMap` behind a lock.
///
/// Its own thread drives it; tasks that wait for it run on tokio.
pub(crate) struct AsyncIo(Runtime);

impl Threaded for AsyncIo {
    const PROFILE: Profile = Profile::threaded("async-io", Kind::Peer);

    type Local<'a> = ();
    type Slot = InPlace<async_io::Timer>;

    fn new() -> Self {
        Self(runtime())
    }

    fn enter(&self) {}

    fn replace((): &mut (), slot: &mut Self::Slot, delay: Duration) {
        replace_future(slot, async_io::Timer::after(delay));
    }

    fn after(&self, delay: Duration, task: Task) {
        let timer = async_io::Timer::after(delay);
        self.0.spawn(async {
            timer.await;
            task();
        });
    }
}

/// pingora-timeout 0.9: `timeout` around a future that has to wait. Timeouts of the same 10 ms share
/// one entry of a `BTreeMap` that each thread has for itself, and which is not cleaned up before
/// those 10 ms have come.
pub(crate) struct PingoraTimeout(Runtime);

impl Threaded for PingoraTimeout {
    const PROFILE: Profile = Profile::threaded("pingora-timeout", Kind::Peer);

    type Local<'a> = ();
    type Slot = InPlace<pingora_timeout::Timeout<Pending<()>, FastOrTokioTimeout>>;

    fn new() -> Self {
        Self(runtime())
    }

    fn enter(&self) {}

    fn replace((): &mut (), slot: &mut Self::Slot, delay: Duration) {
        replace_future(slot, pingora_timeout::timeout(delay, pending()));
    }

    fn after(&self, delay: Duration, task: Task) {
        self.0.spawn(async move {
            pingora_timeout::sleep(delay).await;
            task();
        });
    }
}
