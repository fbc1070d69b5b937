//! What the keeper leases, when it renews, and what it gives back.

use std::time::Duration;

use super::super::{Answer, Call, Command, Config, Keeper, Now, Settled};
use super::{answer_load, config, holds_one, idle, lease, leases, load, now, past, received, row};
use crate::Error;
use crate::store::{
    Change, Done, Lease, Leases, Loaded, Outcome, Position, RateLimit, Row, Settlement, Then,
};

/// As by a process that was stopped, and whose consumers go on before its keeper.
#[test]
pub(in super::super) fn nothing_is_taken_in_the_last_quarter_of_a_lease_though_the_keeper_does_not_look()
 {
    for (steady, is_taken) in [(44_999, true), (45_000, false)] {
        let mut keeper: Keeper<()> = Keeper::new(config());
        let mut outbox = received();
        lease(&mut keeper, &mut outbox, now(0), Ok(leases(1_000_000)));
        let Some(Call::Load(call)) = keeper.poll(now(0), &mut outbox) else { panic!("it looks") };
        load(&mut keeper, &mut outbox, now(1_000), call);
        keeper.poll(now(1_000), &mut outbox);
        assert_eq!((outbox.len(), outbox.take(steady).is_some()), (1, is_taken));
        assert_eq!(keeper.may_hand_out(now(steady)), is_taken);
    }
}

/// Another owner may have handed it out, and without its clock this worker cannot tell.
#[test]
fn before_the_store_told_its_clock_callers_are_told_nothing_but_the_error() {
    let mut keeper: Keeper<()> = Keeper::new(config());
    let mut outbox = received();
    let now = |steady| Now { wall: 0, steady };
    lease(&mut keeper, &mut outbox, now(0), Err(Error::store("reach it", "cut")));
    keeper.command(Command { ticket: (), change: Change::cancel("a") });
    assert_eq!(keeper.poll(now(2), &mut outbox), None);
    assert!(matches!(keeper.replies[..], [((), Err(Error::Store { .. }))]));
    lease(&mut keeper, &mut outbox, now(200), Ok(leases(1_000_000)));
}

#[test]
pub(in super::super) fn a_slow_call_for_leases_takes_nothing_back_and_a_clock_that_was_set_back_does()
 {
    let mut keeper: Keeper<()> = Keeper::new(config());
    let mut outbox = received();
    let mut at = 0;
    // The store's clock, and how long the answer takes to come.
    for (clock, slow, waiting) in [(1_000_000, 0, 0), (1_015_000, 50, 1), (430_000, 0, 0)] {
        let call = loop {
            let now = Now { wall: 0, steady: at };
            match keeper.poll(now, &mut outbox) {
                Some(Call::Lease(call)) => break call,
                Some(Call::Load(call)) => load(&mut keeper, &mut outbox, now, call),
                None => at = keeper.wake(now),
                call => past(&mut keeper, &mut outbox, now, call),
            }
        };
        at += slow;
        // The keeper looks just before the answer comes.
        let now = Now { wall: 0, steady: at };
        assert_eq!(keeper.poll(now, &mut outbox), None);
        keeper.answer(now, &mut outbox, Answer::Lease(call, Ok(leases(clock))));
        let call = keeper.poll(now, &mut outbox);
        assert_eq!(outbox.len(), waiting, "with the clock at {clock}");
        match call {
            None => {}
            Some(Call::Load(call)) => load(&mut keeper, &mut outbox, now, call),
            call => past(&mut keeper, &mut outbox, now, call),
        }
    }
}

#[test]
fn a_look_notices_that_the_clock_of_the_store_was_set_back() {
    let mut keeper: Keeper<()> = Keeper::new(config());
    let mut outbox = received();
    let now = |steady| Now { wall: 0, steady };
    lease(&mut keeper, &mut outbox, now(0), Ok(leases(1_000_000)));
    for (at, clock, waiting) in [(150, 1_000_150, 1), (400, 1_000_400, 1), (700, 998_700, 0)] {
        let call = loop {
            match keeper.poll(now(at), &mut outbox) {
                Some(Call::Load(call)) => break call,
                call => past(&mut keeper, &mut outbox, now(at), call),
            }
        };
        let rows = if at == 150 { vec![row(1_000_100)] } else { Vec::new() };
        let loaded = Loaded { rows, ends: vec![None], clock: Some(clock), ..Loaded::default() };
        keeper.answer(now(at), &mut outbox, Answer::Load(call, Ok(loaded)));
        while 0 < waiting
            && let Some(call) = keeper.poll(now(at), &mut outbox)
        {
            past(&mut keeper, &mut outbox, now(at), Some(call));
        }
        assert_eq!(outbox.len(), waiting, "with the clock at {clock}");
    }
}

