//! The store on redb: one file, one process.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    StorageBackend, Table, TableDefinition, TableHandle, WriteTransaction, backends::FileBackend,
};

use crate::store::{
    Damaged, Held, Lease, Leases, Limit, Op, Outcome, Page, Position, Replaced, Row, Store,
};
use crate::timer::message;
use crate::{Error, row};

/// Rows by deadline and name.
const DUE: TableDefinition<'_, (u64, &[u8]), &[u8]> = TableDefinition::new("due");
/// The deadline of each name, and a checksum of both.
const NAMES: TableDefinition<'_, &[u8], (u64, u32)> = TableDefinition::new("names");
/// Damaged rows, in the order they were found: deadline, name, value.
const BROKEN: TableDefinition<'_, u64, (u64, &[u8], &[u8])> = TableDefinition::new("broken");
/// `format` and `epoch`.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// The format this version writes.
const FORMAT: u64 = 1;

/// Where in a number the epoch begins. Numbers are given out in memory, and the epoch, which grows
/// with each opening, keeps them from being given out twice.
const EPOCH: u32 = 36;

/// A store in one file, by the engine redb.
///
/// The file is locked: one process has it, and one store in that process. After an error the file
/// is closed, and opened again at the next call.
#[derive(Debug)]
pub struct RedbStore {
    source: Source,
    database: Option<Database>,
    epoch: u64,
    next_number: u64,
}

/// Where the database is.
#[derive(Debug)]
enum Source {
    File { path: PathBuf, opened: Option<Metadata>, cache: usize },
    Backend(BackendSource),
}

type Backend = Box<dyn StorageBackend>;

struct BackendSource(Box<dyn FnMut() -> io::Result<Backend> + Send>);

impl std::fmt::Debug for BackendSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BackendSource")
    }
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
    /// file cannot be read or written, or is damaged beyond repair.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with_cache(path, DEFAULT_CACHE)
    }

    /// Opens the file as [`open`](Self::open) does, with so many bytes of memory for its pages.
    pub fn open_with_cache(path: impl AsRef<Path>, bytes: usize) -> Result<Self, Error> {
        // Absolute, so that a program that changes its directory can open it again.
        let path = path.as_ref();
        let path = std::path::absolute(path)
            .map_err(|error| Error::store(format!("find {}", path.display()), error))?;
        Self::begin(Source::File { path, opened: None, cache: bytes })
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
        let mut store = Self { source, database: None, epoch: 0, next_number: 0 };
        store.run("open", |_, _| Ok(()))?;
        Ok(store)
    }

    /// Runs `work` on the database, which it opens if need be. If anything fails, the database is
    /// closed.
    fn run<R>(
        &mut self,
        doing: &str,
        work: impl FnOnce(&Database, &mut Numbers<'_>) -> Result<R, redb::Error>,
    ) -> Result<R, Error> {
        if self.source.is_gone() {
            return Err(Error::Removed { path: self.source.path() });
        }
        let result = catch_unwind(AssertUnwindSafe(|| {
            if self.database.is_none() {
                self.database = Some(self.source.open()?);
            }
            let database = self.database.as_ref().expect("it was opened");
            let mut numbers = Numbers { epoch: self.epoch, next: &mut self.next_number };
            work(database, &mut numbers)
                .map_err(|error| Error::store(format!("{doing} {}", self.source.name()), error))
        }));
        let error = match result {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => error,
            Err(panic) => Error::Panicked {
                doing: format!("{doing} {}", self.source.name()),
                message: message(&*panic),
            },
        };
        // An engine that met an error refuses all that follows until it is opened again.
        let database = self.database.take();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(database))) {
            log::error!("{}: closing after an error: {}", self.source.name(), message(&*panic));
        }
        Err(error)
    }
}

/// Gives out the numbers of rows.
struct Numbers<'a> {
    epoch: u64,
    next: &'a mut u64,
}

impl Numbers<'_> {
    fn next(&mut self) -> u64 {
        *self.next += 1;
        (self.epoch << EPOCH) + *self.next
    }
}

impl Source {
    fn name(&self) -> String {
        self.path().display().to_string()
    }

    fn path(&self) -> PathBuf {
        match self {
            Self::File { path, .. } => path.clone(),
            Self::Backend(_) => PathBuf::from("a storage"),
        }
    }

    /// Whether the path no longer leads to the file that is open.
    fn is_gone(&self) -> bool {
        match self {
            Self::File { path, opened: Some(opened), .. } => {
                std::fs::metadata(path).map_or(true, |now| !is_same(&now, opened))
            }
            _ => false,
        }
    }

