//! How a partition moves from one database of a fleet to another, in a model checker: all states of
//! two movers, with callers at each database, workers, kills, moves that are abandoned, and a fleet
//! that begins meanwhile. Not all of it is in one model, because that has too many states. With
//! `TICKWHEEL_DURABLE_CALLERS=2` there are two callers in each, and several times the states.
//!
//! A mover that does nothing for a while, and one that is killed, is one whose next step comes late
//! or never; so both are in every order of the actions.
//!
//! In each state, the database that has the partition has exactly the timeouts that were committed
//! there or at one that had it before. So nothing is lost, and nothing comes after it was cancelled
//! or acked, because a worker hands out only there. How it reads is in `reading.rs`, and how workers
//! of one database follow each other in `protocol.rs`.

use models::finds;
use stateright::{Checker, Model, Property};

/// The protocol, how much of it is looked at, and the part that is left out.
#[derive(Clone, Copy)]
struct Switch {
    databases: usize,
    movers: usize,
    /// From where to where a mover is sent.
    ways: &'static [(usize, usize)],
    /// How often.
    calls: u8,
    /// Up to this number of moves one may begin.
    moves: u8,
    abandons: u8,
    callers: usize,
    names: usize,
    /// Each name is in a partition of its own.
    is_apart: bool,
    /// How often a worker takes the partition; with none there are no workers.
    takes: u8,
    /// Whether the fleet begins in the middle of it.
    joins: bool,
    without: Option<Part>,
}

/// What can be left out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Triggers note the names that change while the partition moves.
    Notes,
    /// A note tells the partition, and so does what is removed at the new database.
    PartitionOfNote,
    /// A note tells the move.
    MoveOfNote,
    /// The move takes place when all notes were taken.
    AllNotes,
    /// It takes place when the partition has no owner.
    NoOwner,
    /// That is asked when nobody can take it or renew a lease any more.
    OwnerAfterLock,
    /// It takes place while no caller is in the middle of a change.
    LockOut,
    /// A caller looks where the partition is after the change.
    CheckAfter,
    /// And before the search.
    CheckBefore,
    /// A caller looks at all.
    Check,
    /// The old database commits before the new one has it.
    OldFirst,
    /// What is left of an earlier move is removed.
    Clear,
    /// What is copied is put only while the partition comes.
    WhileItComes,
    /// And only by the mover that came last.
    Claim,
    /// A mover comes before it reads anything.
    ClaimFirst,
    /// What was copied is removed only where the partition is gone.
    GoneOnly,
    /// It takes place only in the move that the mover carries.
    SameMove,
    /// A mover forgets what was expected by an earlier move.
    Forget,
    /// And no newer one.
    ForgetOlder,
    /// A mover expects only a newer move.
    ExpectNewer,
    /// The move ends an epoch.
    Epoch,
    /// One that joins lets nobody take its partitions between the look for workers and the end.
    JoinLock,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    databases: [Database; DATABASES],
    movers: [Mover; MOVERS],
    callers: [Caller; CALLERS],
    /// The timeout of each name, as those were told who changed it.
    committed: [Option<u8>; NAMES],
    /// Timeouts that were put.
    put: u8,
    calls: u8,
    abandoned: u8,
    taken: u8,
    /// The new database had no worker when the fleet was looked at, and has not joined yet.
    has_looked: bool,
    /// A caller was told that there is none, and there was one all the time.
    denied: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Database {
    is_in_fleet: bool,
    homes: [Home; PARTITIONS],
    /// The timeouts, and the names that are noted; by name.
    rows: [Option<u8>; NAMES],
    notes: [bool; NAMES],
    /// Of which partition and move the notes are.
    noting: (usize, u8),
    worker: Worker,
}

/// Where a partition is, as a database knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Home {
    state: HomeState,
    other: usize,
    moves: u8,
    epoch: u8,
    yields: bool,
    is_owned: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum HomeState {
    #[default]
    Here,
    Moving,
    Gone,
    Coming,
}

/// The workers of a database, as one: a second is one that takes over from the first. It owns the
/// first partition, or would.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Worker {
    /// Whether it has a lease by the clock of the database.
    is_leased: bool,
    /// The epoch under which it hands out. That is over before the lease is.
    epoch: Option<u8>,
    /// What its consumer holds, and since which epoch.
    held: Option<(u8, u8)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Mover {
    step: Step,
    way: Way,
    /// As the old database counts.
    moves: u8,
    /// The epoch at the new database by which it is known there.
    token: u8,
    /// Its transaction at the old database.
    transaction: Transaction,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Way {
    partition: usize,
    from: usize,
    to: usize,
}

/// What a mover does next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Step {
    #[default]
    Idle,
    ReadOld,
    ReadNew(Home),
    Begin,
    Clear,
    Expect,
    Forget,
    Claim,
    /// Reads the row of this name.
    Read(usize),
    Stage(usize, u8),
    Yield,
    Take,
    StageTaken(Taken),
    CommitTaken,
    /// With what it knows of the owner, if that was asked too early.
    Lock(Option<bool>),
    StageLast(Taken),
    Go,
    Arrive(u8),
    Remove,
}