/// By that clock they may be over, and others have them.
#[test]
fn a_look_that_finds_the_clock_set_forward_lets_nothing_out_until_the_leases_are_renewed() {
    let (mut keeper, mut outbox) = (Keeper::<()>::new(config()), received());
    lease(&mut keeper, &mut outbox, now(0), Ok(leases(1_000_000)));
    let mut is_set = false;
    loop {
        match keeper.poll(now(150), &mut outbox) {
            Some(Call::Load(call)) => {
                let rows = vec![row(1_050_000)];
                let clock = Some(1_060_150);
                let loaded = Loaded { rows, ends: vec![None], clock, ..Loaded::default() };
                assert!(!std::mem::replace(&mut is_set, true), "it asks for its leases first");
                keeper.answer(now(150), &mut outbox, Answer::Load(call, Ok(loaded)));
            }
            Some(Call::Lease(call)) => {
                assert!(is_set && outbox.len() == 0, "nothing was handed out");
                break keeper.answer(
                    now(150),
                    &mut outbox,
                    Answer::Lease(call, Ok(leases(1_060_150))),
                );
            }
            call => past(&mut keeper, &mut outbox, now(150), call),
        }
    }
    while let Some(call) = keeper.poll(now(151), &mut outbox) {
        match call {
            Call::Load(call) => answer_load(&mut keeper, &mut outbox, now(151), call),
            call => past(&mut keeper, &mut outbox, now(151), Some(call)),
        }
    }
    assert_eq!(outbox.len(), 1, "and then it is");
}

/// It was passed over when the worker owned its partition anew, because it was in flight.
#[test]
pub(in super::super) fn what_is_fenced_is_read_again_and_handed_out_under_the_new_epoch() {
    let mut keeper: Keeper<()> = Keeper::new(config());
    let mut outbox = received();
    let now = |steady| Now { wall: 0, steady };
    lease(&mut keeper, &mut outbox, now(0), Ok(leases(1_000_200)));
    while let Some(call) = keeper.poll(now(1), &mut outbox) {
        match call {
            Call::Load(call) => answer_load(&mut keeper, &mut outbox, now(1), call),
            call => past(&mut keeper, &mut outbox, now(1), Some(call)),
        }
    }
    let (taken, epoch) = outbox.take(1).expect("it is due");
    assert_eq!((&*taken.name, epoch), ("a", 1));
    // Another owned the partition in between.
    let again = Leases { held: vec![Lease { partition: 0, epoch: 3 }], ..leases(1_015_200) };
    let mut again = Some(again);
    while let Some(call) = keeper.poll(now(15_000), &mut outbox) {
        match call {
            Call::Lease(call) => {
                let leases = again.take().expect("once a quarter of the lease");
                keeper.answer(now(15_000), &mut outbox, Answer::Lease(call, Ok(leases)));
            }
            Call::Load(call) => answer_load(&mut keeper, &mut outbox, now(15_000), call),
            call => past(&mut keeper, &mut outbox, now(15_000), Some(call)),
        }
    }
    assert_eq!(outbox.len(), 0, "it is in flight");
    keeper.settle(now(15_002), (taken.number, 1), Settled::Ack);
    let later = now(15_100);
    let fenced = Done { outcomes: vec![Outcome::Fenced], ..Done::default() };
    let mut fenced = Some(fenced);
    while let Some(call) = keeper.poll(later, &mut outbox) {
        match call {
            Call::Commit(call) => {
                let done = fenced.take().expect("it is settled once");
                keeper.answer(later, &mut outbox, Answer::Commit(call, Ok(done)));
            }
            Call::Load(call) => answer_load(&mut keeper, &mut outbox, later, call),
            call => past(&mut keeper, &mut outbox, later, Some(call)),
        }
    }
    let (again, epoch) = outbox.take(15_100).expect("it comes again");
    assert_eq!((again.number, epoch), (taken.number, 3));
    assert_eq!(keeper.counts.fenced, 1);
    // What the first consumer does now is of no effect on what the second has.
    keeper.settle(later, (taken.number, 1), Settled::Dropped);
    assert_eq!(keeper.flights.settled(), 0);
    keeper.settle(later, (taken.number, 3), Settled::Ack);
    assert_eq!(keeper.flights.settled(), 1);
}