    fn open(&mut self) -> Result<Database, Error> {
        let database = match self {
            Self::File { path, opened, cache } => {
                let doing = || format!("open {}", path.display());
                let is_new = opened.is_none() && !path.exists();
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create(opened.is_none())
                    .truncate(false)
                    .open(&*path)
                    .map_err(|error| Error::store(doing(), explain(error)))?;
                let metadata = file.metadata().map_err(|error| Error::store(doing(), error))?;
                let backend = FileBackend::new(file).map_err(|error| match error {
                    DatabaseError::DatabaseAlreadyOpen => Error::Locked { path: path.clone() },
                    error => Error::store(doing(), error),
                })?;
                let database = redb::Builder::new()
                    .set_cache_size(*cache)
                    .create_with_backend(backend)
                    .map_err(|error| match error {
                        DatabaseError::DatabaseAlreadyOpen => Error::Locked { path: path.clone() },
                        error => Error::store(doing(), error),
                    })?;
                if is_new {
                    sync_folder(path).map_err(|error| Error::store(doing(), error))?;
                }
                *opened = Some(metadata);
                database
            }
            Self::Backend(backend) => {
                let doing = || "open a storage".to_owned();
                let backend = (backend.0)().map_err(|error| Error::store(doing(), error))?;
                redb::Builder::new()
                    .set_cache_size(DEFAULT_CACHE)
                    .create_with_backend(Boxed(backend))
                    .map_err(|error| Error::store(doing(), error))?
            }
        };
        self.check_format(&database)?;
        Ok(database)
    }

    /// Makes the tables of a new file, and refuses one that is not ours.
    fn check_format(&self, database: &Database) -> Result<(), Error> {
        let store = |error: redb::Error| Error::store(format!("open {}", self.name()), error);
        let format = format_of(database).map_err(store)?;
        match format {
            Some(FORMAT) => Ok(()),
            Some(0) => Err(Error::Foreign { path: self.path() }),
            Some(found) => Err(Error::NewerFormat { path: self.path(), found, known: FORMAT }),
            None => make_tables(database).map_err(store),
        }
    }
}

/// Returns the format of the database, 0 if it has other tables than ours, and `None` if it is
/// empty.
fn format_of(database: &Database) -> Result<Option<u64>, redb::Error> {
    let read = database.begin_read()?;
    let mut tables = read.list_tables()?.peekable();
    if tables.peek().is_none() {
        return Ok(None);
    }
    if !tables.any(|table| table.name() == META.name()) {
        return Ok(Some(0));
    }
    let meta = match read.open_table(META) {
        Ok(meta) => meta,
        Err(redb::TableError::TableTypeMismatch { .. }) => return Ok(Some(0)),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(meta.get("format")?.map_or(0, |format| format.value())))
}

fn make_tables(database: &Database) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    write.open_table(DUE)?;
    write.open_table(NAMES)?;
    write.open_table(BROKEN)?;
    write.open_table(META)?.insert("format", FORMAT)?;
    write.commit()?;
    Ok(())
}

impl Store for RedbStore {
    fn lease(&mut self, wanted: bool) -> Result<Leases, Error> {
        let mut held = Vec::new();
        if wanted {
            self.epoch = self.run("take the lease of", |database, _| {
                let write = database.begin_write()?;
                let epoch = {
                    let mut meta = write.open_table(META)?;
                    let epoch = meta.get("epoch")?.map_or(0, |epoch| epoch.value()) + 1;
                    meta.insert("epoch", epoch)?;
                    epoch
                };
                write.commit()?;
                Ok(epoch)
            })?;
            self.next_number = 0;
            held.push(Lease { partition: PARTITION, epoch: self.epoch });
        }
        Ok(Leases { held, good_for: None, clock: None })
    }

    fn load(
        &mut self,
        leases: Option<&[Lease]>,
        after: &Position,
        until: u64,
        limit: Limit,
    ) -> Result<Page, Error> {
        if leases.is_some_and(|leases| leases.iter().all(|lease| lease.partition != PARTITION)) {
            return Ok(Page::default());
        }
        let page = self.run("read", |database, _| read(database, after, until, limit))?;
        if !page.damaged.is_empty() {
            let moved = self.run("set damaged rows aside in", |database, _| {
                set_aside(database, after, until, page.end.as_ref())
            });
            // On a full disk it goes on without.
            if let Err(error) = moved {
                log::warn!("{error}");
            }
        }
        Ok(page)
    }

