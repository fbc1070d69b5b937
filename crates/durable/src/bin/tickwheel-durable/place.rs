//! Where timeouts rest: a file, or a database.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
#[cfg(feature = "postgres")]
use std::time::Duration;
use std::time::SystemTime;

use serde_json::{Value, json};
use tickwheel_durable::store::{Change, Changed, Dead, DeadPage, Limit, Page, Position, Store};
use tickwheel_durable::{Error, RedbStore};
#[cfg(feature = "postgres")]
use tickwheel_durable::{Homes, Workers};

use super::failure::Failure;
use super::show;

/// A file, or the URL of a database.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Place {
    File(PathBuf),
    Database(String),
}

impl FromStr for Place {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let is_url = ["postgres://", "postgresql://"].iter().any(|it| text.starts_with(it));
        Ok(if is_url { Self::Database(text.to_owned()) } else { Self::File(text.into()) })
    }
}

/// Without what a URL says of who connects.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Database(url) => {
                let (kind, rest) = url.split_once("://").unwrap_or(("postgresql", url));
                let rest = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
                let (place, words) = rest.split_once('?').unwrap_or((rest, ""));
                write!(f, "{kind}://{place}")?;
                let namespace = words.split('&').find(|word| word.starts_with("namespace="));
                namespace.map_or(Ok(()), |namespace| write!(f, "?{namespace}"))
            }
        }
    }
}

impl Place {
    /// Opens it to put all that another place has there, and makes it if it is not there.
    pub(super) fn make(&self) -> Result<Opened, Failure> {
        match self {
            Self::File(path) => {
                Ok(Opened::File { store: RedbStore::open(path)?, path: path.clone() })
            }
            #[cfg(feature = "postgres")]
            Self::Database(url) => {
                Ok(Opened::Database(tickwheel_durable::PostgresStore::connect(url)?))
            }
            #[cfg(not(feature = "postgres"))]
            Self::Database(_) => self.open(),
        }
    }

    /// Opens what is there, and makes nothing.
    pub(super) fn open(&self) -> Result<Opened, Failure> {
        match self {
            Self::File(path) => {
                Ok(Opened::File { store: RedbStore::open_existing(path)?, path: path.clone() })
            }
            #[cfg(feature = "postgres")]
            Self::Database(url) => {
                let store = tickwheel_durable::PostgresStore::connect_existing(url)?;
                Ok(Opened::Database(store.lease(LEASE)))
            }
            #[cfg(not(feature = "postgres"))]
            Self::Database(_) => Err(Failure::Input(
                "this command was built without the feature `postgres`: expected a file".into(),
            )),
        }
    }
}

/// A store that is open.
pub(super) enum Opened {
    File {
        store: RedbStore,
        path: PathBuf,
    },
    #[cfg(feature = "postgres")]
    Database(tickwheel_durable::PostgresStore),
}

/// What a check found.
pub(super) struct Checked {
    pub(super) facts: Vec<(&'static str, Value)>,
    pub(super) damaged: Vec<String>,
    pub(super) verdict: String,
    /// Why not all could be read.
    pub(super) unread: Option<String>,
    pub(super) is_whole: bool,
}

impl Opened {
    pub(super) fn store(&mut self) -> &mut dyn Store {
        match self {
            Self::File { store, .. } => store,
            #[cfg(feature = "postgres")]
            Self::Database(store) => store,
        }
    }

    /// The time that deadlines are compared with.
    pub(super) fn now(&mut self) -> Result<SystemTime, Error> {
        match self {
            Self::File { .. } => Ok(SystemTime::now()),
            #[cfg(feature = "postgres")]
            Self::Database(store) => store.now(),
        }
    }

    /// Whether others may be handing out timeouts at this moment.
    pub(super) fn has_workers(&self) -> bool {
        !matches!(self, Self::File { .. })
    }

