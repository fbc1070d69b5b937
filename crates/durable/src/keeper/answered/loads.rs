//! What the keeper reads, of what and when.

use super::super::{Answer, Call, Config, Keeper, Now};
use super::{answer_load, config, idle, lease, leases, load, now, past, received, row};
use crate::Error;
use crate::store::{Lease, Leases, Loaded, Position, Row};

/// Else a look that is slow is begun again and again.
#[test]
fn what_a_late_answer_brought_is_handed_out() {
    let mut keeper: Keeper<()> = Keeper::new(config());
    let mut outbox = received();
    let now = |steady| Now { wall: 0, steady };
    lease(&mut keeper, &mut outbox, now(0), Ok(leases(1_000_000)));
    let Some(Call::Load(call)) = keeper.poll(now(0), &mut outbox) else { panic!("it looks") };
    load(&mut keeper, &mut outbox, now(10_000), call);
    keeper.poll(now(10_000), &mut outbox);
    assert_eq!(outbox.len(), 1);
}

/// The store tells once what has become visible, and only of the partitions that are asked for.
#[test]
pub(in super::super) fn each_load_is_of_all_partitions() {
    let mut keeper: Keeper<()> = Keeper::new(config());
    let mut outbox = received();
    let now = |steady| Now { wall: 0, steady };
    let held = [0, 1].map(|partition| Lease { partition, epoch: 1 }).to_vec();
    lease(&mut keeper, &mut outbox, now(0), Ok(Leases { held, ..leases(1_000_000) }));
    for _ in 0..3 {
        let call = loop {
            match keeper.poll(now(1), &mut outbox) {
                Some(Call::Load(call)) => break call,
                call => past(&mut keeper, &mut outbox, now(1), call),
            }
        };
        assert_eq!(call.from.len(), 2);
        // The first is complete, and of the second there is more.
        let mut ends = vec![None, None];
        let second = call.from.iter().position(|start| start.lease.partition == 1).unwrap();
        ends[second] = Some(Position::before(call.from[second].after.deadline + 1));
        let loaded = Loaded { ends, ..Loaded::default() };
        keeper.answer(now(1), &mut outbox, Answer::Load(call, Ok(loaded)));
    }
}

#[test]
fn a_worker_that_was_stopped_while_it_read_of_the_past_soon_reads_on() {
    let mut keeper: Keeper<()> = Keeper::new(config());
    let mut outbox = received();
    lease(&mut keeper, &mut outbox, now(0), Ok(leases(10_000_000)));
    let mut at = 0;
    while at < 11_000 {
        match keeper.poll(now(at), &mut outbox) {
            Some(Call::Load(call)) => answer_load(&mut keeper, &mut outbox, now(at), call),
            Some(Call::Behind(call)) if at < 10_000 => {
                at = 10_000;
                let ends = vec![Some(Position::before(5_000))];
                let loaded = Loaded { ends, ..Loaded::default() };
                keeper.answer(now(at), &mut outbox, Answer::Behind(call, Ok(loaded)));
            }
            Some(Call::Behind(_)) => break,
            None => at = keeper.wake(now(at)).max(at + 1),
            call => panic!("{call:?}"),
        }
    }
    assert!((10_000..10_500).contains(&at), "{at}");
}

