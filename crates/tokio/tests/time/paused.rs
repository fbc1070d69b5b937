//! With a paused clock.

use super::*;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use tickwheel::Timer;
use tickwheel_tokio::TokioClock;
use tickwheel_tokio::time::delay_queue::Expired;

/// A sleep of another runtime, which its waker polls.
struct Polls {
    sleep: Mutex<Sleep>,
    is_ready: AtomicBool,
}

impl Wake for Polls {
    fn wake(self: Arc<Self>) {
        let is_ready = poll(&mut *self.sleep.lock().unwrap()).is_ready();
        self.is_ready.store(is_ready, SeqCst);
    }
}

fn paused() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().expect("it starts")
}

#[test]
fn in_a_turn_of_another_runtime_a_sleep_goes_by_its_own_clock() {
    // It does not run, so no time passes.
    let (stands, other) = (paused(), current_thread());
    let sleep = Mutex::new(sleep_of(&stands, ms(5)));
    let polls = Arc::new(Polls { sleep, is_ready: AtomicBool::new(false) });
    other.block_on(async {
        let mut first = time::sleep(ms(20));
        let waker = Waker::from(Arc::clone(&polls));
        assert!(Pin::new(&mut first).poll(&mut Context::from_waker(&waker)).is_pending());
        while Arc::strong_count(&polls) > 2 {
            time::sleep(ms(10)).await;
        }
    });
    assert!(!polls.is_ready.load(SeqCst), "no time has passed");
}

/// With no timer a paused clock stands still meanwhile.
async fn waits_for_a_thread() {
    let (sender, told) = tokio::sync::oneshot::channel();
    thread::spawn(move || {
        thread::sleep(ms(20));
        sender.send(()).expect("it waits");
    });
    told.await.expect("it tells");
}

#[test]
fn a_paused_clock_does_not_jump_to_a_sleep_that_was_dropped() {
    let drops: [fn(Waits); 2] =
        [drop, |waits| thread::spawn(|| drop(waits)).join().expect("it ends")];
    for (sleep, drops) in
        [theirs, ours].into_iter().flat_map(|sleep| drops.map(|drops| (sleep, drops)))
    {
        let is_still = paused().block_on(async {
            let start = Instant::now();
            let mut near = sleep(ms(1_000));
            let mut far = sleep(Duration::from_secs(3_600));
            assert!(poll(&mut near).is_pending() && poll(&mut far).is_pending());
            tokio::task::yield_now().await;
            drops(near);
            drops(far);
            waits_for_a_thread().await;
            start.elapsed() == ms(0)
        });
        assert!(is_still);
    }
}

#[test]
fn a_paused_clock_does_not_jump_to_where_a_sleep_was() {
    paused().block_on(async {
        let (start, mut polls) = (Instant::now(), Vec::new());
        let mut near = sleep(ms(1_000));
        assert!(poll(&mut near).is_pending());
        tokio::task::yield_now().await;
        Pin::new(&mut near).reset(start + ms(5_000));
        poll_fn(|context| {
            polls.push(start.elapsed());
            Pin::new(&mut near).poll(context)
        })
        .await;
        assert_eq!((polls.len(), polls[0]), (2, ms(0)), "{polls:?}");
    });
}

/// A poll completes it before the driver has its turn.
#[test]
fn what_completed_wakes_its_task_no_more() {
    paused().block_on(async {
        let start = Instant::now();
        let mut ticks = time::interval_at(start + ms(1_000), ms(1_000));
        let mut once = sleep(ms(1_000));
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        assert!(ticks.poll_tick(&mut context).is_pending());
        assert!(Pin::new(&mut once).poll(&mut context).is_pending());
        tokio::task::yield_now().await;
        // It gives way once, which is too soon for the driver, and `time::advance` twice.
        tokio::time::advance(ms(1_001)).await;
        assert!(ticks.poll_tick(&mut context).is_ready());
        assert!(Pin::new(&mut once).poll(&mut context).is_ready());
        sleep(ms(5_000)).await;
        assert_eq!(wakes.count(), 0);
    });
}

