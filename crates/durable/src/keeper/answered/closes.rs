//! How a timer closes.

use super::super::{Answer, Call, Command, Config, Keeper, Settled};
use super::{answer_load, config, holds_one, lease, leases, now, past, received, row};
use crate::Error;
use crate::store::{Change, Changed, Done, Leases, Loaded, Outcome, Row, Settlement, Then};

/// The store told of it, and who closes the timer must hear that it comes again.
#[test]
fn close_tells_that_the_last_ack_was_not_committed() {
    let refused = || Outcome::Refused("a trigger".to_owned());
    for (outcome, is_lost) in [
        (Outcome::Settled(None), false),
        (Outcome::Gone, false),
        (Outcome::Locked, true),
        (Outcome::Fenced, true),
        (refused(), true),
    ] {
        let (mut keeper, mut outbox) = holds_one();
        keeper.settle(now(2), (1, 1), Settled::Ack);
        keeper.close(now(2), &mut outbox, true);
        while keeper.in_flight() + keeper.bytes() > 0 {
            match keeper.poll(now(2), &mut outbox) {
                Some(Call::Commit(call)) => {
                    let done = Done { outcomes: vec![outcome.clone()], ..Done::default() };
                    keeper.answer(now(2), &mut outbox, Answer::Commit(call, Ok(done)));
                }
                Some(Call::Lease(call)) => {
                    keeper.answer(now(2), &mut outbox, Answer::Lease(call, Ok(leases(1_000_202))));
                }
                Some(Call::Load(call)) => answer_load(&mut keeper, &mut outbox, now(2), call),
                call => past(&mut keeper, &mut outbox, now(2), call),
            }
        }
        assert_eq!(keeper.lost().is_some(), is_lost, "{outcome:?}");
    }
}

/// Each call takes ten seconds of a lease of sixty, and decides one, or fails.
#[test]
fn a_timer_that_closes_ends_within_two_leases_and_says_how_many_come_again() {
    for case in 0..8 {
        let [waits, counts, fails] = [1, 2, 4].map(|bit| case & bit != 0);
        let most = counts.then_some(3);
        let mut keeper: Keeper<u64> = Keeper::new(Config { max_attempts: most, ..config() });
        let mut outbox = received();
        outbox.listeners = 40;
        // Where each is counted, some are to be buried.
        let row = |number: u64| {
            let (name, attempt) =
                (format!("{number}").into(), if number.is_multiple_of(4) { 3 } else { 0 });
            Row { name, number, attempt, ..row(900_000) }
        };
        let (mut at, mut replies, mut first, mut acked) = (0, Vec::new(), false, None);
        while !keeper.is_closed() {
            assert!(at < 10_000 + 120_000, "it is not closed");
            if acked.is_none() && 0 < outbox.len() {
                let mut count = 0;
                while (!counts || 5 < outbox.len())
                    && let Some((taken, _)) = outbox.take(at)
                {
                    keeper.settle(now(at), (taken.number, 1), Settled::Ack);
                    count += 1;
                }
                acked = Some(count);
                for ticket in 0..40 {
                    let change = Change::put(&format!("slow {ticket}"), 2_000_000, &[]);
                    keeper.command(Command { ticket, change });
                }
                keeper.close(now(at), &mut outbox, waits);
            }
            match keeper.poll(now(at), &mut outbox) {
                Some(Call::Lease(call)) => {
                    let leases = Leases { held: leases(0).held, ..leases(1_000_000 + at) };
                    let held = if call.is_last { Vec::new() } else { leases.held };
                    let leases = Leases { held, ..leases };
                    keeper.answer(now(at), &mut outbox, Answer::Lease(call, Ok(leases)));
                }
                Some(Call::Load(call)) => {
                    let rows = if first { Vec::new() } else { (1..=40).map(row).collect() };
                    first = true;
                    let loaded = Loaded { rows, ends: vec![None], ..Loaded::default() };
                    keeper.answer(now(at), &mut outbox, Answer::Load(call, Ok(loaded)));
                }
                Some(Call::Behind(call)) => {
                    let ends = vec![None; call.from.len()];
                    let loaded = Loaded { ends, ..Loaded::default() };
                    keeper.answer(now(at), &mut outbox, Answer::Behind(call, Ok(loaded)));
                }
                Some(Call::Commit(call)) if acked.is_none() => {
                    // For the last there is no time.
                    let outcome = |settlement: &Settlement| match settlement.then {
                        Then::Counted { attempt } => {
                            let row = row(settlement.held.number);
                            Outcome::Settled(Some(Row { attempt, ..row }))
                        }
                        _ => Outcome::Refused("it takes too long".to_owned()),
                    };
                    let outcomes = call.settlements.iter().take(30).map(outcome).collect();
                    let done = Done { outcomes, ..Done::default() };
                    keeper.answer(now(at), &mut outbox, Answer::Commit(call, Ok(done)));
                }
                Some(Call::Commit(call)) => {
                    at += 10_000;
                    if fails {
                        let error = Error::store("commit", "it takes too long");
                        keeper.answer(now(at), &mut outbox, Answer::Commit(call, Err(error)));
                        continue;
                    }
                    let outcomes = vec![Outcome::Refused("it takes too long".to_owned())];
                    let changed = vec![Err(Error::store("put it", "it takes too long"))];
                    let done = Done { outcomes, changed, clock: None };
                    keeper.answer(now(at), &mut outbox, Answer::Commit(call, Ok(done)));
                }
                None => at = keeper.wake(now(at)).clamp(at + 1, at + 1_000),
            }
            replies.append(&mut keeper.replies);
        }
        let lost = keeper.lost().expect("all are lost").to_string();
        // What the keeper settled is no loss.
        let acked = acked.expect("it closes");
        assert!(if counts { (10..30).contains(&acked) } else { acked == 40 }, "{acked}");
        let told = lost.contains(&format!("settle {acked} timeouts")) && lost.contains("too long");
        assert!(told, "{lost}");
        let last = replies.last().map(|(_, reply)| reply);
        let is_closed = matches!(last, Some(Err(Error::Closed)));
        assert!(replies.len() == 40 && (fails || is_closed), "{replies:?}");
        assert_eq!((keeper.in_flight(), keeper.bytes(), keeper.flights.counting), (0, 0, 0));
    }
}

