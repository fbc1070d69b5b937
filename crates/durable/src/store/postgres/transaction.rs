//! Scheduling inside a transaction of the caller's.

use std::time::SystemTime;

use postgres::Transaction;

use super::connection::elsewhere;
use crate::{Content, Error, schedule_sql};

/// Puts a timeout inside a transaction of yours: it is there exactly if that commits.
///
/// It is the same as [`DurableTimer::schedule`](crate::DurableTimer::schedule), and needs no timer
/// in this process. The transaction holds a lock on the name until it ends.
///
/// # Errors
///
/// If the name or the content is not allowed, and the database's.
pub fn schedule_in<'a>(
    transaction: &mut Transaction<'_>,
    name: &'a str,
    at: SystemTime,
    content: impl Into<Content<'a>>,
) -> Result<(), Error> {
    let (put, (name, at, payload, metadata)) = schedule_sql(name, at, content)?;
    let failed = |error| {
        let doing = || format!("schedule {name:?} in a transaction");
        elsewhere(name, &error).unwrap_or_else(|| Error::store(doing(), error))
    };
    transaction.query_one(put, &[&name, &at, &payload, &metadata]).map_err(failed)?;
    Ok(())
}

/// Cancels a timeout inside a transaction of yours. Returns whether it was there.
///
/// A timeout whose deadline is near may be handed out all the same: until the transaction commits,
/// the worker that owns it does not know.
///
/// # Errors
///
/// As for [`schedule_in`].
pub fn cancel_in(transaction: &mut Transaction<'_>, name: &str) -> Result<bool, Error> {
    crate::values::check_name(name)?;
    let failed = |error| {
        let doing = || format!("cancel {name:?} in a transaction");
        elsewhere(name, &error).unwrap_or_else(|| Error::store(doing(), error))
    };
    let row = transaction.query_one("select tickwheel_cancel($1)", &[&name]).map_err(failed)?;
    Ok(row.get(0))
}
