//! Reading rows, and what has become visible since.

use std::sync::Arc;

use tokio_postgres::Error;

use super::connection::{Connection, Parameter};
use super::{signed, unsigned};
use crate::store::{Damaged, Limit, Loaded, Page, Position, Row, Start};

/// A row as it was found.
pub(super) enum Reading {
    Row(Row),
    /// It is more than the bytes that were asked for.
    TooMuch,
    Damaged(Damaged),
}

impl Connection {
    /// Loads, and returns the snapshot that the next load is to begin with.
    pub(super) async fn load(
        &self,
        seen: Option<&str>,
        from: &[Start],
        until: u64,
        limit: Limit,
    ) -> Result<(Loaded, String), Error> {
        let partitions: Vec<i32> = from.iter().map(|start| start.lease.partition as i32).collect();
        let deadlines: Vec<i64> = from.iter().map(|start| signed(start.after.deadline)).collect();
        let names: Vec<&str> = from.iter().map(|start| &*start.after.name).collect();
        let bytes = i64::try_from(limit.bytes).unwrap_or(i64::MAX);
        let mut loaded = Loaded::default();
        self.begin().await?;
        // First: what is committed between the two comes with the next.
        let parameters: [&Parameter<'_>; 6] =
            [&partitions, &deadlines, &names, &seen.unwrap_or(NOTHING), &NEWS, &bytes];
        let mut news = self.client.query(&self.statements.news, &parameters).await?.into_iter();
        let seen = news.next().map_or_else(|| NOTHING.to_owned(), |row| row.get(2));
        loaded.overflows = NEWS <= news.len() as i64;
        for row in news {
            match read_row(&row, 0) {
                Reading::Row(row) => loaded.rows.push(row),
                Reading::TooMuch => loaded.overflows = true,
                Reading::Damaged(damaged) => loaded.damaged.push(damaged),
            }
        }
        let each = limit.rows.div_ceil(from.len().max(1));
        let most = i64::try_from(each).unwrap_or(i64::MAX);
        let parameters: [&Parameter<'_>; 6] =
            [&partitions, &deadlines, &names, &signed(until), &most, &bytes];
        let mut rows =
            self.client.query(&self.statements.load, &parameters).await?.into_iter().peekable();
        self.end().await?;
        for start in from {
            let mut count = 0;
            let mut end = start.after.clone();
            let mut is_cut = false;
            while let Some(row) =
                rows.next_if(|row| row.get::<_, i32>(0) as u32 == start.lease.partition)
            {
                count += 1;
                match read_row(&row, 0) {
                    Reading::Row(row) => {
                        end = row.position();
                        loaded.rows.push(row);
                    }
                    Reading::TooMuch => is_cut = true,
                    Reading::Damaged(damaged) => loaded.damaged.push(damaged),
                }
            }
            loaded.ends.push((is_cut || each <= count).then_some(end));
        }
        Ok((loaded, seen))
    }

    pub(super) async fn list(
        &self,
        after: &Position,
        until: u64,
        limit: Limit,
    ) -> Result<Page, Error> {
        let most = i64::try_from(limit.rows).unwrap_or(i64::MAX);
        let bytes = i64::try_from(limit.bytes).unwrap_or(i64::MAX);
        let (deadline, until) = (signed(after.deadline), signed(until));
        let parameters: [&Parameter<'_>; 5] = [&deadline, &&*after.name, &until, &most, &bytes];
        self.begin().await?;
        let rows = self.client.query(&self.statements.list, &parameters).await?;
        self.end().await?;
        let mut page = Page::default();
        let mut is_cut = limit.rows <= rows.len();
        for row in &rows {
            match read_row(row, 0) {
                Reading::Row(row) => page.rows.push(row),
                Reading::TooMuch => is_cut = true,
                Reading::Damaged(damaged) => page.damaged.push(damaged),
            }
        }
        page.end = page.rows.last().filter(|_| is_cut).map(Row::position);
        Ok(page)
    }
}

pub(super) fn read_row(row: &tokio_postgres::Row, from: usize) -> Reading {
    let deadline = row.try_get(from + 1).map_or(0, unsigned);
    let read = || -> Result<Option<Row>, Error> {
        let Some(payload) = row.try_get::<_, Option<&[u8]>>(from + 5)? else { return Ok(None) };
        Ok(Some(Row {
            partition: row.try_get::<_, i32>(from)? as u32,
            deadline,
            name: Arc::from(row.try_get::<_, &str>(from + 2)?),
            number: unsigned(row.try_get(from + 3)?),
            attempt: u32::try_from(row.try_get::<_, i32>(from + 4)?).unwrap_or_default(),
            payload: Arc::from(payload),
        }))
    };
    match read() {
        Ok(Some(row)) => Reading::Row(row),
        Ok(None) => Reading::TooMuch,
        Err(_) => Reading::Damaged(Damaged {
            deadline,
            name: row.try_get::<_, &str>(from + 2).unwrap_or("?").to_owned(),
            reason: "a column cannot be read",
        }),
    }
}

/// A snapshot that sees nothing in progress: all that is there is before the first load.
const NOTHING: &str = "9000000000000000000:9000000000000000000:";

/// The most rows that become visible behind the positions between two loads.
const NEWS: i64 = 50_000;