#[test]
fn two_runtimes_have_two_clocks() {
    let (paused, real) = (paused(), current_thread());
    let year = Duration::from_secs(31_536_000);
    paused.block_on(sleeps_for(year));
    let mut far = sleep_of(&paused, year);
    real.block_on(async {
        assert!(poll(&mut far).is_pending());
        sleeps_for(ms(3)).await;
        assert!(poll(&mut far).is_pending());
    });
}

/// How often a sleep has woken its task at the end of each step.
macro_rules! moved_after_it_was_ready {
    ($($time:ident)::+) => {
        paused().block_on(async {
            let wakes = Arc::new(Wakes::default());
            let waker = Waker::from(Arc::clone(&wakes));
            let context = &mut Context::from_waker(&waker);
            let mut found = Vec::new();
            let mut step = async |ends: Instant| {
                tokio::time::sleep_until(ends + ms(5)).await;
                found.push(wakes.count());
            };
            let after = |delay| Instant::now() + ms(delay);
            let mut sleep = pin!($($time)::+::sleep_until(after(10)));
            sleep.as_mut().reset(after(10));
            step(after(10)).await;
            assert!(sleep.as_mut().poll(context).is_ready());
            for is_ready in [true, false, true, true] {
                sleep.as_mut().reset(after(10));
                step(after(0)).await;
                step(after(10)).await;
                if is_ready {
                    assert!(sleep.as_mut().poll(context).is_ready());
                }
            }
            sleep.as_mut().reset(after(20));
            sleep.as_mut().reset(after(10));
            step(after(10)).await;
            assert!(sleep.as_mut().poll(context).is_ready());
            sleep.as_mut().reset(after(0) - ms(20));
            step(after(0)).await;
            let mut ticks = $($time)::+::interval_at(after(10), ms(10));
            assert!(ticks.poll_tick(context).is_pending());
            step(after(10)).await;
            assert!(ticks.poll_tick(context).is_ready());
            step(after(20)).await;
            ticks.reset();
            step(after(20)).await;
            found
        })
    };
}

#[test]
fn a_sleep_that_moved_after_it_was_ready_wakes_its_task_as_on_tokio() {
    let on_tokio = moved_after_it_was_ready!(tokio::time);
    assert_eq!(moved_after_it_was_ready!(tickwheel_tokio::time), on_tokio);
}

/// Whether a queue has woken its task in each step, and what deadlines it tells.
macro_rules! told_by_a_queue {
    ($queue:ty) => {
        paused().block_on(async {
            let wakes = Arc::new(Wakes::default());
            let waker = Waker::from(Arc::clone(&wakes));
            let context = &mut Context::from_waker(&waker);
            let (start, mut queue) = (Instant::now(), <$queue>::new());
            let mut found = Vec::new();
            // Theirs may wake it twice at once.
            let mut tells = |at: Instant| found.push((0 < wakes.0.swap(0, SeqCst), at - start));
            // What is past counts from the start.
            let past = queue.insert_at(0, start - ms(5_000));
            tells(queue.deadline(&past));
            time::advance(ms(100)).await;
            let late = queue.insert(1, ms(1_000));
            queue.reset_at(&late, start - ms(5_000));
            tells(queue.deadline(&late));
            queue.reset(&late, ms(1_000));
            tells(queue.deadline(&late));
            assert!(matches!(queue.poll_expired(context), Poll::Ready(Some(_))));
            // After that poll, earlier and later ones.
            queue.insert(2, ms(2_000));
            tells(start);
            let near = queue.insert(3, ms(100));
            tells(start);
            assert!(queue.poll_expired(context).is_pending());
            queue.reset(&near, ms(50));
            tokio::time::sleep(ms(60)).await;
            tells(start);
            let Poll::Ready(Some(expired)) = queue.poll_expired(context) else {
                panic!("it is due")
            };
            tells(expired.deadline());
            assert!(queue.poll_expired(context).is_pending());
            queue.insert_at(4, start);
            tells(start);
            assert!(matches!(queue.poll_expired(context), Poll::Ready(Some(_))));
            queue.clear();
            tells(start);
            assert!(matches!(queue.poll_expired(context), Poll::Ready(None)));
            let last = queue.insert(5, ms(1_000));
            tells(start);
            assert!(queue.poll_expired(context).is_pending());
            queue.reset_at(&last, start);
            tells(start);
            assert!(matches!(queue.poll_expired(context), Poll::Ready(Some(_))));
            let last = queue.insert(6, ms(1_000));
            tells(start);
            queue.remove(&last);
            tells(start);
            found
        })
    };
}