    fn commit(&mut self, ops: &[Op]) -> Result<Vec<Outcome>, Error> {
        self.run("commit to", |database, numbers| {
            let write = database.begin_write()?;
            let outcomes = {
                let mut tables = Tables::open(&write)?;
                ops.iter().map(|op| tables.apply(op, numbers)).collect::<Result<_, _>>()?
            };
            write.commit()?;
            Ok(outcomes)
        })
    }

    fn get(&mut self, name: &str) -> Result<Option<Row>, Error> {
        self.run("read", |database, _| {
            let read = database.begin_read()?;
            let due = read.open_table(DUE)?;
            let names = read.open_table(NAMES)?;
            let Some(deadline) = find(&due, &names, name.as_bytes())? else { return Ok(None) };
            let value = due.get((deadline, name.as_bytes()))?;
            Ok(value.and_then(|value| {
                row::decode(deadline, name.as_bytes(), value.value(), PARTITION).ok()
            }))
        })
    }

    fn count(&mut self) -> Result<u64, Error> {
        self.run("read", |database, _| Ok(database.begin_read()?.open_table(DUE)?.len()?))
    }
}

fn read(
    database: &Database,
    after: &Position,
    until: u64,
    limit: Limit,
) -> Result<Page, redb::Error> {
    let due = database.begin_read()?.open_table(DUE)?;
    let mut page = Page::default();
    let mut bytes = 0;
    let mut last = None;
    for entry in due.range((Bound::Excluded(key(after)), Bound::Unbounded))? {
        let (key, value) = entry?;
        let (deadline, name) = key.value();
        if until < deadline {
            break;
        }
        // A page ends at a row that is whole: the name of another may be no place in the order.
        if last.is_some() && (limit.rows <= page.rows.len() || limit.bytes <= bytes) {
            page.end = last;
            break;
        }
        bytes += name.len() + value.value().len();
        last = None;
        match row::decode(deadline, name, value.value(), PARTITION) {
            Ok(row) => {
                last = Some(row.position());
                page.rows.push(row);
            }
            Err(reason) => page.damaged.push(Damaged {
                deadline,
                name: String::from_utf8_lossy(name).into_owned(),
                reason,
            }),
        }
    }
    Ok(page)
}

/// Moves the damaged rows of this range to where no load finds them.
fn set_aside(
    database: &Database,
    after: &Position,
    until: u64,
    end: Option<&Position>,
) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    {
        let mut due = write.open_table(DUE)?;
        let mut broken = write.open_table(BROKEN)?;
        let mut next = broken.last()?.map_or(0, |(number, _)| number.value() + 1);
        let until = end.map_or(until, |end| end.deadline);
        let damaged: Vec<(u64, Vec<u8>)> = due
            .range((Bound::Excluded(key(after)), Bound::Unbounded))?
            .take_while(|entry| entry.as_ref().is_ok_and(|(key, _)| key.value().0 <= until))
            .filter_map(|entry| {
                let (key, value) = entry.ok()?;
                let (deadline, name) = key.value();
                row::decode(deadline, name, value.value(), PARTITION).err()?;
                Some((deadline, name.to_vec()))
            })
            .collect();
        for (deadline, name) in damaged {
            let value = due.remove((deadline, &name[..]))?;
            if let Some(value) = value {
                broken.insert(next, (deadline, &name[..], value.value()))?;
                next += 1;
            }
        }
    }
    write.commit()?;
    Ok(())
}

struct Tables<'a> {
    due: Table<'a, (u64, &'static [u8]), &'static [u8]>,
    names: Table<'a, &'static [u8], (u64, u32)>,
    epoch: u64,
}

impl<'a> Tables<'a> {
    fn open(write: &'a WriteTransaction) -> Result<Self, redb::Error> {
        let epoch = write.open_table(META)?.get("epoch")?.map_or(0, |epoch| epoch.value());
        Ok(Self { due: write.open_table(DUE)?, names: write.open_table(NAMES)?, epoch })
    }