/// As of a transaction that puts many for now, and ends later.
#[test]
fn many_that_are_committed_late_take_turns_with_what_becomes_due() {
    let mut keeper: Keeper<()> = Keeper::new(config());
    let mut outbox = received();
    let (mut at, mut before) = (0, Vec::new());
    while !before.contains(&"due".into()) {
        assert!(at < 25_000, "{before:?}");
        match keeper.poll(now(at), &mut outbox) {
            Some(Call::Lease(call)) => {
                let leases = Ok(leases(1_000_000 + at));
                keeper.answer(now(at), &mut outbox, Answer::Lease(call, leases));
            }
            Some(Call::Load(call)) => {
                let late = (0..40).map(|n| (format!("late {n}"), 1_010_000));
                let all = late.chain([("due".to_owned(), 1_019_500)]).zip(1..);
                let rows = all.map(|((name, deadline), number)| Row {
                    name: name.into(),
                    number,
                    ..row(deadline)
                });
                let rows = if 20_000 <= at { rows.collect() } else { Vec::new() };
                let ends = vec![None; call.from.len()];
                let loaded = Loaded { rows, ends, ..Loaded::default() };
                keeper.answer(now(at), &mut outbox, Answer::Load(call, Ok(loaded)));
            }
            Some(Call::Behind(call)) => {
                let ends = vec![None; call.from.len()];
                let loaded = Loaded { ends, ..Loaded::default() };
                keeper.answer(now(at), &mut outbox, Answer::Behind(call, Ok(loaded)));
            }
            Some(call) => panic!("{call:?}"),
            None => match outbox.take(at) {
                Some((taken, _)) => before.push(taken.name),
                None => at = keeper.wake(now(at)).max(at + 1),
            },
        }
    }
    assert!(before.len() <= 2, "{before:?}");
}

#[test]
pub(in super::super) fn after_a_slow_part_of_the_past_without_rows_it_reads_no_other_for_as_long() {
    let mut keeper: Keeper<()> = Keeper::new(config());
    let mut outbox = received();
    lease(&mut keeper, &mut outbox, now(0), Ok(leases(10_000_000)));
    let (mut at, mut ends) = (0, Vec::new());
    while ends.len() < 2 {
        match keeper.poll(now(at), &mut outbox) {
            Some(Call::Load(call)) => answer_load(&mut keeper, &mut outbox, now(at), call),
            Some(Call::Behind(call)) => {
                ends.push(at);
                at += 60;
                let end = Position::before(5_000 * ends.len() as u64);
                let loaded = Loaded { ends: vec![Some(end)], ..Loaded::default() };
                keeper.answer(now(at), &mut outbox, Answer::Behind(call, Ok(loaded)));
            }
            None => at = keeper.wake(now(at)).max(at + 1),
            call => panic!("{call:?}"),
        }
    }
    assert!(ends[0] + 120 <= ends[1], "{ends:?}");
}

#[test]
pub(in super::super) fn a_new_owner_reads_what_is_recent_first_and_after_an_error_nothing_that_it_knows()
 {
    let mut keeper: Keeper<()> = Keeper::new(config());
    let mut outbox = received();
    let now = |steady| Now { wall: 0, steady };
    lease(&mut keeper, &mut outbox, now(0), Ok(leases(10_000_000)));
    let Some(Call::Load(call)) = keeper.poll(now(0), &mut outbox) else { panic!("it loads") };
    let present = call.from[0].after.clone();
    assert!((9_998_000..10_000_000).contains(&present.deadline), "{present:?}");
    let known = call.until;
    let nothing = Loaded { ends: vec![None], ..Loaded::default() };
    keeper.answer(now(0), &mut outbox, Answer::Load(call, Ok(nothing)));
    let Some(Call::Behind(call)) = keeper.poll(now(0), &mut outbox) else { panic!("the past") };
    // A lease is a minute here.
    let recent = call.from[0].after.clone();
    assert!((9_924_000..9_926_000).contains(&recent.deadline), "{recent:?}");
    assert_eq!(call.until, present.deadline - 1);
    past(&mut keeper, &mut outbox, now(0), Some(Call::Behind(call)));
    let Some(Call::Behind(call)) = keeper.poll(now(0), &mut outbox) else { panic!("the past") };
    assert_eq!((&call.from[0].after, call.until), (&Position::start(), recent.deadline - 1));
    let end = Some(Position::before(5_000_000));
    let some = Loaded { ends: vec![end.clone()], ..Loaded::default() };
    keeper.answer(now(0), &mut outbox, Answer::Behind(call, Ok(some)));
    let Some(Call::Behind(call)) = keeper.poll(now(0), &mut outbox) else { panic!("the past") };
    assert_eq!(Some(&call.from[0].after), end.as_ref());
    keeper.answer(now(0), &mut outbox, Answer::Behind(call, Err(Error::store("read", "cut"))));
    let later = now(900);
    let (mut loaded, mut read) = (false, false);
    while let Some(call) = keeper.poll(later, &mut outbox) {
        match call {
            Call::Load(call) => {
                assert_eq!(call.from[0].after, Position::before(known + 1));
                let nothing = Loaded { ends: vec![None], ..Loaded::default() };
                keeper.answer(later, &mut outbox, Answer::Load(call, Ok(nothing)));
                loaded = true;
            }
            Call::Behind(call) => {
                assert_eq!(Some(&call.from[0].after), end.as_ref());
                past(&mut keeper, &mut outbox, later, Some(Call::Behind(call)));
                read = true;
            }
            call => panic!("{call:?}"),
        }
    }
    assert!(loaded && read);
}

