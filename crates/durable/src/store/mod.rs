//! What a store must do, and the words it speaks.

#[cfg(any(test, feature = "postgres"))]
pub(crate) mod limits;
pub(crate) mod memory;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redb")]
pub(crate) mod redb;
#[cfg(any(test, feature = "postgres"))]
pub(crate) mod stretch;

use std::sync::Arc;
use std::time::Duration;

use crate::values::metadata;
use crate::{Content, Error};
pub use memory::MemoryStore;

/// Keeps timeouts where a crash does not lose them, ordered by deadline and then by name.
///
/// One [`DurableTimer`](crate::DurableTimer) owns a store and makes one call at a time, from one
/// thread. [`lease`](Self::lease), [`load`](Self::load) and [`commit`](Self::commit) carry the
/// timeouts; [`get`](Self::get), [`list`](Self::list) and [`count`](Self::count) are for operators.
/// Run [`suite::check`](crate::suite::check) against your own store: it tests all that is said
/// here.
///
/// A store may fail at any call. The timer then forgets the rows it holds in memory, loads them
/// anew, and tries again after a pause that grows. A store that has to be closed and opened again
/// after an error does that at the next call.
pub trait Store: Send {
    /// Renews the leases that this owner has, but for the partitions in `given_back`, which others
    /// may take from now on. If more is `wanted`, takes free partitions up to the share of this
    /// owner.
    ///
    /// An owner that wants none has no share. It has none of what it gives back, whether or not the
    /// call succeeds, until it is told a greater epoch.
    ///
    /// A store with one owner has one partition, number 0, and holds it for as long as it is open,
    /// whatever is wanted; what keeps a second owner away (a lock on the file) is taken before, when
    /// it opens.
    ///
    /// A store must guarantee:
    ///
    /// - A partition has at most one owner whose lease has not run out.
    /// - Each new owner of a partition gets an epoch that is greater than every earlier one.
    /// - A partition whose lease has not run out is taken from its owner only if that gives it back.
    fn lease(&mut self, wanted: bool, given_back: &[u32]) -> Result<Leases, Error>;

    /// Returns the rows of each partition in `from` after its position whose deadline is at most
    /// `until`.
    ///
    /// Those of a partition come in order of [`Position`]. All together are about as many as
    /// `limit` says, and at least one if there is one.
    ///
    /// A store that several owners may have at once also returns the rows at or before the
    /// positions that have become visible since the load before, whatever failed between them; so
    /// each load is of all partitions that are leased. If it cannot tell,
    /// [`Loaded::overflows`] says so.
    ///
    /// A store must guarantee:
    ///
    /// - No row of a partition is left out after its position up to its end in [`Loaded::ends`], or
    ///   up to `until` if that is `None`.
    /// - If there is an end, then some end is after its position.
    /// - Each row that comes is as it was put. A row that is damaged does not come; it is set
    ///   aside, if the store can write, and is told in [`Loaded::damaged`].
    fn load(&mut self, from: &[Start], until: u64, limit: Limit) -> Result<Loaded, Error>;

    /// Returns rows as [`load`](Self::load) does, of the past, which a new owner reads by and by;
    /// the default is `load`. `from` is in the order of the positions and has at least one.
    ///
    /// A store that several owners may have at once makes this short. It may end at any place, even
    /// at those where it begins, and tells nothing of what is at or before the positions. What
    /// cannot be read is in [`Loaded::unreadable`].
    fn load_behind(&mut self, from: &[Start], until: u64, limit: Limit) -> Result<Loaded, Error> {
        self.load(from, until, limit)
    }

    /// Applies all `settlements` and then all `changes`, in one transaction, and says for each what
    /// came of it.
    ///
    /// A store must guarantee:
    ///
    /// - The changes are applied one after another.
    /// - When it returns `Ok`, all of it survives a crash and a power cut, except for the changes
    ///   whose [`Done::changed`] is an error: of those nothing was done.
    /// - When it returns an error, either all or nothing of it was done.
    /// - Each row in [`Done`] has a number that no row ever had. Without it, a retry whose answer
    ///   was lost would look like a row that is still in flight.
    /// - A settlement does nothing if the row of that name has another number, and nothing if the
    ///   epoch is not the newest of that partition.
    /// - One row that somebody else has locked, or that cannot be changed, holds up no other.
    fn commit(&mut self, settlements: &[Settlement], changes: &[Change]) -> Result<Done, Error>;

    /// Returns the row of this name.
    fn get(&mut self, name: &str) -> Result<Option<Row>, Error>;

