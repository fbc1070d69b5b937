//! Changes: puts and cancels, by name; and dead letters.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row as Found};

use super::connection::{Connection, Parameter, failed};
use super::connection::{signed, unsigned};
use crate::store::{Act, Change, Changed, Dead, DeadPage, Limit, Put, Replaced, Row};
use crate::values::metadata;

impl Connection {
    /// Makes the changes of one run.
    pub(super) async fn change(&self, run: &[Change]) -> Result<Vec<Came>, Error> {
        let names: Vec<&str> = run.iter().map(|change| &*change.name).collect();
        let puts: Vec<&Put> = run.iter().filter_map(Change::as_put).collect();
        match run.first().map(|change| &change.act) {
            Some(Act::Put(_)) => self.put(&names, &puts).await,
            Some(Act::Cancel) => self.cancel(run, &names).await,
            Some(Act::Revive { at }) => self.revive(&names, *at).await,
            Some(Act::Drop) => {
                let gone = self.query(DROP, &[(&names, Type::TEXT_ARRAY)]).await?;
                let gone: HashSet<&str> = gone.iter().filter_map(|row| row.get(0)).collect();
                let changed = |name: &&str| {
                    Ok(Changed { row: None, replaced: None, was_dead: gone.contains(name) })
                };
                Ok(names.iter().map(changed).collect())
            }
            None => Ok(Vec::new()),
        }
    }

    /// Makes timeouts of dead letters, one after another: they are few.
    async fn revive(&self, names: &[&str], at: u64) -> Result<Vec<Came>, Error> {
        let mut changed = Vec::with_capacity(names.len());
        for name in names {
            let parameters = [(name as _, Type::TEXT), (&signed(at) as _, Type::INT8)];
            let found = self.query_one(REVIVE, &parameters).await?;
            let row = match found.get::<_, Option<i64>>(1) {
                None => None,
                Some(number) => Some(Row {
                    name: (*name).into(),
                    deadline: at,
                    payload: Arc::from(found.get::<_, &[u8]>(3)),
                    metadata: metadata(found.try_get(4)?),
                    attempt: 0,
                    number: unsigned(number),
                    partition: found.get::<_, i32>(2) as u32,
                }),
            };
            changed.push(Ok(Changed { row, replaced: None, was_dead: found.get(0) }));
        }
        Ok(changed)
    }

