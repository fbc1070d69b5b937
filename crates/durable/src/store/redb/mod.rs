//! The store on redb: one file, one process.

mod check;
mod open;
mod row;
mod tables;

#[cfg(test)]
mod damage;
#[cfg(test)]
mod disk;
#[cfg(test)]
mod power;

use std::io;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, StorageBackend};

use crate::Error;
use crate::error::message;
use crate::store::{
    Change, Counted, Damaged, Dead, DeadPage, Done, Filling, Lease, Leases, Limit, Loaded, Page,
    Position, RateLimit, Row, Settlement, Start, Store,
};
use crate::values::milliseconds;
pub use check::Report;
use open::{BackendSource, DEFAULT_CACHE, Source};
use tables::{
    BROKEN, DEAD, DUE, Key, META, NAMES, Numbers, PARTITION, Sweep, Tables, decode_dead, find, key,
    move_aside,
};

/// A store in one file, by the engine redb.
///
/// The file is locked: one process has it, and one store in that process. After an error the file
/// is closed, and opened again at the next call.
#[derive(Debug)]
pub struct RedbStore {
    source: Source,
    database: Option<Database>,
    state: State,
}

/// What the store knows beside the file.
#[derive(Debug, Default)]
struct State {
    numbers: Numbers,
    sweep: Sweep,
}

impl RedbStore {
    /// Opens the file, or makes it.
    ///
    /// After a crash the engine checks the whole file first, which takes a second or so for each
    /// million timeouts.
    ///
    /// # Errors
    ///
    /// [`Error::Locked`], [`Error::NewerFormat`], [`Error::Foreign`], and [`Error::Store`] if the
    /// file cannot be read or written, is damaged beyond repair, or is there and empty.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with_cache(path, DEFAULT_CACHE)
    }

    /// Opens the file as [`open`](Self::open) does, with so many bytes of memory for its pages.
    pub fn open_with_cache(path: impl AsRef<Path>, bytes: usize) -> Result<Self, Error> {
        Self::open_file(path.as_ref(), bytes, true)
    }

    /// Opens the file as [`open`](Self::open) does, if it is there, and makes none.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open), and if there is no file.
    pub fn open_existing(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_file(path.as_ref(), DEFAULT_CACHE, false)
    }

    fn open_file(path: &Path, cache: usize, creates: bool) -> Result<Self, Error> {
        // Absolute, so that a program that changes its directory can open it again.
        let path = std::path::absolute(path)
            .map_err(|error| Error::store(format!("find {}", path.display()), error))?;
        Self::begin(Source::File { path, opened: None, cache, creates })
    }

    /// Opens a database on a storage of your own, for tests of crashes.
    ///
    /// `storage` is called again after each error.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn open_backend(
        storage: impl FnMut() -> io::Result<Box<dyn StorageBackend>> + Send + 'static,
    ) -> Result<Self, Error> {
        Self::begin(Source::Backend(BackendSource(Box::new(storage))))
    }

    fn begin(source: Source) -> Result<Self, Error> {
        let mut store = Self { source, database: None, state: State::default() };
        store.run("open", |_, _| Ok(()))?;
        Ok(store)
    }

    /// Runs `work` on the database, which it opens if need be. If anything fails, the database is
    /// closed.
    fn run<R>(
        &mut self,
        doing: &str,
        work: impl FnOnce(&mut Database, &mut State) -> Result<R, redb::Error>,
    ) -> Result<R, Error> {
        if self.source.is_gone() {
            return Err(Error::Removed { path: self.source.path() });
        }
        let result = catch_unwind(AssertUnwindSafe(|| {
            if self.database.is_none() {
                self.database = Some(self.source.open()?);
            }
            let database = self.database.as_mut().expect("it was opened");
            work(database, &mut self.state)
                .map_err(|error| Error::store(format!("{doing} {}", self.source.name()), error))
        }));
        let error = match result {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => error,
            Err(panic) => Error::panicked(format!("{doing} {}", self.source.name()), &*panic),
        };
        // An engine that met an error refuses all that follows until it is opened again.
        self.close();
        Err(error)
    }

    /// Closes the database. The engine may panic if the file is damaged.
    fn close(&mut self) {
        let database = self.database.take();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(database))) {
            log::error!("close {}: {}", self.source.name(), message(&*panic));
        }
    }
}

impl Drop for RedbStore {
    fn drop(&mut self) {
        self.close();
    }
}

