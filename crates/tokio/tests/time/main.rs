//! What tokio's own suites do not ask: the driver in each kind of runtime, its end, and its clock.
//! Without the feature `test-util`, as programs have it, this is in real time.

#[cfg(feature = "test-util")]
mod paused;

use allocation_counter::measure;
use futures::stream::FusedStream;
use futures::{FutureExt, StreamExt};
use std::cell::RefCell;
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Once, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use tickwheel_tokio::time::delay_queue::Key;
use tickwheel_tokio::time::{
    self, DelayQueue, Duration, Instant, IntervalStream, Sleep, sleep, sleep_until, timeout,
};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::LocalSet;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("it starts")
}

fn multi_thread(workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).enable_all().build().expect("it starts")
}

async fn sleeps_for(duration: Duration) {
    let start = Instant::now();
    sleep(duration).await;
    assert!(duration <= start.elapsed());
}

fn sleep_of(runtime: &Runtime, duration: Duration) -> Sleep {
    let _inside = runtime.enter();
    sleep(duration)
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Counts how often it wakes.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wakes {
    fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn an_interval_is_a_stream_of_its_ticks() {
    current_thread().block_on(async {
        let first = Instant::now() + ms(3);
        let mut ticks = IntervalStream::new(time::interval_at(first, ms(2)));
        assert!(!ticks.is_terminated());
        assert_eq!(ticks.as_mut().period(), ms(2));
        for number in 0..3 {
            assert_eq!(ticks.next().await, Some(first + number * ms(2)));
            assert!(first + number * ms(2) <= Instant::now());
        }
        assert_eq!(ticks.into_inner().tick().await, first + ms(6));
    });
}

#[test]
fn a_sleep_that_moved_to_later_wakes_its_task_once_before_at_most() {
    multi_thread(1).block_on(async {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        loop {
            let start = Instant::now();
            let mut moved = sleep(ms(20));
            let first = Pin::new(&mut moved).poll(&mut Context::from_waker(&waker));
            Pin::new(&mut moved).reset(start + ms(3_600_000));
            // Else the machine is busy, and it was too late to move.
            if first.is_pending() && Instant::now() < start + ms(20) {
                wakes.0.store(0, SeqCst);
                sleep(ms(40)).await;
                assert!(wakes.count() <= usize::from(!cfg!(feature = "test-util")));
                return;
            }
        }
    });
}

#[test]
fn ready_however_often_before_it_moved_it_wakes_its_task_at_the_new_deadline() {
    current_thread().block_on(tokio::task::unconstrained(async {
        let past = Instant::now();
        tokio::time::sleep(ms(2)).await;
        for polls in 30..36 {
            let wakes = Arc::new(Wakes::default());
            let waker = Waker::from(Arc::clone(&wakes));
            let context = &mut Context::from_waker(&waker);
            let mut sleep = pin!(sleep_until(past));
            for _ in 0..polls {
                assert!(sleep.as_mut().poll(context).is_ready());
            }
            sleep.as_mut().reset(Instant::now() + ms(20));
            // Nothing is awaited in between: the driver has had no turn.
            let before = wakes.count();
            for _ in 0..1_000 {
                if before < wakes.count() {
                    break;
                }
                tokio::time::sleep(ms(10)).await;
            }
            assert_eq!(wakes.count(), before + 1, "{polls} polls");
        }
    }));
}

/// The message of a panic.
fn panics(body: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(body)).expect_err("it panics");
    let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).expect("it has a message")
}

/// The file that a panic names.
fn panicked_in(body: impl FnOnce()) -> String {
    thread_local!(static FILE: RefCell<String> = const { RefCell::new(String::new()) });
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = take_hook();
        set_hook(Box::new(move |info| {
            info.location().inspect(|location| FILE.set(location.file().to_owned()));
            hook(info);
        }));
    });
    panics(body);
    FILE.take()
}

#[test]
fn sleeps_in_each_kind_of_runtime() {
    for runtime in [current_thread(), multi_thread(1), multi_thread(4)] {
        runtime.block_on(async {
            sleeps_for(ms(3)).await;
            let tasks: Vec<_> = (0..100).map(|n| tokio::spawn(sleeps_for(ms(n % 10)))).collect();
            for task in tasks {
                task.await.expect("it ends");
            }
        });
    }
}

#[test]
fn sleeps_in_a_local_set_and_in_spawn_blocking() {
    let runtime = current_thread();
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        tokio::task::spawn_local(sleeps_for(ms(3))).await.expect("it ends");
        let handle = Handle::current();
        let blocking = tokio::task::spawn_blocking(move || handle.block_on(sleeps_for(ms(3))));
        blocking.await.expect("it ends");
    });
}