    /// Prepares it for a move: refuses if it has workers, and takes leases for a short time, so
    /// that workers wait no longer if this command is killed.
    pub(super) fn for_move(self) -> Result<Self, Failure> {
        match self {
            Self::File { .. } => Ok(self),
            #[cfg(feature = "postgres")]
            Self::Database(mut store) => {
                let workers = store.workers()?.alive;
                if workers == 0 {
                    return Ok(Self::Database(store.lease(MOVE_LEASE)));
                }
                Err(Failure::Input(format!(
                    "the database has {workers} workers: stop them first; one that died counts \
                     until its lease has run out"
                )))
            }
        }
    }

    /// Each worker, and how many partitions have none, where there are workers.
    pub(super) fn each_worker(&mut self) -> Result<Option<(Vec<Value>, u64)>, Error> {
        match self {
            Self::File { .. } => Ok(None),
            #[cfg(feature = "postgres")]
            Self::Database(store) => {
                let Workers { partitions, owned, .. } = store.workers()?;
                let workers = store.each_worker()?;
                let workers = workers.iter().map(|worker| {
                    json!({
                        "number": worker.number,
                        "lease_left_ms": worker.lease_left.as_millis() as u64,
                        "owned": worker.owned,
                    })
                });
                Ok(Some((workers.collect(), partitions.saturating_sub(owned))))
            }
        }
    }

    /// Where the partitions are, as a database knows it.
    #[cfg(feature = "postgres")]
    pub(super) fn homes(&mut self) -> Result<Option<Homes>, Error> {
        match self {
            Self::File { .. } => Ok(None),
            Self::Database(store) => store.homes().map(Some),
        }
    }

    /// How many timeouts were put and how many left, where that is counted.
    pub(super) fn turnover(&mut self) -> Result<Option<(u64, u64)>, Error> {
        match self {
            Self::File { .. } => Ok(None),
            #[cfg(feature = "postgres")]
            Self::Database(store) => store.turnover().map(Some),
        }
    }

    /// What only this kind of store can tell.
    pub(super) fn facts(&mut self) -> Result<Vec<(&'static str, Value)>, Failure> {
        match self {
            Self::File { store, path } => {
                let bytes = std::fs::metadata(&*path)
                    .map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?
                    .len();
                Ok(vec![("set_aside", json!(store.set_aside()?)), ("file_bytes", json!(bytes))])
            }
            #[cfg(feature = "postgres")]
            Self::Database(store) => {
                let workers = store.workers()?;
                Ok(vec![
                    ("workers", json!(workers.alive)),
                    ("partitions", json!(workers.partitions)),
                    ("owned", json!(workers.owned)),
                ])
            }
        }
    }