/// Nothing can be looked for until something is settled.
#[test]
fn with_all_that_it_may_hold_in_flight_the_keeper_wakes_for_no_look() {
    let config = Config { near_rows: 1, in_flight: 1, ..config() };
    let mut keeper: Keeper<()> = Keeper::new(config);
    let mut outbox = received();
    let now = |steady| Now { wall: 0, steady };
    lease(&mut keeper, &mut outbox, now(0), Ok(leases(1_000_200)));
    for time in [1, 5_000] {
        while let Some(call) = keeper.poll(now(time), &mut outbox) {
            match call {
                Call::Load(call) => answer_load(&mut keeper, &mut outbox, now(time), call),
                call => past(&mut keeper, &mut outbox, now(time), Some(call)),
            }
        }
        outbox.take(time);
    }
    assert_eq!(keeper.in_flight(), 1);
    assert_eq!(keeper.wake(now(5_000)), 15_000, "when it renews its leases");
}

/// As much was put at once that one answer cannot tell of it.
#[test]
fn what_is_too_much_for_a_load_is_read_with_the_past_up_to_now_or_to_the_end_of_the_load() {
    let (mut keeper, mut outbox) = (Keeper::<()>::new(config()), received());
    lease(&mut keeper, &mut outbox, now(0), Ok(leases(1_000_000)));
    let held = Lease { partition: 0, epoch: 1 };
    for (at, outlasts) in [(0, true), (1_000, false), (1_200, true)] {
        let call = loop {
            match keeper.poll(now(at), &mut outbox) {
                Some(Call::Load(call)) => break call,
                call => past(&mut keeper, &mut outbox, now(at), call),
            }
        };
        let (end, is_ahead) = (call.until + 1, 1_000_000 + at < call.from[0].after.deadline);
        assert_eq!(is_ahead, at == 1_200);
        let loaded = Loaded { ends: vec![None], outlasts, ..Loaded::default() };
        keeper.answer(now(at), &mut outbox, Answer::Load(call, Ok(loaded)));
        let (time, place) = (keeper.tenure.time(now(at)), keeper.front.place(held));
        let recent = if is_ahead { end } else { time };
        let is_told = place.expect("it is leased").recent == recent;
        assert!(is_told || !outlasts, "at {at}");
    }
}

/// What a look missed would never come.
#[test]
fn of_one_partition_after_another_the_past_is_read_once_more_now_and_then() {
    let mut keeper: Keeper<()> = Keeper::new(config());
    let held = [0, 1].map(|partition| Lease { partition, epoch: 1 });
    let both = |at| Leases { held: held.to_vec(), ..leases(1_000_000 + at) };
    let mut read = Vec::new();
    idle(&mut keeper, &mut received(), 250_000, both, |at, call| {
        let Call::Behind(call) = call else { return };
        read.extend(call.from.iter().map(|start| (at / 60_000, start.lease.partition)));
    });
    read.dedup();
    let later: Vec<_> = read.into_iter().filter(|&(minute, _)| 0 < minute).collect();
    assert_eq!(later, [(1, 1), (2, 0), (3, 1), (4, 0)]);
}

