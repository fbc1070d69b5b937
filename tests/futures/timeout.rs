//! A future for no longer than some time.

use crate::help::{Hand, Manual, ms};
use std::error::Error;
use std::future::{pending, poll_fn, ready};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use tickwheel::{Mode, ScheduleErrorKind};

in_each_mode! {
    what_is_ready_comes_back_and_registers_nothing,
    what_is_ready_in_time_comes_back,
    what_is_late_is_elapsed,
    dropped_it_drops_the_future_and_leaves_nothing_behind,
    moved_it_has_more_time,
    a_stopped_timer_says_so,
    one_inside_another_ends_first,
    the_future_is_handed_out,
}

fn what_is_ready_comes_back_and_registers_nothing(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut timed = pin!(manual.timer.timeout(ms(0), ready(17)));
    manual.advance(10);
    // However late it is.
    assert_eq!(hand.poll(&mut timed), Poll::Ready(Ok(17)));
    assert_eq!((manual.timer.pending(), hand.wakers()), (0, 0));
}

fn what_is_ready_in_time_comes_back(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    for (limit, woken) in [(20, 1), (10, 2)] {
        // The last moment is in time.
        let mut timed = pin!(manual.timer.timeout(ms(limit), manual.timer.sleep(ms(10))));
        assert!(hand.poll(&mut timed).is_pending());
        assert_eq!(manual.timer.pending(), 2);
        manual.advance(10);
        assert_eq!((hand.woken(), hand.poll(&mut timed)), (woken, Poll::Ready(Ok(Ok(())))));
    }
}

fn what_is_late_is_elapsed(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut timed = pin!(manual.timer.timeout(ms(20), pending::<()>()));
    assert!(hand.poll(&mut timed).is_pending());
    manual.advance(19);
    assert!(hand.poll(&mut timed).is_pending());
    manual.advance(1);
    let Poll::Ready(Err(elapsed)) = hand.poll(&mut timed) else { panic!("it is late") };
    assert_eq!((elapsed.error(), elapsed.to_string().as_str()), (None, "the time is over"));
    assert!(elapsed.source().is_none());
    let mut timed = pin!(manual.timer.timeout_at(manual.at(10), pending::<()>()));
    assert_eq!(hand.poll(&mut timed), Poll::Ready(Err(elapsed)));
    // It counts from the call.
    let mut timed = pin!(manual.timer.timeout(ms(10), pending::<()>()));
    manual.advance(10);
    assert_eq!(hand.poll(&mut timed), Poll::Ready(Err(elapsed)));
}

fn dropped_it_drops_the_future_and_leaves_nothing_behind(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let captured = Arc::new(());
    let inside = Arc::clone(&captured);
    let future = async move {
        let _inside = inside;
        pending::<()>().await;
    };
    assert!(hand.poll_once(manual.timer.timeout(ms(10), future)).is_pending());
    assert_eq!((Arc::strong_count(&captured), manual.timer.pending(), hand.wakers()), (1, 0, 0));
    manual.advance(20);
    assert_eq!(hand.woken(), 0);
}

fn moved_it_has_more_time(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut timed = pin!(manual.timer.timeout(ms(10), pending::<()>()));
    assert!(hand.poll(&mut timed).is_pending());
    manual.advance(5);
    timed.as_mut().sleep_mut().reset(ms(10));
    manual.advance(9);
    assert!(hand.poll(&mut timed).is_pending());
    manual.advance(1);
    assert!(hand.poll(&mut timed).is_ready());
}

fn a_stopped_timer_says_so(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut waits = pin!(manual.timer.timeout(ms(10), pending::<()>()));
    assert!(hand.poll(&mut waits).is_pending());
    assert!(manual.timer.stop().expect("outside").is_empty());
    assert_eq!(hand.woken(), 1);
    let mut late = pin!(manual.timer.timeout(ms(10), pending::<()>()));
    let Poll::Ready(Err(elapsed)) = hand.poll(&mut waits) else { panic!("it is stopped") };
    assert_eq!(hand.poll(&mut late), Poll::Ready(Err(elapsed)));
    assert_eq!(elapsed.error(), Some(ScheduleErrorKind::Stopped));
    assert_eq!(elapsed.source().expect("it has one").to_string(), "the timer was stopped");
    assert!(!elapsed.to_string().is_empty());
    // What is ready is given back nevertheless.
    let mut timed = pin!(manual.timer.timeout(ms(10), ready(1)));
    assert_eq!(hand.poll(&mut timed), Poll::Ready(Ok(1)));
}

fn one_inside_another_ends_first(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let inner = manual.timer.timeout(ms(5), pending::<()>());
    let mut outer = pin!(manual.timer.timeout(ms(10), inner));
    assert!(hand.poll(&mut outer).is_pending());
    manual.advance(5);
    let Poll::Ready(Ok(Err(elapsed))) = hand.poll(&mut outer) else { panic!("it is late") };
    assert_eq!(elapsed.error(), None);
}

fn the_future_is_handed_out(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let log = Arc::new(Mutex::new(Vec::new()));
    let writes = Arc::clone(&log);
    let mut timed = manual.timer.timeout(
        ms(10),
        Box::pin(poll_fn(move |_| {
            writes.lock().unwrap().push(1);
            Poll::<()>::Pending
        })),
    );
    assert!(hand.poll(&mut timed).is_pending());
    let _: &_ = timed.get_ref();
    assert!(hand.poll(timed.get_mut()).is_pending());
    let mut timed = Box::pin(timed);
    assert!(hand.poll(&mut timed.as_mut().get_pin_mut()).is_pending());
    let mut future = std::pin::Pin::into_inner(timed).into_inner();
    assert_eq!(manual.timer.pending(), 0);
    assert!(hand.poll(&mut future).is_pending());
    assert_eq!(log.lock().unwrap().len(), 4);
}

#[test]
fn an_elapsed_time_is_an_io_error_that_timed_out() {
    let manual = Manual::new(Mode::default());
    manual.timer.stop().expect("outside");
    let mut timed = manual.timer.timeout(ms(1), pending::<()>());
    let Poll::Ready(Err(elapsed)) = Hand::new().poll(&mut timed) else { panic!("it is over") };
    let error = std::io::Error::from(elapsed);
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    assert_eq!(inner, Some(&elapsed));
}
