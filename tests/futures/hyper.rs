//! hyper's time limits go by the timer, and by its clock.

use crate::help::{Manual, ms};
use hyper::body::Incoming;
use hyper::rt::Timer as _;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tickwheel::{Mode, Timer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

in_each_mode! {
    a_slow_header_is_cut_off_at_its_limit,
    a_limit_is_moved_in_place,
    on_a_stopped_timer_a_limit_is_over,
}

fn a_slow_header_is_cut_off_at_its_limit(mode: Mode) {
    let manual = Manual::new(mode);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let (mut client, stream) = tokio::io::duplex(1_000);
        let answer =
            |_: Request<Incoming>| async { Ok::<_, Infallible>(Response::new("hello".to_owned())) };
        let mut server = http1::Builder::new();
        server.timer(manual.timer.clone()).header_read_timeout(ms(30_000));
        let connection = server.serve_connection(TokioIo::new(stream), service_fn(answer));
        let connection = tokio::spawn(connection);

        // In time: answered, and the limit of the next header begins.
        client.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n").await.expect("it is open");
        tokio::task::yield_now().await;
        manual.advance(29_999);
        client.write_all(b"\r\n").await.expect("it is open");
        let mut reply = [0; 1_000];
        let len = client.read(&mut reply).await.expect("it answers");
        assert!(reply[..len].starts_with(b"HTTP/1.1 200 OK"));

        client.write_all(b"GET / HTTP/1.1\r\n").await.expect("it is open");
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        manual.advance(29_999);
        tokio::task::yield_now().await;
        assert!(!connection.is_finished(), "not before its limit");
        manual.advance(60_000);
        let error = connection.await.expect("it does not panic").expect_err("it is cut off");
        assert!(error.is_timeout(), "{error}");
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.expect("it is closed");
        assert_eq!(manual.timer.pending(), 0);
    });
}

fn poll(sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>) -> Poll<()> {
    sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn a_limit_is_moved_in_place(mode: Mode) {
    let manual = Manual::new(mode);
    let timer = &manual.timer;
    assert_eq!(timer.now(), manual.at(0), "by the timer's own clock");
    let mut sleep = hyper::rt::Timer::sleep(timer, ms(100));
    let place = std::ptr::from_ref(&*sleep).cast::<()>();
    assert!(poll(&mut sleep).is_pending());
    timer.reset(&mut sleep, manual.at(200));
    manual.advance(199);
    assert!(poll(&mut sleep).is_pending());
    manual.advance(1);
    assert!(poll(&mut sleep).is_ready());
    timer.reset(&mut sleep, manual.at(250));
    assert!(poll(&mut sleep).is_pending());
    assert_eq!(place, std::ptr::from_ref(&*sleep).cast(), "it allocated nothing");

    // A sleep of some other timer is replaced.
    let mut other: Pin<Box<dyn hyper::rt::Sleep>> = Box::pin(Never);
    timer.reset(&mut other, manual.at(200));
    assert!(poll(&mut other).is_ready());
}

struct Never;

impl Future for Never {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl hyper::rt::Sleep for Never {}

fn on_a_stopped_timer_a_limit_is_over(mode: Mode) {
    let timer = Timer::builder().mode(mode).build().expect("in range");
    let mut sleep = hyper::rt::Timer::sleep(&timer, ms(3_600_000));
    assert!(poll(&mut sleep).is_pending());
    timer.stop().expect("outside");
    assert!(poll(&mut sleep).is_ready());
}
