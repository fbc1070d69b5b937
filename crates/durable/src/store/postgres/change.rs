//! Changes: puts and cancels, by name.

use std::collections::HashMap;

use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row as Found};

use super::connection::{Connection, Parameter, failed};
use super::connection::{signed, unsigned};
use crate::store::{Change, Changed, Put, Replaced, Row};

impl Connection {
    /// Makes the changes of one run.
    pub(super) async fn change(&self, run: &[Change]) -> Result<Vec<Came>, Error> {
        let names: Vec<&str> = run.iter().map(|change| &*change.name).collect();
        let puts: Vec<&Put> = run.iter().filter_map(|change| change.put.as_ref()).collect();
        match puts.is_empty() {
            true => self.cancel(run, &names).await,
            false => self.put(&names, &puts).await,
        }
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
            gone => Ok(Changed { row: None, replaced: gone.copied() }),
        };
        Ok(run.iter().map(changed).collect())
    }

    async fn put(&self, names: &[&str], puts: &[&Put]) -> Result<Vec<Came>, Error> {
        let deadlines: Vec<i64> = puts.iter().map(|put| signed(put.deadline)).collect();
        let payloads: Vec<&[u8]> = puts.iter().map(|put| &*put.payload).collect();
        let old = self.query(FIND, &[(&names, Type::TEXT_ARRAY)]).await?;
        let old = replaced(&old);
        let parameters: [Parameter<'_>; 3] = [
            (&names, Type::TEXT_ARRAY),
            (&deadlines, Type::INT8_ARRAY),
            (&payloads, Type::BYTEA_ARRAY),
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
                    attempt: 0,
                    number: unsigned(row.get(1)),
                    partition: row.get::<_, i32>(3) as u32,
                }),
                replaced: old.get(name).copied().or_else(unseen),
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
    rows.iter().map(|row| (row.get(0), replaced(row))).collect()
}

/// In order of the names, so that two workers do not wait for each other.
const FIND: &str = "select name, number, deadline from tickwheel_due where name = any($1)
     order by name for update";
const PUT: &str = "select name, number, is_new, partition from tickwheel_put($1, $2, $3)";
const CANCEL: &str = "delete from tickwheel_due where ctid = any(array(
       select d.ctid from tickwheel_due d where d.name = any($1) order by d.name))
     returning name, number, deadline";
