//! Where tasks run: on the worker, or wherever an executor takes them.

use alloc::boxed::Box;

/// Runs the tasks of a [`Timer`](crate::Timer) somewhere else than on its worker thread.
///
/// A closure that takes a boxed task will do, so that plugging in a thread pool or a runtime is one
/// line: `.executor(move |task| pool.spawn(task))`; `examples/executor.rs` has two.
///
/// A task handed over counts as fired. What the executor drops without running it is lost; of a
/// repeating timeout only that one run. If `execute` itself panics, that is caught, counted and
/// told like the panic of a task. While it blocks, no other timeout of that timer fires.
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
    /// Runs `task`, now or later, here or elsewhere; called on the worker thread.
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
