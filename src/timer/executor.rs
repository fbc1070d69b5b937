//! Where tasks run: on the worker, or wherever an executor takes them.

use alloc::boxed::Box;

/// Runs the tasks of a [`Timer`](crate::Timer) somewhere else than on its worker thread.
///
/// A closure that takes a boxed task is an executor. So a thread pool or a runtime takes one line:
/// `.executor(move |task| pool.spawn(task))`. `examples/executor.rs` has two.
///
/// | The executor | the timer |
/// |---|---|
/// | receives a task | counts the timeout as fired, whatever the executor does with the task |
/// | runs the task, now or later, on any thread | counts and tells a panic of the task |
/// | drops the task without running it | drops the captured values inside of a task; a repeating timeout leaves out this run, and goes on |
/// | panics | counts and tells the panic like one of a task, and goes on |
/// | blocks | fires no other timeout meanwhile; [`Timer::stop`](crate::Timer::stop) waits for it, but [never](crate::Timer#who-may-call-what-from-where) on a thread that this executor may need |
/// | blocks, and needs a thread that waits in [`recv`](crate::Delayed::recv) or its kin | lets that thread go on in time nevertheless: it wakes itself |
/// | has a task when the timer is stopped | lets it run, once; a repeating timeout has ended as [`Fired`](crate::Status::Fired) |
///
/// Whoever lets go of the timer last drops the executor: the worker as it ends, or the thread that
/// drops the last clone, which may run a task of this executor. So an executor has a handle of its
/// pool, and not a pool that waits for its threads as it is dropped.
///
/// ```
/// use std::thread;
/// use std::time::Duration;
/// use tickwheel::Timer;
///
/// // A thread for each task; a pool would be better.
/// let timer = Timer::builder()
///     .executor(|task| {
///         thread::spawn(task);
///     })
///     .build()?;
/// let (sender, receiver) = std::sync::mpsc::channel();
/// timer.schedule(Duration::from_millis(1), move || {
///     sender.send(thread::current().id()).unwrap();
/// })?;
/// assert_ne!(receiver.recv()?, thread::current().id());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Executor: Send + Sync + 'static {
    /// Runs `task`, now or later, on any thread. The worker calls this.
    fn execute(&self, task: Box<dyn FnOnce() + Send>);
}

impl<F> Executor for F
where
    F: Fn(Box<dyn FnOnce() + Send>) + Send + Sync + 'static,
{
    fn execute(&self, task: Box<dyn FnOnce() + Send>) {
        self(task);
    }
}
