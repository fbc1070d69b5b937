//! A small broker: producers that wait for followers, fetches that wait for data, and what happens
//! when a follower stays away. Then a million operations in its purgatory, from eight threads.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use systems::purgatory::{Ask, Broker, End, Operation, Purgatory};
use systems::requests::Client;
use tickwheel::Timer;

fn main() -> Result<(), Box<dyn Error>> {
    let timer = Timer::new();
    let broker = Broker::start(&timer, 1, 2)?;
    let client = || Client::connect(broker.address(), &timer);
    let producer = client()?;
    let produce = |text: &str| {
        let (bytes, began) = (text.into(), Instant::now());
        let ask = Ask::Produce { partition: 0, millis: 300, bytes };
        let outcome = producer.call(ask.body(), LIMIT).wait().map(|body| body == [1]);
        println!("produced {text:?}: on all followers: {outcome:?}, after {:?}", began.elapsed());
    };

    let read = |follower| {
        let client = client()?;
        Ok::<_, std::io::Error>(move |fetches: usize| {
            let mut offset = 0;
            for _ in 0..fetches {
                let ask = Ask::Fetch { partition: 0, millis: 1_000, follower, offset, least: 1 };
                let Ok(bytes) = client.call(ask.body(), LIMIT).wait() else { return };
                offset += bytes.len() as u32;
                if follower == 0 {
                    println!("  the consumer has {:?}", String::from_utf8_lossy(&bytes));
                }
            }
        })
    };
    let (consumer, first, second) = (read(0)?, read(1)?, read(2)?);
    thread::scope(|scope| {
        scope.spawn(|| consumer(2));
        scope.spawn(|| first(5));
        scope.spawn(|| second(3));
        produce("one, ");
        produce("two, ");
        thread::sleep(Duration::from_millis(1_100)); // the second follower fetches no more
        produce("three");
    });
    println!("waiting: {:?} producers and fetches", broker.delayed());
    million(&timer)
}

fn million(timer: &Timer) -> Result<(), Box<dyn Error>> {
    let (purgatory, began) = (Purgatory::new(timer, 1_000), Instant::now());
    thread::scope(|scope| {
        for thread in 0..8_u64 {
            let purgatory = &purgatory;
            scope.spawn(move || {
                for number in 0..125_000 {
                    let limit = Duration::from_millis(1 + number % 50);
                    let key = thread * 1_000 + number % 1_000;
                    // Of ten, nine are checked when their condition holds.
                    let is_open = number % 10 != 0;
                    // The timer has no limit, and nobody stops it.
                    let _ = purgatory.complete_or_watch(Counts { asked: 0, is_open }, [key], limit);
                    purgatory.check(&key);
                }
            });
        }
    });
    while purgatory.delayed() != 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let (satisfied, expired) = (SATISFIED.load(Relaxed), EXPIRED.load(Relaxed));
    println!("a million operations of 8 threads: {:?}", began.elapsed());
    println!("  {satisfied} satisfied, {expired} expired, {} entries left", purgatory.watched());
    Ok(())
}

/// Holds when it is asked for the third time, if it ever does.
struct Counts {
    asked: u32,
    is_open: bool,
}

impl Operation for Counts {
    fn is_satisfied(&mut self) -> bool {
        self.asked += 1;
        self.is_open && 2 < self.asked
    }

    fn complete(self, end: End) {
        let count = if end == End::Satisfied { &SATISFIED } else { &EXPIRED };
        count.fetch_add(1, Relaxed);
    }
}

static SATISFIED: AtomicU64 = AtomicU64::new(0);
static EXPIRED: AtomicU64 = AtomicU64::new(0);
const LIMIT: Duration = Duration::from_secs(10);
