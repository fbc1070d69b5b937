//! Requests with a deadline of ten seconds, many at once, between a client and a server of one
//! thread. Prints the CPU time in seconds.

use cpu_time::ProcessTime;
use futures::StreamExt;
use tarpc::server::{BaseChannel, Channel};
use tarpc::{client, context, transport::channel};

#[tarpc::service]
trait Adder {
    async fn one_more(number: u64) -> u64;
}

#[derive(Clone)]
struct Server;

impl Adder for Server {
    async fn one_more(self, _: context::Context, number: u64) -> u64 {
        number + 1
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (to_server, to_client) = channel::unbounded();
    let served = BaseChannel::with_defaults(to_client).execute(Server.serve());
    tokio::spawn(served.for_each(|response| async {
        tokio::spawn(response);
    }));
    let client = AdderClient::new(client::Config::default(), to_server).spawn();
    let start = ProcessTime::now();
    let answers = futures::stream::iter(0..REQUESTS).map(|number| {
        let client = client.clone();
        async move { client.one_more(context::current(), number).await.expect("an answer") }
    });
    let answers = answers.buffer_unordered(AT_ONCE).count().await;
    assert_eq!(answers as u64, REQUESTS);
    println!("{:.3}", start.elapsed().as_secs_f64());
}

const REQUESTS: u64 = 300_000;
const AT_ONCE: usize = 500;
