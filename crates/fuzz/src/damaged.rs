//! Files of durable timers that are damaged.

use crate::bytes::Bytes;
use redb::StorageBackend;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use tickwheel_durable::store::{Change, Held, Limit, Position, Row, Settlement, Store, Then};
use tickwheel_durable::{Error, RedbStore};

/// Damages a file in some places, and uses it. What comes of it is an error, or rows that are as
/// they were put: all of them, or those before the last commit, or all that were not set aside.
pub fn damaged(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let whole = &WHOLE[usize::from(bytes.byte() & 1)];
    let disk = Disk(Arc::new(Mutex::new(whole.contents.clone())));
    let mut is_seen = true;
    for damage in bytes.program(Damage::read).iter().take(MOST_DAMAGES) {
        is_seen &= damage.apply(&mut disk.lock(), whole);
    }
    // An error says that the file is damaged.
    let _ = whole.use_all(&disk, is_seen);
}

/// What happens to a file at one place.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Changed(usize, u8),
    Zeroed(usize),
    Cut(usize),
}

impl Damage {
    fn read(bytes: &mut Bytes<'_>, code: u8) -> Self {
        let at = usize::from(bytes.byte()) << 8 | usize::from(bytes.byte());
        match code {
            0 => Self::Zeroed(at),
            1 => Self::Cut(at),
            _ => Self::Changed(at, code),
        }
    }

    /// Returns whether the engine or the store sees it: what a page says of itself the engine looks
    /// at only after a kill.
    fn apply(self, contents: &mut Vec<u8>, whole: &Whole) -> bool {
        let (Self::Changed(nth, _) | Self::Zeroed(nth) | Self::Cut(nth)) = self;
        let at = whole.used[nth % whole.used.len()];
        if contents.len() <= at {
            return true;
        }
        match self {
            Self::Changed(_, code) => contents[at] ^= code,
            Self::Zeroed(_) => {
                let end = contents.len().min(at + PAGE);
                contents[at..end].fill(0);
            }
            // `RedbStore::open` refuses an empty file before redb sees it.
            Self::Cut(_) => contents.truncate(at.max(1)),
        }
        !whole.is_closed || HEAD <= at % PAGE
    }
}

type Rows = BTreeMap<Arc<str>, Row>;

/// A file that is not damaged, and what is in it.
struct Whole {
    is_closed: bool,
    contents: Vec<u8>,
    /// The places of the bytes that are not 0, and of some beside them.
    used: Vec<usize>,
    rows: Rows,
    before_last: Rows,
}

impl Whole {
    fn new(closes: bool) -> Result<Self, Error> {
        let disk = Disk::default();
        let mut store = disk.open()?;
        store.lease(true, &[])?;
        let mut before_last = Rows::new();
        for commit in 0..COMMITS {
            before_last = rows(&mut store)?.0;
            let puts: Vec<_> = (0..PUTS)
                .map(|put| {
                    let payload = [commit * 16 + put; 40];
                    Change::put(&format!("{commit}/{put}"), u64::from(put % 3), &payload)
                })
                .collect();
            store.commit(&[], &puts)?;
        }
        let rows = rows(&mut store)?.0;
        let killed = disk.lock().clone();
        drop(store);
        let contents = if closes { disk.lock().clone() } else { killed };
        let used = (0..contents.len())
            .filter(|&at| contents[at.saturating_sub(NEAR)..=at].iter().any(|&byte| byte != 0))
            .collect();
        Ok(Self { is_closed: closes, contents, used, rows, before_last })
    }

    fn use_all(&self, disk: &Disk, is_seen: bool) -> Result<(), Error> {
        let mut store = disk.open()?;
        let leases = store.lease(true, &[])?.held;
        let (found, damaged) = rows(&mut store)?;
        for row in found.values() {
            let put = &self.rows[&row.name];
            assert_eq!((put.deadline, &put.payload), (row.deadline, &row.payload));
        }
        assert!(
            !is_seen
                || found == self.rows
                || found == self.before_last
                || found.len() + damaged == self.rows.len(),
            "{} of {} rows are there, and {damaged} told",
            found.len(),
            self.rows.len()
        );
        for name in self.rows.keys() {
            store.get(name)?;
        }
        store.count()?;
        let (mut settlements, mut changes) = (Vec::new(), vec![Change::put("new", 7, b"new")]);
        for (nth, row) in found.values().enumerate() {
            let then = match nth % 4 {
                0 => Then::Done,
                1 => Then::Again { at: 9, attempt: 1 },
                2 => Then::Dead { at: 9 },
                _ => {
                    changes.push(Change::cancel(&row.name));
                    continue;
                }
            };
            settlements.push(Settlement { held: Held::new(row, leases[0]), then });
        }
        store.commit(&settlements, &changes)?;
        rows(&mut store)?;
        Ok(())
    }
}

/// All rows, and how many were set aside.
fn rows(store: &mut RedbStore) -> Result<(Rows, usize), Error> {
    let limit = Limit { rows: usize::MAX, bytes: usize::MAX };
    let page = store.list(&Position::start(), u64::MAX, limit)?;
    let rows = page.rows.into_iter().map(|row| (row.name.clone(), row)).collect();
    Ok((rows, page.damaged.len()))
}

/// A file in memory. Clones are the same file.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<Vec<u8>>>);

impl Disk {
    fn open(&self) -> Result<RedbStore, Error> {
        let disk = self.clone();
        RedbStore::open_backend(move || Ok(Box::new(disk.clone())))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start.checked_add(out.len()).ok_or(ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(self.lock().get(start..end).ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if LARGEST < len {
            return Err(ErrorKind::StorageFull.into());
        }
        self.lock().resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|&end| end <= LARGEST);
        let end = end.ok_or(ErrorKind::StorageFull)? as usize;
        let mut contents = self.lock();
        if contents.len() < end {
            contents.resize(end, 0);
        }
        contents[offset as usize..end].copy_from_slice(data);
        Ok(())
    }
}

/// One that was killed, and one that was closed well.
static WHOLE: LazyLock<[Whole; 2]> =
    LazyLock::new(|| [false, true].map(|closes| Whole::new(closes).expect("it is not damaged")));

const COMMITS: u8 = 4;
const PUTS: u8 = 8;
const MOST_DAMAGES: usize = 16;
/// The bytes behind one that is not 0 that may be damaged, too.
const NEAR: usize = 8;
const PAGE: usize = 4_096;
/// The bytes of a page that say what it holds.
const HEAD: usize = 4;
/// A disk is full at last.
const LARGEST: u64 = 64 << 20;
