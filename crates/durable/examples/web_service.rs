//! A web service's handlers and its consumer as tasks, with `tokio-postgres`, on both flavours of
//! tokio, and the timer alone on smol.
//!
//! ```sh
//! cargo run --example web_service --features postgres -- postgresql://user@host/database
//! ```
//!
//! Without a URL it starts a PostgreSQL of its own, if the distribution's package is installed.
//! `crates/systems/examples/web_on_sqlx.rs` is the same with `sqlx`.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::lock::Mutex;
use tickwheel_durable::{Cancelled, DurableTimer};
use tokio_postgres::{Client, NoTls};

#[allow(dead_code)]
#[path = "../tests/server/mod.rs"]
mod server;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// What all handlers share.
struct App {
    database: Mutex<Client>,
    timer: DurableTimer,
}

/// As in axum: a handler takes its state and what was asked for.
struct State<T>(T);
struct Path<T>(T);

/// `POST /orders/{id}`: the timeout is there exactly if the order is.
async fn place_order(State(app): State<Arc<App>>, Path(id): Path<i32>) -> Result<String> {
    let mut database = app.database.lock().await;
    let transaction = database.transaction().await?;
    transaction.execute("insert into orders values ($1, 'open')", &[&id]).await?;
    let (name, payload) = (format!("order-{id}/payment"), id.to_string().into_bytes());
    let at = SystemTime::now() + Duration::from_secs(3);
    transaction.query_one(SCHEDULE, &[&name, &at, &payload]).await?;
    transaction.commit().await?;
    Ok(format!("order {id} is to be paid"))
}

/// `POST /orders/{id}/payment`.
async fn pay_order(State(app): State<Arc<App>>, Path(id): Path<i32>) -> Result<String> {
    let cancelled = app.timer.cancel(&format!("order-{id}/payment"))?.await?;
    if cancelled != Cancelled::Cancelled {
        return Ok(format!("too late for order {id}"));
    }
    let pay = "update orders set state = 'paid' where id = $1";
    app.database.lock().await.execute(pay, &[&id]).await?;
    Ok(format!("order {id} is paid"))
}

/// A task that does what is due.
async fn consume(app: Arc<App>) -> Result<u64> {
    let mut expired = 0;
    while let Some(due) = app.timer.next().await? {
        let id: i32 = str::from_utf8(due.payload())?.parse()?;
        let expire = "update orders set state = 'expired' where id = $1 and state = 'open'";
        expired += app.database.lock().await.execute(expire, &[&id]).await?;
        due.ack();
        if expired == 2 {
            break;
        }
    }
    Ok(expired)
}

async fn serve(url: String) -> Result<()> {
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    client
        .batch_execute(
            "create table if not exists orders (id int primary key, state text not null);
             truncate orders",
        )
        .await?;
    let timer = DurableTimer::connect_async(&url).await?;
    let app = Arc::new(App { database: Mutex::new(client), timer });
    let consumer = tokio::spawn(consume(Arc::clone(&app)));
    for id in 1..=3 {
        println!("{}", place_order(State(Arc::clone(&app)), Path(id)).await?);
    }
    println!("{}", pay_order(State(Arc::clone(&app)), Path(1)).await?);
    println!("{} orders expired", consumer.await??);
    // In the place of `close`, which is for a thread that may block.
    let timer = app.timer.clone();
    Ok(timer.close_async().await?)
}

/// On an executor without tokio.
async fn alone(url: &str) -> Result<()> {
    let timer = DurableTimer::connect_async(url).await?;
    timer.schedule("alone", SystemTime::now(), b"")?.await?;
    let due = timer.next().await?.ok_or("the timer was closed")?;
    println!("{} on smol", due.name());
    due.ack();
    Ok(timer.close_async().await?)
}

fn main() -> Result<()> {
    let server;
    let url = match std::env::args().nth(1) {
        Some(url) => url,
        None => {
            let Some(own) = server::Server::start() else { return Ok(()) };
            server = own;
            server.database()
        }
    };
    use tokio::runtime::Builder;
    Builder::new_multi_thread().enable_all().build()?.block_on(serve(url.clone()))?;
    Builder::new_current_thread().enable_all().build()?.block_on(serve(url.clone()))?;
    smol::block_on(alone(&url))
}

const SCHEDULE: &str = "select tickwheel_schedule($1, $2, $3)";
