//! Ours: the timer, and its futures.

use super::{InPlace, Task, Threaded, counted, replace_future, runtime};
use crate::subject::{Kind, Profile};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use tickwheel::{Sleep, Timeout, Timer};
use tokio::runtime::Runtime;

fn replace(timer: &Timer, slot: &mut Option<Timeout>, delay: Duration) {
    if let Some(timeout) = slot.take() {
        timeout.cancel();
    }
    *slot = Some(timer.schedule(delay, counted()).expect("it is not stopped"));
}

macro_rules! timer {
    ($subject:ident, $name:literal, $new:expr, |$this:ident| $enter:expr) => {
        impl Threaded for $subject {
            const PROFILE: Profile = Profile::threaded($name, Kind::Ours);

            type Local<'a> = &'a Timer;
            type Slot = Option<Timeout>;

            fn new() -> Self {
                $new
            }

            fn enter(&self) -> &Timer {
                let $this = self;
                $enter
            }

            fn replace(local: &mut &Timer, slot: &mut Self::Slot, delay: Duration) {
                replace(local, slot, delay);
            }

            fn after(&self, delay: Duration, task: Task) {
                self.0.schedule(delay, task).expect("it is not stopped");
            }
        }
    };
}

/// `Timer`, as by default: hierarchical wheels, ticks of 1 ms, tasks on its thread.
pub(crate) struct TickwheelTimer(Timer);

timer!(TickwheelTimer, "tickwheel-timer", Self(Timer::new()), |this| &this.0);

/// `Timer` with ticks of 100 us.
pub(crate) struct Fine(Timer);

timer!(
    Fine,
    "tickwheel-timer-100us",
    Self(Timer::builder().tick(Duration::from_micros(100)).build().expect("a valid tick")),
    |this| &this.0
);

/// `Timer` in a program that has other threads: after each that works begins one that schedules once
/// and is gone. If threads take turns with the shards, those that matter may meet at one.
pub(crate) struct AmongOthers(Timer, Mutex<()>);

timer!(AmongOthers, "tickwheel-timer-among-others", Self(Timer::new(), Mutex::new(())), |this| {
    let turn = this.1.lock().expect("no panics");
    let once = || {
        let timeout = this.0.schedule(Duration::from_secs(30), counted());
        timeout.expect("it is not stopped").cancel();
    };
    once();
    thread::scope(|scope| scope.spawn(once).join().expect("no panics"));
    drop(turn);
    &this.0
});

/// `Timer::sleep`, on tokio.
pub(crate) struct TickwheelSleep(Timer, Runtime);

impl Threaded for TickwheelSleep {
    const PROFILE: Profile = Profile::threaded("tickwheel-sleep", Kind::Ours);

    type Local<'a> = &'a Timer;
    type Slot = InPlace<Sleep>;

    fn new() -> Self {
        Self(Timer::new(), runtime())
    }

    fn enter(&self) -> &Timer {
        &self.0
    }

    fn replace(local: &mut &Timer, slot: &mut Self::Slot, delay: Duration) {
        replace_future(slot, local.sleep(delay));
    }

    fn after(&self, delay: Duration, task: Task) {
        let sleep = self.0.sleep(delay);
        self.1.spawn(async {
            sleep.await.expect("it is not stopped");
            task();
        });
    }
}
