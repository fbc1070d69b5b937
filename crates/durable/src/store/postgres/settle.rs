//! Settling: acks and retries, under the newest epoch of each partition.

use std::collections::{HashMap, HashSet};

use tokio_postgres::Error;
use tokio_postgres::types::Type;

use super::connection::{Connection, Parameter};
use super::connection::{signed, unsigned};
use super::rows::{Reading, read_row};
use crate::store::{Held, Outcome, Settlement, Then};

impl Connection {
    /// Settles all, or waits for a row that somebody else has locked.
    pub(super) async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Outcome>, Error> {
        let epochs = self.epochs(settlements).await?;
        let mut outcomes = Vec::with_capacity(settlements.len());
        let mut indices = HashMap::new();
        let (mut placed, mut retried) = (Columns::default(), Columns::default());
        let (mut counted, mut dead, mut died) = (Columns::default(), Columns::default(), 0);
        for (index, Settlement { held, then }) in settlements.iter().enumerate() {
            outcomes.push(match epochs.get(&held.lease.partition) {
                None => Outcome::Locked,
                Some(epoch) if *epoch != held.lease.epoch => Outcome::Fenced,
                Some(_) => Outcome::Gone,
            });
            if outcomes[index] != Outcome::Gone {
                continue;
            }
            indices.insert(signed(held.number), index);
            let place = self.places.borrow_mut().take(held.number);
            match *then {
                Then::Again { at, attempt } => {
                    retried.push(held, at);
                    retried.attempts.push(signed_attempt(attempt));
                }
                Then::Counted { attempt } => {
                    counted.push(held, 0);
                    counted.attempts.push(signed_attempt(attempt));
                }
                Then::Dead { at } => {
                    dead.push(held, 0);
                    died = signed(at);
                }
                Then::Done => {
                    if let Some(place) = place {
                        placed.push(held, 0);
                        placed.places.push(place);
                    }
                }
            }
        }
        if !placed.names.is_empty() {
            for row in
                self.query(ACK_AT, &[placed.places(), placed.numbers(), placed.names()]).await?
            {
                let Some(&index) = indices.get(&row.get(0)) else { continue };
                outcomes[index] = Outcome::Settled(None);
            }
        }
        let mut acked = Columns::default();
        let left = settlements.iter().zip(&outcomes);
        for (Settlement { held, then }, outcome) in left {
            if *then == Then::Done && *outcome == Outcome::Gone {
                acked.push(held, 0);
            }
        }
        if !acked.names.is_empty() {
            for row in self.query(ACK, &[acked.names(), acked.numbers()]).await? {
                let Some(&index) = indices.get(&row.get(0)) else { continue };
                outcomes[index] = Outcome::Settled(None);
            }
        }
        if !retried.names.is_empty() {
            let Columns { attempts, .. } = &retried;
            let attempts = (attempts as _, Type::INT4_ARRAY);
            let parameters = [retried.names(), retried.numbers(), retried.deadlines(), attempts];
            for row in self.query(RETRY, &parameters).await? {
                let Some(&index) = indices.get(&row.get(0)) else { continue };
                let Reading::Row(retried) = read_row(&row, 1) else { continue };
                outcomes[index] = Outcome::Settled(Some(retried));
            }
        }
        if !counted.names.is_empty() {
            let attempts = (&counted.attempts as _, Type::INT4_ARRAY);
            let parameters = [counted.names(), counted.numbers(), attempts];
            for row in self.query(COUNT, &parameters).await? {
                let Some(&index) = indices.get(&row.get(0)) else { continue };
                let Reading::Row(counted) = self.read_placed_from(&row, 1) else { continue };
                outcomes[index] = Outcome::Settled(Some(counted));
            }
        }
        if !dead.names.is_empty() {
            let parameters = [dead.names(), dead.numbers(), (&died as _, Type::INT8)];
            for row in self.query(BURY, &parameters).await? {
                let Some(&index) = indices.get(&row.get(0)) else { continue };
                outcomes[index] = Outcome::Settled(None);
            }
        }
        self.find_kept(settlements, &mut outcomes).await?;
        Ok(outcomes)
    }

    /// Tells the rows that are still there from those that are gone.
    async fn find_kept(
        &self,
        settlements: &[Settlement],
        outcomes: &mut [Outcome],
    ) -> Result<(), Error> {
        let mut missing = Columns::default();
        let all = settlements.iter().zip(&*outcomes);
        for (Settlement { held, .. }, _) in all.filter(|(_, outcome)| **outcome == Outcome::Gone) {
            missing.push(held, 0);
        }
        if missing.names.is_empty() {
            return Ok(());
        }
        let kept = self.query(KEPT, &[missing.names(), missing.numbers()]).await?;
        let kept: HashSet<u64> = kept.iter().map(|row| unsigned(row.get(0))).collect();
        for (settlement, outcome) in settlements.iter().zip(outcomes) {
            if *outcome == Outcome::Gone && kept.contains(&settlement.held.number) {
                *outcome = Outcome::Refused("a trigger has kept it".to_owned());
            }
        }
        Ok(())
    }

