//! The numbers of a timer, as Prometheus reads them.
//!
//! `cargo run --features metrics --example prometheus`

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;
use tickwheel::{Lateness, Timer, TimerMetrics};

/// Answers so many scrapes of `timer`.
pub(crate) fn serve(
    listener: &TcpListener,
    timer: &Timer,
    scrapes: usize,
) -> Result<(), Box<dyn Error>> {
    let lateness = Matcher::Full("tickwheel_lateness_seconds".into());
    let bounds: Vec<_> = Lateness::default().buckets().map(|(le, _)| le.as_secs_f64()).collect();
    let builder = PrometheusBuilder::new().set_buckets_for_metric(lateness, &bounds)?;
    let prometheus = builder.install_recorder()?;
    let mut metrics = TimerMetrics::new("requests");
    for stream in listener.incoming().take(scrapes) {
        let mut stream = BufReader::new(stream?);
        stream.read_line(&mut String::new())?; // whatever it asks for
        metrics.publish(&timer.stats());
        let page = prometheus.render();
        let head = "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n";
        stream.get_mut().write_all(format!("{head}{page}").as_bytes())?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut scrape = TcpStream::connect(listener.local_addr()?)?;
    let timer = Timer::builder().slow_task(Duration::from_millis(10)).build()?;
    timer.schedule(Duration::from_millis(5), || thread::sleep(Duration::from_millis(20)))?;
    assert!(timer.schedule(Duration::from_secs(30), || {})?.cancel());
    thread::sleep(Duration::from_millis(50));

    scrape.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    serve(&listener, &timer, 1)?;
    let mut page = String::new();
    scrape.read_to_string(&mut page)?;
    println!("{page}");
    Ok(())
}