/// The rows of the notes that were taken; by name.
type Taken = [Option<Option<u8>>; NAMES];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Transaction {
    #[default]
    None,
    Open {
        noted: [bool; NAMES],
    },
    /// The server has ended it, and the mover does not know.
    Over,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Caller {
    #[default]
    New,
    Open(Change),
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Change {
    database: usize,
    name: usize,
    is_put: bool,
    phase: Phase,
    /// Keeps the partition here until the transaction ends.
    keeps: bool,
    /// A trigger has noted it.
    is_noted: bool,
    /// At some time since it began there was none of this name.
    was_absent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Phase {
    /// Has looked where the partition is.
    Checked,
    /// Has read this, and has not looked.
    Seen(Option<u8>),
    Changed,
    /// Commits next.
    Ready,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    /// The first database becomes one of a fleet, or the second joins it.
    Join(usize),
    Call(Way),
    Go(usize),
    /// As `Go`, but a mover takes the notes of this name only, because they are many.
    GoWith(usize, usize),
    Kill(usize),
    /// The server ends the transaction of a mover that does nothing.
    TimeOut(usize),
    Abandon(usize, usize),
    Lapse(usize, usize),
    Put(usize, usize),
    Cancel(usize, usize),
    GoOn(usize),
    Renew(usize),
    TakeOver(usize),
    Stop(usize),
    RunOut(usize),
    GiveBack(usize),
    HandOut(usize),
    Ack(usize),
}

impl HomeState {
    fn is_here(self) -> bool {
        matches!(self, Self::Here | Self::Moving)
    }
}

impl Mover {
    /// Whether nobody may change or take this partition of this database, because it moves now.
    fn locks(&self, database: usize, partition: usize) -> bool {
        let is_open = matches!(self.transaction, Transaction::Open { .. });
        let is_last = matches!(self.step, Step::StageLast(_) | Step::Go);
        is_open && is_last && (self.way.from, self.way.partition) == (database, partition)
    }

    /// Whether it has taken notes of this database that may come back.
    fn has_notes_of(&self, database: usize) -> bool {
        let Transaction::Open { noted } = self.transaction else { return false };
        self.way.from == database && noted.contains(&true)
    }
}

impl Caller {
    /// Whether it has changed this row, and has not committed that.
    fn has_changed(&self, database: usize, name: usize) -> bool {
        let Self::Open(change) = self else { return false };
        let is_changed = matches!(change.phase, Phase::Changed | Phase::Ready);
        is_changed && (change.database, change.name) == (database, name)
    }
}

impl State {
    fn is_locked(&self, database: usize, partition: usize) -> bool {
        self.movers.iter().any(|mover| mover.locks(database, partition))
    }

    fn is_changing(&self, database: usize, name: usize) -> bool {
        self.callers.iter().any(|caller| caller.has_changed(database, name))
    }

    /// Whether somebody has changed any row of it and has not committed that.
    fn has_writers(&self, database: usize) -> bool {
        (0..NAMES).any(|name| self.is_changing(database, name))
    }

    /// Says what a commit made of a name.
    fn commit(&mut self, name: usize, timeout: Option<u8>) {
        self.committed[name] = timeout;
        for caller in &mut self.callers {
            if let Caller::Open(change) = caller {
                change.was_absent |= change.name == name && timeout.is_none();
            }
        }
    }

    /// Returns the notes that a transaction had taken.
    fn roll_back(&mut self, mover: usize) {
        let Mover { way, transaction, .. } = self.movers[mover];
        if let Transaction::Open { noted } = transaction {
            for (note, noted) in self.databases[way.from].notes.iter_mut().zip(noted) {
                *note |= noted;
            }
        }
        self.movers[mover].transaction = Transaction::None;
    }

    /// Ends the call of a mover.
    fn refuse(&mut self, mover: usize) {
        self.roll_back(mover);
        self.movers[mover] = Mover::default();
    }

    /// Returns the database that has the partition, or to which it is on its way.
    fn home(&self, partition: usize) -> Option<usize> {
        let home = |at: usize| self.databases[at].homes[partition];
        let is_alone = |at: usize| 0 < at && !self.databases[at].is_in_fleet;
        let mut homes = (0..DATABASES).filter(|at| home(*at).state.is_here() && !is_alone(*at));
        if let Some(here) = homes.next() {
            return homes.next().is_none().then_some(here);
        }
        (0..DATABASES).find(|at| {
            let (new, old) = (home(*at), home(home(*at).other));
            let comes = new.state == HomeState::Coming && old.state == HomeState::Gone;
            comes && old.other == *at && new.moves + 1 == old.moves
        })
    }
}

impl Switch {
    fn has(&self, part: Part) -> bool {
        self.without != Some(part)
    }

    fn partition(&self, name: usize) -> usize {
        if self.is_apart { name } else { 0 }
    }

    fn names(&self, partition: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.names).filter(move |name| self.partition(*name) == partition)
    }

    /// Whether a change of this name at this database is noted now.
    fn notes(&self, state: &State, database: usize, name: usize) -> bool {
        let home = state.databases[database].homes[self.partition(name)];
        self.has(Part::Notes) && home.state == HomeState::Moving
    }

    /// Looks where the partition of a change is, and keeps it there. `None`: it waits. `Some(false)`:
    /// another database has it.
    fn check(&self, state: &State, change: &mut Change) -> Option<bool> {
        let partition = self.partition(change.name);
        let database = &state.databases[change.database];
        if !database.is_in_fleet {
            return Some(true);
        }
        let is_out = self.has(Part::LockOut) && state.is_locked(change.database, partition);
        if is_out && !change.keeps {
            return None;
        }
        change.keeps = true;
        Some(database.homes[partition].state.is_here())
    }

    /// Begins a change: a put makes it at once, and a cancel searches.
    fn ask(&self, state: &mut State, database: usize, name: usize, is_put: bool) -> Option<()> {
        let caller = state.callers.iter().position(|caller| *caller == Caller::New)?;
        let mut change = Change {
            database,
            name,
            is_put,
            phase: Phase::Checked,
            keeps: false,
            is_noted: false,
            was_absent: state.committed[name].is_none(),
        };
        if is_put && self.has(Part::CheckAfter) {
            self.change(state, &mut change)?;
        } else if !is_put && !self.has(Part::CheckBefore) {
            change.phase = Phase::Seen(state.databases[database].rows[name]);
        } else if self.has(Part::Check) && !self.check(state, &mut change)? {
            state.callers[caller] = Caller::Done;
            return Some(());
        }
        state.callers[caller] = Caller::Open(change);
        Some(())
    }

    fn change(&self, state: &State, change: &mut Change) -> Option<()> {
        let is_there = state.databases[change.database].rows[change.name].is_some();
        let waits = state.is_changing(change.database, change.name);
        if waits && (is_there || change.is_put) {
            return None;
        }
        change.phase = Phase::Changed;
        change.is_noted = self.notes(state, change.database, change.name);
        Some(())
    }

    fn go_on(&self, state: &mut State, caller: usize) -> Option<()> {
        let Caller::Open(mut change) = state.callers[caller] else { return None };
        let Change { database, name, is_put, .. } = change;
        let row = state.databases[database].rows[name];
        let checks = self.has(Part::Check) && self.has(Part::CheckAfter);
        let phase = change.phase;
        match phase {
            Phase::Checked | Phase::Seen(_) => {
                self.change(state, &mut change)?;
                if checks && !self.check(state, &mut change)? {
                    state.callers[caller] = Caller::Done;
                    return Some(());
                }
                let is_found = match phase {
                    _ if is_put => true,
                    Phase::Seen(seen) => seen.is_some() && seen == row,
                    _ => row.is_some(),
                };
                if !is_found {
                    state.denied |= !change.was_absent;
                    state.callers[caller] = Caller::Done;
                    return Some(());
                }
                change.phase = Phase::Ready;
                state.callers[caller] = Caller::Open(change);
            }
            Phase::Changed => {
                let is_here = self.check(state, &mut change)?;
                change.phase = Phase::Ready;
                state.callers[caller] = if is_here { Caller::Open(change) } else { Caller::Done };
            }
            Phase::Ready => {
                state.put += u8::from(is_put);
                let timeout = is_put.then_some(state.put);
                state.databases[database].rows[name] = timeout;
                state.databases[database].notes[name] |= change.is_noted;
                state.callers[caller] = Caller::Done;
                state.commit(name, timeout);
            }
        }
        Some(())
    }

    /// Makes the next step of a mover. `None`: it waits.
    fn step(&self, state: &mut State, at: usize, only: Option<usize>) -> Option<()> {
        let Mover { step, way, moves, token, transaction } = state.movers[at];
        let Way { partition, from, to } = way;
        let (old, new) =
            (state.databases[from].homes[partition], state.databases[to].homes[partition]);
        let comes = new.state == HomeState::Coming && (new.other, new.moves) == (from, moves);
        let is_mine = comes && (new.epoch == token || !self.has(Part::Claim));
        let may_stage = is_mine || !self.has(Part::WhileItComes);
        let next_name = |name: usize| {
            let next = self.names(partition).find(|next| name <= *next);
            next.map_or(Step::Yield, Step::Read)
        };
        let notes_are_taken =
            (0..MOVERS).any(|other| other != at && state.movers[other].has_notes_of(from));
        let next = match step {
            Step::Idle => return None,
            Step::ReadOld => {
                let mut homes = state.databases[from].homes.iter();
                if old.state == HomeState::Here && homes.any(|home| home.state == HomeState::Moving)
                {
                    state.refuse(at);
                    return Some(());
                }
                let epoch = if old.state == HomeState::Gone { old.epoch } else { 0 };
                Step::ReadNew(Home { epoch, yields: false, is_owned: false, ..old })
            }
            Step::ReadNew(old) => {
                let is_ours = old.other == to;
                state.movers[at].moves = old.moves;
                match (old.state, new.state) {
                    (HomeState::Gone, HomeState::Coming) if is_ours => Step::Arrive(old.epoch),
                    (HomeState::Gone, _) => Step::Remove,
                    (HomeState::Coming, _) | (_, HomeState::Here | HomeState::Moving) => {
                        state.refuse(at);
                        return Some(());
                    }
                    (HomeState::Here, _) => Step::Begin,
                    (HomeState::Moving, _) if !is_ours => {
                        state.refuse(at);
                        return Some(());
                    }
                    (HomeState::Moving, HomeState::Gone) => Step::Clear,
                    (HomeState::Moving, HomeState::Coming) => {
                        let is_expected = (new.other, new.moves) == (from, old.moves);
                        match is_expected {
                            true => Step::Claim,
                            false if self.has(Part::Forget) => Step::Forget,
                            false => Step::ReadOld,
                        }
                    }
                }
            }
            Step::Begin => {
                if state.has_writers(from) {
                    return None;
                }
                let database = &mut state.databases[from];
                let is_moving = database.homes.iter().any(|home| home.state == HomeState::Moving);
                let is_same = old.state == HomeState::Here && old.moves == moves;
                if is_same && !is_moving && database.is_in_fleet {
                    if self.moves <= moves {
                        return None;
                    }
                    let home = &mut database.homes[partition];
                    (home.state, home.other) = (HomeState::Moving, to);
                    home.moves += 1;
                    database.notes = [false; NAMES];
                    database.noting = (partition, home.moves);
                    // What others have taken is of earlier moves, and does not come back as a note
                    // of this one.
                    for other in state.movers.iter_mut().filter(|it| it.has_notes_of(from)) {
                        other.transaction = Transaction::Open { noted: [false; NAMES] };
                    }
                }
                Step::ReadOld
            }
            Step::Clear => {
                let is_gone = new.state == HomeState::Gone && self.has(Part::Clear);
                self.remove(state, to, partition, is_gone)?;
                Step::Expect
            }
            Step::Expect => {
                let database = &mut state.databases[to];
                let is_empty = self.names(partition).all(|name| database.rows[name].is_none());
                let is_newer = new.moves < moves || !self.has(Part::ExpectNewer);
                if new.state == HomeState::Gone && is_newer && (is_empty || !self.has(Part::Clear))
                {
                    let home = &mut database.homes[partition];
                    (home.state, home.other, home.moves) = (HomeState::Coming, from, moves);
                    home.is_owned = false;
                }
                Step::ReadOld
            }
            Step::Forget => {
                let is_older = new.moves < moves;
                let is_other = new.moves != moves && !self.has(Part::ForgetOlder);
                if new.state == HomeState::Coming && (is_older || is_other) {
                    let home = &mut state.databases[to].homes[partition];
                    (home.state, home.other) = (HomeState::Gone, from);
                }
                Step::ReadOld
            }
            Step::Claim if !comes => Step::ReadOld,
            Step::Claim => {
                if self.has(Part::Claim) && self.has(Part::ClaimFirst) {
                    state.databases[to].homes[partition].epoch += 1;
                    state.movers[at].token = new.epoch + 1;
                }
                next_name(0)
            }
            Step::Read(name) => match state.databases[from].rows[name] {
                Some(timeout) => Step::Stage(name, timeout),
                None => next_name(name + 1),
            },
            Step::Stage(name, timeout) => {
                if comes && !self.has(Part::ClaimFirst) {
                    state.databases[to].homes[partition].epoch += 1;
                    state.movers[at].token = new.epoch + 1;
                } else if !may_stage {
                    state.refuse(at);
                    return Some(());
                }
                let mut rows = [None; NAMES];
                rows[name] = Some(Some(timeout));
                self.stage(state, to, rows)?;
                next_name(name + 1)
            }
            Step::Yield => {
                if old.state == HomeState::Moving && (old.other, old.moves) == (to, moves) {
                    state.databases[from].homes[partition].yields = true;
                }
                Step::Take
            }
            Step::Take => {
                if notes_are_taken {
                    return None;
                }
                let taken = self.take(state, at, only)?;
                if taken == [None; NAMES] { Step::Lock(None) } else { Step::StageTaken(taken) }
            }
            Step::StageTaken(_) | Step::StageLast(_) if !may_stage => {
                state.refuse(at);
                return Some(());
            }
            Step::StageTaken(taken) => {
                self.stage(state, to, taken)?;
                Step::CommitTaken
            }
            Step::CommitTaken => {
                if transaction == Transaction::Over {
                    state.refuse(at);
                    return Some(());
                }
                state.movers[at].transaction = Transaction::None;
                Step::Take
            }
            Step::Lock(known) => {
                let is_same = old.moves == moves || !self.has(Part::SameMove);
                if old.state != HomeState::Moving || old.other != to || !is_same {
                    state.refuse(at);
                    return Some(());
                }
                let has_owner = old.is_owned && state.databases[from].worker.is_leased;
                if !self.has(Part::OwnerAfterLock) && known.is_none() {
                    state.movers[at].step = Step::Lock(Some(has_owner));
                    return Some(());
                }
                let keeps = |caller: &Caller| match caller {
                    Caller::Open(change) => {
                        let place = (change.database, self.partition(change.name));
                        change.keeps && place == (from, partition)
                    }
                    Caller::New | Caller::Done => false,
                };
                let is_kept = self.has(Part::LockOut) && state.callers.iter().any(keeps);
                if is_kept || notes_are_taken || state.is_locked(from, partition) {
                    return None;
                }
                if known.unwrap_or(has_owner) && self.has(Part::NoOwner) {
                    Step::Yield
                } else {
                    let taken = self.take(state, at, only)?;
                    if state.movers[at].transaction == Transaction::None {
                        state.movers[at].transaction = Transaction::Open { noted: [false; NAMES] };
                    }
                    Step::StageLast(taken)
                }
            }
            Step::StageLast(taken) => {
                self.stage(state, to, taken)?;
                if !self.has(Part::OldFirst) {
                    let home = &mut state.databases[to].homes[partition];
                    (home.state, home.moves) = (HomeState::Here, moves + 1);
                }
                Step::Go
            }
            Step::Go => {
                if transaction == Transaction::Over {
                    state.refuse(at);
                    return Some(());
                }
                let home = &mut state.databases[from].homes[partition];
                home.state = HomeState::Gone;
                home.moves += 1;
                home.epoch += u8::from(self.has(Part::Epoch));
                (home.yields, home.is_owned) = (false, false);
                state.movers[at].transaction = Transaction::None;
                Step::ReadOld
            }
            Step::Arrive(epoch) => {
                let is_it =
                    new.state == HomeState::Coming && new.other == from && new.moves + 1 == moves;
                if is_it {
                    let home = &mut state.databases[to].homes[partition];
                    (home.state, home.other, home.moves) = (HomeState::Here, 0, moves);
                    home.epoch = home.epoch.max(epoch) + 1;
                    home.is_owned = false;
                }
                Step::ReadOld
            }
            Step::Remove => {
                let is_gone = old.state == HomeState::Gone || !self.has(Part::GoneOnly);
                self.remove(state, from, partition, is_gone)?;
                state.movers[at] = Mover::default();
                return Some(());
            }
        };
        let mover = &mut state.movers[at];
        mover.step = next;
        if matches!(next, Step::ReadOld) {
            (mover.moves, mover.token) = (0, 0);
        }
        Some(())
    }

    /// Takes notes, all or of this name only, and reads what they are about.
    fn take(&self, state: &mut State, at: usize, only: Option<usize>) -> Option<Taken> {
        let Mover { step, way, moves, .. } = state.movers[at];
        let database = &mut state.databases[way.from];
        let (partition, noted_move) = database.noting;
        let is_of_partition = partition == way.partition || !self.has(Part::PartitionOfNote);
        let is_of_move = noted_move == moves || !self.has(Part::MoveOfNote);
        let mut noted = [false; NAMES];
        let mut taken = [None; NAMES];
        for name in 0..NAMES {
            let is_taken = only.is_none_or(|only| only == name);
            if database.notes[name] && is_taken && is_of_partition && is_of_move {
                database.notes[name] = false;
                noted[name] = true;
                let is_mine = self.partition(name) == way.partition;
                taken[name] = Some(database.rows[name].filter(|_| is_mine));
            }
        }
        let are_left = database.notes.contains(&true) && is_of_partition && is_of_move;
        let is_last = matches!(step, Step::Lock(_));
        if only.is_some() && !(are_left && noted.contains(&true)) {
            return None;
        }
        if is_last && are_left && self.has(Part::AllNotes) {
            return None;
        }
        if noted.contains(&true) {
            state.movers[at].transaction = Transaction::Open { noted };
        }
        Some(taken)
    }

    /// Puts and removes rows of a partition that comes. `None`: it waits for a caller.
    fn stage(&self, state: &mut State, to: usize, rows: Taken) -> Option<()> {
        for (name, row) in rows.into_iter().enumerate() {
            let Some(row) = row else { continue };
            let is_there = state.databases[to].rows[name].is_some();
            if (is_there || row.is_some()) && state.is_changing(to, name) {
                return None;
            }
            state.databases[to].rows[name] = row;
        }
        Some(())
    }

    /// Removes all rows of a partition, if this is so.
    fn remove(&self, state: &mut State, at: usize, partition: usize, is_so: bool) -> Option<()> {
        for name in self.names(partition).filter(|_| is_so) {
            if state.databases[at].rows[name].is_some() && state.is_changing(at, name) {
                return None;
            }
            state.databases[at].rows[name] = None;
        }
        Some(())
    }

    /// What a worker does, and what becomes of its lease.
    fn work(&self, state: &mut State, at: usize, action: Action) -> Option<()> {
        let is_locked = state.is_locked(at, 0);
        let is_changing = state.is_changing(at, 0);
        let is_noted = self.notes(state, at, 0);
        let Database { homes: [home, ..], rows: [row, ..], worker, notes, .. } =
            &mut state.databases[at];
        match action {
            Action::Renew(_) => {
                if !home.is_owned {
                    return None;
                }
                worker.is_leased = true;
                worker.epoch = (!is_locked).then_some(home.epoch);
            }
            Action::TakeOver(_) => {
                let is_free = !home.is_owned || !worker.is_leased;
                if is_locked || !home.state.is_here() || home.yields || !is_free {
                    return None;
                }
                state.taken += 1;
                home.is_owned = true;
                home.epoch += 1;
                worker.is_leased = true;
                worker.epoch = Some(home.epoch);
            }
            Action::Stop(_) => {
                worker.epoch.take()?;
            }
            Action::RunOut(_) => {
                if worker.epoch.is_some() || !worker.is_leased {
                    return None;
                }
                worker.is_leased = false;
            }
            Action::GiveBack(_) => {
                if is_locked || worker.held.is_some() || worker.epoch != Some(home.epoch) {
                    return None;
                }
                (worker.epoch, worker.is_leased) = (None, false);
                home.is_owned = false;
            }
            Action::HandOut(_) => {
                if worker.held.is_some() {
                    return None;
                }
                worker.held = Some(((*row)?, worker.epoch?));
            }
            Action::Ack(_) => {
                if is_locked || is_changing {
                    return None;
                }
                let (timeout, epoch) = worker.held.take()?;
                if epoch == home.epoch && *row == Some(timeout) {
                    *row = None;
                    notes[0] |= is_noted;
                    state.commit(0, None);
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn join(&self, state: &mut State, at: usize) -> Option<()> {
        if state.databases[at].is_in_fleet || state.has_writers(at) {
            return None;
        }
        if at == 0 {
            state.databases[0].is_in_fleet = true;
            return Some(());
        }
        let has_worker = state.databases[at].worker.is_leased;
        if !state.databases[0].is_in_fleet || has_worker && !state.has_looked {
            return None;
        }
        if !self.has(Part::JoinLock) && !state.has_looked {
            state.has_looked = true;
            return Some(());
        }
        state.has_looked = false;
        state.databases[at].is_in_fleet = true;
        for home in &mut state.databases[at].homes {
            (home.state, home.is_owned) = (HomeState::Gone, false);
        }
        Some(())
    }

    /// Whether one mover that is left alone can bring the first partition to another database, when
    /// all that is open has ended.
    fn can_move(&self, state: &State) -> bool {
        let alone = Self { moves: u8::MAX, ..*self };
        let mut state = state.clone();
        for mover in 0..MOVERS {
            state.refuse(mover);
        }
        state.callers = [Caller::Done; CALLERS];
        for database in &mut state.databases {
            database.worker.is_leased = false;
        }
        for at in 0..2 {
            alone.join(&mut state, at);
        }
        let Some(home) = state.home(0) else { return false };
        let here = state.databases[home].homes[0];
        let way = match here.state {
            HomeState::Here => (home, (home + 1) % self.databases),
            HomeState::Moving => (home, here.other),
            HomeState::Gone | HomeState::Coming => (here.other, home),
        };
        let way = Way { partition: 0, from: way.0, to: way.1 };
        if self.is_apart {
            // Of two partitions one moves at a time.
            state.databases[way.from].homes[1].state = HomeState::Here;
        }
        state.movers[0] = Mover { step: Step::ReadOld, way, ..Mover::default() };
        for _ in 0..STEPS {
            if alone.step(&mut state, 0, None).is_none() {
                break;
            }
        }
        state.databases[way.to].homes[0].state == HomeState::Here
            && self.names(0).all(|name| state.databases[way.from].rows[name].is_none())
    }
}

impl Model for Switch {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State { put: 1, ..State::default() };
        for name in 0..self.names {
            state.databases[0].rows[name] = Some(1);
            state.committed[name] = Some(1);
        }
        for (at, database) in state.databases.iter_mut().enumerate() {
            database.is_in_fleet = !self.joins || 1 < at;
            if 0 < at && database.is_in_fleet {
                database.homes = [Home { state: HomeState::Gone, ..Home::default() }; PARTITIONS];
            }
        }
        for caller in self.callers..CALLERS {
            state.callers[caller] = Caller::Done;
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let idle = (0..self.movers).find(|at| state.movers[*at].step == Step::Idle);
        let may_call = state.calls < self.calls;
        let partitions = if self.is_apart { 2 } else { 1 };
        for (at, mover) in state.movers.iter().enumerate() {
            if mover.step != Step::Idle {
                actions.push(Action::Go(at));
                if 1 < self.names && matches!(mover.step, Step::Take | Step::Lock(_)) {
                    actions.extend((0..self.names).map(|name| Action::GoWith(at, name)));
                }
                // Else it is as good as dead if it does nothing.
                if may_call && idle.is_none() {
                    actions.push(Action::Kill(at));
                }
                if matches!(mover.transaction, Transaction::Open { .. }) {
                    actions.push(Action::TimeOut(at));
                }
            }
        }
        if may_call && idle.is_some() {
            for &(from, to) in self.ways {
                let way = |partition| Action::Call(Way { partition, from, to });
                actions.extend((0..partitions).map(way));
            }
        }
        for at in 0..self.databases {
            for partition in 0..partitions {
                let home = state.databases[at].homes[partition];
                if state.abandoned < self.abandons && home.state == HomeState::Moving {
                    actions.push(Action::Abandon(at, partition));
                }
                if home.yields {
                    actions.push(Action::Lapse(at, partition));
                }
            }
            for name in 0..self.names {
                actions.extend([Action::Put(at, name), Action::Cancel(at, name)]);
            }
            if 0 < self.takes {
                actions.extend([Action::Renew(at), Action::Stop(at), Action::RunOut(at)]);
                actions.extend([Action::GiveBack(at), Action::HandOut(at), Action::Ack(at)]);
            }
            if state.taken < self.takes {
                actions.push(Action::TakeOver(at));
            }
        }
        actions.extend((0..self.callers).map(Action::GoOn));
        actions.extend((0..2).map(Action::Join));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Join(at) => self.join(&mut state, at)?,
            Action::Call(way) => {
                let idle = state.movers.iter_mut().find(|mover| mover.step == Step::Idle)?;
                *idle = Mover { step: Step::ReadOld, way, ..Mover::default() };
                state.calls += 1;
            }
            Action::Go(at) => self.step(&mut state, at, None)?,
            Action::GoWith(at, name) => self.step(&mut state, at, Some(name))?,
            Action::Kill(at) => state.refuse(at),
            Action::TimeOut(at) => {
                state.roll_back(at);
                state.movers[at].transaction = Transaction::Over;
            }
            Action::Abandon(at, partition) => {
                if state.is_locked(at, partition) {
                    return None;
                }
                let home = &mut state.databases[at].homes[partition];
                (home.state, home.other, home.yields) = (HomeState::Here, 0, false);
                state.abandoned += 1;
            }
            Action::Lapse(at, partition) => state.databases[at].homes[partition].yields = false,
            Action::Put(at, name) | Action::Cancel(at, name) => {
                // A caller knows only those that are of the fleet.
                if 0 < at && !state.databases[at].is_in_fleet {
                    return None;
                }
                self.ask(&mut state, at, name, matches!(action, Action::Put(..)))?;
            }
            Action::GoOn(caller) => self.go_on(&mut state, caller)?,
            Action::Renew(at)
            | Action::TakeOver(at)
            | Action::Stop(at)
            | Action::RunOut(at)
            | Action::GiveBack(at)
            | Action::HandOut(at)
            | Action::Ack(at) => self.work(&mut state, at, action)?,
        }
        // Which is which does not matter.
        state.movers[..self.movers].sort_unstable_by(|a, b| b.cmp(a));
        state.callers[..self.callers].sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one home", |protocol: &Self, state: &State| {
                let mut partitions = 0..if protocol.is_apart { 2 } else { 1 };
                partitions.all(|partition| state.home(partition).is_some())
            }),
            Property::always(
                "the home has what was committed",
                |protocol: &Self, state: &State| {
                    (0..protocol.names).all(|name| {
                        let home = state.home(protocol.partition(name));
                        let has = |home: usize| state.databases[home].rows[name];
                        home.is_none_or(|home| has(home) == state.committed[name])
                    })
                },
            ),
            Property::always("an owner only at the home", |_, state: &State| {
                state.databases.iter().all(|database| {
                    let is_here = database.homes[0].state.is_here() || !database.is_in_fleet;
                    is_here || database.worker.epoch.is_none()
                })
            }),
            Property::always("none is denied", |_, state: &State| !state.denied),
            Property::always("the move can be ended", |protocol: &Self, state: &State| {
                protocol.can_move(state)
            }),
            Property::sometimes("moved", |_, state: &State| {
                state.databases[1].homes[0].state == HomeState::Here
                    && state.databases[1].is_in_fleet
                    && state.movers.iter().all(|mover| mover.step == Step::Idle)
            }),
            Property::sometimes("moved on", |protocol: &Self, state: &State| {
                protocol.moves < 3
                    || state.home(0) != Some(1) && state.databases[1].homes[0].moves == 4
            }),
            Property::sometimes("changed and moved", |protocol: &Self, state: &State| {
                protocol.callers == 0
                    || state.home(0) == Some(1) && state.databases[0].homes[0].moves == 2 && {
                        let took = |caller: &Caller| *caller == Caller::Done;
                        state.callers.iter().all(took) && state.committed[0] != Some(1)
                    }
            }),
            Property::sometimes("acked late", |protocol: &Self, state: &State| {
                protocol.takes == 0 || {
                    let is_gone = state.databases[0].homes[0].state == HomeState::Gone;
                    is_gone && state.databases[0].worker.held.is_some()
                }
            }),
        ]
    }
}

#[test]
fn all_states_have_one_home_and_there_what_was_committed() {
    let callers = std::env::var("TICKWHEEL_DURABLE_CALLERS").map_or(1, |n| n.parse().unwrap());
    for protocol in [TWO, THREE, WORKERS, NAMED, APART] {
        let callers = protocol.callers.max(callers).min(CALLERS);
        let checker = Switch { callers, ..protocol }.checker().threads(2).spawn_bfs().join();
        checker.assert_properties();
        println!(
            "{} states, {} of them different",
            checker.state_count(),
            checker.unique_state_count()
        );
    }
}

#[test]
fn with_no_notes_of_what_changes_a_lost_change_is_found() {
    assert!(finds(Switch { without: Some(Part::Notes), ..TWO }, WRONG));
}

#[test]
fn with_the_notes_of_another_partition_taken_a_lost_change_is_found() {
    assert!(finds(Switch { without: Some(Part::PartitionOfNote), ..APART }, WRONG));
}

#[test]
fn with_the_notes_of_a_later_move_taken_a_lost_change_is_found() {
    assert!(finds(Switch { without: Some(Part::MoveOfNote), ..THREE }, WRONG));
}

#[test]
fn with_notes_left_at_the_switch_a_lost_change_is_found() {
    assert!(finds(Switch { without: Some(Part::AllNotes), ..NAMED }, WRONG));
}

#[test]
fn with_an_owner_at_the_switch_two_owners_are_found() {
    assert!(finds(Switch { without: Some(Part::NoOwner), ..WORKERS }, OWNERS));
}

#[test]
fn with_the_owner_asked_for_before_the_lock_two_owners_are_found() {
    assert!(finds(Switch { without: Some(Part::OwnerAfterLock), ..WORKERS }, OWNERS));
}

#[test]
fn with_the_epoch_as_it_was_at_the_switch_a_late_ack_is_found() {
    assert!(finds(Switch { without: Some(Part::Epoch), ..WORKERS }, WRONG));
}

#[test]
fn with_callers_in_the_middle_of_a_change_at_the_switch_a_lost_change_is_found() {
    assert!(finds(Switch { without: Some(Part::LockOut), ..TWO }, WRONG));
}

#[test]
fn with_a_look_before_the_change_and_none_after_it_a_lost_change_is_found() {
    assert!(finds(Switch { without: Some(Part::CheckAfter), ..WORKERS }, WRONG));
}

#[test]
fn with_a_search_before_the_look_a_timeout_that_is_denied_is_found() {
    assert!(finds(Switch { without: Some(Part::CheckBefore), ..TWO }, "none is denied"));
}

#[test]
fn with_a_program_that_never_looks_a_lost_change_is_found() {
    assert!(finds(Switch { without: Some(Part::Check), ..TWO }, WRONG));
}

#[test]
fn with_the_partition_here_before_the_old_database_commits_two_homes_are_found() {
    assert!(finds(Switch { without: Some(Part::OldFirst), ..TWO }, HOMES));
}

#[test]
fn with_what_is_left_of_an_earlier_move_a_cancelled_timeout_is_found() {
    assert!(finds(Switch { without: Some(Part::Clear), ..TWO }, WRONG));
}

#[test]
fn with_copies_put_at_any_time_a_lost_change_is_found() {
    assert!(finds(Switch { without: Some(Part::WhileItComes), ..TWO }, WRONG));
}

#[test]
fn with_copies_of_an_earlier_mover_a_cancelled_timeout_is_found() {
    assert!(finds(Switch { without: Some(Part::Claim), ..TWO }, WRONG));
}

#[test]
fn with_a_mover_that_reads_before_it_comes_a_cancelled_timeout_is_found() {
    assert!(finds(Switch { without: Some(Part::ClaimFirst), ..TWO }, WRONG));
}

#[test]
fn with_copies_removed_without_a_look_a_lost_timeout_is_found() {
    assert!(finds(Switch { without: Some(Part::GoneOnly), ..TWO }, WRONG));
}

#[test]
fn with_the_switch_of_another_move_a_partition_without_a_home_is_found() {
    assert!(finds(Switch { without: Some(Part::SameMove), ..TWO }, HOMES));
}

#[test]
fn with_an_earlier_move_expected_for_ever_one_that_cannot_be_ended_is_found() {
    let without = Switch { without: Some(Part::Forget), ..TWO };
    assert!(finds(without, "the move can be ended"));
}

#[test]
fn with_a_newer_move_forgotten_a_partition_without_a_home_is_found() {
    assert!(finds(Switch { without: Some(Part::ForgetOlder), abandons: 2, ..TWO }, HOMES));
}

#[test]
fn with_an_older_move_expected_two_homes_are_found() {
    assert!(finds(Switch { without: Some(Part::ExpectNewer), ..THREE }, HOMES));
}

#[test]
fn with_partitions_taken_while_a_database_joins_an_owner_elsewhere_is_found() {
    assert!(finds(Switch { without: Some(Part::JoinLock), ..WORKERS }, OWNERS));
}

const DATABASES: usize = 3;
const PARTITIONS: usize = 2;
const NAMES: usize = 2;
const MOVERS: usize = 2;
const CALLERS: usize = 2;

/// More than one that is alone needs.
const STEPS: usize = 100;

const HOMES: &str = "one home";
const WRONG: &str = "the home has what was committed";
const OWNERS: &str = "an owner only at the home";

/// There and back.
const TWO: Switch = Switch {
    databases: 2,
    movers: 2,
    ways: &[(0, 1), (1, 0)],
    calls: 3,
    moves: 3,
    abandons: 1,
    callers: 1,
    names: 1,
    is_apart: false,
    takes: 0,
    joins: false,
    without: None,
};

/// To a third database, directly or by the second.
const THREE: Switch = Switch { databases: 3, ways: &[(0, 1), (0, 2), (1, 2)], ..TWO };

/// With workers, and from before there is a fleet.
const WORKERS: Switch = Switch { movers: 1, calls: 2, abandons: 0, takes: 3, joins: true, ..TWO };

/// Of two names only some are copied at once.
const NAMED: Switch = Switch { movers: 1, calls: 2, moves: 2, callers: 2, names: 2, ..TWO };

/// Of two partitions.
const APART: Switch = Switch { calls: 2, moves: 1, names: 2, is_apart: true, ..TWO };
