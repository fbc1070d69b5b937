//! What the keeper commits, in which order, and what it does where that fails.

use std::time::Duration;

use super::super::outbox::Outbox;
use super::super::{Answer, Call, Command, Config, Found, Keeper, Now, Settled};
use super::{answer_load, config, holds_one, lease, leases, now, past, received};
use crate::Error;
use crate::store::{Act, Change, Changed, Done, Leases, Loaded, Outcome, Replaced};

/// What consumers have acked goes alone then, and fails each time.
#[test]
fn while_the_store_does_not_answer_callers_are_told_so_though_acks_wait() {
    let (mut keeper, mut outbox) = holds_one();
    keeper.settle(now(0), (1, 1), Settled::Ack);
    let mut at = 0;
    for _ in 0..10 {
        keeper.command(Command { ticket: (), change: Change::cancel("a") });
        let until = at + 3 * 3_333 + 1_000;
        while at < until && keeper.replies.is_empty() {
            match keeper.poll(now(at), &mut outbox) {
                None => at = keeper.wake(now(at)).max(at + 1).min(until),
                Some(call) => {
                    at += 3_333;
                    let failed = call.fail(Error::store("ask it", "no answer"));
                    keeper.answer(now(at), &mut outbox, failed);
                }
            }
        }
        let told = std::mem::take(&mut keeper.replies);
        assert!(matches!(told[..], [((), Err(Error::Store { .. }))]), "{told:?} at {at}");
    }
}

/// Else many workers commit many times as often as one, each time little.
#[test]
pub(in super::super) fn the_more_workers_the_longer_acks_wait_unless_they_take_the_room_of_what_is_due()
 {
    let commits_at = |owners, near_bytes| {
        let mut keeper: Keeper<()> = Keeper::new(Config { near_bytes, ..config() });
        let mut outbox = received();
        let now = |steady| Now { wall: 0, steady };
        lease(&mut keeper, &mut outbox, now(0), Ok(Leases { owners, ..leases(1_000_200) }));
        let mut time = 1;
        loop {
            match keeper.poll(now(time), &mut outbox) {
                Some(Call::Load(call)) => answer_load(&mut keeper, &mut outbox, now(time), call),
                Some(Call::Commit(call)) => break (time, call.settlements.len()),
                None => {
                    if let Some((taken, _)) = outbox.take(time) {
                        keeper.settle(now(time), (taken.number, 1), Settled::Ack);
                    }
                    time = keeper.wake(now(time)).max(time);
                }
                call => past(&mut keeper, &mut outbox, now(time), call),
            }
        }
    };
    assert_eq!(commits_at(1, 1 << 20), (6, 1));
    assert_eq!(commits_at(8, 1 << 20), (41, 1));
    // A small part of the lease, however many they are.
    assert_eq!(commits_at(1_000, 1 << 20), (1_501, 1));
    assert_eq!(commits_at(8, 4), (1, 1));
}

/// Where each is counted, what is locked waits to be handed out.
#[test]
fn however_long_it_was_locked_what_is_due_is_tried_again_within_half_a_lease() {
    for good_for in [1, 2, 10, 60] {
        let leases =
            |clock| Leases { good_for: Some(Duration::from_secs(good_for)), ..leases(clock) };
        let mut keeper: Keeper<()> = Keeper::new(Config { max_attempts: Some(3), ..config() });
        let mut outbox = received();
        let (mut at, mut tried, mut longest) = (0, None, 0);
        while at < 30_000 {
            match keeper.poll(now(at), &mut outbox) {
                Some(Call::Lease(call)) => {
                    let leases = leases(1_000_200 + at);
                    keeper.answer(now(at), &mut outbox, Answer::Lease(call, Ok(leases)));
                }
                Some(Call::Load(call)) => answer_load(&mut keeper, &mut outbox, now(at), call),
                Some(Call::Commit(call)) => {
                    longest = longest.max(at - tried.replace(at).unwrap_or(at));
                    let done = Done { outcomes: vec![Outcome::Locked], ..Done::default() };
                    keeper.answer(now(at), &mut outbox, Answer::Commit(call, Ok(done)));
                }
                Some(call) => past(&mut keeper, &mut outbox, now(at), Some(call)),
                None => at = keeper.wake(now(at)).max(at + 1),
            }
        }
        let most = (good_for * 500).min(4_000);
        assert!((most..=most + 250).contains(&longest), "{longest} ms at a lease of {good_for} s");
    }
}

#[test]
fn what_may_take_long_takes_turns_with_the_rest_and_each_name_keeps_its_order() {
    let mut keeper: Keeper<u64> = Keeper::new(config());
    let mut outbox = received();
    let mut asked = 0;
    let mut ask = |keeper: &mut Keeper<u64>, names: &str| {
        for name in names.chars() {
            let change = match name {
                'b' => Change::revive("b", 0),
                _ => Change::put(&name.to_string(), 2_000_000, &[]),
            };
            keeper.command(Command { ticket: asked, change });
            asked += 1;
        }
    };
    // What is asked for while each of the commits is under way, and what that was of.
    let turns = [("abc", "x"), ("bcx", "abc"), ("de", "bcbcx"), ("", "de"), ("", "cbcxe")];
    let (mut at, mut tried, mut replies) = (0, Vec::new(), Vec::new());
    ask(&mut keeper, "x");
    while tried.len() < turns.len() {
        let call = keeper.poll(now(at), &mut outbox);
        let answer = match call {
            Some(Call::Lease(call)) => Answer::Lease(call, Ok(leases(1_000_000))),
            Some(Call::Load(call)) => Answer::Load(call, Ok(Loaded::default())),
            Some(Call::Behind(call)) => Answer::Behind(call, Ok(Loaded::default())),
            Some(Call::Commit(call)) => {
                let names: String = call.changes.iter().map(|change| &*change.name).collect();
                let is_now = |change: &Change| !matches!(change.act, Act::Revive { at: 0 });
                assert!(call.changes.iter().all(is_now), "a dead letter is due now: {call:?}");
                ask(&mut keeper, turns[tried.len()].0);
                tried.push(names);
                let changed = vec![Err(Error::store("put it", "it is locked"))];
                Answer::Commit(call, Ok(Done { changed, ..Done::default() }))
            }
            None => {
                at += 1;
                continue;
            }
        };
        keeper.answer(now(at), &mut outbox, answer);
        replies.extend(keeper.replies.drain(..).map(|(ticket, _)| ticket));
    }
    assert_eq!(tried, turns.map(|(_, tried)| tried), "{replies:?}");
}

