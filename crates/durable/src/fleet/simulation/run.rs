//! Tasks in virtual time. They run one after another, in an order that the seed tells.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tickwheel::ManualClock;

use crate::values::lock;

type Task = Pin<Box<dyn Future<Output = ()>>>;

#[derive(Default)]
pub(super) struct Runtime {
    /// In milliseconds.
    now: Cell<u64>,
    /// The same for what reads a clock.
    pub(super) clock: ManualClock,
    tasks: RefCell<HashMap<u64, Task>>,
    next: Cell<u64>,
    current: Cell<u64>,
    /// By time, and those of one time in the order they were asked for.
    queue: RefCell<BTreeMap<(u64, u64), u64>>,
    woken: Arc<Mutex<Vec<u64>>>,
}

struct Woken {
    task: u64,
    all: Arc<Mutex<Vec<u64>>>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        lock(&self.all).push(self.task);
    }
}

impl Runtime {
    pub(super) fn now(&self) -> u64 {
        self.now.get()
    }

    fn number(&self) -> u64 {
        self.next.set(self.next.get() + 1);
        self.next.get()
    }

    fn queue(&self, at: u64, task: u64) {
        self.queue.borrow_mut().insert((at, self.number()), task);
    }

    /// Begins a task, after the one that runs.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + 'static) -> u64 {
        self.spawn_at(self.now(), task)
    }

    /// Begins a task at this time.
    pub(super) fn spawn_at(&self, at: u64, task: impl Future<Output = ()> + 'static) -> u64 {
        let number = self.number();
        self.tasks.borrow_mut().insert(number, Box::pin(task));
        self.queue(at, number);
        number
    }

    /// Ends a task where it is. Returns whether it ran.
    pub(super) fn kill(&self, task: u64) -> bool {
        // What it drops may look here.
        let killed = self.tasks.borrow_mut().remove(&task);
        killed.is_some()
    }

    /// Drops all tasks.
    pub(super) fn clear(&self) {
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        drop(tasks);
    }

    pub(super) fn is_running(&self, task: u64) -> bool {
        self.current.get() == task || self.tasks.borrow().contains_key(&task)
    }

    /// Runs tasks until this time.
    pub(super) fn run_until(&self, end: u64) {
        loop {
            let woken = std::mem::take(&mut *lock(&self.woken));
            woken.into_iter().for_each(|task| self.queue(self.now(), task));
            let next = self.queue.borrow().first_key_value().map(|((at, _), _)| *at);
            let Some(at) = next.filter(|at| *at < end) else { break };
            let (_, task) = self.queue.borrow_mut().pop_first().expect("it is there");
            self.set(at);
            self.poll(task);
        }
        self.set(end);
    }

    fn set(&self, at: u64) {
        if self.now() < at {
            self.clock.advance(Duration::from_millis(at - self.now()));
            self.now.set(at);
        }
    }

    fn poll(&self, number: u64) {
        let Some(mut task) = self.tasks.borrow_mut().remove(&number) else { return };
        self.current.set(number);
        let waker = Waker::from(Arc::new(Woken { task: number, all: Arc::clone(&self.woken) }));
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.tasks.borrow_mut().insert(number, task);
        }
        self.current.set(0);
    }

    pub(super) fn sleep(self: &Rc<Self>, time: u64) -> Sleep {
        self.sleep_until(self.now() + time)
    }

    pub(super) fn sleep_until(self: &Rc<Self>, until: u64) -> Sleep {
        Sleep { runtime: Rc::clone(self), until, is_queued: false }
    }
}

pub(super) struct Sleep {
    runtime: Rc<Runtime>,
    until: u64,
    is_queued: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.until <= self.runtime.now() && self.is_queued {
            return Poll::Ready(());
        }
        if !self.is_queued {
            self.is_queued = true;
            self.runtime.queue(self.until, self.runtime.current.get());
        }
        Poll::Pending
    }
}
