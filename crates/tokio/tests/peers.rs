//! The same random programs on tokio and on this: with a paused clock, each step ends at the same
//! instant and with the same result.

use fastrand::Rng;
use std::collections::BTreeMap;
use std::future::{Pending, pending, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::{AbortHandle, JoinSet, unconstrained, yield_now};
use tokio::time::{Duration, Instant, MissedTickBehavior};

/// What the steps of a task ended with, and when.
type Log = Vec<(Duration, String)>;

/// From nothing to a day, with and without parts of a millisecond.
fn delay(rng: &mut Rng) -> Duration {
    match rng.u8(..6) {
        0 => Duration::from_millis(rng.u64(..20)),
        1 => Duration::from_micros(rng.u64(..5_000)),
        2 => Duration::from_millis(rng.u64(..5_000)),
        3 => Duration::from_nanos(rng.u64(..3_000_000)),
        4 => Duration::from_secs(rng.u64(..100_000)),
        _ => Duration::from_millis(64 * rng.u64(..64)),
    }
}

/// Runs a program on a clock that has moved since its timer began, by parts of a millisecond.
fn run<T>(program: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("it starts").block_on(async {
        tokio::time::advance(Duration::from_nanos(1_234_567)).await;
        program.await
    })
}

/// Runs programs of many seeds, on both.
fn same(ours: fn(Rng) -> Log, theirs: fn(Rng) -> Log) {
    for seed in 0..SEEDS {
        let [ours, theirs] = [ours, theirs].map(|run| run(Rng::with_seed(seed)));
        let first = ours.iter().zip(&theirs).find(|(ours, theirs)| ours != theirs);
        assert_eq!(first, None, "ours and theirs, seed {seed}");
        assert_eq!(ours.len(), theirs.len(), "seed {seed}");
    }
}

/// The programs, with a module `time` and a queue.
macro_rules! programs {
    ($name:ident, $($time:ident)::+, $($queue:ident)::+) => {
        mod $name {
            use super::*;
            use $($queue)::+ as DelayQueue;
            use $($time)::+ as time;

            pub(super) fn waits(mut rng: Rng) -> Log {
                run(async {
                    let start = Instant::now();
                    let tasks = (0..rng.u8(1..6)).map(|_| tokio::spawn(task(rng.fork(), start)));
                    let mut logs = Vec::new();
                    for task in tasks.collect::<Vec<_>>() {
                        logs.extend(task.await.expect("it ends"));
                    }
                    logs
                })
            }

            async fn task(mut rng: Rng, start: Instant) -> Log {
                let mut log = Vec::new();
                for _ in 0..12 {
                    let step = match rng.u8(..6) {
                        0 => {
                            time::sleep(delay(&mut rng)).await;
                            String::new()
                        }
                        1 => {
                            let (limit, sleep) = (delay(&mut rng), delay(&mut rng));
                            format!("{:?}", time::timeout(limit, time::sleep(sleep)).await.is_ok())
                        }
                        2 => {
                            let (limit, sleep) = (start + delay(&mut rng), start + delay(&mut rng));
                            let sleep = time::sleep_until(sleep);
                            format!("{:?}", time::timeout_at(limit, sleep).await.is_ok())
                        }
                        3 => format!("{:?}", interval(&mut rng, start).await),
                        4 => format!("{:?}", moves(&mut rng, start).await),
                        _ => format!("{:?}", two(&mut rng, start).await),
                    };
                    log.push((start.elapsed(), step));
                }
                log
            }

            async fn interval(rng: &mut Rng, start: Instant) -> Vec<[Duration; 2]> {
                let first = start + delay(rng);
                let mut ticks = time::interval_at(first, delay(rng) + Duration::from_nanos(1));
                ticks.set_missed_tick_behavior(match rng.u8(..3) {
                    0 => MissedTickBehavior::Burst,
                    1 => MissedTickBehavior::Delay,
                    _ => MissedTickBehavior::Skip,
                });
                let mut came = Vec::new();
                for _ in 0..4 {
                    match rng.u8(..8) {
                        0 => ticks.reset(),
                        1 => ticks.reset_immediately(),
                        2 => ticks.reset_after(delay(rng)),
                        3 => ticks.reset_at(start + delay(rng)),
                        4 => time::sleep(delay(rng)).await,
                        _ => {}
                    }
                    came.push([ticks.tick().await - start, start.elapsed()]);
                }
                came
            }

            async fn moves(rng: &mut Rng, start: Instant) -> ([bool; 4], Duration) {
                let mut sleep = pin!(time::sleep(delay(rng)));
                if rng.bool() {
                    once(sleep.as_mut()).await;
                }
                let was_elapsed = sleep.is_elapsed();
                sleep.as_mut().reset(start + start.elapsed() / 2 + delay(rng));
                let is_elapsed = sleep.is_elapsed();
                sleep.as_mut().await;
                let has_elapsed = sleep.is_elapsed();
                sleep.as_mut().reset(Instant::now() + delay(rng));
                let elapses_again = sleep.is_elapsed();
                sleep.as_mut().await;
                ([was_elapsed, is_elapsed, has_elapsed, elapses_again], sleep.deadline() - start)
            }

            async fn two(rng: &mut Rng, start: Instant) -> (bool, Duration) {
                let mut one = pin!(time::sleep(delay(rng)));
                let mut other = pin!(time::sleep(delay(rng)));
                let is_one = tokio::select! {
                    biased;
                    () = &mut one => true,
                    () = &mut other => false,
                };
                let first = start.elapsed();
                if rng.bool() {
                    if is_one { other.await } else { one.await }
                }
                (is_one, first)
            }

            /// A task that waits for many things at once, among others for tasks that it aborts.
            pub(super) fn loops(mut rng: Rng) -> Log {
                run(async {
                    let (start, mut log) = (Instant::now(), Log::new());
                    let (sender, mut messages) = mpsc::unbounded_channel();
                    let (mut workers, mut handles) = (JoinSet::new(), Vec::new());
                    for number in 0..rng.u64(1..6) {
                        let work = worker(rng.fork(), start, number, sender.clone());
                        handles.push(workers.spawn(work));
                    }
                    let first = start + apart(Duration::ZERO, delay(&mut rng), 10);
                    let period = 16 * Duration::from_millis(rng.u64(1..4_000));
                    let mut ticks = time::interval_at(first, period);
                    let mut idle = pin!(time::sleep_until(start + apart(period, period, 11)));
                    for _ in 0..60 {
                        let limit = start + apart(start.elapsed(), delay(&mut rng), 12);
                        let step = tokio::select! {
                            biased;
                            tick = ticks.tick() => format!("tick {:?}", tick - start),
                            Some(message) = messages.recv() => message,
                            Some(ended) = workers.join_next() => format!("{:?}", ended.is_ok()),
                            () = &mut idle => {
                                let next = apart(start.elapsed(), delay(&mut rng), 11);
                                idle.as_mut().reset(start + next);
                                "idle".to_owned()
                            }
                            late = time::timeout_at(limit, pending::<()>()) => format!("{late:?}"),
                        };
                        log.push((start.elapsed(), step));
                        match rng.u8(..20) {
                            0 => workers.abort_all(),
                            1 | 2 => rng.choice(&handles).into_iter().for_each(AbortHandle::abort),
                            3 => workers.detach_all(),
                            4 => ticks.reset(),
                            5 => {
                                let work = worker(rng.fork(), start, 9, sender.clone());
                                let work = time::timeout(delay(&mut rng), work);
                                log.push((start.elapsed(), format!("{:?}", work.await.is_ok())));
                            }
                            _ => {}
                        }
                    }
                    log
                })
            }

            async fn worker(mut rng: Rng, start: Instant, number: u64, to: UnboundedSender<String>) {
                for _ in 0..rng.u8(..12) {
                    let at = start + apart(start.elapsed(), delay(&mut rng), number);
                    match rng.u8(..3) {
                        0 => time::sleep_until(at).await,
                        1 => time::sleep(at - Instant::now()).await,
                        _ => {
                            let within = time::sleep(2 * (at - Instant::now()));
                            assert!(time::timeout_at(at, within).await.is_err());
                        }
                    }
                    if to.send(format!("{number} at {:?}", start.elapsed())).is_err() {
                        return;
                    }
                }
            }

            /// Polls of a task that moves the clock itself.
            pub(super) fn polls(mut rng: Rng) -> Log {
                run(async {
                    let (start, mut log) = (Instant::now(), Log::new());
                    let mut sleeps = Vec::<Pin<Box<time::Sleep>>>::new();
                    for _ in 0..80 {
                        let mut micros = |most| Duration::from_micros(rng.u64(..most));
                        let (far, near) = (micros(200_000), micros(9_000));
                        let which = rng.usize(..=sleeps.len());
                        let mut is_ready = None;
                        match (rng.u8(..4), sleeps.get_mut(which)) {
                            (0, _) => time::advance(near).await,
                            (1, _) => time::sleep(near).await,
                            (2, Some(sleep)) => sleep.as_mut().reset(start + far),
                            (_, Some(sleep)) => is_ready = Some(futures::poll!(sleep).is_ready()),
                            (_, None) => sleeps.push(Box::pin(time::sleep(far / 2))),
                        }
                        let elapsed = sleeps.iter().map(|sleep| sleep.is_elapsed());
                        log.push((start.elapsed(), format!("{is_ready:?} {:?}", elapsed.collect::<Vec<_>>())));
                    }
                    log
                })
            }

            /// What a task may poll beside its like.
            pub(super) enum Wait {
                Sleep(Pin<Box<time::Sleep>>),
                Timeout(Pin<Box<time::Timeout<Pending<()>>>>),
                Ticks(time::Interval),
            }

            impl Wait {
                pub(super) fn new(kind: u8, at: Instant) -> Self {
                    match kind {
                        0 => Self::Sleep(Box::pin(time::sleep_until(at))),
                        1 => Self::Sleep(Box::pin(time::sleep(at - Instant::now()))),
                        2 => Self::Timeout(Box::pin(time::timeout_at(at, pending()))),
                        3 => Self::Timeout(Box::pin(time::timeout(at - Instant::now(), pending()))),
                        4 => Self::Ticks(time::interval_at(at, Duration::from_millis(2))),
                        _ => Self::Ticks(time::interval(Duration::from_millis(2))),
                    }
                }

                pub(super) fn reset(&mut self, at: Instant) {
                    match self {
                        Self::Sleep(sleep) => sleep.as_mut().reset(at),
                        Self::Timeout(_) => *self = Self::new(2, at),
                        Self::Ticks(ticks) => ticks.reset_at(at),
                    }
                }

                pub(super) fn poll(&mut self, context: &mut Context<'_>) -> bool {
                    match self {
                        Self::Sleep(sleep) => sleep.as_mut().poll(context).is_ready(),
                        Self::Timeout(timeout) => timeout.as_mut().poll(context).is_ready(),
                        Self::Ticks(ticks) => ticks.poll_tick(context).is_ready(),
                    }
                }

                pub(super) fn is_elapsed(&self) -> bool {
                    matches!(self, Self::Sleep(sleep) if sleep.is_elapsed())
                }
            }

            pub(super) fn queue(mut rng: Rng) -> Log {
                run(async {
                    let (mut queue, mut keys) = (DelayQueue::new(), BTreeMap::new());
                    let mut log = Log::new();
                    let start = Instant::now();
                    for number in 0..60 {
                        let step = match rng.u8(..8) {
                            0 | 1 => {
                                let at = deadline(&mut rng, start, number);
                                keys.insert(number, queue.insert(number, at - Instant::now()));
                                String::new()
                            }
                            2 => {
                                let at = deadline(&mut rng, start, number);
                                keys.insert(number, queue.insert_at(number, at));
                                String::new()
                            }
                            3 => {
                                let Some((&is, &key)) = rng.choice(&keys) else { continue };
                                queue.reset_at(&key, deadline(&mut rng, start, is));
                                format!("{:?}", queue.deadline(&key) - start)
                            }
                            4 => {
                                let Some((&is, &key)) = rng.choice(&keys) else { continue };
                                keys.remove(&is);
                                let removed = queue.remove(&key);
                                format!("{:?} {}", removed.deadline() - start, removed.into_inner())
                            }
                            5 => {
                                queue.compact();
                                format!("{}", queue.len())
                            }
                            6 => {
                                time::sleep(delay(&mut rng)).await;
                                String::new()
                            }
                            _ => {
                                let next = poll_fn(|context| queue.poll_expired(context));
                                match time::timeout(delay(&mut rng), next).await {
                                    Ok(Some(expired)) => {
                                        keys.remove(expired.get_ref());
                                        let deadline = expired.deadline() - start;
                                        format!("{deadline:?} {}", expired.into_inner())
                                    }
                                    Ok(None) => "empty".to_owned(),
                                    Err(elapsed) => format!("{elapsed}"),
                                }
                            }
                        };
                        log.push((start.elapsed(), step));
                    }
                    while let Some(expired) = poll_fn(|context| queue.poll_expired(context)).await {
                        log.push((start.elapsed(), format!("{}", expired.into_inner())));
                    }
                    log
                })
            }
        }
    };
}

programs!(ours, tickwheel_tokio::time, tickwheel_tokio::time::DelayQueue);
programs!(theirs, tokio::time, tokio_util::time::DelayQueue);

/// An instant to come, of which each number has others: the order of equal ones is unspecified.
fn deadline(rng: &mut Rng, start: Instant, number: u64) -> Instant {
    let after = (start.elapsed() + delay(rng)).as_millis() as u64;
    start + Duration::from_millis((after / 64 + 1) * 64 + number)
}

/// Returns a time after `passed` of which each number has others, as [`deadline`].
fn apart(passed: Duration, delay: Duration, number: u64) -> Duration {
    let after = (passed + delay).as_millis() as u64;
    Duration::from_millis((after / 16 + 1) * 16 + number)
}

/// Polls a future once.
async fn once(mut future: Pin<&mut impl Future>) {
    poll_fn(|context| {
        _ = future.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
}

#[test]
fn sleeps_timeouts_and_intervals_end_when_they_end_on_tokio() {
    same(ours::waits, theirs::waits);
}

#[test]
fn what_a_task_waits_for_comes_in_the_order_of_tokio() {
    same(ours::loops, theirs::loops);
}

#[test]
fn a_poll_finds_what_it_finds_on_tokio_when_its_task_moves_the_clock() {
    same(ours::polls, theirs::polls);
}

/// A task that polls each of ours right after, or right before, its like of tokio's, on one thread.
async fn beside(mut rng: Rng, seed: u64, is_paused: bool) {
    let mut pairs = Vec::<(ours::Wait, theirs::Wait)>::new();
    for step in 0..200 {
        let offset = Duration::from_micros(rng.u64(..12_000));
        let at = Instant::now() + offset - Duration::from_millis(6);
        let which = rng.usize(..=pairs.len());
        match (rng.u8(..16), pairs.get_mut(which)) {
            (..5, _) => {
                // Both read one present for a delay if the clock stands.
                let kind = if is_paused { rng.u8(..6) } else { 2 * rng.u8(..3) };
                pairs.push((ours::Wait::new(kind, at), theirs::Wait::new(kind, at)));
            }
            (5..8, Some((ours, theirs))) => {
                ours.reset(at);
                theirs.reset(at);
            }
            (8, Some(_)) => drop(pairs.swap_remove(which)),
            // The driver waits behind these, and tokio's timer goes on meanwhile.
            (9, _) => (0..rng.u8(..100)).for_each(|_| {
                let polls = rng.u8(..3);
                tokio::spawn(async move {
                    for _ in 0..polls {
                        yield_now().await;
                    }
                });
            }),
            (10, _) => tokio::time::sleep(Duration::from_micros(rng.u64(..3_000))).await,
            (11, _) if is_paused => tokio::time::advance(offset / 4).await,
            (11, _) => {
                let busy = std::time::Instant::now();
                while busy.elapsed() < offset / 8 {}
            }
            (12.., _) => yield_now().await,
            _ => {}
        }
        if rng.bool() {
            continue;
        }
        poll_fn(|context| {
            for (number, (ours, theirs)) in pairs.iter_mut().enumerate() {
                let found = if rng.bool() {
                    (ours.poll(context), theirs.poll(context))
                } else {
                    let theirs = theirs.poll(context);
                    (ours.poll(context), theirs)
                };
                assert_eq!(found.0, found.1, "ours and theirs, seed {seed}, {step}, {number}");
                assert_eq!(ours.is_elapsed(), theirs.is_elapsed(), "seed {seed}, {step}, {number}");
            }
            Poll::Ready(())
        })
        .await;
    }
}

#[test]
fn each_poll_finds_what_one_of_tokio_finds_beside_it() {
    for seed in 0..SEEDS / 2 {
        let is_paused = seed % 3 == 0;
        let mut builder = Builder::new_current_thread();
        if seed % 3 == 1 {
            builder = Builder::new_multi_thread();
            builder.worker_threads(1);
        }
        let runtime = builder.enable_time().start_paused(is_paused).build().expect("it starts");
        let task = unconstrained(beside(Rng::with_seed(seed), seed, is_paused));
        runtime.block_on(runtime.spawn(task)).expect("both are alike");
    }
}

#[test]
fn a_queue_gives_what_that_of_tokio_util_gives() {
    same(ours::queue, theirs::queue);
}

const SEEDS: u64 = 200;
