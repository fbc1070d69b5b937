//! Reading rows, and what has become visible since.

use std::sync::Arc;
use std::time::Instant;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::connection::{Connection, Parameter};
use super::{PARTITIONS, signed, unsigned};
use crate::store::portions::{Part, Portions};
use crate::store::{Damaged, Limit, Loaded, Page, Position, Row, Start};
use crate::values::milliseconds;

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
        portions: &mut Portions,
    ) -> Result<(Loaded, String), Error> {
        let mut loaded = Loaded::default();
        // What is not read has no progress.
        loaded.ends.extend(from.iter().map(|start| Some(start.after.clone())));
        self.begin().await?;
        // First: what is committed between the two comes with the next.
        let seen = self.load_news(seen.unwrap_or(NOTHING), from, limit, &mut loaded).await?;
        for part in portions.parts(from, until) {
            let (began, time) = (Instant::now(), part.time(milliseconds(self.limit)));
            let error = match self.load_part(&part, time, from, until, limit, &mut loaded).await {
                Ok(()) => {
                    if milliseconds(began.elapsed()) < time / 3 {
                        portions.was_quick(&part);
                    }
                    continue;
                }
                Err(error) => error,
            };
            if error.code() != Some(&SqlState::QUERY_CANCELED) {
                return Err(error);
            }
            portions.outlasted(&part);
            self.execute("rollback").await?;
            return Ok((loaded, seen));
        }
        self.end().await?;
        Ok((loaded, seen))
    }

    /// Loads what has become visible before the positions since the snapshot `seen`, and returns
    /// the snapshot of now.
    async fn load_news(
        &self,
        seen: &str,
        from: &[Start],
        limit: Limit,
        loaded: &mut Loaded,
    ) -> Result<String, Error> {
        let starts = Starts::new(from.iter());
        let bytes = signed(limit.bytes as u64);
        let [partitions, deadlines, names] = starts.parameters();
        let (seen, most) = ((&seen as _, Type::TEXT), (&MOST_NEWS as _, Type::INT8));
        let parameters = [partitions, deadlines, names, seen, most, (&bytes, Type::INT8)];
        let mut news = self.query(NEWS, &parameters).await?.into_iter();
        let seen = news.next().map_or_else(|| NOTHING.to_owned(), |row| row.get(2));
        loaded.overflows = MOST_NEWS <= news.len() as i64;
        for row in news {
            match read_row(&row, 0) {
                Reading::Row(row) => loaded.rows.push(row),
                Reading::TooMuch => loaded.overflows = true,
                Reading::Damaged(damaged) => loaded.damaged.push(damaged),
            }
        }
        Ok(seen)
    }

    /// Loads what comes after the positions, within so many milliseconds.
    async fn load_part(
        &self,
        part: &Part,
        time: u64,
        from: &[Start],
        until: u64,
        limit: Limit,
        loaded: &mut Loaded,
    ) -> Result<(), Error> {
        self.execute(&format!("set local statement_timeout = {time}")).await?;
        let starts = Starts::new(part.places.iter().map(|&place| &from[place]));
        let each = limit.rows.div_ceil(from.len().max(1));
        let read: usize = loaded.rows.iter().map(|row| row.payload.len()).sum();
        let bytes = signed(limit.bytes.saturating_sub(read).max(1) as u64);
        let (end, most) = (signed(part.until), signed(each as u64));
        let [partitions, deadlines, names] = starts.parameters();
        let parameters = [
            partitions,
            deadlines,
            names,
            (&end, Type::INT8),
            (&most, Type::INT8),
            (&bytes, Type::INT8),
        ];
        let mut rows = self.query(LOAD, &parameters).await?.into_iter().peekable();
        for &place in &part.places {
            let Start { lease, after } = &from[place];
            let mut count = 0;
            let mut end = after.clone();
            let mut is_full = false;
            while let Some(row) = rows.next_if(|row| row.get::<_, i32>(0) as u32 == lease.partition)
            {
                count += 1;
                match read_row(&row, 0) {
                    Reading::Row(row) => {
                        end = row.position();
                        loaded.rows.push(row);
                    }
                    Reading::TooMuch => is_full = true,
                    Reading::Damaged(damaged) => loaded.damaged.push(damaged),
                }
            }
            loaded.ends[place] = if is_full || each <= count {
                Some(end)
            } else if part.until < until {
                Some(Position::before(part.until.saturating_add(1)))
            } else {
                None
            };
        }
        Ok(())
    }

    pub(super) async fn list(
        &self,
        after: &Position,
        until: u64,
        limit: Limit,
    ) -> Result<Page, Error> {
        let (most, bytes) = (signed(limit.rows as u64), signed(limit.bytes as u64));
        let (deadline, until) = (signed(after.deadline), signed(until));
        let name = &*after.name;
        let parameters: [Parameter<'_>; 5] = [
            (&deadline, Type::INT8),
            (&name, Type::TEXT),
            (&until, Type::INT8),
            (&most, Type::INT8),
            (&bytes, Type::INT8),
        ];
        self.begin().await?;
        let rows = self.query(&list(), &parameters).await?;
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

/// Positions of partitions, as arrays of one length.
struct Starts<'a> {
    partitions: Vec<i32>,
    deadlines: Vec<i64>,
    names: Vec<&'a str>,
}