#[test]
fn however_few_go_into_a_commit_each_name_keeps_its_order() {
    let mut keeper: Keeper<u64> = Keeper::new(Config { group: 2, ..config() });
    let mut outbox = received();
    let names: Vec<char> = "xxaxyxbyxaxxybxcaxyxxb".chars().collect();
    for (ticket, name) in (0..).zip(&names) {
        let change = Change::put(&name.to_string(), 2_000_000, &[]);
        keeper.command(Command { ticket, change });
    }
    let (mut at, mut commits, mut replies) = (0, 0, Vec::new());
    while replies.len() < names.len() {
        let answer = match keeper.poll(now(at), &mut outbox) {
            Some(Call::Lease(call)) => Answer::Lease(call, Ok(leases(1_000_000))),
            Some(Call::Load(call)) => Answer::Load(call, Ok(Loaded::default())),
            Some(Call::Behind(call)) => Answer::Behind(call, Ok(Loaded::default())),
            Some(Call::Commit(call)) => {
                commits += 1;
                // Of each third there was no time for the last one.
                let decided = call.changes.len().min(if commits % 3 == 0 { 1 } else { 2 });
                let of = |change: &Change| match &*change.name {
                    "x" | "y" => Err(Error::store("put it", "it is locked")),
                    _ => Ok(Changed { row: None, replaced: None, was_dead: false }),
                };
                let changed = call.changes[..decided].iter().map(of).collect();
                Answer::Commit(call, Ok(Done { changed, ..Done::default() }))
            }
            None => {
                at += 1;
                continue;
            }
        };
        keeper.answer(now(at), &mut outbox, answer);
        replies.extend(keeper.replies.drain(..).map(|(ticket, _)| ticket));
    }
    for name in "xyabc".chars() {
        let of: Vec<u64> =
            replies.iter().copied().filter(|&ticket| names[ticket as usize] == name).collect();
        assert!(of.is_sorted(), "{name}: {replies:?}");
    }
}

/// The owner may have read it by either clock.
#[test]
fn a_cancel_is_answered_by_the_latest_of_the_clock_before_its_commit_and_the_one_after() {
    let deadline = 1_003_300;
    for (clock, found) in [
        (1_002_100, Found::Pending),
        (1_002_500, Found::Firing),
        (9_000_000, Found::Firing),
        (1_000, Found::Pending),
    ] {
        let (mut keeper, mut outbox) = (Keeper::<()>::new(config()), Outbox::default());
        let given = Leases { held: Vec::new(), ..leases(1_000_000) };
        let Some(Call::Lease(call)) = keeper.poll(now(0), &mut outbox) else { panic!("it asks") };
        keeper.answer(now(0), &mut outbox, Answer::Lease(call, Ok(given)));
        keeper.command(Command { ticket: (), change: Change::cancel("a") });
        let Some(Call::Commit(call)) = keeper.poll(now(2_100), &mut outbox) else {
            panic!("it commits")
        };
        let replaced = Some(Replaced { number: 1, deadline });
        let changed = vec![Ok(Changed { row: None, replaced, was_dead: false })];
        let done = Done { changed, clock: Some(clock), ..Done::default() };
        keeper.answer(now(2_100), &mut outbox, Answer::Commit(call, Ok(done)));
        assert!(matches!(keeper.replies[..], [((), Ok(told))] if told == found), "at {clock}");
    }
}

#[test]
fn what_the_store_refuses_is_tried_again_and_told_more_and_more_rarely() {
    let (mut keeper, mut outbox) = holds_one();
    keeper.settle(now(2), (1, 1), Settled::Ack);
    let (mut locked, mut refused, mut told) = (0, 0, Vec::new());
    let mut at = 10;
    while refused < 20 {
        match keeper.poll(now(at), &mut outbox) {
            Some(Call::Commit(call)) => {
                // How often it was locked before does not count.
                let outcome = if locked < 3 {
                    locked += 1;
                    Outcome::Locked
                } else {
                    refused += 1;
                    Outcome::Refused("a trigger".to_owned())
                };
                let outcomes = vec![outcome];
                let done = Done { outcomes, ..Done::default() };
                keeper.answer(now(at), &mut outbox, Answer::Commit(call, Ok(done)));
                told.extend(keeper.troubles.drain(..).map(|_| refused));
            }
            Some(Call::Lease(call)) => {
                let leases = leases(1_000_200 + at);
                keeper.answer(now(at), &mut outbox, Answer::Lease(call, Ok(leases)));
            }
            Some(Call::Load(call)) => answer_load(&mut keeper, &mut outbox, now(at), call),
            Some(call) => past(&mut keeper, &mut outbox, now(at), Some(call)),
            None => at = keeper.wake(now(at)).max(at + 1),
        }
    }
    // And once a minute how many are held up.
    assert_eq!(told, [1, 2, 4, 8, 16, 16]);
    assert_eq!(outbox.len(), 0, "it is in flight");
}
