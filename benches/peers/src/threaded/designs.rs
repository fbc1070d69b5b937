//! Other ways in which threads could hand their timeouts over to a worker with one of our wheels.

use super::Task;
use super::handles::Handles;
use crossbeam_queue::SegQueue;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{Key, Mode, Wheel};

/// Starts a thread that does something once per tick, as Netty's worker does. It lives as long as
/// the process, which holds one subject and ends.
fn start_worker(start: Instant, mut at_tick: impl FnMut(u64) + Send + 'static) {
    thread::spawn(move || {
        loop {
            let now = ticks(start.elapsed());
            at_tick(now);
            let next = TICK * u32::try_from(now + 1).expect("a run of less than 49 days");
            thread::sleep(next.saturating_sub(start.elapsed()));
        }
    });
}

/// Of a length, the whole ticks.
fn ticks(length: Duration) -> u64 {
    (length.as_nanos() / TICK.as_nanos()) as u64
}

/// The tick at which what is scheduled now is due.
fn deadline(start: Instant, delay: Duration) -> u64 {
    ticks(start.elapsed() + delay) + 1
}

/// As Netty's `HashedWheelTimer`: the worker empties two lock-free queues once per tick, one of new
/// timeouts and one of cancelled timeouts.
///
/// Callers never meet the worker, and pay with a timeout that is shared with it: an `Arc` with an
/// atomic state, and two trips through a queue.
pub(crate) struct TwoQueues(Instant, Arc<HandedOver>);

#[derive(Default)]
struct HandedOver {
    new: SegQueue<Arc<Queued>>,
    cancelled: SegQueue<Arc<Queued>>,
    /// Netty counts as well: neither the queues nor the wheel know what is pending.
    pending: AtomicUsize,
}

pub(crate) struct Queued {
    deadline: u64,
    /// Cancelled or fired.
    has_ended: AtomicBool,
    /// Where the worker has put it. Nobody else looks.
    key: OnceLock<Key>,
    task: Mutex<Option<Task>>,
}

impl Queued {
    /// Whether it was pending until now.
    fn end(&self) -> bool {
        !self.has_ended.swap(true, Ordering::AcqRel)
    }
}

impl HandedOver {
    /// Netty's number, so that a tick does not take for ever.
    const MOST_A_TICK: usize = 100_000;

    fn work_through(&self, wheel: &mut Wheel<Arc<Queued>>, now: u64) {
        while let Some(timeout) = self.cancelled.pop() {
            self.pending.fetch_sub(1, Ordering::Relaxed);
            // One without a key is still in the other queue.
            timeout.key.get().map(|&key| wheel.cancel(key));
        }
        for timeout in std::iter::from_fn(|| self.new.pop()).take(Self::MOST_A_TICK) {
            if !timeout.has_ended.load(Ordering::Acquire) {
                let key = wheel.schedule(timeout.deadline, timeout.clone());
                timeout.key.set(key).expect("it is scheduled once");
            }
        }
        while let Some(expired) = wheel.expire(now) {
            if expired.value.end() {
                self.pending.fetch_sub(1, Ordering::Relaxed);
                let task = expired.value.task.lock().expect("no panics").take();
                run(task.expect("it is taken once"));
            }
        }
    }
}

impl Handles for TwoQueues {
    type Handle = Arc<Queued>;

    fn new() -> Self {
        let (start, handed_over) = (Instant::now(), Arc::<HandedOver>::default());
        let (mut wheel, of_worker) = (Wheel::new(Mode::hierarchical()), handed_over.clone());
        start_worker(start, move |now| of_worker.work_through(&mut wheel, now));
        Self(start, handed_over)
    }

    fn schedule(&self, delay: Duration, task: impl FnOnce() + Send + 'static) -> Arc<Queued> {
        let timeout = Arc::new(Queued {
            deadline: deadline(self.0, delay),
            has_ended: AtomicBool::new(false),
            key: OnceLock::new(),
            task: Mutex::new(Some(Box::new(task))),
        });
        self.1.pending.fetch_add(1, Ordering::Relaxed);
        self.1.new.push(timeout.clone());
        timeout
    }

    fn cancel(&self, handle: Arc<Queued>) {
        assert!(handle.end());
        self.1.cancelled.push(handle);
    }
}

/// One wheel behind one lock: the least that could work.
pub(crate) struct OneLock(Instant, Arc<Mutex<Wheel<Task>>>);

impl Handles for OneLock {
    type Handle = Key;

    fn new() -> Self {
        let start = Instant::now();
        let wheel = Arc::new(Mutex::new(Wheel::<Task>::new(Mode::hierarchical())));
        let of_worker = wheel.clone();
        start_worker(start, move |now| {
            let next = || of_worker.lock().expect("no panics").expire(now);
            std::iter::from_fn(next).for_each(|expired| run(expired.value));
        });
        Self(start, wheel)
    }

    fn schedule(&self, delay: Duration, task: impl FnOnce() + Send + 'static) -> Key {
        let (deadline, task) = (deadline(self.0, delay), Box::new(task));
        self.1.lock().expect("no panics").schedule(deadline, task)
    }

    fn cancel(&self, handle: Key) {
        let task = self.1.lock().expect("no panics").cancel(handle);
        assert!(task.is_some());
    }
}

/// As any timer would that is to outlive a task that panics.
fn run(task: Task) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(task));
}

const TICK: Duration = Duration::from_millis(1);