#[test]
fn each_runtime_has_a_driver_that_ends_with_it() {
    // The number of one that has ended may be that of the next.
    for _ in 0..50 {
        let runtime = current_thread();
        runtime.block_on(sleeps_for(ms(1)));
        let mut waits = sleep_of(&runtime, ms(3_600_000));
        assert!(poll(&mut waits).is_pending());
        assert_eq!(runtime.metrics().num_alive_tasks(), 1, "the driver");
        drop(runtime);
        let message = panics(|| assert!(poll(&mut waits).is_pending()));
        assert_eq!(message, "A Tokio 1.x context was found, but it is being shutdown.");
    }
}

#[test]
fn threads_that_use_a_runtime_first_at_once_share_its_driver() {
    const THREADS: usize = 8;
    for round in 0..40 {
        let runtime = if round % 2 == 0 { current_thread() } else { multi_thread(2) };
        let begin = Barrier::new(THREADS);
        let mut sleeps: Vec<_> = thread::scope(|scope| {
            let first_use = || {
                let _inside = runtime.enter();
                begin.wait();
                sleep(ms(1))
            };
            let threads = [(); THREADS].map(|()| scope.spawn(first_use));
            threads.into_iter().map(|thread| thread.join().expect("it sleeps")).collect()
        });
        runtime.block_on(futures::future::join_all(&mut sleeps));
        // An end of a task that only asked whether the runtime takes tasks may be still to come.
        let alive = || runtime.metrics().num_alive_tasks();
        let start = std::time::Instant::now();
        while 1 < alive() && start.elapsed() < ms(20_000) {
            runtime.block_on(tokio::task::yield_now());
        }
        assert_eq!(alive(), 1, "the driver, round {round}");
    }
}

#[test]
fn a_sleep_of_one_runtime_is_polled_in_another() {
    let (first, second) = (multi_thread(1), current_thread());
    let mut waits = sleep_of(&first, ms(5));
    second.block_on(&mut waits);
    // It panics there, too, if its own is gone.
    let mut waits = sleep_of(&first, ms(3_600_000));
    drop(first);
    second.block_on(async { panics(|| assert!(poll(&mut waits).is_pending())) });
    second.block_on(sleeps_for(ms(1)));
}