#[test]
fn a_queue_wakes_its_task_and_tells_deadlines_as_that_of_tokio_util() {
    let of_tokio_util = told_by_a_queue!(tokio_util::time::DelayQueue<u8>);
    assert_eq!(told_by_a_queue!(DelayQueue<u8>), of_tokio_util);
}

#[test]
fn an_empty_queue_says_so_whatever_the_budget() {
    paused().block_on(async {
        let mut queue = DelayQueue::<u8>::new();
        let empty = poll_fn(|context| {
            let is_empty = |_: &u32| matches!(queue.poll_expired(context), Poll::Ready(None));
            Poll::Ready((0..1_000).take_while(is_empty).count())
        });
        assert_eq!(empty.await, 1_000);
    });
}

#[test]
fn a_queue_that_came_out_empty_wakes_the_task_that_waits_for_more() {
    paused().block_on(async {
        let mut queue = DelayQueue::new();
        queue.insert(1, ms(5));
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        assert!(queue.poll_expired(&mut context).is_pending());
        sleep(ms(20)).await;
        assert!(matches!(queue.poll_expired(&mut context), Poll::Ready(Some(_))));
        assert!(matches!(queue.poll_expired(&mut context), Poll::Ready(None)));
        let before = wakes.count();
        queue.insert(2, ms(10));
        assert_eq!(wakes.count(), before + 1);
    });
}

#[test]
fn a_queue_that_is_cleared_wakes_its_task_if_it_had_a_value() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    paused().block_on(async {
        let mut queue = DelayQueue::new();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        assert!(matches!(queue.poll_expired(&mut context), Poll::Ready(None)));
        queue.clear();
        assert_eq!(wakes.count(), 0, "it would poll without end");
        queue.insert(Panics, ms(5));
        assert_eq!(wakes.count(), 1);
        assert!(queue.poll_expired(&mut context).is_pending());
        assert_eq!(panics(|| queue.clear()), "on purpose");
        assert_eq!((wakes.count(), queue.len()), (2, 0));
        sleep(ms(20)).await;
        assert_eq!(wakes.count(), 2, "it waits for nothing");
    });
}

/// A paused clock would stop where they were.
#[test]
fn a_queue_does_not_wait_for_what_was_removed_or_moved_to_later() {
    paused().block_on(async {
        let (start, mut queue) = (Instant::now(), DelayQueue::new());
        let removed = queue.insert("removed", ms(1_000));
        let moved = queue.insert("moved", ms(1_000));
        let mut polls = Vec::new();
        let next = poll_fn(|context| {
            polls.push(start.elapsed());
            let polled = queue.poll_expired(context);
            if polls.len() > 1 {
                return polled;
            }
            queue.remove(&removed);
            queue.reset(&moved, ms(60_000));
            queue.poll_expired(context)
        });
        assert_eq!(next.await.map(|expired| expired.into_inner()), Some("moved"));
        assert!(polls.len() == 2 && ms(60_000) <= polls[1], "{polls:?}");
    });
}

/// Its task polls no more: the thread that removes or moves the earliest value sees to it.
#[test]
fn a_queue_wakes_its_task_at_the_earliest_value_that_is_left() {
    for others in [0, 60] {
        paused().block_on(async {
            let (start, mut queue) = (Instant::now(), DelayQueue::new());
            let wakes = Arc::new(Wakes::default());
            let waker = Waker::from(Arc::clone(&wakes));
            let removed = queue.insert(0, ms(20));
            let moved = queue.insert(1, ms(30));
            (0..others).for_each(|number| _ = queue.insert(number, ms(70_000 + number)));
            assert!(queue.poll_expired(&mut Context::from_waker(&waker)).is_pending());
            tokio::task::yield_now().await;
            queue.remove(&removed);
            tokio::task::yield_now().await;
            // Outside of the runtime.
            queue = thread::spawn(move || {
                queue.reset(&moved, ms(60_000));
                queue
            })
            .join()
            .expect("it ends");
            sleep(ms(59_000)).await;
            assert_eq!(wakes.count(), 0, "{others}");
            sleep(ms(2_000)).await;
            assert_eq!(wakes.count(), 1, "{others}");
            let next = queue.poll_expired(&mut Context::from_waker(&waker));
            assert!(matches!(next, Poll::Ready(Some(expired)) if expired.key() == moved));
            assert!(ms(61_000) <= start.elapsed());
        });
    }
}