    /// Returns rows of all partitions after `after` whose deadline is at most `until`, in order of
    /// [`Position`], and at most as many as `limit` says.
    ///
    /// What [`load`](Self::load) says of damaged rows holds here too, and [`Page::end`] is after
    /// `after`.
    fn list(&mut self, after: &Position, until: u64, limit: Limit) -> Result<Page, Error>;

    /// Returns the number of rows, in all partitions.
    fn count(&mut self) -> Result<u64, Error>;

    /// Counts the rows of several stretches of time: of each, those whose deadline is after the end
    /// of the one before and at most its own. `ends` are in order. It stops at `most` rows of a
    /// stretch, or of each partition in it: what an operator looks at costs as much however many
    /// are pending. A damaged row may count.
    fn count_until(&mut self, ends: &[u64], most: u64) -> Result<Vec<Counted>, Error> {
        let mut after = Position::start();
        let mut counted = Vec::new();
        for &end in ends {
            let (mut rows, mut is_all) = (0, false);
            while rows < most && !is_all {
                let limit = Limit { rows: (most - rows).min(1000) as usize, bytes: 1 << 20 };
                let page = self.list(&after, end, limit)?;
                rows += page.rows.len() as u64;
                is_all = page.end.is_none();
                after = page.end.unwrap_or(after);
            }
            counted.push(Counted { rows, is_all });
            after = Position::before(end.saturating_add(1));
        }
        Ok(counted)
    }

    /// Returns the dead letters whose names come after `after`, in the order of their names, and at
    /// most as many as `limit` says.
    fn list_dead(&mut self, after: &str, limit: Limit) -> Result<DeadPage, Error>;

    /// Returns the dead letter of this name.
    fn get_dead(&mut self, name: &str) -> Result<Option<Dead>, Error>;

    /// Notes that nothing is to be handed out, or that it is again. What was noted survives as a
    /// commit does, and [`lease`](Self::lease) tells it to each owner. The default cannot.
    fn pause(&mut self, pauses: bool) -> Result<(), Error> {
        let doing = if pauses { "pause" } else { "resume" };
        Err(Error::store(doing, "this store cannot keep it"))
    }

    /// Whether it was noted that nothing is to be handed out. The default is that it was not.
    fn is_paused(&mut self) -> Result<bool, Error> {
        Ok(false)
    }

    /// Notes how many timeouts the consumers of all owners together may take, or that there is no
    /// limit. What was noted survives as a commit does, and [`lease`](Self::lease) tells it to each
    /// owner. The default cannot.
    fn limit_rate(&mut self, limit: Option<RateLimit>) -> Result<(), Error> {
        let _ = limit;
        Err(Error::store("limit the rate", "this store cannot keep it"))
    }

    /// Returns that limit, where there is one. The default has none.
    fn rate_limit(&mut self) -> Result<Option<RateLimit>, Error> {
        Ok(None)
    }

    /// Opens the store once more, for what operators read while the timer works. `None`, which is
    /// the default: they read between the calls of the timer.
    fn again(&self) -> Option<Box<dyn Store>> {
        None
    }
}

/// One timeout as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The name, which no other row of the store has.
    pub name: Arc<str>,
    /// The deadline, in milliseconds since 1970.
    pub deadline: u64,
    /// The payload.
    pub payload: Arc<[u8]>,
    /// The metadata.
    pub metadata: Arc<str>,
    /// How often the timeout was handed out, as far as that was counted: by [`Then::Counted`]
    /// before it was handed out, or by [`Then::Again`] after.
    pub attempt: u32,
    /// Tells this timeout from earlier ones of the same name, and from itself before a retry.
    pub number: u64,
    /// The partition the name belongs to.
    pub partition: u32,
}

impl Row {
    /// Returns where the row stands in the order of the store.
    pub fn position(&self) -> Position {
        Position { deadline: self.deadline, name: self.name.clone() }
    }

    /// Returns the dead letter that the row becomes.
    pub(crate) fn dead(self, died: u64) -> Dead {
        let Self { name, deadline, payload, metadata, attempt, .. } = self;
        Dead { name, deadline, payload, metadata, attempt, died }
    }

    /// Returns what it carries.
    pub(crate) fn content(&self) -> Content<'_> {
        Content { payload: &self.payload, metadata: &self.metadata }
    }

    /// Returns the bytes that a row takes in memory, nearly.
    pub(crate) fn bytes(&self) -> usize {
        self.name.len() + self.content().bytes() + ROW
    }
}

