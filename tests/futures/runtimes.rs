//! The same on every executor, by the system's clock.

use crate::help::ms;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tickwheel::{DelayQueue, MissedTick, Timer};

/// All there is, once. Nothing in it knows where it runs.
async fn everything(timer: Timer) {
    let start = Instant::now();
    timer.sleep(ms(5)).await.expect("it runs");
    assert!(ms(5) <= start.elapsed());

    assert_eq!(timer.timeout(ms(3_600_000), async { 17 }).await, Ok(17));
    let start = Instant::now();
    assert!(timer.timeout(ms(5), pending::<()>()).await.is_err());
    assert!(ms(5) <= start.elapsed());

    let mut sleep = timer.sleep(ms(3_600_000));
    assert!(timer.timeout(ms(1), &mut sleep).await.is_err());
    let reset = Instant::now();
    sleep.reset(ms(2));
    sleep.await.expect("it runs");
    assert!(ms(2) <= reset.elapsed());

    let start = Instant::now();
    let mut interval = timer.interval_at(start, ms(2));
    interval.set_missed_tick(MissedTick::Burst);
    for number in 0..5 {
        let tick = interval.tick().await.expect("it runs");
        assert_eq!(tick, start + ms(2) * number);
        assert!(tick <= Instant::now());
    }

    let mut queue = DelayQueue::with_timer(&timer);
    let start = Instant::now();
    for delay in [6, 2, 4] {
        queue.insert_at(delay, start + ms(delay));
    }
    let gone = queue.insert(0, ms(3));
    assert_eq!(queue.remove(gone), Some(0));
    for delay in [2, 4, 6] {
        let due = queue.next().await.expect("there is one").expect("it runs");
        assert_eq!(due.value, delay);
        assert!(due.deadline <= Instant::now());
    }
    assert!(queue.next().await.is_none());

    let (a, b) = (timer.sleep(ms(3)), timer.sleep(ms(4)));
    let (a, b) = futures::join!(a, b);
    assert_eq!((a, b), (Ok(()), Ok(())));
    tickwheel::sleep(ms(1)).await.expect("it runs");
}

/// Spawns a hundred tasks with `spawn` that each sleep a few times.
async fn crowd(timer: Timer, spawn: impl Fn(std::pin::Pin<Box<dyn Future<Output = ()> + Send>>)) {
    let done = Arc::new(AtomicUsize::new(0));
    for number in 0..100 {
        let (timer, done) = (timer.clone(), Arc::clone(&done));
        spawn(Box::pin(async move {
            for turn in 0..5 {
                let delay = Duration::from_micros((number * 37 + turn * 911) % 5_000);
                let start = Instant::now();
                timer.sleep(delay).await.expect("it runs");
                assert!(delay <= start.elapsed(), "never early");
                let _ = timer.timeout(delay, timer.sleep(ms(3))).await;
            }
            done.fetch_add(1, SeqCst);
        }));
    }
    while done.load(SeqCst) < 100 {
        timer.sleep(ms(1)).await.expect("it runs");
    }
    assert_eq!(timer.pending(), 0);
}

#[test]
fn under_tokio_with_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let timer = Timer::new();
    runtime.block_on(runtime.spawn(everything(timer.clone()))).unwrap();
    runtime.block_on(crowd(timer, |task| drop(runtime.spawn(task))));
}

#[test]
fn under_tokio_on_one_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let timer = Timer::new();
    runtime.block_on(everything(timer.clone()));
    runtime.block_on(crowd(timer, |task| drop(runtime.spawn(task))));
}

#[test]
fn under_smol() {
    let timer = Timer::new();
    smol::block_on(smol::spawn(everything(timer.clone())));
    smol::block_on(crowd(timer, |task| smol::spawn(task).detach()));
}

#[test]
fn under_the_executor_of_futures() {
    let timer = Timer::new();
    futures::executor::block_on(everything(timer.clone()));
    let mut pool = futures::executor::LocalPool::new();
    let spawner = pool.spawner();
    pool.run_until(crowd(timer, |task| {
        futures::task::SpawnExt::spawn(&spawner, task).expect("the pool lives");
    }));
}

/// A future begun on one executor can be ended on another.
#[test]
fn from_one_executor_to_another() {
    let timer = Timer::new();
    let mut sleep = timer.sleep(ms(3_600_000));
    futures::executor::block_on(async {
        assert!(timer.timeout(ms(1), &mut sleep).await.is_err());
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        assert!(timer.timeout(ms(1), &mut sleep).await.is_err());
        sleep.reset(ms(1));
    });
    smol::block_on(sleep).expect("it runs");
}

/// The branch that loses loses nothing by it.
#[test]
fn select_loses_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let timer = Timer::new();
        let start = Instant::now();
        let mut deadline = timer.sleep(ms(25));
        let mut interval = timer.interval_at(start + ms(5), ms(5));
        let mut queue = DelayQueue::with_timer(&timer);
        for number in 1..=6 {
            queue.insert_at(number, start + Duration::from_micros(3_700) * number);
        }
        let (mut ticks, mut taken, mut is_over) = (Vec::new(), Vec::new(), false);
        while !is_over || ticks.len() < 5 || taken.len() < 6 {
            tokio::select! {
                _ = &mut deadline, if !is_over => is_over = true,
                tick = interval.tick() => ticks.push(tick.expect("it runs")),
                Some(due) = queue.next() => taken.push(due.expect("it runs").value),
                // Made anew each time, and mostly loses.
                _ = timer.sleep(Duration::from_micros(900)) => {}
            }
        }
        assert!(ms(25) <= start.elapsed());
        assert!(ticks.iter().enumerate().all(|(n, tick)| *tick == start + ms(5) * (n as u32 + 1)));
        assert_eq!(taken, [1, 2, 3, 4, 5, 6]);
        drop((deadline, interval, queue));
        assert_eq!(timer.pending(), 0);
    });
}

/// A task that is always ready does not starve a sleep beside it.
#[test]
fn a_busy_task_does_not_starve_a_sleep() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let timer = Timer::new();
    runtime.block_on(async {
        let busy = async {
            loop {
                tokio::task::yield_now().await;
            }
        };
        assert!(timer.timeout(ms(5), busy).await.is_err());
    });
}
