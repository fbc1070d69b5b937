//! A web service's handlers with `sqlx`, and its consumer as a task, on both flavours of tokio.
//!
//! ```sh
//! cargo run -p systems --example web_on_sqlx -- postgresql://user@host/database
//! ```
//!
//! Without a URL it starts a PostgreSQL of its own, if the distribution's package is installed.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sqlx::PgPool;
use tickwheel_durable::{Cancelled, DurableTimer, schedule_in_sqlx};
use tokio::runtime::Builder;

#[allow(dead_code)]
#[path = "../../durable/tests/server/mod.rs"]
mod server;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// What all handlers share.
struct App {
    pool: PgPool,
    timer: DurableTimer,
}

/// As in axum: a handler takes its state and what was asked for.
struct State<T>(T);
struct Path<T>(T);

/// `POST /orders/{id}`: the timeout is there exactly if the order is.
async fn place_order(State(app): State<Arc<App>>, Path(id): Path<i32>) -> Result<String> {
    let mut transaction = app.pool.begin().await?;
    sqlx::query("insert into orders values ($1, 'open')")
        .bind(id)
        .execute(&mut *transaction)
        .await?;
    let (name, at) = (format!("order-{id}/payment"), SystemTime::now() + Duration::from_secs(3));
    schedule_in_sqlx(&mut transaction, &name, at, id.to_string().as_bytes()).await?;
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
    sqlx::query(pay).bind(id).execute(&app.pool).await?;
    Ok(format!("order {id} is paid"))
}

/// A task that does what is due.
async fn consume(app: Arc<App>) -> Result<u64> {
    let mut expired = 0;
    while let Some(due) = app.timer.next().await? {
        let id: i32 = str::from_utf8(due.payload())?.parse()?;
        let expire = "update orders set state = 'expired' where id = $1 and state = 'open'";
        expired += sqlx::query(expire).bind(id).execute(&app.pool).await?.rows_affected();
        due.ack();
        if expired == 2 {
            break;
        }
    }
    Ok(expired)
}

async fn serve(url: String) -> Result<()> {
    let pool = PgPool::connect(&url).await?;
    let orders = "create table if not exists orders (id int primary key, state text not null)";
    sqlx::query(orders).execute(&pool).await?;
    sqlx::query("truncate orders").execute(&pool).await?;
    let timer = DurableTimer::connect_async(&url).await?;
    let app = Arc::new(App { pool, timer });
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
    Builder::new_multi_thread().enable_all().build()?.block_on(serve(url.clone()))?;
    Builder::new_current_thread().enable_all().build()?.block_on(serve(url))
}