#[test]
fn the_past_is_read_in_eighths_and_what_cannot_be_read_alone_and_more_and_more_rarely() {
    let config = Config { near_rows: 400, near_bytes: 64 << 10, look: 1_000_000, ..config() };
    let (mut keeper, mut outbox) = (Keeper::<()>::new(config), received());
    let (mut at, mut tries) = (0, Vec::new());
    while at < 600_000 {
        match keeper.poll(now(at), &mut outbox) {
            Some(Call::Behind(call)) => {
                tries.push((at, call.limit.rows, call.limit.bytes));
                let error = Error::store("read", "it is damaged");
                keeper.answer(now(at), &mut outbox, Answer::Behind(call, Err(error)));
            }
            Some(Call::Lease(call)) => {
                let leases = Ok(leases(1_000_000 + at));
                keeper.answer(now(at), &mut outbox, Answer::Lease(call, leases));
            }
            Some(Call::Load(call)) => {
                let loaded = Loaded { ends: vec![None], ..Loaded::default() };
                keeper.answer(now(at), &mut outbox, Answer::Load(call, Ok(loaded)));
            }
            Some(call) => panic!("{call:?}"),
            None => at = keeper.wake(now(at)).clamp(at + 1, at + 1_000),
        }
    }
    assert_eq!((tries[0].1, tries[0].2), (50, 8 << 10));
    let last = tries.last_chunk::<9>().expect("it goes on");
    assert!(last.iter().all(|&(_, rows, _)| rows == 1), "{last:?}");
    assert!(15_000 < last[8].0 - last[0].0, "two parts, each once in five seconds: {last:?}");
}

#[test]
fn after_a_part_of_the_past_that_is_short_or_has_rows_it_reads_on_at_once() {
    for (took, has_rows) in [(1, false), (5_000, true)] {
        let (mut keeper, mut outbox) = (Keeper::<()>::new(config()), received());
        lease(&mut keeper, &mut outbox, now(0), Ok(leases(10_000_000)));
        let call = loop {
            match keeper.poll(now(0), &mut outbox) {
                Some(Call::Load(call)) => answer_load(&mut keeper, &mut outbox, now(0), call),
                Some(Call::Behind(call)) => break call,
                call => panic!("{call:?}"),
            }
        };
        let rows = has_rows.then(|| row(1_000_100)).into_iter().collect();
        let loaded = Loaded { rows, ends: vec![None; call.from.len()], ..Loaded::default() };
        keeper.answer(now(took), &mut outbox, Answer::Behind(call, Ok(loaded)));
        assert!(keeper.behind_pause.is_over(took), "{took}");
    }
}

/// What is near has half of it, and what was dropped once is not read in small pieces.
#[test]
fn a_load_is_of_what_is_left_of_half_the_memory_and_of_a_quarter_at_least() {
    for (kilobytes, limit) in [(0, 32), (8, 24), (15, 17), (16, 16), (24, 16)] {
        let config = Config { near_bytes: 64 << 10, look: 0, ..config() };
        let (mut keeper, mut outbox) = (Keeper::<()>::new(config), received());
        lease(&mut keeper, &mut outbox, now(0), Ok(leases(1_000_000)));
        for name in 0..kilobytes {
            let mut large = Row { name: format!("{name:2}").into(), ..row(1_500_000) };
            large.payload = vec![0; 1_024 - large.bytes()].into();
            keeper.front.insert(large);
        }
        let Some(Call::Load(call)) = keeper.poll(now(0), &mut outbox) else { panic!("it looks") };
        assert_eq!(call.limit.bytes, limit << 10, "beside {kilobytes} KB");
    }
}