/// A place in the order of a store: by deadline, and by name where deadlines are equal.
///
/// No row has an empty name, so `(deadline, "")` is before all rows of that deadline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Milliseconds since 1970.
    pub deadline: u64,
    /// The name, or nothing for the place before all names.
    pub name: Arc<str>,
}

impl Position {
    /// Returns the position before all rows.
    pub fn start() -> Self {
        Self::before(0)
    }

    /// Returns the position before all rows of this deadline.
    pub fn before(deadline: u64) -> Self {
        Self { deadline, name: Arc::from("") }
    }
}

/// The most that a load may return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Rows, at least 1.
    pub rows: usize,
    /// Bytes of names, payloads and metadata. The row that passes the limit is the last.
    pub bytes: usize,
}

/// Where a load of one partition begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The partition, and the right to it.
    pub lease: Lease,
    /// The position after which rows are wanted.
    pub after: Position,
}

/// What [`Store::load`] returns.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The rows.
    pub rows: Vec<Row>,
    /// For each partition, how far its rows go if they end because of the limit.
    pub ends: Vec<Option<Position>>,
    /// What has become visible before the positions cannot be told. All that is before them is to
    /// be loaded once more.
    pub overflows: bool,
    /// Some partition has no owner, or one of the positions is to be given back: the owner is to ask
    /// for its leases.
    pub has_free: bool,
    /// The store's own clock, as in [`Leases::clock`], so that it is noticed soon if that is set.
    pub clock: Option<u64>,
    /// The partitions and deadlines of rows that have become visible before the positions and did
    /// not come, because of the limit. They are to be loaded from there.
    pub left_out: Vec<(u32, u64)>,
    /// What comes after the positions could not be read in the time that there is for it.
    pub outlasts: bool,
    /// Why the rows of the first partition at the deadline of its position cannot be read, if it is
    /// by [`Store::load_behind`] and they cannot. They are to be tried again alone.
    pub unreadable: Option<Error>,
    /// The damaged rows that were found and set aside.
    pub damaged: Vec<Damaged>,
}

impl From<Page> for Loaded {
    /// Takes the page of the only partition.
    fn from(page: Page) -> Self {
        Self { rows: page.rows, ends: vec![page.end], damaged: page.damaged, ..Self::default() }
    }
}

/// What [`Store::list`] returns.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The rows, in order.
    pub rows: Vec<Row>,
    /// How far the page goes, if it ends because of the limit.
    pub end: Option<Position>,
    /// The damaged rows that were found and set aside.
    pub damaged: Vec<Damaged>,
}

/// How many rows [`Store::count_until`] found in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// The rows that were counted.
    pub rows: u64,
    /// Whether these are all. If not, it stopped at the limit.
    pub is_all: bool,
}

/// Fills a page, as all stores do.
pub(crate) struct Filling {
    page: Page,
    limit: Limit,
    bytes: usize,
    /// A page ends at a row that is whole: the name of another may be no place in the order.
    ends_whole: bool,
}

impl Filling {
    pub(crate) fn new(limit: Limit) -> Self {
        Self { page: Page::default(), limit, bytes: 0, ends_whole: false }
    }

    /// Whether the page is full. To be asked if there is one more row.
    pub(crate) fn is_over(&mut self) -> bool {
        let is_full = self.limit.rows <= self.page.rows.len() || self.limit.bytes <= self.bytes;
        if is_full && self.ends_whole {
            self.page.end = self.page.rows.last().map(Row::position);
        }
        self.page.end.is_some()
    }

    pub(crate) fn add(&mut self, row: Row) {
        self.bytes += row.name.len() + row.content().bytes();
        self.ends_whole = true;
        self.page.rows.push(row);
    }

    #[cfg(feature = "redb")]
    pub(crate) fn add_damaged(&mut self, damaged: Damaged) {
        self.ends_whole = false;
        self.page.damaged.push(damaged);
    }

    pub(crate) fn page(self) -> Page {
        self.page
    }
}

/// A row that was not as it was put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The deadline, as far as it could be read.
    pub deadline: u64,
    /// The name, as far as it could be read.
    pub name: String,
    /// What was wrong.
    pub reason: &'static str,
}

/// The right to hand out the timeouts of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The partition.
    pub partition: u32,
    /// Grows with each owner of the partition.
    pub epoch: u64,
}

/// The most timeouts that consumers may take in any span of so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// So many; one or more.
    pub timeouts: usize,
    /// The span; a millisecond or more. Where it is longer than a second, a timeout may count for a
    /// thousandth of it longer, so that a limit of many takes little memory.
    pub per: Duration,
}

