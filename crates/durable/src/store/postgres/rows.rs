//! Reading rows, and what has become visible since.

use std::iter;
use std::sync::Arc;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::connection::{Connection, Parameter};
use super::connection::{PARTITIONS, signed, unsigned};
use super::lease::yields;
use crate::store::stretch::Part;
use crate::store::{Counted, Damaged, Limit, Loaded, Page, Position, Row, Start};
use crate::values::metadata;

/// A row as it was found.
pub(super) enum Reading {
    Row(Row),
    /// It is more than the bytes that were asked for.
    TooMuch(Spot),
    Unreadable(Spot),
}

/// What a load has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    snapshot: String,
    /// When the server began, and when it last recovered from a crash: after that, the numbers of
    /// transactions that it had not written down come again.
    server: Vec<u8>,
}

impl Default for Seen {
    /// Nothing was seen: all that is there is before the first load.
    fn default() -> Self {
        Self { snapshot: NOTHING.to_owned(), server: Vec::new() }
    }
}

/// Where a row is that was not read.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    partition: i32,
    deadline: i64,
    number: i64,
}

impl Connection {
    /// Loads, and returns what the next load is to begin with.
    pub(super) async fn load(
        &self,
        seen: &Seen,
        from: &[Start],
        until: u64,
        limit: Limit,
    ) -> Result<(Loaded, Seen), Error> {
        let mut loaded = Loaded::default();
        // What is not read has no progress.
        loaded.ends.extend(from.iter().map(|start| Some(start.after.clone())));
        let mut unreadable = Vec::new();
        let time = self.limits.load;
        self.begin_for(time).await?;
        // First: what is committed between the two comes with the next.
        let now = match self.load_news(seen, from, limit, &mut loaded, &mut unreadable).await {
            Ok(now) => now,
            // All is read once more, in parts that become smaller.
            Err(error) if is_of_rows(&error) => {
                self.execute("rollback").await?;
                self.begin_for(time).await?;
                let nothing = Seen::default();
                self.load_news(&nothing, from, limit, &mut loaded, &mut unreadable).await?
            }
            Err(error) => return Err(error),
        };
        match self.load_rest(from, until, limit, &mut loaded, &mut unreadable).await {
            Ok(()) => self.end().await?,
            Err(error) if is_of_rows(&error) => {
                loaded.outlasts = true;
                self.execute("rollback").await?;
            }
            Err(error) => return Err(error),
        }
        if !unreadable.is_empty() {
            loaded.damaged.extend(self.set_unreadable_aside(&unreadable).await?);
        }
        Ok((loaded, now))
    }

    /// Loads a part of the past. The inner error is the database's: it could not be read, or not in
    /// its time.
    pub(super) async fn load_behind(&self, part: Part<'_>) -> Result<Result<Loaded, Error>, Error> {
        let Part { from, until, limit, time } = part;
        let (mut loaded, mut unreadable) = (Loaded::default(), Vec::new());
        loaded.ends.extend(from.iter().map(|start| Some(start.after.clone())));
        self.begin_for(time).await?;
        match self.load_rest(from, until, limit, &mut loaded, &mut unreadable).await {
            Ok(()) => self.end().await?,
            Err(error) if is_of_rows(&error) => {
                self.execute("rollback").await?;
                if 1 < from.len() || is_out_of_time(&error) {
                    return Ok(Err(error));
                }
                loaded.damaged = self.find_damaged(part).await?;
                if loaded.damaged.is_empty() {
                    return Ok(Err(error));
                }
            }
            Err(error) => return Err(error),
        }
        if !unreadable.is_empty() {
            loaded.damaged.extend(self.set_unreadable_aside(&unreadable).await?);
        }
        Ok(Ok(loaded))
    }

    /// Sets aside what cannot be read of a part that is of one partition. Where that cannot be read
    /// or written either, it is nothing.
    async fn find_damaged(&self, part: Part<'_>) -> Result<Vec<Damaged>, Error> {
        let Part { from, until, limit, time } = part;
        let [Start { lease, after }] = from else { return Ok(Vec::new()) };
        self.begin_for(time).await?;
        let place = (lease.partition as i32, signed(after.deadline), &*after.name, signed(until));
        let found = self.set_aside(&[place], limit, None).await;
        self.end_or_go_on(found, Vec::new).await
    }

    /// Sets aside what the database sent and this side could not read. Where it may not, it goes
    /// on without, and tells of them all the same.
    async fn set_unreadable_aside(&self, unreadable: &[Spot]) -> Result<Vec<Damaged>, Error> {
        let place = |row: &Spot| (row.partition, row.deadline, "", row.deadline);
        let places: Vec<_> = unreadable.iter().map(place).collect();
        let numbers: Vec<i64> = unreadable.iter().map(|row| row.number).collect();
        let limit = Limit { rows: unreadable.len(), bytes: usize::MAX };
        self.begin().await?;
        let found = self.set_aside(&places, limit, Some(&numbers)).await;
        self.end_or_go_on(found, || unreadable.iter().map(Spot::damaged).collect()).await
    }