/// As a file that another process had, while it was closed after an error.
#[test]
fn where_one_owner_has_all_and_something_is_fenced_it_asks_for_its_lease_anew() {
    let (mut keeper, mut outbox) = (Keeper::<()>::new(config()), received());
    let now = |steady| Now { wall: 1_000_200, steady };
    let given = Leases { good_for: None, clock: None, ..leases(0) };
    lease(&mut keeper, &mut outbox, now(0), Ok(given));
    let Some(Call::Load(call)) = keeper.poll(now(0), &mut outbox) else { panic!("it reads") };
    let rows = ["a", "b"].into_iter().zip(1..);
    let rows = rows.map(|(name, number)| Row { name: name.into(), number, ..row(1_000_100) });
    let loaded = Loaded { rows: rows.collect(), ends: vec![None], ..Loaded::default() };
    keeper.answer(now(0), &mut outbox, Answer::Load(call, Ok(loaded)));
    assert!(keeper.poll(now(1), &mut outbox).is_none());
    outbox.take(1).expect("it is due");
    keeper.settle(now(1), (1, 1), Settled::Ack);
    let Some(Call::Commit(call)) = keeper.poll(now(100), &mut outbox) else { panic!("an ack") };
    let done = Done { outcomes: vec![Outcome::Fenced], ..Done::default() };
    keeper.answer(now(100), &mut outbox, Answer::Commit(call, Ok(done)));
    let call = keeper.poll(now(100), &mut outbox);
    assert!(matches!(call, Some(Call::Lease(_))), "{call:?}");
    assert_eq!(outbox.len(), 0, "what waits is of the old epoch");
}

/// The store tells once what has become visible, and this answer was passed over.
#[test]
fn what_came_when_the_lease_was_over_is_read_again_if_nobody_else_had_it() {
    let mut keeper: Keeper<()> = Keeper::new(Config { refresh: u64::MAX / 2, ..config() });
    let mut outbox = received();
    let now = |steady| Now { wall: 0, steady };
    lease(&mut keeper, &mut outbox, now(0), Ok(leases(1_000_000)));
    let Some(Call::Load(call)) = keeper.poll(now(0), &mut outbox) else { panic!("it looks") };
    let nothing = Loaded { ends: vec![None], ..Loaded::default() };
    keeper.answer(now(0), &mut outbox, Answer::Load(call, Ok(nothing)));
    while let Some(call) = keeper.poll(now(0), &mut outbox) {
        past(&mut keeper, &mut outbox, now(0), Some(call));
    }
    let Some(Call::Load(call)) = keeper.poll(now(300), &mut outbox) else { panic!("it looks") };
    assert!(1_000_100 < call.from[0].after.deadline, "the row is before what was loaded");
    // The answer takes longer than the lease.
    let late = now(70_000);
    assert_eq!(keeper.poll(late, &mut outbox), None);
    load(&mut keeper, &mut outbox, late, call);
    lease(&mut keeper, &mut outbox, late, Ok(leases(1_070_000)));
    while let Some(call) = keeper.poll(late, &mut outbox) {
        match call {
            Call::Load(call) => answer_load(&mut keeper, &mut outbox, late, call),
            call => {
                let Call::Behind(behind) = &call else { panic!("{call:?}") };
                assert!(Position::start() < behind.from[0].after, "what is known is read again");
                past(&mut keeper, &mut outbox, late, Some(call));
            }
        }
    }
    assert_eq!(outbox.len(), 1);
}

/// A count writes no transaction into the row, so no look tells of it.
#[test]
fn what_is_counted_back_while_no_lease_is_held_is_read_again_if_nobody_else_had_it() {
    let config = Config { max_attempts: Some(3), refresh: u64::MAX / 2, ..config() };
    let mut keeper: Keeper<()> = Keeper::new(config);
    let mut outbox = received();
    outbox.listeners = 1;
    lease(&mut keeper, &mut outbox, now(0), Ok(leases(1_000_200)));
    let mut counts = Vec::new();
    for (at, leased) in
        [(1, true), (70_000, false), (70_010, false), (80_000, true), (80_001, true)]
    {
        while let Some(call) = keeper.poll(now(at), &mut outbox) {
            match call {
                Call::Lease(call) => {
                    let leases = match leased {
                        true => Ok(leases(1_000_200 + at)),
                        false => Err(Error::store("reach it", "cut")),
                    };
                    keeper.answer(now(at), &mut outbox, Answer::Lease(call, leases));
                }
                Call::Commit(call) => {
                    let [Settlement { then: Then::Counted { attempt }, .. }] = call.settlements[..]
                    else {
                        panic!("{call:?}")
                    };
                    counts.push((at, attempt));
                    let row = Row { attempt, ..row(1_000_100) };
                    let outcomes = vec![Outcome::Settled(Some(row))];
                    let done = Done { outcomes, ..Done::default() };
                    keeper.answer(now(at), &mut outbox, Answer::Commit(call, Ok(done)));
                }
                Call::Load(call) => answer_load(&mut keeper, &mut outbox, now(at), call),
                call => past(&mut keeper, &mut outbox, now(at), Some(call)),
            }
        }
    }
    // Nobody took it the first time.
    assert_eq!(counts, [(1, 1), (70_010, 0), (80_000, 1)]);
    assert_eq!(outbox.take(80_001).map(|(row, epoch)| (row.attempt, epoch)), Some((0, 1)));
}

