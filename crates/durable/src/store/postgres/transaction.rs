//! Scheduling inside a transaction of the caller's.

use std::time::SystemTime;

use postgres::Transaction;

use super::connection::{elsewhere, signed};
use crate::Error;

/// Puts a timeout inside a transaction of yours: it is there exactly if that commits.
///
/// It is the same as [`DurableTimer::schedule`](crate::DurableTimer::schedule), and needs no timer
/// in this process. The transaction holds a lock on the name until it ends.
///
/// # Errors
///
/// If the name or the payload is not allowed, and the database's.
pub fn schedule_in(
    transaction: &mut Transaction<'_>,
    name: &str,
    at: SystemTime,
    payload: &[u8],
) -> Result<(), Error> {
    crate::values::check(name, payload)?;
    let failed = |error| {
        let doing = || format!("schedule {name:?} in a transaction");
        elsewhere(name, &error).unwrap_or_else(|| Error::store(doing(), error))
    };
    let deadline = crate::values::deadline(at);
    let put = "select from tickwheel_put(array[$1::text], array[$2::bigint], array[$3::bytea])";
    transaction.query_one(put, &[&name, &signed(deadline), &payload]).map_err(failed)?;
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
    crate::values::check(name, &[])?;
    let failed = |error| {
        let doing = || format!("cancel {name:?} in a transaction");
        elsewhere(name, &error).unwrap_or_else(|| Error::store(doing(), error))
    };
    let row = transaction.query_one("select tickwheel_cancel($1)", &[&name]).map_err(failed)?;
    Ok(row.get(0))
}
