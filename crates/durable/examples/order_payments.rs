//! Orders that must be paid in time, on PostgreSQL: the timeout is put in the transaction of the
//! order, so that there is one exactly if there is the other.
//!
//! ```sh
//! cargo run --example order_payments --features postgres -- postgresql://user@host/database
//! ```
//!
//! Without a URL it starts a PostgreSQL of its own, if the distribution's package is installed.

use std::error::Error;
use std::time::{Duration, SystemTime};

use postgres::{Client, NoTls};
use tickwheel_durable::{DurableTimer, cancel_in, schedule_in};

#[allow(dead_code)]
#[path = "../tests/server/mod.rs"]
mod server;

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(url) = std::env::args().nth(1) {
        return run(&url);
    }
    let Some(server) = server::Server::start() else { return Ok(()) };
    let url = server.database();
    drop(server::client(&url));
    run(&url)?;
    server.stop("fast");
    server.go();
    println!("and what was pending is there after a restart of the database:");
    let timer = DurableTimer::connect(&url)?;
    println!("{} pending", timer.len()?);
    Ok(timer.close()?)
}

fn run(url: &str) -> Result<(), Box<dyn Error>> {
    let timer = DurableTimer::connect(url)?;
    let mut client = Client::connect(url, NoTls)?;
    client.batch_execute(
        "create table if not exists orders (id int primary key, state text not null);
         truncate orders",
    )?;

    for id in 1..=4 {
        order(&mut client, id, Duration::from_millis(1_500))?;
    }
    // The first is paid in time, and the second asks for a day more.
    pay(&mut client, 1)?;
    timer
        .schedule("order-2/payment", SystemTime::now() + Duration::from_secs(86_400), b"2")?
        .wait()?;

    for _ in 0..2 {
        let due = timer.recv()?.ok_or("the timer was closed")?;
        let id: i32 = str::from_utf8(due.payload())?.parse()?;
        // At least once, so what it does must be the same if it is done again.
        let changed = client.execute(
            "update orders set state = 'not paid in time' where id = $1 and state = 'open'",
            &[&id],
        )?;
        println!("{}: {changed} order changed", due.name());
        due.ack();
    }
    for row in client.query("select id, state from orders order by id", &[])? {
        println!("order {}: {}", row.get::<_, i32>(0), row.get::<_, &str>(1));
    }
    Ok(timer.close()?)
}

fn order(client: &mut Client, id: i32, time_to_pay: Duration) -> Result<(), Box<dyn Error>> {
    let mut transaction = client.transaction()?;
    transaction.execute("insert into orders values ($1, 'open')", &[&id])?;
    let at = SystemTime::now() + time_to_pay;
    let name = format!("order-{id}/payment");
    schedule_in(&mut transaction, &name, at, id.to_string().as_bytes())?;
    Ok(transaction.commit()?)
}

fn pay(client: &mut Client, id: i32) -> Result<(), Box<dyn Error>> {
    let mut transaction = client.transaction()?;
    transaction.execute("update orders set state = 'paid' where id = $1", &[&id])?;
    cancel_in(&mut transaction, &format!("order-{id}/payment"))?;
    Ok(transaction.commit()?)
}
