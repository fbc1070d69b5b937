//! One keeper on a store with several owners. A test answers each of its calls.

mod closes;
pub(super) mod commits;
mod consumers;
pub(super) mod leases;
pub(super) mod loads;

use std::sync::Arc;
use std::time::Duration;

use super::outbox::Outbox;
use super::words::{LeaseCall, LoadCall};
use super::{Answer, Call, Config, Keeper, Now};
use crate::Error;
use crate::store::{Lease, Leases, Loaded, Row};

pub(super) fn config() -> Config {
    Config {
        horizon: 2_000,
        near_rows: 1_000,
        near_bytes: 1 << 20,
        page: 100,
        group: 64,
        in_flight: 50,
        redeliver: 500,
        linger: 5,
        refresh: 60_000,
        look: 200,
        margin: 1_000,
        max_attempts: None,
        visibility: None,
        rate: None,
    }
}

/// A keeper whose consumer holds the one timeout that there is.
pub(super) fn holds_one() -> (Keeper<()>, Outbox) {
    let (mut keeper, mut outbox) = (Keeper::new(config()), received());
    lease(&mut keeper, &mut outbox, now(0), Ok(leases(1_000_200)));
    while let Some(call) = keeper.poll(now(1), &mut outbox) {
        match call {
            Call::Load(call) => answer_load(&mut keeper, &mut outbox, now(1), call),
            call => past(&mut keeper, &mut outbox, now(1), Some(call)),
        }
    }
    outbox.take(1).expect("it is due");
    (keeper, outbox)
}

pub(super) fn now(steady: u64) -> Now {
    Now { wall: 0, steady }
}

/// An outbox that somebody takes from.
pub(super) fn received() -> Outbox {
    let mut outbox = Outbox::default();
    outbox.take(0);
    outbox
}

/// Answers as a store does that has one row.
pub(super) fn answer_load(keeper: &mut Keeper<()>, outbox: &mut Outbox, now: Now, call: LoadCall) {
    let row = row(1_000_100);
    let is_wanted = call.from[0].after < row.position() && row.deadline <= call.until;
    let rows = if is_wanted { vec![row] } else { Vec::new() };
    let loaded = Loaded { rows, ends: vec![None], ..Loaded::default() };
    keeper.answer(now, outbox, Answer::Load(call, Ok(loaded)));
}

/// Answers of the past as a store does that has one row.
pub(super) fn past(keeper: &mut Keeper<()>, outbox: &mut Outbox, now: Now, call: Option<Call<()>>) {
    let Some(Call::Behind(call)) = call else { panic!("{call:?}") };
    let row = row(1_000_100);
    let is_wanted = call.from[0].after < row.position() && row.deadline <= call.until;
    let rows = if is_wanted { vec![row] } else { Vec::new() };
    let loaded = Loaded { rows, ends: vec![None; call.from.len()], ..Loaded::default() };
    keeper.answer(now, outbox, Answer::Behind(call, Ok(loaded)));
}

/// Answers the call for leases that the keeper makes now.
pub(super) fn lease(
    keeper: &mut Keeper<()>,
    outbox: &mut Outbox,
    now: Now,
    leases: Result<Leases, Error>,
) {
    let call = keeper.poll(now, outbox);
    let Some(Call::Lease(call @ LeaseCall { wanted: true, .. })) = call else { panic!("{call:?}") };
    keeper.answer(now, outbox, Answer::Lease(call, leases));
}

pub(super) fn load(keeper: &mut Keeper<()>, outbox: &mut Outbox, now: Now, call: LoadCall) {
    let loaded = Loaded { rows: vec![row(1_000_100)], ends: vec![None], ..Loaded::default() };
    keeper.answer(now, outbox, Answer::Load(call, Ok(loaded)));
}

pub(super) fn leases(clock: u64) -> Leases {
    Leases {
        held: vec![Lease { partition: 0, epoch: 1 }],
        share: 64,
        owners: 1,
        owners_before: 0,
        good_for: Some(Duration::from_secs(60)),
        others_end: None,
        clock: Some(clock),
        is_paused: false,
        rate_limit: None,
        yielding: Vec::new(),
    }
}

pub(super) fn row(deadline: u64) -> Row {
    Row {
        name: "a".into(),
        deadline,
        payload: Arc::from([]),
        metadata: Arc::default(),
        attempt: 0,
        number: 1,
        partition: 0,
    }
}

/// Answers each call as a store does that has nothing, and leases with what is told, until the time.
pub(super) fn idle(
    keeper: &mut Keeper<()>,
    outbox: &mut Outbox,
    until: u64,
    told: impl Fn(u64) -> Leases,
    mut sees: impl FnMut(u64, &Call<()>),
) {
    let (mut at, mut loads) = (0, 0);
    while at < until {
        let Some(call) = keeper.poll(now(at), outbox) else {
            at = keeper.wake(now(at)).clamp(at + 1, at + 1_000);
            continue;
        };
        loads += u64::from(matches!(call, Call::Load(_) | Call::Behind(_)));
        assert_eq!(keeper.counts.loads, loads);
        sees(at, &call);
        let nothing = |parts| Ok(Loaded { ends: vec![None; parts], ..Loaded::default() });
        let answer = match call {
            Call::Lease(call) => Answer::Lease(call, Ok(told(at))),
            Call::Load(call) => {
                let parts = call.from.len();
                Answer::Load(call, nothing(parts))
            }
            Call::Behind(call) => {
                let parts = call.from.len();
                Answer::Behind(call, nothing(parts))
            }
            Call::Commit(call) => panic!("nothing is to be done: {call:?}"),
        };
        keeper.answer(now(at), outbox, answer);
    }
}
