//! Objects that a controller looks at again within a second, and asks for twice. Prints the CPU
//! time in seconds.

use cpu_time::ProcessTime;
use futures::StreamExt;
use kube_runtime::scheduler::{ScheduleRequest, scheduler};
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let start = ProcessTime::now();
    let (now, mut random) = (Instant::now(), 1_u64);
    let requests = (0..2 * OBJECTS).map(move |number| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let run_at = now + Duration::from_micros(500_000 + (random >> 33) % 1_000_000);
        ScheduleRequest { message: number % OBJECTS, run_at }
    });
    let requests = futures::stream::iter(requests).chain(futures::stream::pending());
    let came = pin!(scheduler(requests)).take(OBJECTS).count().await;
    assert_eq!(came, OBJECTS);
    println!("{:.3}", start.elapsed().as_secs_f64());
}

const OBJECTS: usize = 300_000;