    fn apply(&mut self, op: &Op, numbers: &mut Numbers<'_>) -> Result<Outcome, redb::Error> {
        Ok(match op {
            Op::Put { name, deadline, payload } => {
                let row = Row {
                    name: name.clone(),
                    deadline: *deadline,
                    payload: payload.clone(),
                    attempt: 0,
                    number: numbers.next(),
                    partition: PARTITION,
                };
                let replaced = self.put(&row)?;
                Outcome::Put { row, replaced }
            }
            Op::Cancel { name } => Outcome::Cancelled(self.cancel(name.as_bytes())?),
            Op::Ack(held) | Op::Retry(held, _) if held.lease.epoch != self.epoch => Outcome::Fenced,
            Op::Ack(held) => match self.take(held)? {
                None => Outcome::Gone,
                Some(_) => {
                    let name = held.name.as_bytes();
                    let points_here =
                        self.names.get(name)?.is_some_and(|entry| entry.value().0 == held.deadline);
                    if points_here {
                        self.names.remove(name)?;
                    }
                    Outcome::Acked
                }
            },
            Op::Retry(held, deadline) => match self.take(held)? {
                None => Outcome::Gone,
                Some(mut row) => {
                    row.deadline = *deadline;
                    row.attempt = row.attempt.saturating_add(1);
                    row.number = numbers.next();
                    let name = row.name.as_bytes();
                    self.names.insert(name, (*deadline, row::index_sum(name, *deadline)))?;
                    self.due.insert((*deadline, name), &row::encode(&row)[..])?;
                    Outcome::Retried(row)
                }
            },
        })
    }

    /// Removes the row that was handed out, if it is still the same.
    fn take(&mut self, held: &Held) -> Result<Option<Row>, redb::Error> {
        let key = (held.deadline, held.name.as_bytes());
        let row = match self.due.get(key)? {
            None => return Ok(None),
            Some(value) => row::decode(key.0, key.1, value.value(), PARTITION).ok(),
        };
        let Some(row) = row.filter(|row| row.number == held.number) else { return Ok(None) };
        self.due.remove(key)?;
        Ok(Some(row))
    }

    fn put(&mut self, row: &Row) -> Result<Option<Replaced>, redb::Error> {
        let name = row.name.as_bytes();
        let replaced = self.remove_due(name)?;
        self.names.insert(name, (row.deadline, row::index_sum(name, row.deadline)))?;
        self.due.insert((row.deadline, name), &row::encode(row)[..])?;
        Ok(replaced)
    }

    fn cancel(&mut self, name: &[u8]) -> Result<Option<Replaced>, redb::Error> {
        let removed = self.remove_due(name)?;
        self.names.remove(name)?;
        Ok(removed)
    }

    /// Removes the row of this name.
    fn remove_due(&mut self, name: &[u8]) -> Result<Option<Replaced>, redb::Error> {
        let Some(deadline) = find(&self.due, &self.names, name)? else { return Ok(None) };
        let value = self.due.remove((deadline, name))?;
        Ok(value.map(|value| {
            let number =
                row::decode(deadline, name, value.value(), PARTITION).map_or(0, |row| row.number);
            Replaced { number, deadline }
        }))
    }
}

/// Returns the deadline of a name. If the index is damaged there, all rows are looked through.
fn find(
    due: &impl ReadableTable<(u64, &'static [u8]), &'static [u8]>,
    names: &impl ReadableTable<&'static [u8], (u64, u32)>,
    name: &[u8],
) -> Result<Option<u64>, redb::Error> {
    let Some(entry) = names.get(name)? else { return Ok(None) };
    let (deadline, sum) = entry.value();
    if row::index_sum(name, deadline) == sum {
        return Ok(Some(deadline));
    }
    log::warn!("the entry of {:?} in the index is damaged", String::from_utf8_lossy(name));
    for entry in due.iter()? {
        let (key, _) = entry?;
        if key.value().1 == name {
            return Ok(Some(key.value().0));
        }
    }
    Ok(None)
}

fn key(position: &Position) -> (u64, &[u8]) {
    (position.deadline, position.name.as_bytes())
}

/// The one partition of a file.
const PARTITION: u32 = 0;

const DEFAULT_CACHE: usize = 64 << 20;

#[cfg(unix)]
fn is_same(a: &Metadata, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;

    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
fn is_same(_: &Metadata, _: &Metadata) -> bool {
    true
}

/// A file that was made just now is lost with power if its folder is not synced.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or_else(|| Path::new("/")))?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

fn explain(error: io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "its folder does not exist; make it first",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "the file and its folder must be writable for this user"
        }
        io::ErrorKind::IsADirectory => "a folder is there; name a file in it",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {hint}"))
}

/// A backend behind a pointer.
#[derive(Debug)]
struct Boxed(Backend);

impl StorageBackend for Boxed {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}

#[cfg(test)]
mod damage;
#[cfg(test)]
mod disk;
#[cfg(test)]
mod power;