impl Store for RedbStore {
    fn lease(&mut self, _wanted: bool, _given_back: &[u32]) -> Result<Leases, Error> {
        let (epoch, is_paused, limit) = self.run("take the lease of", |database, _| {
            let write = database.begin_write()?;
            let found = {
                let mut meta = write.open_table(META)?;
                let epoch = meta.get("epoch")?.map_or(0, |epoch| epoch.value()) + 1;
                meta.insert("epoch", epoch)?;
                (epoch, meta.get(PAUSED)?.is_some(), limit_of(&meta)?)
            };
            write.commit()?;
            Ok(found)
        })?;
        self.state.numbers = Numbers { epoch, next: 0 };
        Ok(Leases::of_one(Lease { partition: PARTITION, epoch }, is_paused, limit))
    }

    fn load(&mut self, from: &[Start], until: u64, limit: Limit) -> Result<Loaded, Error> {
        let Some(start) = from.first() else { return Ok(Loaded::default()) };
        self.list(&start.after, until, limit).map(Loaded::from)
    }

    fn list(&mut self, after: &Position, until: u64, limit: Limit) -> Result<Page, Error> {
        let (page, damaged) =
            self.run("read", |database, _| read(database, after, until, limit))?;
        if !damaged.is_empty() {
            let mut takes_nothing = false;
            let moved = self.run("set damaged rows aside in", |database, _| {
                set_aside(database, damaged).inspect_err(|error| {
                    takes_nothing = matches!(error, redb::Error::Io(error) if is_full(error));
                })
            });
            // On a full disk it goes on without. Else the page is damaged as a whole, and what is put
            // into it would be lost.
            match moved {
                Err(error) if takes_nothing => log::warn!("{error}"),
                moved => moved?,
            }
        }
        Ok(page)
    }

    fn commit(&mut self, settlements: &[Settlement], changes: &[Change]) -> Result<Done, Error> {
        if self.state.numbers.epoch == 0 {
            // Without an epoch of its own it would give the numbers that others gave.
            self.lease(false, &[])?;
        }
        self.run("commit to", |database, State { numbers, sweep }| {
            let write = database.begin_write()?;
            let mut done = Done::default();
            {
                let mut tables = Tables::open(&write)?;
                for settlement in settlements {
                    done.outcomes.push(tables.settle(settlement, numbers)?);
                }
                for change in changes {
                    done.changed.push(Ok(tables.change(change, numbers)?));
                }
                tables.sweep(settlements, sweep)?;
            }
            write.commit()?;
            Ok(done)
        })
    }

    fn get(&mut self, name: &str) -> Result<Option<Row>, Error> {
        self.run("read", |database, _| {
            let read = database.begin_read()?;
            let due = read.open_table(DUE)?;
            let names = read.open_table(NAMES)?;
            let entry = names.get(name.as_bytes())?.map(|entry| entry.value());
            let Some(deadline) = find(&due, name.as_bytes(), entry)? else { return Ok(None) };
            let value = due.get((deadline, name.as_bytes()))?;
            Ok(value.and_then(|value| {
                row::decode(deadline, name.as_bytes(), value.value(), PARTITION).ok()
            }))
        })
    }

    fn count(&mut self) -> Result<u64, Error> {
        self.run("read", |database, _| Ok(database.begin_read()?.open_table(DUE)?.len()?))
    }

    fn count_until(&mut self, ends: &[u64], most: u64) -> Result<Vec<Counted>, Error> {
        self.run("count in", |database, _| {
            let due = database.begin_read()?.open_table(DUE)?;
            let (mut counted, mut first) = (Vec::new(), 0);
            for &end in ends {
                let mut stretch = Counted { rows: 0, is_all: true };
                for entry in due.range((first, &[][..])..)? {
                    let (deadline, _) = entry?.0.value();
                    if end < deadline {
                        break;
                    }
                    stretch.is_all = stretch.rows < most;
                    if !stretch.is_all {
                        break;
                    }
                    stretch.rows += 1;
                }
                counted.push(stretch);
                first = end.saturating_add(1);
            }
            Ok(counted)
        })
    }