#[test]
fn a_clock_that_is_slewed_makes_a_timeout_early_by_what_it_loses_between_two_looks() {
    let mut keeper: Keeper<()> = Keeper::new(config());
    let mut outbox = received();
    let deadline = 1_004_600;
    // As fast as chrony does it.
    let clock = |at: u64| 1_000_000 + at * 92 / 100;
    lease(&mut keeper, &mut outbox, now(0), Ok(leases(clock(0))));
    let forgotten = keeper.counts.forgotten;
    let mut at = 0;
    while outbox.len() == 0 {
        match keeper.poll(now(at), &mut outbox) {
            Some(Call::Load(call)) => {
                let row = row(deadline);
                let is_wanted = call.from[0].after < row.position() && deadline <= call.until;
                let rows = if is_wanted { vec![row] } else { Vec::new() };
                let clock = Some(clock(at));
                let loaded = Loaded { rows, ends: vec![None], clock, ..Loaded::default() };
                keeper.answer(now(at), &mut outbox, Answer::Load(call, Ok(loaded)));
            }
            Some(call) => past(&mut keeper, &mut outbox, now(at), Some(call)),
            None => at = keeper.wake(now(at)).max(at + 1),
        }
    }
    assert!((deadline - 20..deadline + 20).contains(&clock(at)), "{}", clock(at));
    assert_eq!(keeper.counts.forgotten, forgotten, "all is read again");
}

#[test]
fn an_answer_from_before_a_pause_does_not_end_it_and_one_from_after_it_does() {
    let mut keeper: Keeper<()> = Keeper::new(config());
    let mut outbox = received();
    let Some(Call::Lease(call)) = keeper.poll(now(0), &mut outbox) else { panic!("asks") };
    keeper.pause(now(1), &mut outbox, true);
    keeper.answer(now(2), &mut outbox, Answer::Lease(call, Ok(leases(1_000_000))));
    assert!(keeper.is_paused);
    lease(&mut keeper, &mut outbox, now(50_000), Ok(leases(1_050_000)));
    assert!(!keeper.is_paused, "an operator has resumed it");
}

/// The others give back its share when they hear of it.
#[test]
fn a_worker_that_gets_nothing_asks_often_for_a_lease_and_a_quarter_and_then_as_others_do() {
    let mut keeper: Keeper<()> = Keeper::new(config());
    let none = |at| Leases { held: Vec::new(), ..leases(1_000_000 + at) };
    let mut asked = Vec::new();
    idle(&mut keeper, &mut received(), 300_000, none, |at, call| {
        asked.extend(matches!(call, Call::Lease(_)).then_some(at));
    });
    let within = |from, to| asked.iter().filter(|&&at| (from..to).contains(&at)).count();
    assert!((20..=25).contains(&within(0, 75_000)), "{asked:?}");
    assert!((1..=8).contains(&within(80_000, 200_000)), "{asked:?}");
}

#[test]
fn where_nothing_is_leased_it_wakes_to_ask_again_and_only_what_was_given_back_makes_it_wait() {
    let (mut keeper, mut outbox) = (Keeper::<()>::new(config()), received());
    let error = || Err(Error::store("lease", "it does not answer"));
    lease(&mut keeper, &mut outbox, now(0), error());
    let again = keeper.wake(now(0));
    assert!((1..=1_000).contains(&again));
    let none = Leases { held: Vec::new(), ..leases(1_000_000) };
    lease(&mut keeper, &mut outbox, now(again), Ok(none));
    assert!(keeper.lease_pause.is_over(again));
}

#[test]
fn leases_are_asked_for_as_soon_as_those_of_others_end() {
    let (mut keeper, mut outbox) = (Keeper::<()>::new(config()), received());
    let others_end = Some(Duration::from_secs(5));
    lease(&mut keeper, &mut outbox, now(0), Ok(Leases { others_end, ..leases(1_000_000) }));
    assert_eq!(keeper.tenure.ends(), Some((5_001, 60_000)));
}

