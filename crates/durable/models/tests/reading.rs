//! How an owner reads its rows, in a model checker: by a position, and by the transactions that it
//! had not seen. All states of two rows, each put by one transaction and cancelled by another, that
//! begin and commit at any time, with looks at any time.

use models::finds;
use stateright::{Checker, Model, Property};

/// The way of reading, and what can be left out of it.
#[derive(Clone, Copy)]
struct Reading {
    /// A look finds what was put by transactions that had not begun at the last one.
    finds_new: bool,
    /// And by those that were open then.
    finds_open: bool,
    /// How far ahead a look reads.
    ahead: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    /// The clock of the store.
    tick: u8,
    rows: [Row; ROWS],
    /// Up to which deadline the owner has read.
    position: Option<u8>,
    /// After a look a row that is visible, and near enough, was not known.
    missed: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Row {
    deadline: u8,
    put: Transaction,
    cancel: Transaction,
    /// The owner has it in the wheel.
    is_near: bool,
    fired: bool,
    early: bool,
    /// The caller was told that it will not come.
    told: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Transaction {
    now: Phase,
    /// At the last look.
    seen: Phase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    NotBegun,
    Open,
    Committed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    Look,
    BeginPut(usize),
    CommitPut(usize),
    BeginCancel(usize),
    CommitCancel(usize),
    HandOut(usize),
}

impl Row {
    fn is_visible(&self) -> bool {
        self.put.now == Phase::Committed && self.cancel.now != Phase::Committed
    }
}

impl Model for Reading {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let deadlines = 0..=LAST_TICK;
        let rows = deadlines.clone().flat_map(|a| deadlines.clone().map(move |b| [a, b]));
        rows.map(|rows| State {
            rows: rows.map(|deadline| Row { deadline, ..Row::default() }),
            ..State::default()
        })
        .collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.tick < LAST_TICK {
            actions.push(Action::Tick);
        }
        actions.push(Action::Look);
        for (at, row) in state.rows.iter().enumerate() {
            match row.put.now {
                Phase::NotBegun => actions.push(Action::BeginPut(at)),
                Phase::Open => actions.push(Action::CommitPut(at)),
                Phase::Committed => {}
            }
            match row.cancel.now {
                Phase::NotBegun if row.is_visible() => actions.push(Action::BeginCancel(at)),
                Phase::Open => actions.push(Action::CommitCancel(at)),
                Phase::NotBegun | Phase::Committed => {}
            }
            if row.is_near && row.deadline <= state.tick {
                actions.push(Action::HandOut(at));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        let tick = state.tick;
        match action {
            Action::Tick => state.tick += 1,
            Action::Look => {
                let until = tick + self.ahead;
                for row in &mut state.rows {
                    let is_after = state.position.is_none_or(|position| position < row.deadline);
                    let is_new = match row.put.seen {
                        Phase::NotBegun => self.finds_new,
                        Phase::Open => self.finds_open,
                        Phase::Committed => false,
                    };
                    if row.is_visible() && row.deadline <= until && (is_after || is_new) {
                        row.is_near |= !row.fired;
                    }
                    state.missed |=
                        row.is_visible() && row.deadline <= until && !row.is_near && !row.fired;
                    row.put.seen = row.put.now;
                }
                state.position = Some(until);
            }
            Action::BeginPut(row) => state.rows[row].put.now = Phase::Open,
            Action::CommitPut(row) => state.rows[row].put.now = Phase::Committed,
            Action::BeginCancel(row) => state.rows[row].cancel.now = Phase::Open,
            Action::CommitCancel(row) => {
                let row = &mut state.rows[row];
                row.cancel.now = Phase::Committed;
                // Any later answer is more careful.
                row.told = tick + MARGIN < row.deadline;
            }
            Action::HandOut(row) => {
                let row = &mut state.rows[row];
                row.is_near = false;
                row.fired = true;
                row.early |= tick < row.deadline;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("none after `Cancelled`", |_, state: &State| {
                state.rows.iter().all(|row| !(row.told && row.fired))
            }),
            Property::always("a look knows all", |_, state: &State| !state.missed),
            Property::always("none early", |_, state: &State| {
                state.rows.iter().all(|row| !row.early)
            }),
            Property::sometimes("all fired", |_, state: &State| {
                state.rows.iter().all(|row| row.fired)
            }),
            Property::sometimes("one cancelled, one fired", |_, state: &State| {
                state.rows[0].told && state.rows[1].fired
            }),
        ]
    }
}

#[test]
fn all_states_read_each_row_in_time_and_none_after_cancelled() {
    let checker = WHOLE.checker().spawn_bfs().join();
    checker.assert_properties();
    println!("{} different states", checker.unique_state_count());
}

#[test]
fn without_the_transactions_that_were_open_a_late_commit_is_missed() {
    assert!(finds(Reading { finds_open: false, ..WHOLE }, "a look knows all"));
}

#[test]
fn without_the_transactions_that_had_not_begun_a_put_is_missed() {
    assert!(finds(Reading { finds_new: false, ..WHOLE }, "a look knows all"));
}

#[test]
fn with_a_row_read_earlier_than_the_margin_one_fires_after_cancelled() {
    assert!(finds(Reading { ahead: MARGIN + 1, ..WHOLE }, "none after `Cancelled`"));
}

const ROWS: usize = 2;
/// So long before its deadline a row is read at the earliest.
const MARGIN: u8 = 1;
const LAST_TICK: u8 = 3;

const WHOLE: Reading = Reading { finds_new: true, finds_open: true, ahead: MARGIN };