    pub(super) fn check(
        &mut self,
        repair: bool,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Checked, Failure> {
        match self {
            Self::File { store, .. } => {
                let report = store.check(repair, &mut progress)?;
                let is_whole = report.is_whole();
                let verdict = match (is_whole, repair) {
                    (true, _) => "The file is whole.",
                    (false, false) => "The file is damaged; `check --repair` mends it.",
                    (false, true) => "The file was damaged, and is mended.",
                };
                Ok(Checked {
                    facts: vec![
                        ("timeouts", json!(report.timeouts)),
                        ("dead", json!(report.dead)),
                        ("damaged", json!(report.damaged.len())),
                        ("set_aside", json!(report.set_aside)),
                        ("unnamed", json!(report.unnamed)),
                        ("damaged_names", json!(report.damaged_names)),
                        ("acked_names", json!(report.acked_names)),
                        ("engine_mended", json!(report.engine_mended)),
                        ("repaired", json!(repair && !is_whole)),
                    ],
                    damaged: report.damaged.iter().map(show::damaged).collect(),
                    verdict: verdict.to_owned(),
                    unread: None,
                    is_whole: is_whole || repair,
                })
            }
            #[cfg(feature = "postgres")]
            Self::Database(_) if repair => Err(Failure::Input(
                "`--repair` is for files: a database mends itself, or is restored".into(),
            )),
            #[cfg(feature = "postgres")]
            Self::Database(store) => {
                let all = store.count()?;
                let mut damaged: Vec<String> =
                    store.set_aside()?.iter().map(show::damaged).collect();
                let set_aside = damaged.len();
                let mut timeouts = 0;
                let read = each_page(store, Position::start(), u64::MAX, |page| {
                    timeouts += page.rows.len() as u64;
                    damaged.extend(page.damaged.iter().map(show::damaged));
                    progress(timeouts, all);
                    Ok(true)
                });
                // What cannot be read ends that, and the rest can be told.
                let unread = match read {
                    Err(Failure::Input(message)) => Some(message),
                    read => read.map(|()| None)?,
                };
                let workers = store.workers()?;
                let is_owned = workers.owned == workers.partitions;
                let mut verdict = match (damaged.is_empty(), is_owned) {
                    (true, true) => "All is well.",
                    (false, true) => "Some timeouts are damaged.",
                    (true, false) => "Some partitions have no worker: what is due in them waits.",
                    (false, false) => {
                        "Some timeouts are damaged. Some partitions have no worker: what is due in \
                         them waits."
                    }
                };
                if unread.is_some() {
                    verdict = "Not all timeouts could be read.";
                }
                Ok(Checked {
                    facts: vec![
                        ("timeouts", json!(timeouts)),
                        ("set_aside", json!(set_aside)),
                        ("workers", json!(workers.alive)),
                        ("partitions", json!(workers.partitions)),
                        ("owned", json!(workers.owned)),
                    ],
                    is_whole: damaged.is_empty() && is_owned,
                    damaged,
                    verdict: verdict.to_owned(),
                    unread,
                })
            }
        }
    }
}

/// Calls `work` with each page after this place while it wants more.
pub(super) fn each_page(
    store: &mut dyn Store,
    mut after: Position,
    until: u64,
    mut work: impl FnMut(&Page) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    loop {
        let page = store.list(&after, until, PAGE)?;
        let goes_on = work(&page)?;
        match page.end {
            Some(end) if goes_on => after = end,
            _ => return Ok(()),
        }
    }
}

/// Returns the dead letter of this name, if this database has it and no other of its fleet.
pub(super) fn dead_here(store: &mut dyn Store, name: &str) -> Result<Option<Dead>, Error> {
    match store.get_dead(name) {
        Err(Error::Elsewhere { .. }) => Ok(None),
        found => found,
    }
}

/// Calls `work` with each page of dead letters whose names begin like this and come after that
/// one, while it wants more.
pub(super) fn each_dead(
    store: &mut dyn Store,
    prefix: &str,
    after: &str,
    limit: Limit,
    mut work: impl FnMut(&DeadPage) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    // A page has what comes after a name, and the first may be the prefix itself.
    if after < prefix
        && let Some(letter) = dead_here(store, prefix)?
        && !work(&DeadPage { letters: vec![letter], ..DeadPage::default() })?
    {
        return Ok(());
    }
    let mut after: Arc<str> = Arc::from(after.max(prefix));
    loop {
        let mut page = store.list_dead(&after, limit)?;
        if page.letters.last().is_some_and(|last| !last.name.starts_with(prefix)) {
            page.end = None;
        }
        page.letters.retain(|letter| letter.name.starts_with(prefix));
        page.damaged.retain(|damaged| damaged.name.starts_with(prefix));
        let goes_on = work(&page)?;
        match page.end {
            Some(end) if goes_on => after = end,
            _ => return Ok(()),
        }
    }
}

/// Commits all changes, and calls `told` with what became of each.
pub(super) fn change_each(
    store: &mut dyn Store,
    mut changes: &[Change],
    mut told: impl FnMut(&Change, Result<Changed, Error>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    while !changes.is_empty() {
        // The last of many may be missing: they are asked for again.
        let done = store.commit(&[], changes)?;
        let (answered, rest) = changes.split_at(done.changed.len());
        changes = rest;
        for (change, changed) in answered.iter().zip(done.changed) {
            told(change, changed)?;
        }
    }
    Ok(())
}

/// What is read at once.
pub(super) const PAGE: Limit = Limit { rows: 1000, bytes: 1 << 20 };

/// A call of a move may take a third of it.
#[cfg(feature = "postgres")]
pub(super) const MOVE_LEASE: Duration = Duration::from_secs(30);

/// What is asked of a database may take a third of it.
#[cfg(feature = "postgres")]
const LEASE: Duration = Duration::from_secs(180);