    /// Ends the transaction in which this was set aside.
    async fn end_or_go_on(
        &self,
        found: Result<Vec<Damaged>, Error>,
        otherwise: impl FnOnce() -> Vec<Damaged>,
    ) -> Result<Vec<Damaged>, Error> {
        match found {
            Ok(damaged) => {
                self.end().await?;
                Ok(damaged)
            }
            Err(error) if error.as_db_error().is_some() => {
                log::warn!("cannot set damaged rows aside: {error}");
                self.execute("rollback").await?;
                Ok(otherwise())
            }
            Err(error) => Err(error),
        }
    }

    /// Sets aside what cannot be read of these partitions after a deadline and a name, up to a
    /// deadline; of all, or of the rows of these numbers.
    async fn set_aside(
        &self,
        places: &[(i32, i64, &str, i64)],
        limit: Limit,
        numbers: Option<&[i64]>,
    ) -> Result<Vec<Damaged>, Error> {
        let partitions: Vec<i32> = places.iter().map(|place| place.0).collect();
        let deadlines: Vec<i64> = places.iter().map(|place| place.1).collect();
        let names: Vec<&str> = places.iter().map(|place| place.2).collect();
        let lasts: Vec<i64> = places.iter().map(|place| place.3).collect();
        let (rows, bytes) = (signed(limit.rows as u64), signed(limit.bytes as u64));
        let parameters: [Parameter<'_>; 7] = [
            (&partitions, Type::INT4_ARRAY),
            (&deadlines, Type::INT8_ARRAY),
            (&names, Type::TEXT_ARRAY),
            (&lasts, Type::INT8_ARRAY),
            (&rows, Type::INT8),
            (&bytes, Type::INT8),
            (&numbers, Type::INT8_ARRAY),
        ];
        let rows = self.query(SET_ASIDE, &parameters).await?;
        let damaged = rows.iter().map(|row| Damaged {
            deadline: unsigned(row.get(1)),
            name: String::from_utf8_lossy(row.get(0)).into_owned(),
            reason: UNREADABLE,
        });
        Ok(damaged.collect())
    }

    /// Loads what has become visible before the positions since it was last seen, and returns what
    /// is seen now.
    async fn load_news(
        &self,
        seen: &Seen,
        from: &[Start],
        limit: Limit,
        loaded: &mut Loaded,
        unreadable: &mut Vec<Spot>,
    ) -> Result<Seen, Error> {
        let starts = Starts::new(from);
        let bytes = signed(limit.bytes as u64);
        let [partitions, deadlines, names] = starts.parameters();
        let snapshot = (&seen.snapshot as _, Type::TEXT);
        let most = (&MOST_NEWS as _, Type::INT8);
        let parameters = [partitions, deadlines, names, snapshot, most, (&bytes, Type::INT8)];
        let mut news = self.query(NEWS, &parameters).await?.into_iter();
        let now = news.next().map_or_else(Seen::default, |row| {
            loaded.has_free = 0 < row.get::<_, i64>(1);
            loaded.clock = Some(unsigned(row.get(3)));
            Seen { snapshot: row.get(2), server: row.get::<_, Vec<u8>>(5) }
        });
        loaded.overflows = MOST_NEWS <= news.len() as i64 || now.server != seen.server;
        for row in news {
            match self.read_placed(&row) {
                Reading::Row(row) => loaded.rows.push(row),
                Reading::TooMuch(Spot { partition, deadline, .. }) => {
                    loaded.left_out.push((partition as u32, unsigned(deadline)));
                }
                Reading::Unreadable(row) => unreadable.push(row),
            }
        }
        Ok(now)
    }

    /// Loads what comes after the positions.
    async fn load_rest(
        &self,
        from: &[Start],
        until: u64,
        limit: Limit,
        loaded: &mut Loaded,
        unreadable: &mut Vec<Spot>,
    ) -> Result<(), Error> {
        let starts = Starts::new(from);
        let each = limit.rows.div_ceil(from.len().max(1));
        let read: usize = loaded.rows.iter().map(|row| row.content().bytes()).sum();
        let bytes = signed(limit.bytes.saturating_sub(read).max(1) as u64);
        let (end, most) = (signed(until), signed(each as u64));
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
        for (place, Start { lease, after }) in from.iter().enumerate() {
            let mut count = 0;
            let mut end = after.clone();
            let mut is_full = false;
            while let Some(row) = rows.next_if(|row| row.get::<_, i32>(0) as u32 == lease.partition)
            {
                count += 1;
                match self.read_placed(&row) {
                    Reading::Row(row) => {
                        end = row.position();
                        loaded.rows.push(row);
                    }
                    Reading::TooMuch(_) => is_full = true,
                    Reading::Unreadable(row) => unreadable.push(row),
                }
            }
            loaded.ends[place] = (is_full || each <= count).then_some(end);
        }
        Ok(())
    }

