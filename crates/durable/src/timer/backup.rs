//! A copy of all that is pending, while the timer works.
//!
//! It is read page by page, between the commits of the timer, which note the names that they are
//! about to change. These are read again and again until they are few, and the last of them in one
//! go, between two commits: the copy is what the store was at that moment. A snapshot of the engine
//! would keep all pages that are replaced meanwhile, and be for one engine only.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::handle::Handle;
use super::shared::{Message, Shared, Touched};
use crate::moving::{LIMIT, Side};
use crate::store::{Change, Dead, Position, Row, Store};
use crate::values::lock;
use crate::{Error, RedbStore};

/// What [`DurableTimer::backup`](crate::DurableTimer::backup) has copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// Pending timeouts, those in flight included.
    pub timeouts: u64,
    /// Dead letters.
    pub dead: u64,
}

/// Copies all into a new file at this path.
pub(super) fn backup(handle: &Handle, path: &Path) -> Result<Backup, Error> {
    let failed = |error: io::Error| Error::store(format!("back up to {}", path.display()), error);
    if path.symlink_metadata().is_ok() {
        return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, "something is there")));
    }
    let path = std::path::absolute(path).map_err(failed)?;
    let watched = Watched::begin(handle, path.display())?;
    let part = Part::new(&path)?;
    let mut store = RedbStore::open_with_cache(&part.0, CACHE)?;
    let backup = copy(&watched, &mut store)?;
    // It is whole before it has its name.
    drop(store);
    part.keep(&path).map_err(failed)?;
    Ok(backup)
}

fn copy(watched: &Watched<'_>, store: &mut RedbStore) -> Result<Backup, Error> {
    let mut side = Side::begin(store)?;
    let handle = watched.0;
    // First: on its way a dead letter takes the place of a timeout of its name.
    let mut next: Option<Arc<str>> = Some(Arc::from(""));
    while let Some(after) = next {
        let page = handle.read(move |store| store.list_dead(&after, LIMIT))?;
        watched.tell(Message::Damaged(page.damaged));
        side.bury(&page.letters)?;
        watched.catch_up(&mut side, MANY)?;
        next = page.end;
    }
    let mut next = Some(Position::start());
    while let Some(after) = next {
        let page = handle.read(move |store| store.list(&after, u64::MAX, LIMIT))?;
        watched.tell(Message::Damaged(page.damaged));
        side.put(&page.rows)?;
        watched.catch_up(&mut side, MANY)?;
        next = page.end;
    }
    for _ in 0..ROUNDS {
        watched.catch_up(&mut side, FEW)?;
    }
    let shared = Arc::clone(&handle.shared);
    let last = handle.read(move |store| look(store, &names(&shared)))?;
    apply(&mut side, last)?;
    drop(side);
    let mut dead = 0;
    let mut next: Option<Arc<str>> = Some(Arc::from(""));
    while let Some(after) = next {
        let page = store.list_dead(&after, LIMIT)?;
        dead += page.letters.len() as u64;
        next = page.end;
    }
    Ok(Backup { timeouts: store.count()?, dead })
}

/// Lets the timer note what it changes, until it is dropped.
struct Watched<'a>(&'a Handle);

impl<'a> Watched<'a> {
    fn begin(handle: &'a Handle, path: impl std::fmt::Display) -> Result<Self, Error> {
        let refused = |why| Err(Error::store(format!("back up to {path}"), why));
        let touched = &mut *lock(&handle.shared.touched);
        match touched {
            Touched::NoBackup => *touched = Touched::Names(HashSet::new()),
            Touched::Names(_) => return refused("another backup of this timer is under way"),
            Touched::Shared => {
                return refused("others may change the store too: back up its database");
            }
        }
        Ok(Self(handle))
    }

    /// Copies once more what has changed, if it is more than this.
    fn catch_up(&self, side: &mut Side<'_>, more_than: usize) -> Result<(), Error> {
        let shared = &self.0.shared;
        let count = match &*lock(&shared.touched) {
            Touched::Names(names) => names.len(),
            Touched::NoBackup | Touched::Shared => 0,
        };
        if count <= more_than {
            return Ok(());
        }
        for names in names(shared).chunks(LIMIT.rows) {
            let names = names.to_vec();
            let found = self.0.read(move |store| look(store, &names))?;
            apply(side, found)?;
        }
        Ok(())
    }

    fn tell(&self, message: Message) {
        // If the timer was closed meanwhile, nobody is there to tell.
        let _ = self.0.send(message);
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        *lock(&self.0.shared.touched) = Touched::NoBackup;
    }
}

/// Takes the names that were noted.
fn names(shared: &Shared) -> Vec<Arc<str>> {
    match &mut *lock(&shared.touched) {
        Touched::Names(names) => mem::take(names).into_iter().collect(),
        Touched::NoBackup | Touched::Shared => Vec::new(),
    }
}

/// What a name has: a timeout, a dead letter.
type Found = (Arc<str>, Option<Row>, Option<Dead>);

fn look(store: &mut dyn Store, names: &[Arc<str>]) -> Result<Vec<Found>, Error> {
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        found.push((name.clone(), store.get(name)?, store.get_dead(name)?));
    }
    Ok(found)
}

/// Lets these names have what was found, and nothing else.
fn apply(side: &mut Side<'_>, found: Vec<Found>) -> Result<(), Error> {
    let (mut rows, mut letters, mut gone) = (Vec::new(), Vec::new(), Vec::new());
    for (name, row, dead) in found {
        if row.is_none() {
            gone.push(Change::cancel(&name));
        }
        if dead.is_none() {
            gone.push(Change::drop_dead(&name));
        }
        rows.extend(row);
        letters.extend(dead);
    }
    side.bury(&letters)?;
    side.put(&rows)?;
    side.change(&gone)?;
    Ok(())
}

/// A file that is not whole yet. Dropped, it is removed.
struct Part(PathBuf);

impl Part {
    fn new(path: &Path) -> Result<Self, Error> {
        let mut name = path.as_os_str().to_owned();
        name.push(".part");
        // Of a backup that was killed, unless somebody has it open.
        if let Err(locked @ Error::Locked { .. }) = RedbStore::open_existing(&name) {
            return Err(locked);
        }
        match fs::remove_file(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::store(format!("remove {}", Path::new(&name).display()), error))
            }
            _ => Ok(Self(name.into())),
        }
    }

    /// Gives it its name, unless somebody else has taken that meanwhile.
    fn keep(self, path: &Path) -> io::Result<()> {
        match fs::hard_link(&self.0, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
            // Some file systems have no links.
            Err(_) => fs::rename(&self.0, path)?,
            Ok(()) => {}
        }
        drop(self);
        // The name of a file that is new is lost with power if its folder is not synced.
        #[cfg(unix)]
        fs::File::open(path.parent().unwrap_or_else(|| Path::new("/")))?.sync_all()?;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The memory for the pages of the copy, in bytes.
const CACHE: usize = 16 << 20;

/// More names than these are not noted before they are copied, and more than these are not read in
/// one go while they become fewer in so many rounds.
const MANY: usize = 10_000;
const FEW: usize = 500;
const ROUNDS: usize = 20;