#[test]
fn a_paused_clock_does_not_jump_to_the_last_value_that_was_removed_from_a_queue() {
    paused().block_on(async {
        let (start, mut queue) = (Instant::now(), DelayQueue::new());
        let last = queue.insert(0, ms(1_000));
        let mut context = Context::from_waker(Waker::noop());
        assert!(queue.poll_expired(&mut context).is_pending());
        tokio::task::yield_now().await;
        queue.remove(&last);
        waits_for_a_thread().await;
        assert_eq!(start.elapsed(), ms(0));
    });
}

/// It looks at no other value, and asks for no other wake-up.
#[test]
fn a_queue_wakes_its_task_for_an_earlier_value_only() {
    paused().block_on(async {
        let mut queue = DelayQueue::new();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        let near = queue.insert(0, ms(500));
        assert!(queue.poll_expired(&mut context).is_pending());
        for number in 1..200 {
            queue.insert(number, ms(500 + number));
        }
        queue.reset(&near, ms(600));
        assert_eq!(wakes.count(), 0);
        assert!(queue.poll_expired(&mut context).is_pending());
        queue.insert(1_000, ms(400));
        queue.insert(1_001, ms(300));
        assert_eq!(wakes.count(), 1, "once until it polls");
        assert!(queue.poll_expired(&mut context).is_pending());
        queue.reset(&near, ms(200));
        assert_eq!(wakes.count(), 2);
        let next = poll_fn(|context| queue.poll_expired(context)).await.expect("it is there");
        assert_eq!(next.key(), near);
    });
}

/// tokio-util's hides the near one, or panics.
#[test]
fn a_far_entry_of_a_queue_hides_no_near_one() {
    paused().block_on(async {
        let mut queue = DelayQueue::new();
        queue.insert("far", Duration::from_millis(1 << 37));
        queue.insert("near", Duration::from_secs(60));
        let start = Instant::now();
        let next = poll_fn(|context| queue.poll_expired(context)).await.expect("two wait");
        assert_eq!(next.get_ref(), &"near");
        assert!(start.elapsed() < Duration::from_secs(61));
    });
}

#[test]
fn forty_years_in_a_queue_are_forty_and_some_never_end() {
    paused().block_on(async {
        let (start, years) = (Instant::now(), Duration::from_secs(40 * 31_536_000));
        let mut queue = DelayQueue::new();
        queue.insert("inserted", years);
        let moved = queue.insert("moved", ms(1));
        queue.reset(&moved, years + ms(1));
        queue.insert("never", Duration::MAX);
        for value in ["inserted", "moved"] {
            let next = poll_fn(|context| queue.poll_expired(context)).await.expect("three wait");
            assert_eq!(next.into_inner(), value);
            assert!((years..years + ms(10)).contains(&start.elapsed()));
        }
        let never = poll_fn(|context| queue.poll_expired(context));
        assert!(timeout(2 * years, never).await.is_err());
    });
}

/// As that of tokio-util: kube-runtime's tests ask so.
#[test]
fn what_is_due_when_its_queue_is_made_comes_at_the_first_poll() {
    for runtime in [paused(), current_thread()] {
        runtime.block_on(async {
            let now = Instant::now();
            let mut queue = DelayQueue::new();
            queue.insert_at("due", now);
            queue.insert_at("later", now + ms(60_000));
            let mut polled =
                async || poll_fn(|context| Poll::Ready(queue.poll_expired(context))).await;
            let first = polled().await.map(|expired| expired.map(Expired::into_inner));
            assert_eq!(first, Poll::Ready(Some("due")));
            assert!(polled().await.is_pending());
        });
    }
}