    /// Reads a row, and remembers where it is.
    fn read_placed(&self, row: &tokio_postgres::Row) -> Reading {
        self.read_placed_from(row, 0)
    }

    pub(super) fn read_placed_from(&self, row: &tokio_postgres::Row, from: usize) -> Reading {
        let reading = read_row(row, from);
        if let (Reading::Row(read), Ok(place)) = (&reading, row.try_get(from + 7)) {
            self.places.borrow_mut().insert(read.number, place);
        }
        reading
    }

    pub(super) async fn count_until(&self, ends: &[u64], most: u64) -> Result<Vec<Counted>, Error> {
        let last: Vec<i64> = ends.iter().map(|&end| signed(end)).collect();
        let next = |end: &i64| end.saturating_add(1);
        let first: Vec<i64> = iter::once(0).chain(last.iter().map(next)).take(last.len()).collect();
        let parameters: [Parameter<'_>; 3] =
            [(&first, Type::INT8_ARRAY), (&last, Type::INT8_ARRAY), (&signed(most), Type::INT8)];
        let rows = self.query(COUNT_UNTIL, &parameters).await?;
        let counted =
            |row: &tokio_postgres::Row| Counted { rows: unsigned(row.get(0)), is_all: row.get(1) };
        Ok(rows.iter().map(counted).collect())
    }

    pub(super) async fn list(
        &self,
        after: &Position,
        until: u64,
        limit: Limit,
    ) -> Result<Page, Error> {
        let (most, bytes) = (signed(limit.rows as u64), signed(limit.bytes as u64));
        let (deadline, last) = (signed(after.deadline), signed(until));
        let name = &*after.name;
        let parameters: [Parameter<'_>; 5] = [
            (&deadline, Type::INT8),
            (&name, Type::TEXT),
            (&last, Type::INT8),
            (&most, Type::INT8),
            (&bytes, Type::INT8),
        ];
        let mut page = Page::default();
        self.begin().await?;
        let rows = match self.query(&list(), &parameters).await {
            Err(error) if is_of_rows(&error) && !is_out_of_time(&error) => {
                self.execute("rollback").await?;
                self.begin().await?;
                let places: Vec<_> =
                    (0..PARTITIONS as i32).map(|it| (it, deadline, name, last)).collect();
                let all = Limit { bytes: usize::MAX, ..limit };
                let found = self.set_aside(&places, all, None).await;
                page.damaged = self.end_or_go_on(found, Vec::new).await?;
                self.begin().await?;
                self.query(&list(), &parameters).await?
            }
            rows => rows?,
        };
        self.end().await?;
        let mut is_cut = limit.rows <= rows.len();
        for row in &rows {
            match read_row(row, 0) {
                Reading::Row(row) => page.rows.push(row),
                Reading::TooMuch(_) => is_cut = true,
                Reading::Unreadable(row) => page.damaged.push(row.damaged()),
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
    fn new(from: &'a [Start]) -> Self {
        Self {
            partitions: from.iter().map(|start| start.lease.partition as i32).collect(),
            deadlines: from.iter().map(|start| signed(start.after.deadline)).collect(),
            names: from.iter().map(|start| &*start.after.name).collect(),
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
            metadata: metadata(row.try_get(from + 6)?),
        }))
    };
    let spot = Spot {
        partition: row.try_get(from).unwrap_or_default(),
        deadline: signed(deadline),
        number: row.try_get(from + 3).unwrap_or_default(),
    };
    match read() {
        Ok(Some(row)) => Reading::Row(row),
        Ok(None) => Reading::TooMuch(spot),
        Err(_) => Reading::Unreadable(spot),
    }
}

impl Spot {
    fn damaged(&self) -> Damaged {
        Damaged { deadline: unsigned(self.deadline), name: "?".to_owned(), reason: UNREADABLE }
    }
}

fn is_out_of_time(error: &Error) -> bool {
    error.code() == Some(&SqlState::QUERY_CANCELED)
}

/// Whether the server could not read the rows, or not in time: with other rows it may be able to.
fn is_of_rows(error: &Error) -> bool {
    let class = error.code().map_or("", |state| &state.code()[..2]);
    is_out_of_time(error) || OF_ROWS.contains(&class)
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
           case when fits then payload end, case when fits then metadata end
         from (select *, coalesce(sum(octet_length(payload) + octet_length(metadata)) over (
             order by deadline, name rows between unbounded preceding and 1 preceding), 0) < $5
             as fits
           from (select * from ({}) all_due
             where number not in (select number from tickwheel_broken)
               and partition in (select partition from tickwheel_partition
                 where state in ('here', 'moving'))
             order by deadline, name limit $4) due) page
         order by deadline, name",
        parts.join(" union all ")
    )
}

/// What is before the positions and was committed since that snapshot: by a transaction that had
/// not begun then, or that had not ended. One that has not ended yet is in the next snapshot as
/// well: its rows are not read, because none is visible. The first row has the snapshot of now,
/// the server, its clock, and how many partitions have no owner or are to be given back.
/// Rows of a dump may have the numbers of transactions that are not yet here: they are not new.
/// Only one index has the order that is asked for, so the planner has no choice. The snapshot of now
/// is made once: to make one takes as long as the transactions that are open are many.
const NEWS: &str = concat!(
    "select -1, (select count(*) from tickwheel_partition where case when ",
    yields!(),
    " then partition = any($1::int[])
           else owner is null and state in ('here', 'moving') end),
       pg_current_snapshot()::text, floor(extract(epoch from clock_timestamp()) * 1000)::bigint, 0, convert_to(
       concat_ws(' ', extract(epoch from pg_postmaster_start_time()),
         extract(epoch from pg_stat_get_bgwriter_stat_reset_time())), 'UTF8'), null, null
     union all
     select partition, deadline, name, number, attempt, case when fits then payload end,
       case when fits then metadata end, place::text
     from (select *, coalesce(sum(octet_length(payload) + octet_length(metadata)) over (
         rows between unbounded preceding and 1 preceding), 0) < $6 as fits
      from (select due.* from unnest($1::int[], $2::bigint[], $3::text[]) u(partition, deadline, name)
       cross join lateral (
         (select d.*, d.ctid as place from tickwheel_due d
          where d.partition = u.partition and d.put_by >= pg_snapshot_xmax($4::text::pg_snapshot)
            and d.put_by < (select pg_snapshot_xmax(pg_current_snapshot()))
            and d.deadline <= u.deadline
            and (d.deadline, d.name) <= (u.deadline, u.name)
          order by d.put_by, d.deadline limit $5)
         union all
         (select over.* from pg_snapshot_xip($4::text::pg_snapshot) xid cross join lateral (
            select d.*, d.ctid as place from tickwheel_due d
            where d.partition = u.partition and d.put_by >= xid
              and (d.put_by, d.deadline) <= (xid, u.deadline)
              and (d.deadline, d.name) <= (u.deadline, u.name)
            order by d.put_by, d.deadline limit $5) over
          where pg_visible_in_snapshot(xid, (select pg_current_snapshot())))) due
       limit $5) new) page"
);
/// What comes after the positions, so many of each partition. What is too much has no payload.
const LOAD: &str = "select partition, deadline, name, number, attempt,
       case when fits then payload end, case when fits then metadata end, place::text
     from (
       select due.*, coalesce(sum(octet_length(due.payload) + octet_length(due.metadata)) over (
         rows between unbounded preceding and 1 preceding), 0) < $6 as fits
       from unnest($1::int[], $2::bigint[], $3::text[]) u(partition, deadline, name)
       cross join lateral (
         select d.*, d.ctid as place from tickwheel_due d
         where d.partition = u.partition and (d.deadline, d.name) > (u.deadline, u.name)
           and d.deadline <= $4
         order by d.deadline, d.name limit $5) due) page";
