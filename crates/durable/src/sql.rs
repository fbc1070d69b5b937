//! Scheduling inside a transaction of the caller's, by drivers that are asynchronous.

use std::time::SystemTime;

use crate::values::{check, check_name, deadline};
use crate::{Content, Error};

/// Returns the SQL that puts a timeout, and its four parameters: for a transaction of any driver,
/// which has the timeout exactly if that commits.
///
/// ```text
/// let (sql, (name, at, payload, metadata)) = schedule_sql("order-17/payment", at, b"eur 20")?;
/// transaction.execute(sql, &[&name, &at, &payload, &metadata])?;
/// ```
///
/// It is the same as [`DurableTimer::schedule`](crate::DurableTimer::schedule), and needs no timer
/// in this process. The transaction holds a lock on the name until it ends.
///
/// # Errors
///
/// If the name or the content is not allowed.
#[expect(clippy::type_complexity, reason = "it is to be taken apart")]
pub fn schedule_sql<'a>(
    name: &'a str,
    at: SystemTime,
    content: impl Into<Content<'a>>,
) -> Result<(&'static str, (&'a str, i64, &'a [u8], &'a str)), Error> {
    let content @ Content { payload, metadata } = content.into();
    check(name, content)?;
    // There it is signed.
    let deadline = i64::try_from(deadline(at)).unwrap_or(i64::MAX);
    Ok((SCHEDULE, (name, deadline, payload, metadata)))
}

/// Returns the SQL that cancels a timeout in a transaction of any driver, and its parameter. It
/// selects whether the timeout was there.
///
/// A timeout whose deadline is near may be handed out all the same: until the transaction commits,
/// the worker that owns it does not know.
///
/// # Errors
///
/// If the name is not allowed.
pub fn cancel_sql(name: &str) -> Result<(&'static str, &str), Error> {
    check_name(name)?;
    Ok(("select tickwheel_cancel($1)", name))
}

/// Puts a timeout inside a transaction of `tokio-postgres`, as
/// [`schedule_in`](crate::schedule_in) does in one of `postgres`.
///
/// `transaction` may also be a client, which puts it at once.
///
/// # Errors
///
/// If the name or the content is not allowed, and the database's.
#[cfg(feature = "postgres")]
pub async fn schedule_in_async<'a>(
    transaction: &(impl tokio_postgres::GenericClient + Sync),
    name: &'a str,
    at: SystemTime,
    content: impl Into<Content<'a>>,
) -> Result<(), Error> {
    use tokio_postgres::types::Type;

    let (sql, (name, at, payload, metadata)) = schedule_sql(name, at, content)?;
    let parameters: [Parameter<'_>; 4] =
        [(&name, Type::TEXT), (&at, Type::INT8), (&payload, Type::BYTEA), (&metadata, Type::TEXT)];
    let put = transaction.query_typed_one(sql, &parameters).await;
    put.map_err(|error| failed("schedule", name, error))?;
    Ok(())
}

/// Cancels a timeout inside a transaction of `tokio-postgres`, as [`cancel_in`](crate::cancel_in)
/// does in one of `postgres`. Returns whether it was there.
///
/// # Errors
///
/// As for [`schedule_in_async`].
#[cfg(feature = "postgres")]
pub async fn cancel_in_async(
    transaction: &(impl tokio_postgres::GenericClient + Sync),
    name: &str,
) -> Result<bool, Error> {
    use tokio_postgres::types::Type;

    let (sql, name) = cancel_sql(name)?;
    let row = transaction.query_typed_one(sql, &[(&name, Type::TEXT)]).await;
    Ok(row.map_err(|error| failed("cancel", name, error))?.get(0))
}

#[cfg(feature = "postgres")]
fn failed(doing: &str, name: &str, error: tokio_postgres::Error) -> Error {
    let elsewhere = crate::store::postgres::elsewhere(name, &error);
    elsewhere.unwrap_or_else(|| Error::store(format!("{doing} {name:?} in a transaction"), error))
}

/// Puts a timeout inside a transaction of `sqlx`, as `schedule_in` does in one of `postgres`.
///
/// ```text
/// let mut transaction = pool.begin().await?;
/// sqlx::query("insert into orders ...").execute(&mut *transaction).await?;
/// schedule_in_sqlx(&mut transaction, "order-17/payment", at, b"eur 20").await?;
/// transaction.commit().await?;
/// ```
///
/// On a connection that is in no transaction, it puts the timeout at once.
///
/// # Errors
///
/// If the name or the content is not allowed, [`Error::Elsewhere`], and the database's.
#[cfg(feature = "sqlx")]
pub async fn schedule_in_sqlx<'a>(
    transaction: &mut sqlx::PgConnection,
    name: &'a str,
    at: SystemTime,
    content: impl Into<Content<'a>>,
) -> Result<(), Error> {
    let (sql, (name, at, payload, metadata)) = schedule_sql(name, at, content)?;
    let put = sqlx::query(sql).bind(name).bind(at).bind(payload).bind(metadata);
    put.execute(transaction).await.map_err(|error| failed_in_sqlx("schedule", name, error))?;
    Ok(())
}

/// Cancels a timeout inside a transaction of `sqlx`, as `cancel_in` does in one of `postgres`.
/// Returns whether it was there.
///
/// # Errors
///
/// As for [`schedule_in_sqlx`].
#[cfg(feature = "sqlx")]
pub async fn cancel_in_sqlx(
    transaction: &mut sqlx::PgConnection,
    name: &str,
) -> Result<bool, Error> {
    let (sql, name) = cancel_sql(name)?;
    let was_there = sqlx::query_scalar(sql).bind(name).fetch_one(transaction).await;
    was_there.map_err(|error| failed_in_sqlx("cancel", name, error))
}

#[cfg(feature = "sqlx")]
fn failed_in_sqlx(doing: &str, name: &str, error: sqlx::Error) -> Error {
    let doing = format!("{doing} {name:?} in a transaction");
    let said = match error {
        sqlx::Error::Database(said) => said,
        error => return Error::store(doing, error),
    };
    match said.try_downcast_ref::<sqlx::postgres::PgDatabaseError>() {
        Some(said) if said.code() == ELSEWHERE => {
            let place = said.detail().unwrap_or_default().to_owned();
            Error::Elsewhere { name: name.to_owned(), place }
        }
        _ => Error::store(doing, said as Box<dyn std::error::Error + Send + Sync>),
    }
}

#[cfg(feature = "postgres")]
type Parameter<'a> = (&'a (dyn tokio_postgres::types::ToSql + Sync), tokio_postgres::types::Type);

const SCHEDULE: &str = "select from tickwheel_put(
    array[$1::text], array[$2::bigint], array[$3::bytea], array[$4::text])";

/// What the tables say of a partition that another database has.
#[cfg(any(feature = "postgres", feature = "sqlx"))]
pub(crate) const ELSEWHERE: &str = "TW001";