#[test]
fn a_timer_that_closes_before_its_store_ever_answered_commits_what_was_asked_for() {
    let mut keeper: Keeper<()> = Keeper::new(config());
    let mut outbox = received();
    keeper.command(Command { ticket: (), change: Change::put("a", 2_000_000, &[]) });
    keeper.close(now(0), &mut outbox, true);
    let mut at = 0;
    while keeper.replies.is_empty() {
        match keeper.poll(now(at), &mut outbox) {
            Some(Call::Lease(call)) => {
                keeper.answer(now(at), &mut outbox, Answer::Lease(call, Ok(leases(1_000_000))));
            }
            Some(Call::Commit(call)) => {
                let changed = vec![Ok(Changed { row: None, replaced: None, was_dead: false })];
                let done = Done { changed, ..Done::default() };
                keeper.answer(now(at), &mut outbox, Answer::Commit(call, Ok(done)));
            }
            Some(call) => past(&mut keeper, &mut outbox, now(at), Some(call)),
            None => at += 1,
        }
    }
    assert!(matches!(keeper.replies[..], [((), Ok(_))]), "{:?}", keeper.replies);
}

/// After an outage it does not know what it has, and an answer may have been lost.
#[test]
fn a_worker_that_closes_gives_back_what_it_does_not_know_of() {
    let mut keeper: Keeper<()> = Keeper::new(config());
    let mut outbox = received();
    lease(&mut keeper, &mut outbox, now(0), Ok(leases(1_000_000)));
    // Longer than the lease.
    keeper.close(now(0), &mut outbox, true);
    let Some(Call::Lease(call)) = keeper.poll(now(70_000), &mut outbox) else { panic!("gives") };
    assert!(call.given_back.is_empty() && !call.wanted);
    let held = leases(1_070_000);
    keeper.answer(now(70_000), &mut outbox, Answer::Lease(call, Ok(held)));
    let Some(Call::Lease(call)) = keeper.poll(now(70_000), &mut outbox) else { panic!("gives") };
    assert_eq!((&call.given_back[..], call.wanted), (&[0][..], false));
    // Somebody has locked it: once is enough.
    let held = leases(1_070_000);
    keeper.answer(now(70_000), &mut outbox, Answer::Lease(call, Ok(held)));
    assert!(keeper.is_closed() && keeper.lost().is_none());
}

#[test]
fn a_timer_that_closes_looks_for_nothing_while_it_waits_for_a_consumer() {
    let (mut keeper, mut outbox) = holds_one();
    keeper.close(now(10), &mut outbox, true);
    let mut at = 10;
    while at < 14_000 {
        match keeper.poll(now(at), &mut outbox) {
            Some(Call::Lease(call)) => {
                let leases = Leases { share: 0, ..leases(1_000_200 + at) };
                keeper.answer(now(at), &mut outbox, Answer::Lease(call, Ok(leases)));
            }
            Some(call) => panic!("{call:?}"),
            None => at = keeper.wake(now(at)).clamp(at + 1, at + 1_000),
        }
    }
    assert_eq!(keeper.in_flight(), 1);
}

#[test]
fn what_was_asked_for_before_a_close_is_committed() {
    let mut keeper: Keeper<u64> = Keeper::new(config());
    let mut outbox = received();
    let mut next = |keeper: &mut Keeper<u64>| loop {
        match keeper.poll(now(100_000), &mut outbox) {
            Some(Call::Lease(call)) => {
                let leases = Leases { held: Vec::new(), ..leases(1_000_000) };
                keeper.answer(now(100_000), &mut outbox, Answer::Lease(call, Ok(leases)));
            }
            call => return call,
        }
    };
    assert!(next(&mut keeper).is_none());
    keeper.command(Command { ticket: 7, change: Change::put("a", 2_000_000, &[]) });
    keeper.close(now(100_000), &mut received(), false);
    let call = next(&mut keeper);
    assert!(matches!(call, Some(Call::Commit(call)) if call.tickets == [7]));
}