pub(super) const GET: &str = "select partition, deadline, name, number, attempt, payload, metadata
     from tickwheel_due where name = $1 and partition in (select partition
       from tickwheel_partition where state in ('here', 'moving'))";

/// Reads the index only.
const COUNT_UNTIL: &str = "select sum(rows)::bigint, bool_and(rows < $3)
     from unnest($1::bigint[], $2::bigint[]) with ordinality stretch(first, last, place)
     cross join (select partition from tickwheel_partition
       where state in ('here', 'moving')) at
     cross join lateral (
       select count(*) as rows from (
         select from tickwheel_due due
         where due.partition = at.partition and due.deadline between first and last
         limit $3) few) counted
     group by place order by place";
const SET_ASIDE: &str =
    "select name, deadline from tickwheel_set_aside($1, $2, $3, $4, $5, $6, $7)";

/// The classes of errors that rows may be the cause of: what they hold, too little memory or too
/// much of something for them, their pages, and an error within the server.
const OF_ROWS: [&str; 5] = ["22", "53", "54", "58", "XX"];

pub(super) const UNREADABLE: &str = "it cannot be read; table tickwheel_broken says why";

/// A snapshot that sees nothing in progress: all that is there is before the first load.
const NOTHING: &str = "9000000000000000000:9000000000000000000:";

/// The most rows that become visible behind the positions between two loads.
const MOST_NEWS: i64 = 50_000;