/// The driver is dropped while other workers still run tasks.
#[test]
fn while_its_runtime_shuts_down_a_sleep_waits_as_tokios_does() {
    struct Gone(mpsc::Sender<()>);
    impl Drop for Gone {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let runtime = multi_thread(2);
    let (sender, gone) = mpsc::channel();
    let (report, polled) = mpsc::channel();
    runtime.spawn(async move {
        let _gone = Gone(sender);
        pending::<()>().await;
    });
    runtime.spawn(async move {
        let mut old = sleep(ms(3_600_000));
        assert!(poll(&mut old).is_pending());
        report.send(None).expect("it waits");
        // Until the other worker shuts down.
        gone.recv().expect("it tells");
        thread::sleep(ms(50));
        let states = catch_unwind(AssertUnwindSafe(|| {
            (poll(&mut old).is_pending(), poll(&mut sleep(ms(3_600_000))).is_pending())
        }));
        report.send(Some(states.ok())).expect("it waits");
    });
    assert_eq!(polled.recv(), Ok(None));
    drop(runtime);
    assert_eq!(polled.recv(), Ok(Some(Some((true, true)))));
}

#[test]
fn after_its_runtime_a_sleep_is_made_and_panics_when_polled() {
    let runtime = current_thread();
    let handle = runtime.handle().clone();
    runtime.block_on(sleeps_for(ms(1)));
    drop(runtime);
    let _inside = handle.enter();
    let hour = Duration::from_secs(3_600);
    let mut late = sleep(hour);
    let theirs = panics(|| assert!(poll(&mut Box::pin(tokio::time::sleep(hour))).is_pending()));
    assert_eq!(panics(|| assert!(poll(&mut late).is_pending())), theirs);
    assert_eq!(timeout(ms(1), async { 1 }).now_or_never(), Some(Ok(1)));
}

#[test]
fn after_its_runtime_a_sleep_builds_no_timer() {
    let runtime = multi_thread(16);
    let handle = runtime.handle().clone();
    drop(runtime);
    let _inside = handle.enter();
    drop(sleep(ms(1)));
    let made = measure(|| drop(sleep(ms(1))));
    assert!(made.bytes_total < 4_096, "{made:?}");
}

#[test]
fn what_a_peak_needed_is_given_back_while_a_sleep_waits() {
    current_thread().block_on(async {
        let hour = Duration::from_secs(3_600);
        let mut waits = sleep(hour);
        assert!(poll(&mut waits).is_pending());
        let mut peak: Vec<_> = (0..20_000).map(|n| sleep(hour + ms(n % 5_000))).collect();
        assert!(peak.iter_mut().all(|sleep| poll(sleep).is_pending()));
        drop(peak);
        let given = measure(time::shrink_to_fit);
        assert!(given.bytes_current < -500_000, "{given:?}");
        assert!(poll(&mut waits).is_pending());
    });
}

type Waits = Pin<Box<dyn Future<Output = ()> + Send>>;

fn theirs(duration: Duration) -> Waits {
    Box::pin(tokio::time::sleep(duration))
}

fn ours(duration: Duration) -> Waits {
    Box::pin(sleep(duration))
}

/// Makes a sleep and polls it. On a busy machine one may be over by then, and is made anew.
fn waiting(sleep: fn(Duration) -> Waits, duration: Duration) -> Waits {
    loop {
        let mut waits = sleep(duration);
        if poll(&mut waits).is_pending() {
            return waits;
        }
    }
}

/// A task polls a sleep that is the earliest, and blocks its thread until another sleep has ended,
/// which another thread waits for.
fn blocks_its_thread(sleep: fn(Duration) -> Waits, was_used: bool, is_later: bool) {
    let runtime = multi_thread(2);
    if was_used {
        runtime.block_on(async { sleep(ms(1)).await });
    }
    let (ended, has_ended) = mpsc::channel();
    let (goes_on, go_on) = mpsc::channel();
    let blocks = async move {
        let _earliest = waiting(sleep, ms(20));
        goes_on.send(()).expect("it waits");
        has_ended.recv_timeout(ms(20_000))
    };
    let other = async {
        let other = (!is_later).then(|| waiting(sleep, ms(40)));
        let blocks = tokio::spawn(blocks);
        go_on.recv().expect("it runs");
        other.unwrap_or_else(|| sleep(ms(40))).await;
        ended.send(()).expect("it waits");
        assert_eq!(blocks.await.expect("it ends"), Ok(()), "{was_used} {is_later}");
    };
    runtime.block_on(other);
}

#[test]
fn a_task_that_blocks_its_thread_holds_up_no_other_sleep() {
    for sleep in [theirs, ours] {
        blocks_its_thread(sleep, false, true);
        blocks_its_thread(sleep, true, true);
        blocks_its_thread(sleep, true, false);
    }
}

/// The same, if that sleep was moved into the past: the driver's turn is due at once.
#[test]
fn a_task_that_blocks_its_thread_holds_up_no_driver_that_is_due() {
    let runtime = multi_thread(2);
    // A tick that tokio's timer has reached.
    let past = runtime.block_on(async {
        sleep(ms(1)).await;
        let past = Instant::now();
        sleep(ms(20)).await;
        past
    });
    let (ended, has_ended) = mpsc::channel();
    let (goes_on, go_on) = mpsc::channel();
    let blocks = async move {
        let mut moved = sleep(ms(3_600_000));
        assert!(poll(&mut moved).is_pending());
        Pin::new(&mut moved).reset(past);
        goes_on.send(()).expect("it waits");
        has_ended.recv_timeout(ms(20_000))
    };
    let ended = runtime.block_on(async {
        let blocks = tokio::spawn(blocks);
        go_on.recv().expect("it runs");
        sleep(ms(40)).await;
        ended.send(()).expect("it waits");
        blocks.await.expect("it ends")
    });
    assert_eq!(ended, Ok(()));
}

/// What a thread finds is kept in a value of that thread, which is gone when it ends.
#[test]
fn a_thread_that_ends_makes_a_sleep() {
    struct Ends(Handle, mpsc::Sender<bool>);
    impl Drop for Ends {
        fn drop(&mut self) {
            let made = catch_unwind(AssertUnwindSafe(|| {
                let _inside = self.0.enter();
                drop(sleep(ms(1)));
            }));
            self.1.send(made.is_ok()).expect("it waits");
        }
    }
    thread_local!(static ENDS: RefCell<Option<Ends>> = const { RefCell::new(None) });
    let runtime = current_thread();
    let handle = runtime.handle().clone();
    let (sender, made) = mpsc::channel();
    let thread = thread::spawn(move || {
        // tokio's value of this thread is dropped last, and ours first.
        let _inside = handle.enter();
        ENDS.set(Some(Ends(handle.clone(), sender)));
        drop(sleep(ms(1)));
    });
    thread.join().expect("it ends");
    assert_eq!(made.recv(), Ok(true));
}

/// On that thread calls of tokio's panic, and a panic there would be the end of the process.
#[test]
fn a_thread_that_ends_polls_and_drops_a_sleep_of_a_runtime_that_goes_on() {
    struct Ends(Option<Sleep>, Sleep, mpsc::Sender<Sleep>);
    impl Drop for Ends {
        fn drop(&mut self) {
            assert!(Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed()));
            let mut polled = self.0.take().expect("once");
            // They wait, unless this comes late.
            _ = (poll(&mut polled), poll(&mut self.1));
            self.2.send(polled).expect("it waits");
        }
    }
    thread_local!(static ENDS: RefCell<Option<Ends>> = const { RefCell::new(None) });
    for runtime in [current_thread(), multi_thread(1)] {
        // A driver that rests, and waits for nothing yet.
        runtime.block_on(sleeps_for(ms(1)));
        runtime.block_on(tokio::task::yield_now());
        let (polled, dropped) = (sleep_of(&runtime, ms(200)), sleep_of(&runtime, ms(100)));
        let (sender, receiver) = mpsc::channel();
        let thread = thread::spawn(|| {
            ENDS.set(Some(Ends(Some(polled), dropped, sender)));
            // tokio's value of this thread comes after ours, and so is dropped before it.
            assert!(Handle::try_current().is_err());
        });
        thread.join().expect("it ends");
        let polled = receiver.recv().expect("it was polled");
        runtime.block_on(async {
            // In a task of its own, which nobody polls unless it is woken.
            let waits = tokio::time::timeout(ms(20_000), tokio::spawn(polled));
            waits.await.expect("its driver was told").expect("it ends");
        });
    }
}

