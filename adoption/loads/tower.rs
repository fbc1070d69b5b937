//! Calls of a service with a limit of ten seconds for each, many at once. Prints the CPU time in
//! seconds.

use cpu_time::ProcessTime;
use std::convert::Infallible;
use std::time::Duration;
use tower::{Service, ServiceExt};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let service = tower::service_fn(async |number: usize| {
        tokio::task::yield_now().await;
        Ok::<_, Infallible>(number + 1)
    });
    let start = ProcessTime::now();
    let tasks = (0..AT_ONCE).map(|_| async move {
        let mut limited = tower::timeout::Timeout::new(service, Duration::from_secs(10));
        for number in 0..CALLS {
            let answer = limited.ready().await.expect("it is ready").call(number).await;
            assert_eq!(answer.expect("in time"), number + 1);
        }
    });
    futures::future::join_all(tasks).await;
    println!("{:.3}", start.elapsed().as_secs_f64());
}

const AT_ONCE: usize = 500;
const CALLS: usize = 3_000;