impl RateLimit {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let is_some = 1 <= self.timeouts && Duration::from_millis(1) <= self.per;
        let (setting, expected) = ("rate_limit", "1 or more in 1 ms or more");
        if is_some { Ok(()) } else { Err(Error::Setting { setting, expected }) }
    }
}

/// What [`Store::lease`] returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leases {
    /// All leases that this owner has now.
    pub held: Vec<Lease>,
    /// How many it may have. It gives the others back when nothing of them is in flight.
    pub share: usize,
    /// How many owners want a share of the store. The more they are, the longer acks wait
    /// for each other, so that all together commit as often as one would.
    pub owners: usize,
    /// How many of them are before this one, in an order that is the same for all.
    pub owners_before: usize,
    /// How long they are good for, counted from the moment before the call. `None`: for as long as
    /// the store is open.
    pub good_for: Option<Duration>,
    /// How long after the call the first lease of another owner runs out, if it is not renewed. Then
    /// this owner asks again.
    pub others_end: Option<Duration>,
    /// The store's own clock, in milliseconds since 1970, read between call and return. A store
    /// that several timers may have at once has one. Deadlines are then compared with this clock
    /// and not with that of the machine, and the timer looks again and again for what others did.
    pub clock: Option<u64>,
    /// Whether nothing is to be handed out, by [`Store::pause`].
    pub is_paused: bool,
    /// What consumers may take, by [`Store::limit_rate`]. No more owners have a share than may take
    /// something.
    pub rate_limit: Option<RateLimit>,
    /// Those of `held` that the owner is to give back whatever its share is.
    pub yielding: Vec<u32>,
}

/// Returns the share of an owner: all shares together are all partitions, and no two differ by
/// more than one. Those that are before it may be all that have a share.
#[cfg(any(feature = "postgres", test))]
pub(crate) fn share(partitions: usize, owners: usize, owners_before: usize) -> usize {
    let owners = owners.max(1);
    if owners <= owners_before {
        return 0;
    }
    partitions / owners + usize::from(owners_before < partitions % owners)
}

impl Leases {
    /// The lease of the only owner that a store can have.
    pub(crate) fn of_one(lease: Lease, is_paused: bool, rate_limit: Option<RateLimit>) -> Self {
        Self {
            held: vec![lease],
            share: 1,
            owners: 1,
            owners_before: 0,
            good_for: None,
            others_end: None,
            clock: None,
            is_paused,
            rate_limit,
            yielding: Vec::new(),
        }
    }
}

/// What a caller wants done with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The name.
    pub name: Arc<str>,
    /// What is done with it.
    pub act: Act,
}

/// What a [`Change`] does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Puts a timeout in the place of the one that has the name.
    Put(Put),
    /// Removes the timeout that has the name.
    Cancel,
    /// Puts the dead letter of the name as a timeout that was never handed out, and removes the
    /// letter. If a timeout has the name, nothing is done.
    Revive {
        /// Its deadline, in milliseconds since 1970.
        at: u64,
    },
    /// Removes the dead letter of the name.
    Drop,
}

/// A timeout to put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The deadline, in milliseconds since 1970.
    pub deadline: u64,
    /// The payload.
    pub payload: Arc<[u8]>,
    /// The metadata.
    pub metadata: Arc<str>,
}

impl Change {
    /// Puts a timeout, in the place of the one that has the same name.
    pub fn put<'a>(name: &str, deadline: u64, content: impl Into<Content<'a>>) -> Self {
        let Content { payload, metadata: text } = content.into();
        let put = Put { deadline, payload: payload.into(), metadata: metadata(text) };
        Self { name: name.into(), act: Act::Put(put) }
    }

    /// Removes the timeout of this name.
    pub fn cancel(name: &str) -> Self {
        Self { name: name.into(), act: Act::Cancel }
    }

    /// Makes a timeout of the dead letter of this name.
    pub fn revive(name: &str, at: u64) -> Self {
        Self { name: name.into(), act: Act::Revive { at } }
    }

    /// Removes the dead letter of this name.
    pub fn drop_dead(name: &str) -> Self {
        Self { name: name.into(), act: Act::Drop }
    }

    /// Returns what is put.
    pub(crate) fn as_put(&self) -> Option<&Put> {
        match &self.act {
            Act::Put(put) => Some(put),
            _ => None,
        }
    }
}