#[test]
fn a_sleep_that_waits_in_drop_of_the_runtime_does_no_harm() {
    let runtime = multi_thread(2);
    let (sender, dropped) = mpsc::channel();
    struct Tells(mpsc::Sender<()>);
    impl Drop for Tells {
        fn drop(&mut self) {
            // A sleep that is made while the runtime shuts down.
            drop(catch_unwind(|| assert!(poll(&mut sleep(ms(1))).is_pending())));
            self.0.send(()).expect("it waits");
        }
    }
    runtime.block_on(async {
        for _ in 0..20 {
            let tells = Tells(sender.clone());
            tokio::spawn(async move {
                let _tells = tells;
                sleep(ms(3_600_000)).await;
            });
        }
        sleeps_for(ms(2)).await;
    });
    drop(runtime);
    assert_eq!(dropped.try_iter().count(), 20);
}

#[test]
fn outside_of_a_runtime_and_without_timers_it_panics_as_tokio_does() {
    let same = |ours: fn(), theirs: fn()| assert_eq!(panics(ours), panics(theirs));
    same(|| drop(sleep(ms(1))), || drop(tokio::time::sleep(ms(1))));
    same(|| drop(time::interval(ms(1))), || drop(tokio::time::interval(ms(1))));
    same(|| drop(time::interval(ms(0))), || drop(tokio::time::interval(ms(0))));
    let runtime = Builder::new_current_thread().build().expect("it starts");
    let _inside = runtime.enter();
    same(|| drop(sleep(ms(1))), || drop(tokio::time::sleep(ms(1))));
    same(|| drop(timeout(ms(1), async {})), || drop(tokio::time::timeout(ms(1), async {})));
}

/// A key that is gone, and room that no queue has. The location is the caller's.
#[test]
fn a_queue_panics_as_that_of_tokio_util_does() {
    let calls: [fn(&mut DelayQueue<u8>, &Key); 5] = [
        |queue, gone| _ = queue.deadline(gone),
        |queue, gone| _ = queue.remove(gone),
        |queue, gone| queue.reset(gone, ms(1)),
        |queue, gone| queue.reset_at(gone, Instant::now()),
        |queue, _| queue.reserve(1 << 30),
    ];
    for call in calls {
        let mut queue = DelayQueue::new();
        let gone = queue.insert(1, ms(1));
        queue.clear();
        assert_eq!(panicked_in(|| call(&mut queue, &gone)), file!());
    }
    assert_eq!(panicked_in(|| drop(DelayQueue::<u8>::with_capacity(usize::MAX))), file!());
    let ours = panics(|| DelayQueue::<u8>::new().reserve(1 << 30));
    assert_eq!(ours, panics(|| tokio_util::time::DelayQueue::<u8>::new().reserve(1 << 30)));
}

