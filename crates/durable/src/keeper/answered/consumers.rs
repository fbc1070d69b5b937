//! What consumers hold, and what they do not take.

use std::sync::Arc;
use std::time::Duration;

use super::super::{Answer, Call, Config, Keeper, Settled};
use super::{answer_load, config, holds_one, lease, leases, now, past, received, row};
use crate::Error;
use crate::store::{Done, Leases, Loaded, Outcome, Row, Settlement, Then};

/// One thread of consumers hangs in the program's own code, and the lease is shorter or longer than
/// what is long.
#[test]
fn consumers_that_hold_nothing_and_take_nothing_for_a_minute_are_told_of() {
    for (lease, asks) in [(10, false), (100, false), (10, true)] {
        let mut keeper: Keeper<()> = Keeper::new(config());
        let mut outbox = received();
        let leases = |at: u64, held| {
            let leases = leases(1_000_200 + at);
            let held = if held { leases.held } else { Vec::new() };
            Leases { held, good_for: Some(Duration::from_secs(lease)), ..leases }
        };
        let (mut at, mut told) = (0, Vec::new());
        while at < 110_000 {
            match keeper.poll(now(at), &mut outbox) {
                Some(Call::Lease(call)) => {
                    let leases = leases(at, call.wanted);
                    keeper.answer(now(at), &mut outbox, Answer::Lease(call, Ok(leases)));
                }
                Some(Call::Load(call)) => answer_load(&mut keeper, &mut outbox, now(at), call),
                Some(call) => past(&mut keeper, &mut outbox, now(at), Some(call)),
                None => at = keeper.wake(now(at)).clamp(at + 1, at + 1_000),
            }
            let is_told = |trouble: &Error| matches!(trouble, Error::Held { timeouts: 0 });
            told.extend(keeper.troubles.drain(..).filter(is_told).map(|_| at));
            if asks && 20_000 <= at {
                outbox.take(at);
            }
        }
        if asks {
            assert_eq!(told, []);
            continue;
        }
        assert!((60_000..63_000).contains(&told[0]), "{lease}: {told:?}");
        // Where it lasts longer than the lease, that is told too.
        assert_eq!(told.len(), if lease < 60 { 1 } else { 2 }, "{lease}: {told:?}");
    }
}

#[test]
fn what_a_consumer_holds_for_too_long_comes_again_unless_it_asked_for_more_time() {
    for (extends, over) in [(None, 1_001), (Some(100), 1_001), (Some(2_000), 2_500)] {
        let config = Config { visibility: Some(1_000), ..config() };
        let (mut keeper, mut outbox) = (Keeper::new(config), received());
        lease(&mut keeper, &mut outbox, now(0), Ok(leases(1_000_200)));
        let (mut at, mut again) = (1, None);
        while again.is_none() {
            assert!(at < 5_000, "it never comes again");
            match keeper.poll(now(at), &mut outbox) {
                Some(Call::Load(call)) => answer_load(&mut keeper, &mut outbox, now(at), call),
                Some(Call::Commit(call)) => {
                    again = Some(at);
                    let [Settlement { then: Then::Again { attempt: 1, .. }, .. }] =
                        call.settlements[..]
                    else {
                        panic!("{call:?}")
                    };
                }
                Some(call) => past(&mut keeper, &mut outbox, now(at), Some(call)),
                None => {
                    if outbox.take(at).is_some() {
                        assert_eq!(at, 1);
                        continue;
                    }
                    if at == 500
                        && let Some(time) = extends
                    {
                        keeper.settle(now(at), (1, 1), Settled::Extend { time });
                    }
                    let next = if at < 500 { 500 } else { u64::MAX };
                    at = keeper.wake(now(at)).clamp(at + 1, next);
                }
            }
        }
        // It goes along with another commit if there is one.
        assert!((over..over + 10).contains(&again.unwrap()), "{again:?} with {extends:?}");
        // What the consumer does now is too late.
        keeper.settle(now(at), (1, 1), Settled::Ack);
        assert_eq!((keeper.counts.expired, keeper.in_flight()), (1, 0));
    }
}

#[test]
fn a_consumer_that_asks_for_more_time_wakes_nobody_where_it_has_any_time() {
    let (mut keeper, mut outbox) = holds_one();
    keeper.settle(now(2), (1, 1), Settled::Extend { time: 100 });
    for at in [2, 102, 1_000] {
        while let Some(call) = keeper.poll(now(at), &mut outbox) {
            match call {
                Call::Load(call) => answer_load(&mut keeper, &mut outbox, now(at), call),
                call => past(&mut keeper, &mut outbox, now(at), Some(call)),
            }
        }
        assert!(at < keeper.wake(now(at)), "at {at}");
    }
    assert_eq!((keeper.counts.expired, keeper.in_flight()), (0, 1));
}

/// While it held one it asked for none, and then the other waits for it to ask.
#[test]
fn a_consumer_that_settles_after_long_has_as_long_as_others_to_ask_again() {
    let config = Config { max_attempts: Some(3), ..config() };
    let (mut keeper, mut outbox) = (Keeper::<()>::new(config), received());
    let named = |(name, number)| Row { name: Arc::from(name), number, ..row(1_000_100) };
    let two = [("a", 1), ("b", 2)].map(named).to_vec();
    let (mut at, mut settled, mut left) = (0, 0, 0);
    while left == 0 {
        match keeper.poll(now(at), &mut outbox) {
            Some(Call::Lease(call)) => {
                let leases = leases(1_000_200 + at);
                keeper.answer(now(at), &mut outbox, Answer::Lease(call, Ok(leases)));
            }
            Some(Call::Load(call)) => {
                let mut rows = two.clone();
                rows.retain(|row| call.from[0].after < row.position() && at < 90_000);
                let loaded = Loaded { rows, ends: vec![None], ..Loaded::default() };
                keeper.answer(now(at), &mut outbox, Answer::Load(call, Ok(loaded)));
            }
            Some(Call::Commit(call)) => {
                let outcome = |settlement: &Settlement| {
                    let row = two.iter().find(|row| row.number == settlement.held.number);
                    Outcome::Settled(match settlement.then {
                        Then::Counted { attempt } => row.map(|row| Row { attempt, ..row.clone() }),
                        _ => None,
                    })
                };
                let outcomes = call.settlements.iter().map(outcome).collect();
                let done = Done { outcomes, ..Done::default() };
                keeper.answer(now(at), &mut outbox, Answer::Commit(call, Ok(done)));
            }
            Some(call) => past(&mut keeper, &mut outbox, now(at), Some(call)),
            None if at < 90_000 && 0 < outbox.len() => _ = outbox.take(at),
            None if 90_000 <= at && settled == 0 => {
                keeper.settle(now(at), (1, 1), Settled::Ack);
                settled = at;
            }
            None if 0 < settled && !outbox.is_asked() => left = at,
            None => at = keeper.wake(now(at)).clamp(at + 1, at + 1_000),
        }
    }
    assert!(settled + 60_000 < left, "it settled at {settled}, and is given up at {left}");
}
