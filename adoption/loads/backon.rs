//! Many tasks that fail twice and are retried a millisecond later, again and again. Prints the CPU
//! time in seconds.

use backon::{ConstantBuilder, Retryable};
use cpu_time::ProcessTime;
use std::cell::Cell;
use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let start = ProcessTime::now();
    let backoff = ConstantBuilder::default().with_delay(Duration::from_millis(1));
    let task = async move || {
        for _ in 0..ROUNDS {
            let tries = Cell::new(0);
            let fails_twice = async || {
                tries.set(tries.get() + 1);
                if tries.get() < 3 { Err("not yet") } else { Ok(()) }
            };
            fails_twice.retry(backoff).await.expect("the third time");
        }
    };
    futures::future::join_all((0..TASKS).map(|_| task())).await;
    println!("{:.3}", start.elapsed().as_secs_f64());
}

const TASKS: usize = 2_000;
const ROUNDS: usize = 100;