    pub(super) async fn list_dead(&self, after: &str, limit: Limit) -> Result<DeadPage, Error> {
        let (rows, bytes) = (signed(limit.rows as u64), signed(limit.bytes as u64));
        let parameters: [Parameter<'_>; 3] =
            [(&after, Type::TEXT), (&rows, Type::INT8), (&bytes, Type::INT8)];
        self.begin().await?;
        let rows = self.query(LIST_DEAD, &parameters).await?;
        self.end().await?;
        let mut page = DeadPage::default();
        let mut is_cut = limit.rows <= rows.len();
        for row in &rows {
            match dead(row)? {
                Some(letter) => page.letters.push(letter),
                None => is_cut = true,
            }
        }
        page.end = page.letters.last().filter(|_| is_cut).map(|last| last.name.clone());
        Ok(page)
    }

    pub(super) async fn get_dead(
        &self,
        name: &str,
    ) -> Result<Result<Option<Dead>, crate::Error>, Error> {
        self.begin().await?;
        let rows = self.query(GET_DEAD, &[(&name, Type::TEXT)]).await?;
        let found = rows.first().map_or(Ok(None), dead)?;
        let found = self.unless_away(name, found).await?;
        self.end().await?;
        Ok(found)
    }

    /// Returns what was found under a name, or where to look for it, if that is elsewhere: else it
    /// would look as if there was nothing.
    pub(super) async fn unless_away<T>(
        &self,
        name: &str,
        found: Option<T>,
    ) -> Result<Result<Option<T>, crate::Error>, Error> {
        if found.is_some() {
            return Ok(Ok(found));
        }
        let away = self.query(AWAY, &[(&name, Type::TEXT)]).await?;
        Ok(match away.first() {
            None => Ok(None),
            Some(away) => {
                let place = away.get::<_, Option<String>>(0).unwrap_or_default();
                Err(crate::Error::Elsewhere { name: name.to_owned(), place })
            }
        })
    }

    async fn cancel(&self, run: &[Change], names: &[&str]) -> Result<Vec<Came>, Error> {
        // First the locks: what another transaction moved meanwhile, only a new statement sees.
        let found = self.query(FIND, &[(&names, Type::TEXT_ARRAY)]).await?;
        let found = replaced(&found);
        let gone = self.query(CANCEL, &[(&names, Type::TEXT_ARRAY)]).await?;
        let gone = replaced(&gone);
        let changed = |change: &Change| match gone.get(&*change.name) {
            None if found.contains_key(&*change.name) => {
                Err(failed(change, "a trigger has kept it"))
            }
            gone => Ok(Changed { row: None, replaced: gone.copied(), was_dead: false }),
        };
        Ok(run.iter().map(changed).collect())
    }

    async fn put(&self, names: &[&str], puts: &[&Put]) -> Result<Vec<Came>, Error> {
        let deadlines: Vec<i64> = puts.iter().map(|put| signed(put.deadline)).collect();
        let payloads: Vec<&[u8]> = puts.iter().map(|put| &*put.payload).collect();
        let metadata: Vec<&str> = puts.iter().map(|put| &*put.metadata).collect();
        let old = self.query(FIND, &[(&names, Type::TEXT_ARRAY)]).await?;
        let old = replaced(&old);
        let parameters: [Parameter<'_>; 4] = [
            (&names, Type::TEXT_ARRAY),
            (&deadlines, Type::INT8_ARRAY),
            (&payloads, Type::BYTEA_ARRAY),
            (&metadata, Type::TEXT_ARRAY),
        ];
        let new = self.query(PUT, &parameters).await?;
        let new: HashMap<&str, &Found> = new.iter().map(|row| (row.get(0), row)).collect();
        let changed = names.iter().zip(puts).map(|(name, put)| {
            let row = new[name];
            let is_new: bool = row.get(2);
            // Another put it between the two statements; when, is not known.
            let unseen = || (!is_new).then_some(Replaced { number: 0, deadline: 0 });
            Ok(Changed {
                row: Some(Row {
                    name: (*name).into(),
                    deadline: put.deadline,
                    payload: put.payload.clone(),
                    metadata: put.metadata.clone(),
                    attempt: 0,
                    number: unsigned(row.get(1)),
                    partition: row.get::<_, i32>(3) as u32,
                }),
                replaced: old.get(name).copied().or_else(unseen),
                was_dead: false,
            })
        });
        Ok(changed.collect())
    }
}

/// What came of a change.
type Came = Result<Changed, crate::Error>;

fn replaced(rows: &[Found]) -> HashMap<&str, Replaced> {
    let replaced =
        |row: &Found| Replaced { number: unsigned(row.get(1)), deadline: unsigned(row.get(2)) };
    rows.iter().filter_map(|row| Some((row.get::<_, Option<&str>>(0)?, replaced(row)))).collect()
}

/// `None`: it has no room in the page.
fn dead(row: &Found) -> Result<Option<Dead>, Error> {
    let Some(payload) = row.try_get::<_, Option<&[u8]>>(4)? else { return Ok(None) };
    Ok(Some(Dead {
        name: Arc::from(row.try_get::<_, &str>(0)?),
        deadline: unsigned(row.try_get(1)?),
        payload: Arc::from(payload),
        metadata: metadata(row.try_get(5)?),
        attempt: u32::try_from(row.try_get::<_, i32>(3)?).unwrap_or_default(),
        died: unsigned(row.try_get(2)?),
    }))
}

/// In order of the names, so that two workers do not wait for each other. One row of NULL if there
/// is none, here and in what follows.
const FIND: &str = "with checked as materialized (select tickwheel_check_home($1))
     select due.* from checked left join (
       select name, number, deadline from tickwheel_due where name = any($1)
       order by name for update) due on true";
const PUT: &str = "select name, number, is_new, partition from tickwheel_put($1, $2, $3, $4)";
const CANCEL: &str = "with checked as materialized (select tickwheel_check_home($1)),
     gone as (
       delete from tickwheel_due where ctid = any(array(
         select d.ctid from tickwheel_due d where d.name = any($1) order by d.name))
       returning name, number, deadline)
     select gone.* from checked left join gone on true";
const REVIVE: &str =
    "select was_dead, number, partition, payload, metadata from tickwheel_revive($1, $2)";
const DROP: &str = "with checked as materialized (select tickwheel_check_home($1)),
     gone as (delete from tickwheel_dead where name = any($1) returning name)
     select gone.* from checked left join gone on true";
const GET_DEAD: &str = "select name, deadline, died, attempt, payload, metadata from tickwheel_dead
     where name = $1 and ('x' || left(md5(name), 8))::bit(32)::int & 63 in (
       select partition from tickwheel_partition where state in ('here', 'moving'))";
/// As `tickwheel_check_home` finds it, and keeps nothing from moving.
const AWAY: &str = "select coalesce(place.name, p.other::text)
     from tickwheel_partition p left join tickwheel_place place on place.id = p.other
     where p.partition = ('x' || left(md5($1), 8))::bit(32)::int & 63
       and p.state in ('gone', 'coming')";
const LIST_DEAD: &str = "select name, deadline, died, attempt,
       case when fits then payload end, case when fits then metadata end
     from (select *, coalesce(sum(octet_length(payload) + octet_length(metadata)) over (
         order by name rows between unbounded preceding and 1 preceding), 0) < $3 as fits
       from (select * from tickwheel_dead where name > $1
           and ('x' || left(md5(name), 8))::bit(32)::int & 63 in (
             select partition from tickwheel_partition where state in ('here', 'moving'))
         order by name limit $2) dead) page
     order by name";
