//! Opening a file: locks, formats, and what may be in the way.

use std::cell::Cell;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{
    BackendError, Database, DatabaseError, ReadableDatabase, StorageBackend, TableHandle,
    backends::FileBackend,
};

use super::tables::{BROKEN, DEAD, DUE, META, NAMES};
use crate::Error;

/// Where the database is.
#[derive(Debug)]
pub(super) enum Source {
    File {
        path: PathBuf,
        opened: Option<Metadata>,
        cache: usize,
        /// Whether it makes the file if there is none.
        creates: bool,
    },
    Backend(BackendSource),
}

pub(super) type Backend = Box<dyn StorageBackend>;

pub(super) struct BackendSource(pub(super) Box<dyn FnMut() -> io::Result<Backend> + Send>);

impl std::fmt::Debug for BackendSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BackendSource")
    }
}

impl Source {
    pub(super) fn name(&self) -> String {
        self.path().display().to_string()
    }

    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::File { path, .. } => path.clone(),
            Self::Backend(_) => PathBuf::from("a storage"),
        }
    }

    /// Whether the path no longer leads to the file that is open.
    pub(super) fn is_gone(&self) -> bool {
        match self {
            Self::File { path, opened: Some(opened), .. } => {
                std::fs::metadata(path).map_or(true, |now| !is_same(&now, opened))
            }
            _ => false,
        }
    }

    pub(super) fn open(&mut self) -> Result<Database, Error> {
        // Shared with a callback, which the engine may keep.
        let is_fallback = Rc::new(Cell::new(false));
        let database = match self {
            Self::File { path, opened, cache, creates } => {
                let doing = || format!("open {}", path.display());
                let is_new = opened.is_none() && !path.exists();
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create(*creates && opened.is_none())
                    .truncate(false)
                    .open(&*path)
                    .map_err(|error| Error::store(doing(), explain(error, *creates)))?;
                let metadata = file.metadata().map_err(|error| Error::store(doing(), error))?;
                let file = FileBackend::new(file).map_err(|error| match error {
                    DatabaseError::DatabaseAlreadyOpen => Error::Locked { path: path.clone() },
                    error => Error::store(doing(), error),
                })?;
                if !is_new && is_blank(&file).map_err(|error| Error::store(doing(), error))? {
                    return Err(Error::store(doing(), EMPTY));
                }
                let backend = Whole { file, length: AtomicU64::new(metadata.len()) };
                let database = builder(*cache, &is_fallback).create_with_backend(backend).map_err(
                    |error| match error {
                        DatabaseError::DatabaseAlreadyOpen => Error::Locked { path: path.clone() },
                        error => {
                            // Else what is there of it would be refused from now on.
                            if is_new && metadata.len() == 0 {
                                let _ = std::fs::remove_file(&*path);
                            }
                            Error::store(doing(), error)
                        }
                    },
                )?;
                if is_new {
                    sync_folder(path).map_err(|error| Error::store(doing(), error))?;
                }
                *opened = Some(metadata);
                database
            }
            Self::Backend(backend) => {
                let doing = || "open a storage".to_owned();
                let backend = (backend.0)().map_err(|error| Error::store(doing(), error))?;
                builder(DEFAULT_CACHE, &is_fallback)
                    .create_with_backend(Boxed(backend))
                    .map_err(|error| Error::store(doing(), error))?
            }
        };
        self.check_format(&database, is_fallback.get())?;
        Ok(database)
    }

    /// Makes the tables of a new file, and refuses one that is not ours, or that has lost all.
    fn check_format(&self, database: &Database, is_fallback: bool) -> Result<(), Error> {
        let doing = || format!("open {}", self.name());
        let store = |error: redb::Error| Error::store(doing(), error);
        match format_of(database).map_err(store)? {
            None if is_fallback => Err(Error::store(doing(), LOST)),
            None => make_tables(database).map_err(store),
            Some(FORMAT) => Ok(()),
            Some(found) if FORMAT < found => {
                Err(Error::NewerFormat { path: self.path(), found, known: FORMAT })
            }
            // With a second format, the first is upgraded here, in one transaction.
            Some(_) => Err(Error::Foreign { path: self.path() }),
        }
    }
}

/// Whether nothing was ever written to it.
fn is_blank(file: &FileBackend) -> io::Result<bool> {
    let mut first = [0; 64];
    let len = file.len()?.min(first.len() as u64) as usize;
    file.read(0, &mut first[..len])?;
    Ok(first == [0; 64])
}

/// Returns a builder, which notes whether the engine went back to an earlier commit because the last
/// one cannot be read.
fn builder(cache: usize, is_fallback: &Rc<Cell<bool>>) -> redb::Builder {
    let mut builder = redb::Builder::new();
    builder.set_cache_size(cache);
    let is_fallback = is_fallback.clone();
    builder.set_repair_callback(move |repair| {
        if 0.0 < repair.progress() && repair.progress() < READABLE {
            is_fallback.set(true);
        }
    });
    builder
}

/// Returns the format of the database, 0 if it has tables without a format of ours, and `None` if
/// it is empty.
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
    let mut write = database.begin_write()?;
    // So that no crash makes a new file look like one that has lost all.
    write.set_two_phase_commit(true);
    write.open_table(DUE)?;
    write.open_table(NAMES)?;
    write.open_table(DEAD)?;
    write.open_table(BROKEN)?;
    write.open_table(META)?.insert("format", FORMAT)?;
    write.commit()?;
    Ok(())
}

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

fn explain(error: io::Error, creates: bool) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::NotFound if !creates => "there is no such file",
        io::ErrorKind::NotFound => "its folder does not exist; make it first",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "the file and its folder must be writable for this user"
        }
        io::ErrorKind::IsADirectory => "a folder is there; name a file in it",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {hint}"))
}

/// A file that nobody else cuts. If somebody does, nothing more is written to it: a hole in the
/// middle would look like a page.
#[derive(Debug)]
struct Whole {
    file: FileBackend,
    /// The length it was given last.
    length: AtomicU64,
}

impl Whole {
    fn check(&self) -> io::Result<()> {
        match self.length.load(Ordering::Relaxed) <= self.file.len()? {
            true => Ok(()),
            false => Err(io::Error::other("somebody has cut the file while it was open")),
        }
    }
}

impl StorageBackend for Whole {
    fn len(&self) -> io::Result<u64> {
        self.check()?;
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check()?;
        self.file.set_len(len)?;
        self.length.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check()?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
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

/// Bytes.
pub(super) const DEFAULT_CACHE: usize = 64 << 20;
/// The format this version writes.
const FORMAT: u64 = 1;

/// What a repair tells of its progress when it has found a commit that can be read: 0 when it begins,
/// and something between if the last commit is none.
const READABLE: f64 = 0.6;

/// The engine does not look whether an earlier commit was damaged, too.
const LOST: &str = "it is damaged, and nothing of it can be read; restore a copy of it";

/// It was copied to a full disk, or lost power when it was made.
const EMPTY: &str = "the file is empty or begins with zeros; remove it, if it never held a timeout";