/// What another owner took before it was stopped counts as long as it may.
#[test]
fn the_span_for_which_other_owners_count_is_a_lease() {
    let (mut keeper, mut outbox) = (Keeper::<()>::new(config()), received());
    lease(&mut keeper, &mut outbox, now(0), Ok(leases(1_000_000)));
    assert_eq!(keeper.spans(), 60_000);
}

#[test]
fn an_answer_from_before_a_limit_and_a_pause_ends_neither_and_one_from_after_ends_both() {
    for (asked, is_limited) in [(9, true), (10, true), (11, false)] {
        let (mut keeper, mut outbox) = (Keeper::<()>::new(config()), received());
        let Some(Call::Lease(call)) = keeper.poll(now(asked), &mut outbox) else { panic!("asks") };
        let limit = RateLimit { timeouts: 5, per: Duration::from_secs(1) };
        keeper.limit_rate(now(10), Some(limit));
        keeper.pause(now(10), &mut outbox, true);
        keeper.answer(now(20), &mut outbox, Answer::Lease(call, Ok(leases(1_000_000))));
        let is_kept = keeper.limit.settle(20, keeper.spans()) != usize::MAX;
        assert_eq!((is_kept, keeper.is_paused), (is_limited, is_limited), "asked at {asked}");
    }
}

/// As one that moves to another database.
#[test]
fn what_yields_is_given_back_when_nothing_of_it_is_held_whatever_the_share_is() {
    let (mut keeper, mut outbox) = holds_one();
    let (mut at, mut acks, mut is_settled) = (15_000, false, false);
    let given = loop {
        match keeper.poll(now(at), &mut outbox) {
            Some(Call::Lease(call)) if !call.given_back.is_empty() => break call,
            Some(Call::Lease(call)) => {
                let leases = Leases { yielding: vec![0], ..leases(1_000_200 + at) };
                keeper.answer(now(at), &mut outbox, Answer::Lease(call, Ok(leases)));
            }
            Some(Call::Commit(call)) => {
                let done = Done { outcomes: vec![Outcome::Settled(None)], ..Done::default() };
                keeper.answer(now(at), &mut outbox, Answer::Commit(call, Ok(done)));
                is_settled = true;
            }
            Some(call) => panic!("it has nothing to look for: {call:?}"),
            None if 40_000 <= at && !acks => {
                keeper.settle(now(at), (1, 1), Settled::Ack);
                acks = true;
            }
            None => at = keeper.wake(now(at)).clamp(at + 1, at + 1_000),
        }
    };
    assert!(is_settled && at < 60_000, "{at}");
    assert_eq!((&given.given_back[..], given.wanted), (&[0][..], true));
}

#[test]
fn what_leaves_is_given_back_as_soon_as_it_may_be_though_a_consumer_holds_it() {
    let config = Config { look: u64::MAX / 4, horizon: u64::MAX / 4, ..config() };
    let (mut keeper, mut outbox) = (Keeper::<()>::new(config), received());
    let (mut at, mut left) = (0, None);
    let given = loop {
        match keeper.poll(now(at), &mut outbox) {
            Some(Call::Lease(call)) if !call.given_back.is_empty() => break call.given_back,
            Some(Call::Lease(call)) => {
                let held = [0, 1].map(|partition| Lease { partition, epoch: 1 }).to_vec();
                let yielding = if 100 <= at { vec![0] } else { Vec::new() };
                if 100 <= at && left.is_none() {
                    // The answer takes as long as makes it leave between two renewals.
                    at += 7;
                    left = Some(at);
                }
                let leases = Leases { held, yielding, ..leases(1_000_200 + at) };
                keeper.answer(now(at), &mut outbox, Answer::Lease(call, Ok(leases)));
            }
            Some(Call::Load(call)) => {
                let rows = if at == 0 { vec![row(1_000_100)] } else { Vec::new() };
                let ends = vec![None; call.from.len()];
                let loaded = Loaded { rows, ends, ..Loaded::default() };
                keeper.answer(now(at), &mut outbox, Answer::Load(call, Ok(loaded)));
            }
            Some(call) => past(&mut keeper, &mut outbox, now(at), Some(call)),
            None if 0 < outbox.len() => _ = outbox.take(at),
            None => at = keeper.wake(now(at)).max(at + 1),
        }
        assert!(at < 200_000, "it gives nothing back");
    };
    assert_eq!((given, at), (vec![0], left.expect("it leaves") + 60_000));
}
