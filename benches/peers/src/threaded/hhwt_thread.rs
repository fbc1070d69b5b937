use super::{Task, Threaded, counted};
use hierarchical_hash_wheel_timer::thread_timer::{TimerRef, TimerWithThread};
use hierarchical_hash_wheel_timer::{OneshotState, PeriodicClosureState, Timer};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// hierarchical_hash_wheel_timer 1.4: its wheel with a thread, to which all goes through a queue
/// without bound.
///
/// Driven well: timeouts are named by numbers and not by random UUIDs, and tasks are not boxed
/// where they need not be.
pub(crate) struct HhwtThread {
    reference: Mutex<TimerRef<u64, Once, PeriodicClosureState<u64>>>,
    threads: AtomicU64,
}

/// What happens once.
pub(crate) struct Once {
    name: u64,
    /// None: it counts itself.
    task: Option<Task>,
}

impl std::fmt::Debug for Once {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.name.fmt(f)
    }
}

impl OneshotState for Once {
    type Id = u64;

    fn id(&self) -> &u64 {
        &self.name
    }

    fn trigger(self) {
        match self.task {
            Some(task) => task(),
            None => counted()(),
        }
    }
}

impl HhwtThread {
    fn reference(&self) -> TimerRef<u64, Once, PeriodicClosureState<u64>> {
        self.reference.lock().expect("nobody panics with it").clone()
    }

    /// A million million names for each thread.
    fn names(&self) -> u64 {
        self.threads.fetch_add(1, Relaxed) << 40
    }
}

impl Threaded for HhwtThread {
    type Slot = Option<u64>;

    fn new() -> Self {
        let timer = TimerWithThread::new().expect("a thread");
        // Its thread lives on without it.
        let reference = Mutex::new(timer.timer_ref());
        Self { reference, threads: AtomicU64::new(0) }
    }

    fn replacer(&self) -> impl FnMut(&mut Self::Slot, Duration) {
        let (mut timer, mut name) = (self.reference(), self.names());
        move |slot, delay| {
            if let Some(oldest) = slot.take() {
                timer.cancel(&oldest);
            }
            name += 1;
            *slot = Some(name);
            timer.schedule_once(delay, Once { name, task: None });
        }
    }

    fn after(&self, delay: Duration, task: Task) {
        let name = self.names();
        self.reference().schedule_once(delay, Once { name, task: Some(task) });
    }
}
