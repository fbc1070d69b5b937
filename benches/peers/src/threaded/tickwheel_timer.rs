use crate::shared::{FIRED, Task, Threaded, ThreadedProfile};
use crate::subject::Kind;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tickwheel::{Timeout, Timer};

/// `Timer`, as by default: hierarchical wheels, ticks of 1 ms, tasks on its thread.
pub(crate) struct TickwheelTimer(Timer);

impl Threaded for TickwheelTimer {
    const PROFILE: ThreadedProfile = ThreadedProfile { name: "tickwheel-timer", kind: Kind::Ours };

    type Local<'a> = &'a Timer;
    type Slot = Option<Timeout>;

    fn new() -> Self {
        Self(Timer::new())
    }

    fn enter(&self) -> &Timer {
        &self.0
    }

    #[inline]
    fn replace(local: &mut &Timer, slot: &mut Self::Slot, delay: Duration) {
        if let Some(timeout) = slot.take() {
            timeout.cancel();
        }
        let fired = &FIRED;
        let task = move || {
            fired.fetch_add(1, Relaxed);
        };
        *slot = Some(local.schedule(delay, task).expect("it is not stopped"));
    }

    fn after(&self, delay: Duration, task: Task) {
        self.0.schedule(delay, task).expect("it is not stopped");
    }
}
