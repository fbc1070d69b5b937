//! What callers and consumers see, and what they may see. It knows nothing of partitions and moves.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::keeper::Found;

/// A timeout that was asked for. Its payload is its number, so it is known wherever it goes.
struct Timeout {
    name: Arc<str>,
    deadline: u64,
    is_committed: bool,
    /// It must not come: an ack was committed, or a call was answered that ends it.
    over: Option<&'static str>,
    /// It was handed out so often, and is a dead letter, or was one.
    is_dead: bool,
    times: u32,
    /// By whom, under which epoch of which database, and under which number of the row.
    takes: Vec<(u64, u64, usize, u64)>,
}

#[derive(Default)]
pub(super) struct Account {
    timeouts: Vec<Timeout>,
    /// The newest of each name that was committed.
    newest: HashMap<Arc<str>, usize>,
    /// What was committed, was not ended, and has not come.
    expected: BTreeSet<usize>,
    /// The result of the last call of each name that was answered. `None`: it is not known.
    last: HashMap<Arc<str>, Option<Done>>,
    most: Option<u32>,
    /// The names of dead letters.
    letters: BTreeSet<Arc<str>>,
    /// What programs have put by SQL.
    of_sql: Vec<Arc<str>>,
    pub(super) told: Told,
}

/// A call, or its result.
#[derive(Clone, Copy, Debug)]
pub(super) enum Done {
    Put(usize),
    Cancel,
    /// What becomes of a dead letter.
    Revive,
    Drop,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) put: u64,
    pub(super) fired: u64,
    pub(super) again: u64,
    pub(super) acked: u64,
    pub(super) cancelled: u64,
    pub(super) replaced: u64,
    pub(super) refused: u64,
    pub(super) dead: u64,
    pub(super) revived: u64,
    pub(super) dropped: u64,
    pub(super) joined: u64,
    pub(super) moved: u64,
    pub(super) cut_off: u64,
    pub(super) failed_over: u64,
}

impl Told {
    pub(super) fn add(&mut self, other: Self) {
        self.put += other.put;
        self.fired += other.fired;
        self.again += other.again;
        self.acked += other.acked;
        self.cancelled += other.cancelled;
        self.replaced += other.replaced;
        self.refused += other.refused;
        self.dead += other.dead;
        self.revived += other.revived;
        self.dropped += other.dropped;
        self.joined += other.joined;
        self.moved += other.moved;
        self.cut_off += other.cut_off;
        self.failed_over += other.failed_over;
    }

    /// Whether all of it happened.
    pub(super) fn has_all(&self) -> bool {
        let Self { put, fired, again, acked, cancelled, replaced, .. } = *self;
        let Self { refused, dead, revived, dropped, joined, moved, .. } = *self;
        let Self { cut_off, failed_over, .. } = *self;
        let calls = [put, fired, again, acked, cancelled, replaced, refused];
        let letters = [dead, revived, dropped];
        let fleet = [joined, moved, cut_off, failed_over];
        [&calls[..], &letters, &fleet].concat().into_iter().all(|count| 0 < count)
    }
}

impl Account {
    pub(super) fn new(most: Option<u32>) -> Self {
        Self { most, ..Self::default() }
    }

    /// A caller asks for a timeout. Returns its number.
    pub(super) fn ask(&mut self, name: &Arc<str>, deadline: u64) -> usize {
        self.timeouts.push(Timeout {
            name: name.clone(),
            deadline,
            is_committed: false,
            over: None,
            is_dead: false,
            times: 0,
            takes: Vec::new(),
        });
        self.timeouts.len() - 1
    }

    /// A put is committed somewhere.
    pub(super) fn put(&mut self, number: usize) {
        let timeout = &mut self.timeouts[number];
        assert!(!timeout.is_committed, "put twice");
        timeout.is_committed = true;
        self.told.put += 1;
        let before = self.newest.insert(timeout.name.clone(), number);
        assert!(before.is_none_or(|before| before < number), "calls of one name out of order");
        before.map(|before| self.expected.remove(&before));
        if timeout.name.starts_with("sql") {
            self.of_sql.push(timeout.name.clone());
        }
        self.expected.insert(number);
    }

    /// A cancel is committed somewhere, whatever it has found.
    pub(super) fn cancel(&mut self, name: &str) {
        if let Some(newest) = self.newest.get(name) {
            self.expected.remove(newest);
        }
    }

    /// An ack is committed somewhere.
    pub(super) fn ack(&mut self, number: usize) {
        self.told.acked += 1;
        let timeout = &mut self.timeouts[number];
        assert!(!timeout.takes.is_empty(), "acked and never taken");
        timeout.over = Some("acked");
    }

    /// It is a dead letter.
    pub(super) fn bury(&mut self, number: usize) {
        self.told.dead += 1;
        let timeout = &mut self.timeouts[number];
        assert!(self.most.is_some(), "dead, and it may come as often as it likes");
        timeout.is_dead = true;
        self.letters.insert(timeout.name.clone());
        self.expected.remove(&number);
    }