#[test]
fn a_queue_with_much_that_is_due_gives_way_to_others() {
    paused().block_on(async {
        let mut queue = DelayQueue::new();
        for number in 0..1_000 {
            queue.insert(number, ms(1));
        }
        time::advance(ms(5)).await;
        let at_once = poll_fn(|context| {
            let is_next = |_: &u32| matches!(queue.poll_expired(context), Poll::Ready(Some(_)));
            Poll::Ready((0..1_000).take_while(is_next).count())
        });
        assert!(at_once.await < 1_000);
        // The others come in later polls.
        let all = async { while poll_fn(|context| queue.poll_expired(context)).await.is_some() {} };
        timeout(ms(5), all).await.expect("all are due");
    });
}

/// What makes the future may take its time.
#[test]
fn a_timeout_begins_when_its_future_is_made() {
    struct Slow;
    impl IntoFuture for Slow {
        type Output = ();
        type IntoFuture = std::future::Pending<()>;
        fn into_future(self) -> Self::IntoFuture {
            // Its first poll moves the clock.
            assert!(time::advance(ms(600)).now_or_never().is_none());
            pending()
        }
    }
    paused().block_on(async {
        let start = Instant::now();
        timeout(ms(1_000), Slow).await.expect_err("it never ends");
        assert!(ms(1_600) <= start.elapsed());
    });
}

#[test]
fn our_own_timer_follows_a_paused_clock() {
    paused().block_on(async {
        let builder = Timer::builder().clock(TokioClock::current());
        let (timer, driver) = builder.build_driven().expect("in range");
        let driven = tokio::spawn(driver.run(|at| tokio::time::sleep_until(at.into())));
        let (start, hour) = (Instant::now(), Duration::from_secs(3_600));
        timer.sleep(hour).await.expect("it runs");
        assert!((hour..hour + ms(3)).contains(&start.elapsed()));

        let mut waits = timer.sleep(hour);
        assert!(poll(&mut waits).is_pending());
        tokio::task::yield_now().await;
        time::advance(hour - ms(1)).await;
        assert!((&mut waits).now_or_never().is_none());
        time::advance(ms(3)).await;
        assert_eq!((&mut waits).now_or_never(), Some(Ok(())));

        time::resume();
        let start = std::time::Instant::now();
        timer.sleep(ms(5)).await.expect("it runs");
        assert!(ms(5) <= start.elapsed());
        drop(timer.stop());
        driven.await.expect("it ends");
    });
}

/// As threads of no runtime see it: with the clock of its own.
#[test]
fn a_thread_outside_reads_the_clock_of_its_runtime() {
    let runtime = paused();
    let clock = TokioClock::new(runtime.handle().clone());
    let read = move || tickwheel::Clock::now(&clock);
    let before = read();
    thread::sleep(ms(2));
    assert_eq!(read(), before);
    runtime.block_on(time::advance(ms(50)));
    assert_eq!(thread::spawn(move || read() - before).join().expect("it reads"), ms(50));
}

#[test]
fn a_million_years_never_come() {
    paused().block_on(async {
        let never = timeout(Duration::MAX, pending::<()>());
        assert!(timeout(ms(5), never).await.is_err());
        let mut far = sleep(Duration::MAX);
        assert!(poll(&mut far).is_pending());
    });
}

#[test]
fn a_queue_that_is_older_than_the_clock_of_its_runtime_is_not_early() {
    let runtime = paused();
    let earlier = runtime.block_on(async { Instant::now() });
    let mut made_outside: DelayQueue<&str> = loop {
        let queue = DelayQueue::new();
        if earlier + ms(20) < Instant::now() {
            break queue;
        }
    };
    let later = paused();
    let mut made_elsewhere = later.block_on(async {
        tokio::time::advance(Duration::from_secs(86_400)).await;
        DelayQueue::new()
    });
    for queue in [&mut made_outside, &mut made_elsewhere] {
        runtime.block_on(async {
            queue.insert("x", ms(10));
            let start = Instant::now();
            let next = poll_fn(|context| queue.poll_expired(context)).await;
            assert_eq!(next.map(|expired| expired.into_inner()), Some("x"));
            assert!(ms(10) <= start.elapsed(), "after {:?}", start.elapsed());
        });
    }
}
