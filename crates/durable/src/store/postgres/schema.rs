//! The tables, and what a session must be set to.

use std::cmp::Ordering;
use std::path::PathBuf;

use postgres::Client;

use crate::Error;

/// The statements that make the tables, to be run by hand where a program may not.
pub const MIGRATION: &str = include_str!("../../../migrations/0001_timeouts.sql");

/// The format of the tables this version knows.
const FORMAT: i32 = 1;

/// Makes the tables where they are missing, if `makes`, and the session safe.
pub(super) fn set_up(client: &mut Client, makes: bool) -> Result<(), Error> {
    let failed = |error| Error::store("set up the tables of tickwheel-durable", error);
    // What was acked must be on the disk, whatever the database is set to.
    client
        .batch_execute(
            "select set_config('synchronous_commit', 'on', false)
               where current_setting('synchronous_commit') = 'off';
             set statement_timeout = '30s';
             set idle_in_transaction_session_timeout = '30s';",
        )
        .map_err(failed)?;
    let mut transaction = client.transaction().map_err(failed)?;
    // Any number, the same for all: two workers may find the tables missing at once.
    transaction.batch_execute("select pg_advisory_xact_lock(7463812)").map_err(failed)?;
    let exists = transaction
        .query_one("select to_regclass('tickwheel_meta') is not null", &[])
        .map_err(failed)?
        .get::<_, bool>(0);
    if !exists && !makes {
        return Err(Error::store(
            "find the tables of tickwheel-durable",
            "the database has none; is it the right one?",
        ));
    }
    if !exists {
        transaction.batch_execute(MIGRATION).map_err(|error| {
            Error::store(
                "make the tables of tickwheel-durable; run migrations/0001_timeouts.sql by hand as \
                 a user who may",
                error,
            )
        })?;
    }
    let format: i32 = transaction
        .query_opt("select format from tickwheel_meta", &[])
        .map_err(failed)?
        .map_or(0, |row| row.get(0));
    let path = PathBuf::from("the database");
    match format.cmp(&FORMAT) {
        Ordering::Equal => transaction.commit().map_err(failed),
        Ordering::Greater => {
            Err(Error::NewerFormat { path, found: format as u64, known: FORMAT as u64 })
        }
        // With a second format, the first is upgraded here, in this transaction.
        Ordering::Less => Err(Error::Foreign { path }),
    }
}
