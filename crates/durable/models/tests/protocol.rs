//! The protocol of partitions, leases, epochs and acks in a model checker: all states of 2 workers,
//! 2 partitions and 2 timeouts, with pauses, kills, late acks, lost answers and partitions that are
//! given back. With
//! `TICKWHEEL_DURABLE_TIMEOUTS=3` there is a second timeout in a partition, and ten times the
//! states.
//!
//! A pause is a worker that does nothing while the others go on, and an answer that comes late is
//! one that is read late; so both are in every order of the actions.

use models::finds;
use stateright::{Checker, Model, Property};

/// The protocol, and what can be left out of it.
#[derive(Clone, Copy)]
struct Protocol {
    /// The store refuses an ack of an epoch that is not the newest.
    fences: bool,
    /// A worker counts its lease from before it asked, and not from when it read the answer.
    counts_from_asking: bool,
    /// A worker hands out in the first half of its lease only.
    stops_early: bool,
    /// A timeout is removed when it is acked, and not when it is handed out.
    removes_at_ack: bool,
    /// A worker gives a partition back when its consumers hold nothing of it.
    waits_for_acks: bool,
    /// Whether partitions are given back, and answers are lost. Then the clock stands at the last
    /// tick sooner, because no lease has to run out for it.
    leaves: bool,
    /// It never hands out again under an epoch that it asked to give back, though no answer comes.
    keeps_to_it: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    /// The clock of the store. Those of the workers go at the same rate.
    tick: u8,
    partitions: [Partition; PARTITIONS],
    /// The timeouts that are in the store.
    pending: [bool; TIMEOUTS],
    workers: [Worker; WORKERS],
    /// Kills and lost answers.
    faults: u8,
    /// A worker began to give a partition back.
    left: bool,
    /// What a consumer was handed, at least once.
    handed_out: [bool; TIMEOUTS],
    /// A worker handed out when the partition had another owner.
    two_owners: bool,
    /// A worker handed out when no more than half of the lease was left to ack in.
    short: bool,
    /// An ack of an old epoch was accepted.
    old_ack: bool,
    /// A worker handed out what another held, whose epoch ended by giving back.
    twice: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Partition {
    owner: Option<usize>,
    epoch: u8,
    until: u8,
    /// The epochs that ended by giving back, a bit for each.
    given: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Worker {
    asked: Option<Asked>,
    /// Until when it hands out, and the epochs of the partitions it believes to own.
    until: u8,
    epochs: [Option<u8>; PARTITIONS],
    /// Under which epochs it hands out no more, to give the partitions back.
    leaving: [Option<u8>; PARTITIONS],
    /// What its consumers hold, by the epoch it was handed out under.
    held: [Option<u8>; TIMEOUTS],
}

/// A request for leases that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked {
    at: u8,
    gives: [bool; PARTITIONS],
    answer: Option<[Option<u8>; PARTITIONS]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    Ask(usize),
    /// An answer is lost, or the call never arrives.
    Lose(usize),
    Leave(usize, usize),
    Grant(usize),
    Read(usize),
    HandOut(usize, usize),
    Ack(usize, usize),
    Kill(usize),
}

/// Where a timeout is.
fn partition(timeout: usize) -> usize {
    timeout % PARTITIONS
}

impl Protocol {
    fn gives(&self, worker: &Worker, place: usize) -> bool {
        let mut held = (0..TIMEOUTS).filter(|timeout| partition(*timeout) == place);
        worker.leaving[place].is_some()
            && (!self.waits_for_acks || held.all(|timeout| worker.held[timeout].is_none()))
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let count = std::env::var("TICKWHEEL_DURABLE_TIMEOUTS").map_or(2, |n| n.parse().unwrap());
        let pending = std::array::from_fn(|timeout| timeout < count);
        vec![State { pending, handed_out: pending.map(|pending| !pending), ..State::default() }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.tick < if self.leaves { 1 } else { LAST_TICK } {
            actions.push(Action::Tick);
        }
        for (at, worker) in state.workers.iter().enumerate() {
            match &worker.asked {
                None => actions.push(Action::Ask(at)),
                Some(Asked { answer: None, .. }) => actions.push(Action::Grant(at)),
                Some(Asked { answer: Some(_), .. }) => {
                    actions.push(Action::Read(at));
                    if self.leaves && state.faults < FAULTS {
                        actions.push(Action::Lose(at));
                    }
                }
            }
            // Once is enough.
            if self.leaves && at == 0 && worker.epochs[0].is_some() && !state.left {
                actions.push(Action::Leave(at, 0));
            }
            for timeout in 0..TIMEOUTS {
                let place = partition(timeout);
                let owns =
                    worker.epochs[place].is_some() && worker.epochs[place] != worker.leaving[place];
                if worker.held[timeout].is_some() {
                    actions.push(Action::Ack(at, timeout));
                } else if owns && state.tick < worker.until && state.pending[timeout] {
                    actions.push(Action::HandOut(at, timeout));
                }
            }
            if state.faults < FAULTS {
                actions.push(Action::Kill(at));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        let tick = state.tick;
        match action {
            Action::Tick => state.tick += 1,
            Action::Ask(worker) => {
                let gives = std::array::from_fn(|place| self.gives(&state.workers[worker], place));
                state.workers[worker].asked = Some(Asked { at: tick, gives, answer: None });
            }
            Action::Lose(worker) => {
                let worker = &mut state.workers[worker];
                worker.asked = None;
                if !self.keeps_to_it {
                    worker.leaving = Default::default();
                }
                state.faults += 1;
            }
            Action::Leave(worker, place) => {
                state.left = true;
                let worker = &mut state.workers[worker];
                worker.leaving[place] = worker.epochs[place];
            }
            Action::Grant(worker) => {
                let mut granted = [None; PARTITIONS];
                let gives = state.workers[worker].asked.as_ref()?.gives;
                for ((partition, granted), gives) in
                    state.partitions.iter_mut().zip(&mut granted).zip(gives)
                {
                    if gives && partition.owner == Some(worker) {
                        partition.owner = None;
                        partition.given |= 1 << partition.epoch;
                        continue;
                    }
                    let is_free = partition.owner.is_none() || partition.until <= tick;
                    if partition.owner != Some(worker) && is_free {
                        partition.owner = Some(worker);
                        partition.epoch += 1;
                    }
                    if partition.owner == Some(worker) {
                        partition.until = tick + LEASE;
                        *granted = Some(partition.epoch);
                    }
                }
                state.workers[worker].asked.as_mut()?.answer = Some(granted);
            }
            Action::Read(worker) => {
                let worker = &mut state.workers[worker];
                let asked = worker.asked.take()?;
                let from = if self.counts_from_asking { asked.at } else { tick };
                worker.until = from + if self.stops_early { LEASE / 2 } else { LEASE };
                worker.epochs = asked.answer?;
                for (leaving, epoch) in worker.leaving.iter_mut().zip(worker.epochs) {
                    *leaving = leaving.filter(|_| *leaving == epoch);
                }
            }
            Action::HandOut(worker, timeout) => {
                let place = partition(timeout);
                let epoch = state.workers[worker].epochs[place]?;
                let given = state.partitions[place].given;
                let others = state.workers.iter().filter_map(|worker| worker.held[timeout]);
                state.twice |= others.into_iter().any(|epoch| given & 1 << epoch != 0);
                state.two_owners |= state.partitions[place].epoch != epoch;
                state.short |= state.partitions[place].until <= tick + LEASE / 2;
                state.workers[worker].held[timeout] = Some(epoch);
                if !self.removes_at_ack {
                    state.pending[timeout] = false;
                } else {
                    state.handed_out[timeout] = true;
                }
            }
            Action::Ack(worker, timeout) => {
                let epoch = state.workers[worker].held[timeout].take()?;
                state.handed_out[timeout] = true;
                let is_newest = state.partitions[partition(timeout)].epoch == epoch;
                if (is_newest || !self.fences) && state.pending[timeout] {
                    state.pending[timeout] = false;
                    state.old_ack |= !is_newest;
                }
            }
            Action::Kill(worker) => {
                state.workers[worker] = Worker::default();
                state.faults += 1;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing is lost", |_, state: &State| {
                (0..TIMEOUTS).all(|timeout| {
                    let is_held = state.workers.iter().any(|worker| worker.held[timeout].is_some());
                    state.pending[timeout] || state.handed_out[timeout] || is_held
                })
            }),
            Property::always("no ack of an old epoch", |_, state: &State| !state.old_ack),
            Property::always("nothing twice because it was given back", |_, state: &State| {
                !state.twice
            }),
            Property::always("time is left to ack", |_, state: &State| !state.short),
            Property::always("one owner", |_, state: &State| !state.two_owners),
            Property::sometimes("given back", |protocol: &Self, state: &State| {
                let Partition { given, owner, .. } = state.partitions[0];
                !protocol.leaves || given != 0 && owner == Some(1)
            }),
            Property::sometimes("all done", |_, state: &State| {
                state.pending.iter().all(|pending| !pending)
            }),
            Property::sometimes("after a fault too", |_, state: &State| {
                state.faults > 0 && state.pending.iter().all(|pending| !pending)
            }),
            Property::sometimes("by a second owner", |_, state: &State| {
                state.partitions[0].epoch > 1
            }),
        ]
    }
}

#[test]
fn all_states_lose_nothing_accept_no_old_ack_and_have_one_owner() {
    for protocol in [WHOLE, LEAVING] {
        let checker = protocol.checker().threads(2).spawn_bfs().join();
        checker.assert_properties();
        println!(
            "{} states, {} of them different",
            checker.state_count(),
            checker.unique_state_count()
        );
    }
}

#[test]
fn with_the_epoch_ignored_an_old_ack_is_found() {
    assert!(finds(Protocol { fences: false, ..WHOLE }, "no ack of an old epoch"));
}

#[test]
fn with_a_lease_that_is_counted_from_the_answer_two_owners_are_found() {
    assert!(finds(Protocol { counts_from_asking: false, ..WHOLE }, "one owner"));
}

#[test]
fn with_the_whole_lease_used_a_hand_out_with_no_time_to_ack_is_found() {
    assert!(finds(Protocol { stops_early: false, ..WHOLE }, "time is left to ack"));
}

#[test]
fn with_what_is_in_flight_given_back_a_timeout_that_comes_twice_is_found() {
    let without = Protocol { waits_for_acks: false, ..LEAVING };
    assert!(finds(without, "nothing twice because it was given back"));
}

#[test]
fn with_an_epoch_used_again_after_it_was_given_back_two_owners_are_found() {
    assert!(finds(Protocol { keeps_to_it: false, ..LEAVING }, "one owner"));
}

#[test]
fn with_the_ack_before_the_fire_a_kill_that_loses_is_found() {
    assert!(finds(Protocol { removes_at_ack: false, ..WHOLE }, "nothing is lost"));
}

const WORKERS: usize = 2;
const PARTITIONS: usize = 2;
const TIMEOUTS: usize = 3;
/// A lease in ticks. A worker hands out in the first half of it.
const LEASE: u8 = 2;
/// Enough for a lease to run out, for another owner, and for a late ack of the first.
const LAST_TICK: u8 = 3;
const FAULTS: u8 = 1;

const WHOLE: Protocol = Protocol {
    fences: true,
    counts_from_asking: true,
    stops_early: true,
    removes_at_ack: true,
    waits_for_acks: true,
    leaves: false,
    keeps_to_it: true,
};

const LEAVING: Protocol = Protocol { leaves: true, ..WHOLE };