#[test]
fn a_queue_lives_outside_of_a_runtime() {
    let mut queue = DelayQueue::new();
    let key = queue.insert(1, ms(1));
    queue.insert(2, Duration::MAX);
    assert_eq!((queue.len(), queue.peek()), (2, Some(key)));
    let next = current_thread().block_on(poll_fn(|context| queue.poll_expired(context)));
    assert_eq!(next.map(|expired| expired.into_inner()), Some(1));
    thread::spawn(move || drop(queue)).join().expect("it is dropped anywhere");
}

/// What a task finds that has blocked its thread beyond a deadline: whether another task had its
/// turn before a sleep ended that was made or moved, whether the sleep is elapsed, and whether what
/// was ready soon after came before its time limit, at its first poll and at the next.
macro_rules! blocked_beyond_a_deadline {
    ($($time:ident)::+) => {
        current_thread().block_on(async {
            let blocks = || thread::sleep(ms(10));
            let other = tokio::spawn(async {});
            let mut sleep = pin!($($time)::+::sleep(ms(1)));
            blocks();
            sleep.as_mut().await;
            let mut found = vec![other.is_finished()];
            let other = tokio::spawn(async {});
            sleep.as_mut().reset(Instant::now() + ms(1));
            blocks();
            found.push(sleep.is_elapsed());
            sleep.as_mut().await;
            found.extend([other.is_finished(), sleep.is_elapsed()]);
            // It ends, unseen, before it moves.
            sleep.as_mut().reset(Instant::now() + ms(1));
            assert!(futures::poll!(sleep.as_mut()).is_pending());
            $($time)::+::sleep(ms(5)).await;
            let other = tokio::spawn(async {});
            sleep.as_mut().reset(Instant::now() + ms(1));
            blocks();
            sleep.as_mut().await;
            found.push(other.is_finished());
            for polls in 0..3 {
                found.push(loop {
                    let (limit, mut is_in_time) = (Instant::now() + ms(5), false);
                    let limited = async {
                        for _ in 0..polls {
                            tokio::task::yield_now().await;
                        }
                        is_in_time = Instant::now() < limit;
                        blocks();
                        tokio::task::yield_now().await;
                    };
                    let came = $($time)::+::timeout(ms(5), limited).await.is_ok();
                    // Else the machine is busy: it was to block before the limit.
                    if is_in_time {
                        break came;
                    }
                });
            }
            found
        })
    };
}

#[test]
fn a_task_that_blocks_beyond_a_deadline_finds_what_it_finds_on_tokio() {
    let on_tokio = [true, false, true, true, true, true, true, true];
    assert_eq!(blocked_beyond_a_deadline!(tokio::time), on_tokio);
    assert_eq!(blocked_beyond_a_deadline!(tickwheel_tokio::time), on_tokio);
}

/// Returns whether what a time limit waits for comes in time if a task blocks the thread beyond the
/// limit, before the driver's turn, and what is ready by then leads to it in two more steps.
macro_rules! blocked_before_the_turn_of_the_driver {
    ($($time:ident)::+) => {
        current_thread().block_on(async {
            use tokio::sync::oneshot::channel;
            loop {
                $($time)::+::sleep(ms(1)).await;
                let (begins, limit) = (Instant::now() + ms(20), Instant::now() + ms(60));
                let ((first, is_first), (second, is_second)) = (channel(), channel());
                let (last, is_last) = channel::<()>();
                let limited = tokio::spawn($($time)::+::timeout_at(limit, is_last));
                let blocks = tokio::spawn(async move {
                    tokio::time::sleep_until(begins).await;
                    let is_in_time = Instant::now() + ms(1) < limit;
                    while Instant::now() < limit + ms(2) {
                        thread::sleep(ms(5));
                    }
                    first.send(()).expect("it waits");
                    is_in_time
                });
                // What the driver has to do when that begins.
                let other = tokio::spawn($($time)::+::sleep_until(begins));
                let step = tokio::spawn(async move { is_first.await.map(|()| second.send(())) });
                let step_two = tokio::spawn(async move { is_second.await.map(|()| last.send(())) });
                let came = limited.await.expect("it ends").is_ok();
                let is_in_time = blocks.await.expect("it ends");
                other.await.expect("it ends");
                _ = (step.await, step_two.await);
                // Else the machine is busy, and tokio's timer was there before.
                if is_in_time {
                    return came;
                }
            }
        })
    };
}

