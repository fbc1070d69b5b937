//! What the metrics of a timer say.

#[allow(dead_code, reason = "the example has a `main`")]
#[path = "../examples/prometheus.rs"]
mod example;

use metrics_exporter_prometheus::PrometheusBuilder;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::thread;
use std::time::Duration;
use tickwheel::{Lateness, ManualClock, MissedTick, Timer, TimerMetrics};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn scrape(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n") && head.contains("version=0.0.4"));
    page.into()
}

fn value(page: &str, sample: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {sample} in {page}")).parse().unwrap()
}

/// A timer that did a bit of everything, and its clock.
fn busy() -> (Timer, ManualClock) {
    let clock = ManualClock::new();
    let builder = Timer::builder().tick(ms(1)).clock(clock.clone());
    let timer = builder.max_pending(1_600).slow_task(ms(10)).build().unwrap();
    let slow = clock.clone();
    timer.schedule(ms(5_000), move || slow.advance(ms(20))).unwrap();
    timer.schedule(ms(6_000), || panic!("as the test wants it")).unwrap();
    let beat = || ControlFlow::Continue(());
    timer.schedule_repeating(ms(1_000), MissedTick::Skip, beat).unwrap();
    // Too many to be held in one array.
    let others = [(); 1_500].map(|()| timer.schedule(ms(1_000_000), || {}).unwrap());
    others[..50].iter().for_each(|other| assert!(other.reschedule(ms(2_000_000))));
    others[..20].iter().for_each(|other| assert!(other.cancel()));
    assert!(!(0..200).all(|later| timer.schedule(ms(1_000_000 + later * 50), || {}).is_ok()));
    clock.advance(ms(10_500));
    clock.jump(ms(3_000));
    // Those of 1,000 s come near, and are demoted.
    clock.advance(ms(990_000));
    (timer, clock)
}

#[test]
fn the_example_is_scraped() {
    let (timer, clock) = busy();
    let stats = timer.stats();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = timer.clone();
    let server = thread::spawn(move || example::serve(&listener, &served, 3).unwrap());
    for page in [scrape(address), scrape(address)] {
        for (name, expected) in [
            ("pending", stats.pending as u64),
            ("scheduled_total", stats.scheduled),
            ("rescheduled_total", stats.rescheduled),
            ("cancelled_total", stats.cancelled),
            ("fired_total", stats.fired),
            ("rejected_total", stats.rejected),
            ("missed_total", stats.missed),
            ("panics_total", stats.panics),
            ("slow_tasks_total", stats.slow_tasks),
            ("wake_ups_total", stats.wake_ups),
            ("demotions_total", stats.shards.iter().map(|shard| shard.demotions).sum()),
            ("lateness_seconds_count", stats.fired),
        ] {
            let found = value(&page, &format!("tickwheel_{name}{{timer=\"requests\"}}"));
            assert_eq!(found, expected as f64, "{name}");
            assert!(0 < expected, "{name} shows nothing");
        }
        for (bound, count) in stats.lateness.buckets() {
            let le = bound.as_secs_f64();
            let sample = format!("lateness_seconds_bucket{{timer=\"requests\",le=\"{le}\"}}");
            assert_eq!(value(&page, &format!("tickwheel_{sample}")), count as f64, "{le}");
        }
    }
    // What happens meanwhile is in the next.
    clock.advance(ms(1_000));
    let page = scrape(address);
    let fired = value(&page, "tickwheel_fired_total{timer=\"requests\"}");
    assert!(stats.fired < timer.stats().fired);
    assert_eq!(fired, timer.stats().fired as f64);
    server.join().unwrap();
}

#[test]
fn what_is_published_twice_counts_once_and_two_timers_add_up() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let ((first, _), (second, _)) = (busy(), busy());
        let stats = first.stats();
        let mut metrics = [(); 2].map(|()| TimerMetrics::new("shared"));
        for _ in 0..3 {
            metrics[0].publish(&stats);
            metrics[1].publish(&second.stats());
        }
        let page = handle.render();
        let fired = value(&page, "tickwheel_fired_total{timer=\"shared\"}");
        assert_eq!(fired, (stats.fired * 2) as f64);
        let late = value(&page, "tickwheel_lateness_seconds_count{timer=\"shared\"}");
        assert_eq!(late, fired);
        let sum = value(&page, "tickwheel_lateness_seconds_sum{timer=\"shared\"}");
        let exact = stats.lateness.sum().as_secs_f64() * 2.0;
        assert!(exact <= sum && sum <= exact * 9.0 / 8.0, "{sum}, exactly {exact}");
    });
    assert_ne!(Lateness::default(), busy().0.stats().lateness);
}