/// What comes of a timeout that was handed out, or is about to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The timeout.
    pub held: Held,
    /// What comes of it.
    pub then: Then,
}

/// What comes of a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It is done: the row is removed.
    Done,
    /// It comes again: the row has another deadline and another number.
    Again {
        /// The deadline.
        at: u64,
        /// How often it was handed out.
        attempt: u32,
    },
    /// It is about to be handed out, or is not after all. All else of the row stays, its number
    /// too.
    Counted {
        /// How often it was handed out, this time included.
        attempt: u32,
    },
    /// It was handed out as often as it may be: the row is removed and kept as the dead letter of
    /// its name, in the place of an older one.
    Dead {
        /// The time, in milliseconds since 1970.
        at: u64,
    },
}

/// A timeout that was handed out as often as it may be, and not acked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dead {
    /// The name.
    pub name: Arc<str>,
    /// The last deadline, in milliseconds since 1970.
    pub deadline: u64,
    /// The payload.
    pub payload: Arc<[u8]>,
    /// The metadata.
    pub metadata: Arc<str>,
    /// How often it was handed out.
    pub attempt: u32,
    /// When it was found dead, in milliseconds since 1970.
    pub died: u64,
}

impl Dead {
    /// Returns what it carries.
    pub(crate) fn content(&self) -> Content<'_> {
        Content { payload: &self.payload, metadata: &self.metadata }
    }
}

/// What [`Store::list_dead`] returns.
#[derive(Clone, Debug, Default)]
pub struct DeadPage {
    /// The dead letters, in the order of their names.
    pub letters: Vec<Dead>,
    /// The name at which the page ends, if it ends because of the limit.
    pub end: Option<Arc<str>>,
    /// Those that are damaged.
    pub damaged: Vec<Damaged>,
}

impl DeadPage {
    /// Whether the page is full, with so many bytes. To be asked if there is one more letter.
    pub(crate) fn is_full(&mut self, limit: Limit, bytes: usize) -> bool {
        let is_full = limit.rows <= self.letters.len() || limit.bytes <= bytes;
        self.end = self.letters.last().filter(|_| is_full).map(|last| last.name.clone());
        self.end.is_some()
    }
}

/// A timeout that was handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its name.
    pub name: Arc<str>,
    /// The deadline it was handed out for.
    pub deadline: u64,
    /// Its number.
    pub number: u64,
    /// The lease it was handed out under.
    pub lease: Lease,
}

impl Held {
    /// Says under which lease a row was handed out.
    pub fn new(row: &Row, lease: Lease) -> Self {
        Self { name: row.name.clone(), deadline: row.deadline, number: row.number, lease }
    }
}

/// A row that is gone, because it was put anew or cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// Its number, or 0 if that could not be read.
    pub number: u64,
    /// Its deadline.
    pub deadline: u64,
}

impl From<&Row> for Replaced {
    fn from(row: &Row) -> Self {
        Self { number: row.number, deadline: row.deadline }
    }
}

/// What [`Store::commit`] returns.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// What came of each settlement, in order. The last of many may be missing, but not all, because
    /// there was no time for them: they are to be asked for again.
    pub outcomes: Vec<Outcome>,
    /// What came of each change, in order. An error is of that change alone. The last of many may
    /// be missing, because there was no time for them: they are to be asked for again.
    pub changed: Vec<Result<Changed, Error>>,
    /// The store's own clock, as in [`Leases::clock`], read after the commit: whoever reads the
    /// store later finds what was changed.
    pub clock: Option<u64>,
}

/// What came of a [`Settlement`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The row is gone, or is this one if it comes again or was counted.
    Settled(Option<Row>),
    /// No row has that name and that number any more.
    Gone,
    /// The partition has had another owner since.
    Fenced,
    /// Somebody else has locked the row. Nothing was done; it is to be tried again.
    Locked,
    /// The store refuses it, or it takes too long, and says why. Nothing was done; it is to be tried
    /// again.
    Refused(String),
}

/// What came of a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The row that was put.
    pub row: Option<Row>,
    /// The row that had the name before.
    pub replaced: Option<Replaced>,
    /// Whether there was a dead letter, for [`Act::Revive`] and [`Act::Drop`].
    pub was_dead: bool,
}

/// What operators read may wait so long for its turn, and may then take so long: in a database
/// no timeout waits for it.
pub(crate) const READS: Duration = Duration::from_secs(60);

/// What a row costs beside its name and its content: two allocations, and a third where there is
/// metadata, the entry in the wheel and the one in the table of names.
const ROW: usize = 216;
