//! Slow tasks, run by a thread pool and by an async runtime: a closure plugs in either.
//!
//! On the worker thread itself, eight tasks of 20 ms due at once would take 160 ms, and all that is
//! due meanwhile would wait for them.
//!
//!     cargo run --release --example executor

use std::error::Error;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tickwheel::{Executor, Timer};

fn main() -> Result<(), Box<dyn Error>> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build()?;
    run("rayon's pool", move |task| pool.spawn(task))?;

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    let handle = runtime.handle().clone();
    // These tasks block; what only starts futures would use `spawn`.
    run("tokio's blocking threads", move |task| drop(handle.spawn_blocking(task)))?;

    run("a pool that is written in a minute", Pool::new(4))
}

/// Eight slow tasks and a quick one, all due at once.
fn run(name: &str, executor: impl Executor) -> Result<(), Box<dyn Error>> {
    let timer = Timer::builder().executor(executor).build()?;
    let (sender, receiver) = mpsc::channel();
    for _ in 0..8 {
        let sender = sender.clone();
        timer.schedule(Duration::from_millis(5), move || {
            thread::sleep(Duration::from_millis(20));
            // Nobody waits for it any more if this fails.
            let _ = sender.send(());
        })?;
    }
    drop(sender);
    assert_eq!(receiver.iter().count(), 8);

    let stats = timer.stats();
    println!("{name}: the worker was busy with one task for {:?} at most", stats.longest_task);
    Ok(())
}

type Task = Box<dyn FnOnce() + Send>;

/// Some threads that share a queue. What is a type of its own can be an executor too.
struct Pool(mpsc::Sender<Task>);

impl Pool {
    fn new(threads: usize) -> Self {
        let (sender, receiver) = mpsc::channel::<Task>();
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..threads {
            let receiver = Arc::clone(&receiver);
            // It ends when the pool is gone.
            thread::spawn(move || {
                while let Some(task) = receiver.lock().ok().and_then(|queue| queue.recv().ok()) {
                    task();
                }
            });
        }
        Self(sender)
    }
}

impl Executor for Pool {
    fn execute(&self, task: Task) {
        // It fails only if all threads are gone; then the task is dropped.
        let _ = self.0.send(task);
    }
}
