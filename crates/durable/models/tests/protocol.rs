//! The protocol of partitions, leases, epochs and acks in a model checker: all states of 2 workers,
//! 2 partitions and 2 timeouts, with pauses, kills and late acks. With
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
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    /// The clock of the store. Those of the workers go at the same rate.
    tick: u8,
    partitions: [Partition; PARTITIONS],
    /// The timeouts that are in the store.
    pending: [bool; TIMEOUTS],
    workers: [Worker; WORKERS],
    kills: u8,
    /// What a consumer was handed, at least once.
    handed_out: [bool; TIMEOUTS],
    /// A worker handed out when the partition had another owner.
    two_owners: bool,
    /// A worker handed out when no more than half of the lease was left to ack in.
    short: bool,
    /// An ack of an old epoch was accepted.
    old_ack: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Partition {
    owner: Option<usize>,
    epoch: u8,
    until: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Worker {
    asked: Option<Asked>,
    /// Until when it hands out, and the epochs of the partitions it believes to own.
    until: u8,
    epochs: [Option<u8>; PARTITIONS],
    /// What its consumers hold, by the epoch it was handed out under.
    held: [Option<u8>; TIMEOUTS],
}

/// A request for leases that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked {
    at: u8,
    answer: Option<[Option<u8>; PARTITIONS]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    Ask(usize),
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

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let count = std::env::var("TICKWHEEL_DURABLE_TIMEOUTS").map_or(2, |n| n.parse().unwrap());
        let pending = std::array::from_fn(|timeout| timeout < count);
        vec![State { pending, handed_out: pending.map(|pending| !pending), ..State::default() }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.tick < LAST_TICK {
            actions.push(Action::Tick);
        }
        for (at, worker) in state.workers.iter().enumerate() {
            match &worker.asked {
                None => actions.push(Action::Ask(at)),
                Some(Asked { answer: None, .. }) => actions.push(Action::Grant(at)),
                Some(Asked { answer: Some(_), .. }) => actions.push(Action::Read(at)),
            }
            for timeout in 0..TIMEOUTS {
                let owns = worker.epochs[partition(timeout)].is_some();
                if worker.held[timeout].is_some() {
                    actions.push(Action::Ack(at, timeout));
                } else if owns && state.tick < worker.until && state.pending[timeout] {
                    actions.push(Action::HandOut(at, timeout));
                }
            }
            if state.kills < KILLS {
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
                state.workers[worker].asked = Some(Asked { at: tick, answer: None });
            }
            Action::Grant(worker) => {
                let mut granted = [None; PARTITIONS];
                for (partition, granted) in state.partitions.iter_mut().zip(&mut granted) {
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
            }
            Action::HandOut(worker, timeout) => {
                let place = partition(timeout);
                let epoch = state.workers[worker].epochs[place]?;
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
                state.kills += 1;
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
            Property::always("time is left to ack", |_, state: &State| !state.short),
            Property::always("one owner", |_, state: &State| !state.two_owners),
            Property::sometimes("all done", |_, state: &State| {
                state.pending.iter().all(|pending| !pending)
            }),
            Property::sometimes("after a kill too", |_, state: &State| {
                state.kills > 0 && state.pending.iter().all(|pending| !pending)
            }),
            Property::sometimes("by a second owner", |_, state: &State| {
                state.partitions.iter().all(|partition| partition.epoch > 1)
            }),
        ]
    }
}

#[test]
fn all_states_lose_nothing_accept_no_old_ack_and_have_one_owner() {
    let checker = WHOLE.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    println!(
        "{} states, {} of them different",
        checker.state_count(),
        checker.unique_state_count()
    );
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
const KILLS: u8 = 1;

const WHOLE: Protocol =
    Protocol { fences: true, counts_from_asking: true, stops_early: true, removes_at_ack: true };