#[test]
fn the_driver_is_not_ahead_of_the_timer_of_tokio() {
    assert!(blocked_before_the_turn_of_the_driver!(tokio::time));
    assert!(blocked_before_the_turn_of_the_driver!(tickwheel_tokio::time));
}

/// What a task finds that does not let the driver have its turn. No clock of several threads can be
/// paused: there all is as without `test-util`.
macro_rules! before_the_turn_of_the_driver {
    ($($time:ident)::+) => {{
        let runtime = multi_thread(1);
        let task = tokio::task::unconstrained(async {
            let past = Instant::now();
            let mut sleep = pin!($($time)::+::sleep(ms(3_600_000)));
            let mut ticks = $($time)::+::interval(ms(3_600_000));
            ticks.tick().await;
            let is_waiting = poll(&mut sleep).is_pending() && poll(&mut pin!(ticks.tick())).is_pending();
            tokio::time::sleep(ms(5)).await;
            sleep.as_mut().reset(past);
            ticks.reset_at(past);
            let mut found = vec![is_waiting, poll(&mut sleep).is_ready()];
            found.push(poll(&mut pin!(ticks.tick())).is_ready());
            found.push((0..100).all(|_| poll(&mut sleep).is_ready()));
            found.push((0..100).all(|_| {
                sleep.as_mut().reset(past);
                poll(&mut sleep).is_ready()
            }));
            let mut waits = pin!($($time)::+::sleep(ms(1)));
            waits.as_mut().await;
            found.push((0..100).all(|_| poll(&mut waits).is_ready()));
            found
        });
        runtime.block_on(runtime.spawn(task)).expect("it ends")
    }};
}

#[test]
fn what_was_moved_into_the_past_or_has_ended_is_ready_at_each_poll_as_on_tokio() {
    let on_tokio = [true; 6];
    assert_eq!(before_the_turn_of_the_driver!(tokio::time), on_tokio);
    assert_eq!(before_the_turn_of_the_driver!(tickwheel_tokio::time), on_tokio);
}

#[test]
fn ready_many_times_before_it_is_not_ahead_of_the_timer_of_tokio() {
    current_thread().block_on(tokio::task::unconstrained(async {
        let past = Instant::now();
        tokio::time::sleep(ms(2)).await;
        for polls in 30..36 {
            let mut sleep = pin!(sleep_until(past));
            for _ in 0..polls {
                assert!(poll(&mut sleep).is_ready());
                sleep.as_mut().reset(past);
            }
            sleep.as_mut().reset(Instant::now() + ms(1));
            thread::sleep(ms(2));
            // No thread has looked at tokio's timer since.
            assert!(poll(&mut sleep).is_pending() && poll(&mut sleep).is_pending(), "{polls}");
            sleep.await;
        }
    }));
}

/// Blocks the only thread beyond a deadline until the sleep says that it is elapsed.
#[test]
fn what_says_that_it_is_elapsed_is_ready_at_the_next_poll() {
    let runtime = multi_thread(1);
    let task = runtime.spawn(async {
        for _ in 0..20 {
            let mut sleep = sleep(ms(2));
            assert!(poll(&mut sleep).is_pending());
            thread::sleep(ms(4));
            while !sleep.is_elapsed() {
                tokio::task::yield_now().await;
            }
            assert!(poll(&mut sleep).is_ready());
        }
    });
    runtime.block_on(task).expect("it ends");
}

#[test]
fn always_ready_it_gives_way_to_others() {
    current_thread().block_on(async {
        let others = tokio::spawn(async {});
        let mut ready = sleep(ms(0));
        (&mut ready).await;
        let busy = poll_fn(|context| {
            let mut polls = 0;
            while Pin::new(&mut ready).poll(context).is_ready() {
                polls += 1;
                assert!(polls < 10_000, "only the budget ends this");
            }
            if others.is_finished() { Poll::Ready(()) } else { Poll::Pending }
        });
        busy.await;
    });
}

#[test]
fn a_future_that_uses_up_its_budget_ends_at_its_deadline() {
    current_thread().block_on(async {
        let busy = async {
            loop {
                tokio::task::consume_budget().await;
            }
        };
        let elapsed = timeout(ms(5), busy).await.expect_err("it never ends");
        assert_eq!(std::io::Error::from(elapsed).to_string(), "timed out");
    });
}