impl<'a> Starts<'a> {
    fn new(from: impl Iterator<Item = &'a Start> + Clone) -> Self {
        Self {
            partitions: from.clone().map(|start| start.lease.partition as i32).collect(),
            deadlines: from.clone().map(|start| signed(start.after.deadline)).collect(),
            names: from.map(|start| &*start.after.name).collect(),
        }
    }

    fn parameters(&self) -> [Parameter<'_>; 3] {
        [
            (&self.partitions, Type::INT4_ARRAY),
            (&self.deadlines, Type::INT8_ARRAY),
            (&self.names, Type::TEXT_ARRAY),
        ]
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

/// Merges the partitions, and stops at the limit.
fn list() -> String {
    let parts: Vec<String> = (0..PARTITIONS)
        .map(|partition| {
            format!(
                "(select * from tickwheel_due where partition = {partition}
                    and (deadline, name) > ($1, $2) and deadline <= $3
                  order by deadline, name)"
            )
        })
        .collect();
    format!(
        "select partition, deadline, name, number, attempt,
           case when sum(octet_length(payload)) over (order by deadline, name rows unbounded
             preceding) - octet_length(payload) < $5 then payload end
         from (select * from ({}) all_due order by deadline, name limit $4) due
         order by deadline, name",
        parts.join(" union all ")
    )
}

/// What is before the positions and was committed since that snapshot: by a transaction that had
/// not begun then, or that had not ended. The first row has the snapshot of now. Only one index has
/// the order that is asked for, so the planner has no choice.
const NEWS: &str = "select -1, 0::bigint, pg_current_snapshot()::text, 0::bigint, 0, ''::bytea
     union all
     select partition, deadline, name, number, attempt,
       case when sum(octet_length(payload)) over (rows unbounded preceding)
         - octet_length(payload) < $6 then payload end
     from (select due.* from unnest($1::int[], $2::bigint[], $3::text[]) u(partition, deadline, name)
       cross join lateral (
         (select * from tickwheel_due d
          where d.partition = u.partition and d.put_by >= pg_snapshot_xmax($4::text::pg_snapshot)
            and d.deadline <= u.deadline
          order by d.put_by, d.deadline limit $5)
         union all
         (select open.* from pg_snapshot_xip($4::text::pg_snapshot) xid cross join lateral (
            select * from tickwheel_due d
            where d.partition = u.partition and d.put_by >= xid and d.put_by <= xid
              and d.deadline <= u.deadline
            order by d.put_by, d.deadline limit $5) open)) due
       where (due.deadline, due.name) <= (u.deadline, u.name)
       limit $5) new";
/// What comes after the positions, so many of each partition. What is too much has no payload.
const LOAD: &str = "select due.partition, due.deadline, due.name, due.number, due.attempt,
       case when sum(octet_length(due.payload)) over (rows unbounded preceding)
         - octet_length(due.payload) < $6 then due.payload end
     from unnest($1::int[], $2::bigint[], $3::text[]) u(partition, deadline, name)
     cross join lateral (
       select * from tickwheel_due d
       where d.partition = u.partition and (d.deadline, d.name) > (u.deadline, u.name)
         and d.deadline <= $4
       order by d.deadline, d.name limit $5) due";
pub(super) const GET: &str = "select partition, deadline, name, number, attempt, payload
     from tickwheel_due where name = $1";

/// A snapshot that sees nothing in progress: all that is there is before the first load.
const NOTHING: &str = "9000000000000000000:9000000000000000000:";

/// The most rows that become visible behind the positions between two loads.
const MOST_NEWS: i64 = 50_000;