    /// A dead letter is a timeout again, somewhere.
    pub(super) fn revive(&mut self, number: usize, deadline: u64) {
        self.told.revived += 1;
        let timeout = &mut self.timeouts[number];
        assert!(timeout.is_dead, "it was no dead letter");
        (timeout.is_dead, timeout.deadline, timeout.times) = (false, deadline, 0);
        let name = timeout.name.clone();
        self.letters.remove(&name);
        let before = self.newest.insert(name, number);
        let is_lost = before.is_some_and(|before| self.expected.contains(&before));
        assert!(!is_lost, "a timeout of the name is pending");
        self.expected.insert(number);
    }

    /// A dead letter is gone, somewhere.
    pub(super) fn drop_letter(&mut self, name: &str) {
        self.told.dropped += 1;
        assert!(self.letters.remove(name), "there was none");
    }

    /// A caller is told what a call has done.
    pub(super) fn answer(&mut self, name: &Arc<str>, call: Done, found: Option<Found>) {
        if let Done::Revive | Done::Drop = call {
            self.told.refused += u64::from(found.is_none());
            if matches!(call, Done::Revive) && found != Some(Found::Nothing) {
                // What is pending now is no longer what it was put as.
                self.last.insert(name.clone(), None);
            }
            return;
        }
        let before = self.last.insert(name.clone(), found.map(|_| call));
        let Some(found) = found else {
            self.told.refused += 1;
            return;
        };
        match before {
            Some(Some(Done::Put(before))) if found == Found::Nothing => {
                let timeout = &self.timeouts[before];
                let is_out = !timeout.takes.is_empty() || timeout.is_dead;
                assert!(is_out, "{name} is pending, and a caller is told that nothing is");
            }
            None | Some(Some(Done::Cancel)) => {
                assert_eq!(found, Found::Nothing, "{name} was cancelled, or never put");
            }
            _ => {}
        }
        match call {
            Done::Put(_) => self.told.replaced += u64::from(found == Found::Pending),
            _ => self.told.cancelled += u64::from(found == Found::Pending),
        }
        // Otherwise it may be on its way to a consumer, or none is pending.
        if found == Found::Pending {
            let ended = match (before.flatten(), call) {
                (Some(Done::Put(before)), _) => Some(before),
                (_, Done::Cancel) => self.newest.get(name).copied(),
                _ => None,
            };
            if let Some(ended) = ended {
                self.timeouts[ended].over.get_or_insert("cancelled or moved");
            }
        }
    }

    /// A consumer takes it.
    pub(super) fn take(&mut self, number: usize, by: (u64, u64, usize, u64), clock: u64) {
        let timeout = &mut self.timeouts[number];
        assert!(timeout.is_committed, "{} came and was not committed", timeout.name);
        assert!(
            timeout.deadline <= clock,
            "{} is early: {} at {clock}, {by:?}",
            timeout.name,
            timeout.deadline
        );
        assert_eq!(timeout.over, None, "{} came after that", timeout.name);
        assert!(!timeout.is_dead, "{} is a dead letter, and came", timeout.name);
        assert!(!timeout.takes.contains(&by), "twice in one process under one epoch");
        self.told.again += u64::from(!timeout.takes.is_empty());
        self.told.fired += 1;
        timeout.takes.push(by);
        timeout.times += 1;
        assert!(self.most.is_none_or(|most| timeout.times <= most), "it came too often");
        self.expected.remove(&number);
    }

    /// Returns the name of a dead letter that begins with this.
    pub(super) fn letter(&self, prefix: &str, after: u64) -> Option<Arc<str>> {
        let letters = self.letters.range(Arc::<str>::from(prefix)..);
        let mut letters = letters.take_while(|name| name.starts_with(prefix));
        letters.nth(after as usize).cloned()
    }

    pub(super) fn letters(&self) -> usize {
        self.letters.len()
    }

    /// Returns a name that a program has put.
    pub(super) fn any_of_sql(&self, by: usize) -> Option<Arc<str>> {
        self.of_sql.get(by % self.of_sql.len().max(1)).cloned()
    }

    pub(super) fn is_dead(&self, number: usize) -> bool {
        self.timeouts[number].is_dead
    }

    /// Returns the names of what was committed, was due by this time and has not come.
    pub(super) fn expected(&self, time: u64) -> impl Iterator<Item = &str> {
        let all = self.expected.iter().map(|number| &self.timeouts[*number]);
        all.filter(move |timeout| timeout.deadline <= time).map(|timeout| &*timeout.name)
    }

    /// The deadline by which the last of them comes.
    pub(super) fn last_deadline(&self) -> u64 {
        self.expected.iter().map(|number| self.timeouts[*number].deadline).max().unwrap_or(0)
    }
}