    /// Locks the rows of these names, and returns the names of those that somebody else has locked.
    pub(super) async fn lock(&self, names: &[&str]) -> Result<HashSet<String>, Error> {
        let rows = self.query(UNLOCKED, &[(&names, Type::TEXT_ARRAY)]).await?;
        let named = |is_free: bool| {
            let rows = rows.iter().filter(move |row| row.get::<_, bool>(1) == is_free);
            rows.map(|row| row.get::<_, &str>(0))
        };
        let free: HashSet<&str> = named(true).collect();
        Ok(named(false).filter(|name| !free.contains(name)).map(str::to_owned).collect())
    }

    /// Returns the newest epochs of the partitions that are settled in, but for those that somebody
    /// else has locked, and keeps them from changing.
    async fn epochs(&self, settlements: &[Settlement]) -> Result<HashMap<u32, u64>, Error> {
        let partitions: HashSet<i32> =
            settlements.iter().map(|settlement| settlement.held.lease.partition as i32).collect();
        if partitions.is_empty() {
            return Ok(HashMap::new());
        }
        let partitions: Vec<i32> = partitions.into_iter().collect();
        let rows = self.query(LOCK_PARTITIONS, &[(&partitions, Type::INT4_ARRAY)]).await?;
        Ok(rows.iter().map(|row| (row.get::<_, i32>(0) as u32, unsigned(row.get(1)))).collect())
    }
}

/// What is settled, as arrays of one length.
#[derive(Default)]
struct Columns<'a> {
    names: Vec<&'a str>,
    numbers: Vec<i64>,
    deadlines: Vec<i64>,
    /// How often each was handed out, where that is set.
    attempts: Vec<i32>,
    /// Where each is in the table, where that is known of all.
    places: Vec<Box<str>>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, held: &'a Held, deadline: u64) {
        self.names.push(&held.name);
        self.numbers.push(signed(held.number));
        self.deadlines.push(signed(deadline));
    }

    fn places(&self) -> Parameter<'_> {
        (&self.places, Type::TEXT_ARRAY)
    }

    fn names(&self) -> Parameter<'_> {
        (&self.names, Type::TEXT_ARRAY)
    }

    fn numbers(&self) -> Parameter<'_> {
        (&self.numbers, Type::INT8_ARRAY)
    }

    fn deadlines(&self) -> Parameter<'_> {
        (&self.deadlines, Type::INT8_ARRAY)
    }
}

/// The database has no unsigned numbers.
fn signed_attempt(attempt: u32) -> i32 {
    i32::try_from(attempt).unwrap_or(i32::MAX)
}

/// Owners cannot change while their acks are looked at. Leases can be renewed meanwhile.
const LOCK_PARTITIONS: &str =
    "select partition, epoch from tickwheel_partition where partition = any($1)
     order by partition for key share skip locked";
/// Deletes rows where they were when they were read. Another may be there by now: of another name,
/// with the same number, if it came by a copy of the table. No index has the name that is compared.
const ACK_AT: &str = "delete from tickwheel_due due
     using unnest($1::text[]::tid[], $2::bigint[], $3::text[]) u(place, number, name)
     where due.ctid = u.place and due.number = u.number and due.name || '' = u.name
     returning u.number";
/// The order asks for the index of names. A planner that takes the table for empty, because all of
/// it is dead, would else read it as a whole. The number is looked at again after a wait for a put
/// of the same name: some servers forget to look at the place. To plan a search for each of an
/// array takes as long as the array is, and to plan a join does not.
const ACK: &str = "delete from tickwheel_due due
     using unnest($1::text[], $2::bigint[]) u(name, number)
     cross join lateral (
       select d.ctid as row from tickwheel_due d
       where d.name >= u.name and d.name <= u.name and d.number = u.number
       order by d.name limit 1) place
     where due.ctid = place.row and due.number = u.number
     returning u.number";
const RETRY: &str = "update tickwheel_due due
     set deadline = u.deadline, attempt = u.attempt, number = nextval('tickwheel_number'),
       put_by = pg_current_xact_id()
     from unnest($1::text[], $2::bigint[], $3::bigint[], $4::int[])
       u(name, number, deadline, attempt)
     cross join lateral (
       select d.ctid as row from tickwheel_due d
       where d.name >= u.name and d.name <= u.name and d.number = u.number
       order by d.name limit 1) place
     where due.ctid = place.row and due.number = u.number
     returning u.number, due.partition, due.deadline, due.name, due.number, due.attempt,
       due.payload, due.metadata";
/// It is in no index, so this writes no other page if the row's has room.
const COUNT: &str = "update tickwheel_due due set attempt = u.attempt
     from unnest($1::text[], $2::bigint[], $3::int[]) u(name, number, attempt)
     cross join lateral (
       select d.ctid as row from tickwheel_due d
       where d.name >= u.name and d.name <= u.name and d.number = u.number
       order by d.name limit 1) place
     where due.ctid = place.row and due.number = u.number
     returning u.number, due.partition, due.deadline, due.name, due.number, due.attempt,
       due.payload, due.metadata, due.ctid::text";
const BURY: &str = "select number from tickwheel_bury($1, $2, $3)";
const KEPT: &str = "select d.number from unnest($1::text[], $2::bigint[]) u(name, number)
     cross join lateral (
       select d.number from tickwheel_due d
       where d.name >= u.name and d.name <= u.name and d.number = u.number
       order by d.name limit 1) d";
/// Which of these names have a row, and which of those nobody else has locked.
const UNLOCKED: &str = "with free as (select name from tickwheel_due where name = any($1)
       order by name for update skip locked)
     select name, true from free
     union all
     (select name, false from tickwheel_due where name = any($1) order by name)";