    fn list_dead(&mut self, after: &str, limit: Limit) -> Result<DeadPage, Error> {
        self.run("read", |database, _| {
            let dead = database.begin_read()?.open_table(DEAD)?;
            let (mut page, mut bytes) = (DeadPage::default(), 0);
            let rest = (Bound::Excluded(after.as_bytes()), Bound::Unbounded);
            for entry in dead.range::<&[u8]>(rest)? {
                let (name, value) = entry?;
                if page.is_full(limit, bytes) {
                    break;
                }
                let (name, (deadline, value)) = (name.value(), value.value());
                bytes += value.len();
                match decode_dead(name, deadline, value) {
                    Ok(letter) => page.letters.push(letter),
                    Err(reason) => page.damaged.push(Damaged {
                        deadline,
                        name: String::from_utf8_lossy(name).into_owned(),
                        reason,
                    }),
                }
            }
            Ok(page)
        })
    }

    fn is_paused(&mut self) -> Result<bool, Error> {
        self.run("read", |database, _| {
            Ok(database.begin_read()?.open_table(META)?.get(PAUSED)?.is_some())
        })
    }

    fn pause(&mut self, pauses: bool) -> Result<(), Error> {
        self.run(if pauses { "pause" } else { "resume" }, |database, _| {
            let write = database.begin_write()?;
            {
                let mut meta = write.open_table(META)?;
                match pauses {
                    true => meta.insert(PAUSED, 1)?,
                    false => meta.remove(PAUSED)?,
                };
            }
            write.commit()?;
            Ok(())
        })
    }

    fn rate_limit(&mut self) -> Result<Option<RateLimit>, Error> {
        self.run("read", |database, _| Ok(limit_of(&database.begin_read()?.open_table(META)?)?))
    }

    fn limit_rate(&mut self, limit: Option<RateLimit>) -> Result<(), Error> {
        self.run("limit the rate of", |database, _| {
            let write = database.begin_write()?;
            {
                let mut meta = write.open_table(META)?;
                match limit {
                    Some(RateLimit { timeouts, per }) => {
                        meta.insert(TIMEOUTS, timeouts as u64)?;
                        meta.insert(PER, milliseconds(per))?;
                    }
                    None => drop(meta.remove(TIMEOUTS)?),
                }
            }
            write.commit()?;
            Ok(())
        })
    }

    fn get_dead(&mut self, name: &str) -> Result<Option<Dead>, Error> {
        self.run("read", |database, _| {
            let dead = database.begin_read()?.open_table(DEAD)?;
            let entry = dead.get(name.as_bytes())?;
            Ok(entry.and_then(|entry| {
                let (deadline, value) = entry.value();
                decode_dead(name.as_bytes(), deadline, value).ok()
            }))
        })
    }
}

/// Returns a page, and where its damaged rows are.
fn read(
    database: &Database,
    after: &Position,
    until: u64,
    limit: Limit,
) -> Result<(Page, Vec<Key>), redb::Error> {
    let due = database.begin_read()?.open_table(DUE)?;
    let mut filling = Filling::new(limit);
    let mut damaged = Vec::new();
    // From the first on nothing is searched: a search may pass what a damaged page has out of order.
    let start = match *after == Position::start() {
        true => Bound::Unbounded,
        false => Bound::Excluded(key(after)),
    };
    for entry in due.range((start, Bound::Unbounded))? {
        let (key, value) = entry?;
        let (deadline, name) = key.value();
        if until < deadline || filling.is_over() {
            break;
        }
        match row::decode(deadline, name, value.value(), PARTITION) {
            Ok(row) => filling.add(row),
            Err(reason) => {
                let text = String::from_utf8_lossy(name).into_owned();
                filling.add_damaged(Damaged { deadline, name: text, reason });
                damaged.push((deadline, name.to_vec()));
            }
        }
    }
    Ok((filling.page(), damaged))
}

/// Whether the disk takes nothing more.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), QuotaExceeded | ReadOnlyFilesystem | StorageFull)
}

/// Moves damaged rows to where no load finds them.
fn set_aside(database: &Database, damaged: Vec<Key>) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    move_aside(&mut write.open_table(DUE)?, &mut write.open_table(BROKEN)?, damaged)?;
    write.commit()?;
    Ok(())
}

/// Returns the rate that consumers may have.
fn limit_of(
    meta: &impl ReadableTable<&'static str, u64>,
) -> Result<Option<RateLimit>, redb::StorageError> {
    let limit = meta.get(TIMEOUTS)?.zip(meta.get(PER)?);
    Ok(limit.map(|(timeouts, per)| RateLimit {
        timeouts: timeouts.value() as usize,
        per: Duration::from_millis(per.value()),
    }))
}

/// The keys of the rate that consumers may have, where there is one.
const TIMEOUTS: &str = "rate limit";
const PER: &str = "rate limit per";

/// The key of what is there while nothing is handed out.
const PAUSED: &str = "paused";