/// As in a copy of another table. It does not look for it again and again meanwhile.
#[test]
fn of_two_timeouts_with_one_number_the_second_waits_for_the_first() {
    for is_shared in [false, true] {
        let (mut keeper, mut outbox) = (Keeper::<()>::new(config()), received());
        let given = Leases { clock: is_shared.then_some(1_000_000), ..leases(0) };
        let now = |steady| Now { wall: 1_000_000 + steady, steady };
        lease(&mut keeper, &mut outbox, now(0), Ok(given));
        let named = |name: &str| Row { name: name.into(), ..row(1_000_100) };
        let (mut at, mut loads) = (200, 0);
        while at < 1_200 {
            let until = |first: &Position| {
                let rows = ["a", "b"].map(named).into_iter();
                let rows = rows.filter(|row| *first < row.position()).collect();
                Loaded { rows, ends: vec![None], ..Loaded::default() }
            };
            let answer = match keeper.poll(now(at), &mut outbox) {
                Some(Call::Load(call)) => {
                    let loaded = until(&call.from[0].after);
                    Answer::Load(call, Ok(loaded))
                }
                Some(Call::Behind(call)) => {
                    let loaded = until(&call.from[0].after);
                    Answer::Behind(call, Ok(loaded))
                }
                Some(call) => panic!("{call:?}"),
                None => {
                    at = keeper.wake(now(at)).clamp(at + 1, at + 1_000);
                    continue;
                }
            };
            loads += 1;
            assert!(loads <= 30, "within a second, shared: {is_shared}");
            keeper.answer(now(at), &mut outbox, answer);
        }
        assert_eq!((outbox.len(), keeper.in_flight()), (1, 1));
        assert!(2 <= loads, "shared: {is_shared}");
    }
}

/// When the answer comes, another may own what was read.
#[test]
fn while_the_leases_cannot_be_renewed_nothing_is_read() {
    let (mut keeper, mut outbox) = (Keeper::<()>::new(config()), received());
    lease(&mut keeper, &mut outbox, now(0), Ok(leases(1_000_000)));
    let (mut at, mut failures) = (0, 0);
    while at < 40_000 {
        match keeper.poll(now(at), &mut outbox) {
            Some(Call::Lease(call)) => {
                let error = Error::store("lease", "it does not answer");
                keeper.answer(now(at), &mut outbox, Answer::Lease(call, Err(error)));
                failures += 1;
            }
            Some(call) if failures == 0 => {
                let error = Error::store("read", "it does not answer");
                keeper.answer(now(at), &mut outbox, call.fail(error));
            }
            Some(call) => panic!("{call:?} at {at}"),
            None => at = keeper.wake(now(at)).clamp(at + 1, at + 1_000),
        }
    }
    assert!(10 < failures);
}

#[test]
fn of_a_load_that_overflows_the_past_stays_while_there_is_room_for_it() {
    for (rows, overflows, stays) in [(1, true, 1), (200, false, 200), (200, true, 126)] {
        let (mut keeper, mut outbox) = (Keeper::<()>::new(config()), received());
        lease(&mut keeper, &mut outbox, now(0), Ok(leases(1_000_000)));
        let call = loop {
            match keeper.poll(now(0), &mut outbox) {
                Some(Call::Load(call)) => break call,
                call => past(&mut keeper, &mut outbox, now(0), call),
            }
        };
        let name = |name: u64| Row { name: format!("{name}").into(), number: name, ..row(500_000) };
        let rows = (1..=rows).map(name).collect();
        let loaded = Loaded { rows, ends: vec![None], overflows, ..Loaded::default() };
        keeper.answer(now(1), &mut outbox, Answer::Load(call, Ok(loaded)));
        assert_eq!(keeper.front.past.len(), stays, "{overflows}");
    }
}
