//! A fleet: several databases that share the partitions.
//!
//! Each database knows which partitions it has, and where it gave the others. A partition is in one
//! database, or on its way.

mod join;
mod moving;
mod patience;
mod side;

use std::collections::HashMap;
use std::fmt;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

pub use join::join_fleet;
#[cfg(test)]
pub(crate) use moving::{Copied, OWNER, Side, Way, carry_over};
pub use moving::{MovedPartition, abandon_move, move_partition};
#[cfg(test)]
pub(crate) use patience::{Time, Turn};

use super::PostgresStore;
use super::connect;
use super::connection::{Connection, PARTITIONS, signed, unsigned};
use crate::Error;

/// Tells a database of a fleet from the others.
///
/// It is in the tables, so a copy of a database has that of the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatabaseId(pub(crate) u128);

impl DatabaseId {
    /// Reads a UUID as the database writes it.
    fn read(text: &str) -> Self {
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        Self(u128::from_str_radix(&digits, 16).unwrap_or_default())
    }
}

impl fmt::Display for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        f.write_str(&parts.join("-"))
    }
}

/// Where the partitions are, as one database knows it; by [`PostgresStore::homes`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Homes {
    /// The database that was asked.
    pub id: DatabaseId,
    /// What to call other databases that it knows of.
    pub places: HashMap<DatabaseId, String>,
    /// Each partition, by number.
    pub partitions: Vec<Home>,
}

/// Where a partition is, as one database knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Home {
    /// Whether the database has it.
    pub state: HomeState,
    /// The other database: that it goes to, went to or comes from.
    pub other: Option<DatabaseId>,
    /// Grows as a move begins and as it takes place: of two that contradict each other, the one
    /// with more knows better.
    pub moves: u64,
    /// Grows with each owner.
    pub epoch: u64,
}

/// Whether a database has a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HomeState {
    /// It has it.
    Here,
    /// It has it, and it is being copied to another.
    Moving,
    /// Another database has it.
    Gone,
    /// It is being copied from another.
    Coming,
}

impl HomeState {
    /// Whether callers are to ask this database.
    pub fn is_here(self) -> bool {
        matches!(self, Self::Here | Self::Moving)
    }

    fn read(text: &str) -> Self {
        match text {
            "here" => Self::Here,
            "moving" => Self::Moving,
            "gone" => Self::Gone,
            _ => Self::Coming,
        }
    }
}

impl Homes {
    /// Returns the database that has each partition, as far as this one knows.
    pub(crate) fn databases(&self) -> Vec<DatabaseId> {
        let database = |home: &Home| home.other.filter(|_| !home.state.is_here());
        self.partitions.iter().map(|home| database(home).unwrap_or(self.id)).collect()
    }
}

impl PostgresStore {
    /// Connects as [`connect`](Self::connect) does, at the first call. So a database that does not
    /// answer is no error yet.
    pub(crate) fn connect_later(url: &str) -> Result<Self, Error> {
        Self::new(connect::by_url(url)?, true, super::LEASE)
    }

    /// Makes no tables from now on: in a database that was made anew they would be of no fleet.
    pub(crate) fn makes_no_tables(&mut self) {
        self.makes_tables = false;
    }

    /// Returns what to call the database: without user and password.
    pub(crate) fn place(&self) -> &str {
        &self.place.name
    }

    /// Runs `work` as [`run`](Self::run) does. An error says in which database.
    fn run_at<R>(
        &mut self,
        doing: &str,
        work: impl AsyncFnMut(&Connection) -> Result<R, tokio_postgres::Error>,
    ) -> Result<R, Error> {
        self.run(doing, work).map_err(|error| error.at(self.place()))
    }

    /// Returns where the partitions are, as this database knows it.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub fn homes(&mut self) -> Result<Homes, Error> {
        let homes = self.run_at("read the partitions of", async |connection| {
            connection.begin().await?;
            let id = connection.query_one("select id::text from tickwheel_meta", &[]).await?;
            let places = connection.query(PLACES, &[]).await?;
            let partitions = connection.query(HOMES, &[]).await?;
            connection.end().await?;
            let place = |row: &Row| (DatabaseId::read(row.get(0)), row.get(1));
            let home = |row: &Row| Home {
                state: HomeState::read(row.get(0)),
                other: row.get::<_, Option<&str>>(1).map(DatabaseId::read),
                moves: unsigned(row.get(2)),
                epoch: unsigned(row.get(3)),
            };
            Ok(Homes {
                id: DatabaseId::read(id.get(0)),
                places: places.iter().map(place).collect(),
                partitions: partitions.iter().map(home).collect(),
            })
        })?;
        if homes.partitions.len() != PARTITIONS as usize {
            let (place, found) = (self.place(), homes.partitions.len());
            return Err(Error::store(
                format!("read the partitions of {place}"),
                format!("it has {found}, and must have {PARTITIONS}"),
            ));
        }
        Ok(homes)
    }

    /// Ends the move of a partition to this database that took place at `from`. Returns whether it
    /// was on its way. Anybody may do this, again and again.
    pub(crate) fn arrive(&mut self, partition: u32, from: &Homes) -> Result<bool, Error> {
        let Some(home) = from.partitions.get(partition as usize) else { return Ok(false) };
        let (Some(other), HomeState::Gone) = (home.other, home.state) else { return Ok(false) };
        let (place, from, to) = (partition as i32, from.id.to_string(), other.to_string());
        let (moves, epoch) = (signed(home.moves), signed(home.epoch));
        self.run_at("end a move to", async |connection| {
            connection.begin().await?;
            let parameters = [
                (&place as _, Type::INT4),
                (&from as _, Type::TEXT),
                (&moves as _, Type::INT8),
                (&epoch as _, Type::INT8),
                (&to as _, Type::TEXT),
            ];
            let arrived = connection.query(ARRIVE, &parameters).await?;
            connection.end().await?;
            Ok(!arrived.is_empty())
        })
    }
}

const PLACES: &str = "select id::text, name from tickwheel_place";
const HOMES: &str = "select state, other::text, moves, epoch from tickwheel_partition
     order by partition";
const ARRIVE: &str = "update tickwheel_partition
     set state = 'here', other = null, owner = null, moves = $3, epoch = greatest(epoch, $4) + 1,
       yields = null
     where partition = $1 and state = 'coming' and other = $2::uuid and moves + 1 = $3
       and $5::uuid = (select id from tickwheel_meta)
     returning partition";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_as_it_was_read() {
        for text in ["00000000-0000-0000-0000-000000000000", "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"]
        {
            assert_eq!(DatabaseId::read(text).to_string(), text);
        }
    }
}
