//! Tasks that take connections out of a pool, more than it has, and give them back. Prints the CPU
//! time in seconds.

use cpu_time::ProcessTime;
use std::convert::Infallible;

struct Connects;

impl bb8::ManageConnection for Connects {
    type Connection = ();
    type Error = Infallible;

    async fn connect(&self) -> Result<(), Infallible> {
        Ok(())
    }

    async fn is_valid(&self, _: &mut ()) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut ()) -> bool {
        false
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let pool = bb8::Pool::builder().max_size(CONNECTIONS).build(Connects).await.expect("a pool");
    let start = ProcessTime::now();
    let tasks = (0..TASKS).map(|_| {
        let pool = pool.clone();
        tokio::spawn(async move {
            for _ in 0..USES {
                let _connection = pool.get().await.expect("within thirty seconds");
                tokio::task::yield_now().await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("it ends");
    }
    println!("{:.3}", start.elapsed().as_secs_f64());
}

const CONNECTIONS: u32 = 50;
const TASKS: usize = 500;
const USES: usize = 1_000;
