//! The tables, and what a session must be set to.

use std::cmp::Ordering;
use std::path::PathBuf;

use super::connection::Connection;
use crate::Error;

/// Makes the tables where they are missing, if `makes`, and brings older ones to this version; in
/// this schema, if one is named.
pub(super) async fn set_up(
    connection: &Connection,
    namespace: Option<&str>,
    makes: bool,
) -> Result<(), Error> {
    let failed = |error| Error::store("set up the tables of tickwheel-durable", error);
    connection.begin().await.map_err(failed)?;
    let prefix = namespace.map_or_else(String::new, |namespace| format!("{namespace}."));
    let exists = async || {
        let exists = format!("select to_regclass('{prefix}tickwheel_meta') is not null");
        connection.query_one(&exists, &[]).await.map(|row| row.get::<_, bool>(0)).map_err(failed)
    };
    let encoding = "select current_setting('server_encoding')";
    let encoding = connection.query_one(encoding, &[]).await.map_err(failed)?;
    let encoding = encoding.get::<_, &str>(0);
    if !IN_ORDER.contains(&encoding) {
        return Err(Error::store(
            format!("use a database of the encoding {encoding}"),
            "names are in another order there than in UTF8, LATIN1 and SQL_ASCII",
        ));
    }
    let mut has_tables = exists().await?;
    if !has_tables && makes {
        connection.execute(ALONE).await.map_err(failed)?;
        has_tables = exists().await?;
    }
    if !has_tables {
        let doing = "find the tables of tickwheel-durable";
        // A second set would be empty, and its worker idle without a word.
        let elsewhere = match namespace {
            None => connection.query(ELSEWHERE, &[]).await.map_err(failed)?,
            Some(_) => Vec::new(),
        };
        if let Some(schema) = elsewhere.first().map(|row| row.get::<_, String>(0)) {
            return Err(Error::store(
                doing,
                format!(
                    "they are in the schema {schema}: add `namespace={schema}` to the URL, or have the \
                     right of `usage` on it and it in `search_path`, or run the migrations by hand to have them in another too"
                ),
            ));
        }
        if !makes {
            let place = namespace.unwrap_or("the database");
            return Err(Error::store(doing, format!("{place} has none; is it the right one?")));
        }
        if let Some(namespace) = namespace {
            // In quotes, because it may be a word of SQL.
            let make = format!("create schema if not exists \"{namespace}\"");
            connection
                .execute(&make)
                .await
                .map_err(|error| Error::store(format!("make the schema {namespace}"), error))?;
        }
        connection.execute(MIGRATION).await.map_err(|error| {
            Error::store(
                "make the tables of tickwheel-durable; run the migrations by hand as a user who may",
                error,
            )
        })?;
    }
    let format: i32 = connection
        .query("select format from tickwheel_meta", &[])
        .await
        .map_err(failed)?
        .first()
        .map_or(0, |row| row.get(0));
    let path = PathBuf::from("the database");
    match format.cmp(&FORMAT) {
        Ordering::Greater => {
            return Err(Error::NewerFormat { path, found: format as u64, known: FORMAT as u64 });
        }
        Ordering::Less if format != ALONE_FORMAT => return Err(Error::Foreign { path }),
        _ => {}
    }
    let knows_fleets = async || {
        let knows = format!("{KNOWS_FLEETS} to_regclass('{prefix}tickwheel_partition'))");
        connection.query_one(&knows, &[]).await.map(|row| row.get::<_, bool>(0)).map_err(failed)
    };
    if !knows_fleets().await? {
        let doing = "bring the tables of tickwheel-durable to this version; run \
                     migrations/0002_fleet.sql by hand as a user who may";
        if !makes {
            return Err(Error::store(doing, "a worker of this version does it as it connects"));
        }
        connection.execute(ALONE).await.map_err(failed)?;
        if !knows_fleets().await? {
            connection.execute(FLEET).await.map_err(|error| Error::store(doing, error))?;
        }
    }
    connection.end().await.map_err(failed)
}

/// The statements that make the tables, to be run by hand where a program may not.
pub const MIGRATION: &str = concat!(
    include_str!("../../../migrations/0001_timeouts.sql"),
    include_str!("../../../migrations/0002_fleet.sql")
);

const FLEET: &str = include_str!("../../../migrations/0002_fleet.sql");

/// The newest format of the tables this version knows: that of a database in a fleet.
const FORMAT: i32 = 2;

/// That of a database that is in no fleet, which older workers know too.
const ALONE_FORMAT: i32 = 1;

/// Any number, the same for all: two workers may find the tables missing at once.
const ALONE: &str = "set local lock_timeout = 0; select pg_advisory_xact_lock(7463812)";

const KNOWS_FLEETS: &str = "select exists (select from pg_attribute
     where attname = 'state' and not attisdropped and attrelid =";

/// The encodings whose bytes are in the order of those of UTF-8: what is known of a partition ends
/// at a name.
const IN_ORDER: [&str; 3] = ["UTF8", "LATIN1", "SQL_ASCII"];

const ELSEWHERE: &str = "select relnamespace::regnamespace::text from pg_class
     where relname = 'tickwheel_meta' and relkind = 'r' and relpersistence <> 't'";
