//! The numbers of a timer, as Prometheus reads them.
//!
//! `cargo run -p systems --example prometheus`

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;
use tickwheel::{Lateness, ManualClock, Timer, TimerMetrics};

/// Answers so many scrapes of `timer`.
pub(crate) fn serve(on: &TcpListener, timer: &Timer, scrapes: usize) -> Result<(), Box<dyn Error>> {
    let bounds: Vec<_> = Lateness::default().buckets().map(|(le, _)| le.as_secs_f64()).collect();
    let prometheus = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("lateness_seconds".into()), &bounds)?
        .install_recorder()?;
    let mut metrics = TimerMetrics::new("requests");
    for stream in on.incoming().take(scrapes) {
        let mut stream = BufReader::new(stream?);
        stream.read_line(&mut String::new())?; // whatever it asks for
        metrics.publish(&timer.stats());
        let head = "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n";
        stream.get_mut().write_all(format!("{head}{}", prometheus.render()).as_bytes())?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::new();
    let timer = Timer::builder().clock(clock.clone()).build()?;
    timer.schedule(Duration::from_millis(5), || {})?;
    clock.jump(Duration::from_millis(7));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut scrape = TcpStream::connect(listener.local_addr()?)?;
    scrape.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    serve(&listener, &timer, 1)?;
    std::io::copy(&mut scrape, &mut std::io::stdout())?;
    Ok(())
}
