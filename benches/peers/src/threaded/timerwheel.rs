use super::{Task, Threaded, counted};
use crate::subject::{Kind, Profile};
use std::time::Duration;
use timerwheel::{BackpressurePolicy, ExpiredTaskPolicy, Timeout, Timer};

/// timerwheel 0.1: Kafka's wheel with a thread, and a pool for the tasks.
///
/// Driven well: callers wait when its queue is full, and what its pool refuses is tried again; by
/// default both would lose timeouts. A cancelled one stays until its time has come.
pub(crate) struct Timerwheel(Timer);

impl Threaded for Timerwheel {
    const PROFILE: Profile = Profile::threaded("timerwheel", Kind::Peer);

    type Local<'a> = &'a Timer;
    type Slot = Option<Timeout>;

    fn new() -> Self {
        let timer = Timer::builder()
            .tick(Duration::from_millis(1))
            .max_pending(usize::MAX)
            .backpressure_policy(BackpressurePolicy::Block)
            .expired_task_policy(ExpiredTaskPolicy::Retry)
            .build();
        Self(timer.expect("a configuration that it allows"))
    }

    fn enter(&self) -> &Timer {
        &self.0
    }

    fn replace(local: &mut &Timer, slot: &mut Self::Slot, delay: Duration) {
        if let Some(timeout) = slot.take() {
            timeout.cancel();
        }
        *slot = Some(local.schedule(delay, counted()).expect("it waits while it is full"));
    }

    fn after(&self, delay: Duration, task: Task) {
        self.0.schedule(delay, task).expect("it waits while it is full");
    }
}
