//! Random calls, kills, clocks that jump and a store that fails, in virtual time, against what the
//! timer promises.

mod world;

use std::collections::HashMap;
use std::time::Duration;

use fastrand::Rng;

use crate::Error;
use crate::keeper::words::CommitCall;
use crate::keeper::{Answer, Call, Command, Config, Keeper, Rate, Settled};
use crate::store::{Change, Changed, Done, Outcome, RateLimit, Store};
use world::World;

#[test]
fn random_calls_kills_jumps_and_failures_keep_every_promise() {
    let runs = std::env::var("TICKWHEEL_DURABLE_MODEL_RUNS").map_or(RUNS, |n| n.parse().unwrap());
    for seed in 0..runs {
        World::new(seed).run(400);
    }
}

#[test]
fn many_timeouts_of_one_deadline_all_come() {
    let mut world = World::new(1);
    world.config = Config { near_rows: 8, page: 3, in_flight: 3, ..world.config };
    world.restart();
    for name in 0..100 {
        world.put(&format!("{name}"), 1_001_000);
    }
    world.finish();
    assert_eq!(world.taken.len(), 100);
}

#[test]
fn a_clock_set_back_makes_nothing_early() {
    let mut world = World::new(1);
    world.put("a", world.now.wall + 5_000);
    world.settle_down();
    world.now.wall += 3_600_000;
    world.settle_down();
    assert_eq!(world.outbox.len(), 1, "an hour ahead it is due");
    world.now.wall -= 3_600_000;
    world.settle_down();
    assert_eq!(world.outbox.len(), 0, "the clock says that it is not due, and nobody took it");
    let forgotten = world.keeper.counts.forgotten;
    assert!(0 < forgotten);
    world.settle_down();
    assert_eq!(world.keeper.counts.forgotten, forgotten, "the clock stands");
    world.now.wall = 0;
    world.settle_down();
    assert_eq!(world.outbox.len(), 0);
    world.now.wall = u64::MAX;
    world.settle_down();
    assert_eq!(world.outbox.len(), 1);
}

#[test]
fn an_ack_does_not_remove_a_later_timeout_of_the_same_name() {
    let mut world = World::new(1);
    world.put("a", 0);
    world.settle_down();
    world.take();
    world.put("a", 2_000_000);
    world.settle_down();
    world.settle_one(0, Settled::Ack);
    world.settle_down();
    let row = world.store.get("a").unwrap().expect("the later one is there");
    assert_eq!(row.deadline, 2_000_000);
}

#[test]
pub(super) fn a_full_disk_lets_what_is_due_go_on() {
    let mut world = World::new(1);
    world.config =
        Config { near_rows: 200, near_bytes: 1 << 20, in_flight: 50, group: 64, ..world.config };
    world.restart();
    for name in 0..50 {
        world.put(&format!("{name}"), world.now.wall + 1_000 + name);
    }
    world.settle_down();
    world.puts_fail = true;
    world.put("one more", 0);
    world.settle_down();
    assert_eq!(world.failed, 1, "the caller is told");
    // Callers go on asking, and what consumers acked gets into the store all the same.
    for n in 0..3_000 {
        world.now.wall += 1;
        world.now.steady += 1;
        world.put(&format!("more {n}"), 0);
        world.settle_down();
        world.take();
        while !world.held.is_empty() {
            world.settle_one(0, Settled::Ack);
        }
    }
    assert_eq!(world.taken.len(), 50);
    assert_eq!(world.store.count().unwrap(), 0);
    world.puts_fail = false;
    world.pass(30_000);
    world.put("again", 0);
    world.finish();
    assert_eq!(world.taken.len(), 51, "it recovers by itself");
}

#[test]
fn consumers_that_settle_nothing_for_a_minute_are_told_of() {
    let mut world = World::new(1);
    world.config = Config { near_rows: 60, near_bytes: 1 << 20, in_flight: 3, ..world.config };
    world.restart();
    for name in 0..50 {
        world.put(&format!("{name}"), 0);
    }
    world.settle_down();
    world.take();
    world.pass(50_000);
    assert_eq!(world.held_told(), []);
    world.settle_one(0, Settled::Ack);
    world.pass(50_000);
    assert_eq!(world.held_told(), [], "one was settled");
    world.pass(100_000);
    assert_eq!(world.held_told(), [3; 2], "once a minute");
}

#[test]
fn where_nobody_receives_nobody_is_told_of() {
    let mut world = World::new(1);
    world.put("a", 0);
    world.pass(200_000);
    assert_eq!((world.outbox.len(), world.held_told()), (1, vec![]));
}

/// All but one hang.
#[test]
fn consumers_that_hang_are_told_of_though_another_settles() {
    for max_attempts in [None, Some(2)] {
        let mut world = many_are_due(max_attempts);
        take_many(&mut world, 10);
        for (seconds, told) in [(59, &[][..]), (66, &[9]), (120, &[9, 9, 9])] {
            for _ in 0..seconds {
                world.settle_one(9, Settled::Ack);
                take_many(&mut world, 1);
                world.pass(1_000);
            }
            assert_eq!(world.held_told(), told, "with {max_attempts:?}");
        }
    }
}

#[test]
fn consumers_that_ask_for_more_time_do_not_hang() {
    for visibility in [None, Some(30_000)] {
        let mut world = many_are_due(None);
        take_many(&mut world, 10);
        world.keeper.config.visibility = visibility;
        for second in 0..240 {
            world.settle_one(9, Settled::Ack);
            take_many(&mut world, 1);
            for (row, epoch) in world.held.iter().filter(|_| second % 20 == 0) {
                let more = Settled::Extend { time: 25_000 };
                world.keeper.settle(world.now, (row.number, *epoch), more);
            }
            world.pass(1_000);
        }
        assert_eq!(world.held_told(), [], "with {visibility:?}");
        assert_eq!(world.keeper.counts.expired, 0);
    }
}

/// One who needs long for each has the others wait for him, and holds none of them for long.
#[test]
fn a_consumer_who_is_slow_and_settles_is_not_told_of() {
    for max_attempts in [None, Some(2)] {
        let mut world = many_are_due(max_attempts);
        for _ in 0..12 {
            take_many(&mut world, 1);
            world.pass(30_000);
            world.settle_one(0, Settled::Ack);
        }
        assert_eq!(world.held_told(), [], "with {max_attempts:?}");
    }
}

#[test]
fn the_keeper_wakes_when_the_rate_lets_the_next_be_taken() {
    for max_attempts in [None, Some(2)] {
        let mut world = many_are_due(max_attempts);
        world.settle_down();
        world.config.rate = Some(Rate { timeouts: 2, per: 100 });
        world.restart();
        world.settle_down();
        assert_eq!(world.outbox.len(), 2);
        assert!(world.outbox.is_paced, "it waits until one is taken");
        world.take();
        world.now.steady += 10;
        world.take();
        world.settle_down();
        assert!(!world.outbox.is_paced);
        for next in [91, 10, 91] {
            let wake = world.keeper.wake(world.now);
            assert_eq!(wake, world.now.steady + next);
            world.now.steady = wake;
            world.settle_down();
            assert_eq!(world.outbox.len(), 1);
            world.take();
            world.settle_down();
        }
    }
}

#[test]
fn nothing_is_kept_of_what_was_taken_after_a_limit_was_taken_away() {
    let mut world = many_are_due(None);
    let limit = RateLimit { timeouts: 2, per: Duration::from_millis(100) };
    world.pause(true);
    for limit in [Some(limit), None] {
        world.keeper.limit_rate(world.now, limit);
        world.settle_down();
    }
    world.pause(false);
    for _ in 0..200 {
        take_many(&mut world, 1);
        world.settle_one(0, Settled::Ack);
    }
    world.settle_down();
    assert_eq!((world.taken.len(), world.outbox.taken.len()), (200, 0));
}

#[test]
fn what_is_put_off_for_ever_has_the_last_deadline_that_every_store_can_keep() {
    for settled in [Settled::Retry { delay: u64::MAX }, Settled::Dropped] {
        let mut world = World::new(1);
        world.config = Config { redeliver: u64::MAX, max_attempts: None, ..world.config };
        world.restart();
        world.put("a", 0);
        take_many(&mut world, 1);
        world.settle_one(0, settled);
        world.pass(100);
        let row = world.store.get("a").unwrap().expect("it is there");
        assert_eq!(row.deadline, i64::MAX as u64, "{settled:?}");
    }
}

/// Ten may be held.
fn many_are_due(max_attempts: Option<u32>) -> World {
    let mut world = World::new(1);
    let places = Config { near_rows: 900, near_bytes: 1 << 20, in_flight: 10, ..world.config };
    world.config = Config { max_attempts, ..places };
    world.restart();
    (0..300).for_each(|name| world.put(&format!("{name}"), 0));
    world
}

fn take_many(world: &mut World, count: usize) {
    for _ in 0..count {
        world.settle_down();
        world.take();
    }
}

/// One that hangs has one of many places, and nobody takes what is in the others.
#[test]
fn a_consumer_that_takes_nothing_more_for_a_minute_is_told_of() {
    let mut world = World::new(1);
    world.config = Config { near_rows: 60, near_bytes: 1 << 20, in_flight: 50, ..world.config };
    world.restart();
    for name in 0..20 {
        world.put(&format!("{name}"), 0);
    }
    world.settle_down();
    for _ in 0..3 {
        world.take();
        world.pass(40_000);
        assert_eq!(world.held_told(), [], "one was taken");
    }
    world.pass(30_000);
    assert_eq!(world.held_told(), [3]);
    world.pass(100_000);
    assert_eq!(world.held_told(), [3; 2], "once a minute");
}

#[test]
fn consumers_that_settle_no_large_payload_for_a_minute_are_told_of() {
    let mut world = World::new(1);
    world.config = Config { near_rows: 1_000, near_bytes: 1 << 20, in_flight: 50, ..world.config };
    world.restart();
    (0..30).for_each(|name| world.put_large(&format!("{name}"), 0));
    for _ in 0..30 {
        world.settle_down();
        world.take();
    }
    world.pass(70_000);
    assert_eq!(world.held_told().len(), 1);
}

/// Or one that takes too long would fail as a whole, and so would the next of the same callers.
#[test]
fn large_payloads_are_several_commits() {
    let mut world = World::new(1);
    world.config = Config { near_rows: 1_000, near_bytes: 8 << 20, group: 1_000, ..world.config };
    world.restart();
    (0..40).for_each(|name| world.put_large(&format!("{name}"), 100_000_000));
    world.settle_down();
    assert_eq!(world.keeper.counts.commits, 3);
    let bytes = |name| Change::put(name, 0, b"").bytes();
    assert_eq!(bytes("ab"), bytes("a") + 1, "a name counts, too");
}

/// Or what becomes due would find no room.
#[test]
fn what_is_in_flight_fills_little_more_than_a_quarter_of_the_memory() {
    let mut world = World::new(1);
    world.config = Config { near_rows: 1_000, near_bytes: 1 << 20, in_flight: 50, ..world.config };
    world.restart();
    (0..30).for_each(|name| world.put_large(&format!("{name}"), 0));
    world.settle_down();
    for _ in 0..30 {
        world.take();
        world.settle_down();
    }
    assert!((2..=5).contains(&world.keeper.in_flight()), "{}", world.keeper.in_flight());
}

#[test]
fn close_waits_for_what_consumers_hold() {
    let mut world = World::new(1);
    world.put("a", 0);
    world.put("b", 0);
    world.settle_down();
    world.take();
    world.keeper.close(world.now, &mut world.outbox, true);
    world.settle_down();
    assert!(!world.keeper.is_closed());
    world.settle_one(0, Settled::Ack);
    world.settle_down();
    assert!(world.keeper.is_closed());
    assert_eq!(world.store.count().unwrap(), 1, "what nobody had taken is still there");
}

#[test]
fn close_tells_of_acks_that_it_lost_and_of_no_older_error() {
    for loses in [false, true] {
        let mut world = World::new(1);
        world.put("a", 0);
        world.settle_down();
        world.take();
        world.puts_fail = true;
        world.put("b", 0);
        if loses {
            world.settle_one(0, Settled::Ack);
        } else {
            world.settle_down();
            assert_eq!(world.failed, 1);
        }
        world.keeper.close(world.now, &mut world.outbox, false);
        world.settle_down();
        assert!(world.keeper.is_closed());
        assert_eq!(world.keeper.lost().is_some(), loses, "{:?}", world.keeper.lost());
    }
}

#[test]
fn a_put_before_what_is_loaded_is_handed_out_at_its_deadline() {
    let mut world = World::new(1);
    world.config.refresh = u64::MAX / 2;
    world.restart();
    world.settle_down();
    world.pass(200);
    world.put("near", world.now.wall + 50);
    world.settle_down();
    world.pass(50);
    assert_eq!(world.outbox.len(), 1);
}

/// Nobody else changes anything.
#[test]
fn one_owner_reads_on_only_when_half_of_what_it_read_has_passed() {
    let mut world = World::new(1);
    world.config.refresh = u64::MAX / 2;
    world.restart();
    world.put("far", world.now.wall + 1_000_000);
    world.settle_down();
    let before = world.keeper.counts.loads;
    (0..1_000).for_each(|_| world.pass(10));
    let loads = world.keeper.counts.loads - before;
    let most = 10_000 / (world.config.horizon / 2) + 1;
    assert!(loads <= most, "it reads {loads} times, and {most} are enough");
}

#[test]
fn the_first_that_is_settled_wakes_the_keeper_and_others_go_along_with_it() {
    let mut world = World::new(1);
    let group = Config { group: 10, linger: 1_000, max_attempts: None, ..world.config };
    world.config = Config { near_rows: 60, near_bytes: 1 << 20, in_flight: 2, ..group };
    world.restart();
    world.put("a", 0);
    take_many(&mut world, 1);
    assert!(!world.keeper.lingers());
    world.settle_one(0, Settled::Ack);
    assert!(world.keeper.lingers());
    // Where no more may be handed out, nothing but a commit makes room.
    ["b", "c", "d"].iter().for_each(|name| world.put(name, 0));
    take_many(&mut world, 2);
    world.settle_one(0, Settled::Ack);
    world.settle_down();
    assert_eq!((world.keeper.flights.settled(), world.outbox.len()), (1, 1));
    assert!(!world.keeper.lingers());
}

/// A large payload or two fill it, too.
#[test]
fn as_many_as_may_be_in_flight_and_as_many_that_are_settled_have_room() {
    let mut world = World::new(1);
    let config = Config { group: 100, linger: 1_000, max_attempts: None, ..world.config };
    world.config = Config { near_rows: 60, near_bytes: 1 << 20, in_flight: 10, ..config };
    world.restart();
    (0..50).for_each(|name| world.put(&format!("{name}"), 0));
    take_many(&mut world, 10);
    while !world.held.is_empty() {
        world.settle_one(0, Settled::Ack);
    }
    world.poll();
    assert_eq!((world.outbox.len(), world.keeper.flights.len()), (10, 20));
    let mut world = World::new(1);
    world.put_large("a", 0);
    world.put_large("b", 0);
    world.settle_down();
    let bytes = world.store.get("a").unwrap().expect("it is there").bytes();
    world.config = Config { near_rows: 60, near_bytes: 4 * bytes, in_flight: 10, ..world.config };
    world.restart();
    take_many(&mut world, 2);
    assert_eq!(world.held.len(), 1, "a quarter is full");
}

/// Acked, and not committed.
fn with_one_acked() -> World {
    let mut world = World::new(1);
    world.config = Config { group: 10, max_attempts: None, ..world.config };
    world.restart();
    world.put("a", 0);
    take_many(&mut world, 1);
    world.settle_one(0, Settled::Ack);
    world
}

fn fail(world: &mut World, call: CommitCall<u64>) {
    let answer = Call::Commit(call).fail(Error::store("do it", "no room"));
    world.count(&answer);
    world.keeper.answer(world.now, &mut world.outbox, answer);
}

#[test]
fn what_callers_ask_for_goes_along_with_what_was_settled() {
    let mut world = with_one_acked();
    world.put("b", 2_000_000);
    let call = wait_for_commit(&mut world);
    assert_eq!((call.settlements.len(), call.changes.len()), (1, 1));
    // After a failure, too, where nothing was settled.
    let mut world = World::new(1);
    for name in ["a", "b"] {
        world.now.steady += 10_000;
        world.put(name, 2_000_000);
        let call = wait_for_commit(&mut world);
        assert_eq!(call.changes.len(), 1);
        fail(&mut world, call);
    }
}

/// Others of their names have no room, and no consumer holds any.
#[test]
fn what_is_locked_is_counted_and_no_consumer_is_told_of() {
    let mut world = World::new(1);
    let config = Config { group: 10, max_attempts: None, ..world.config };
    world.config = Config { near_rows: 8, in_flight: 1, ..config };
    world.restart();
    (0..4).for_each(|name| world.put(&format!("{name}"), 0));
    world.settle_down();
    let until = world.now.steady + 130_000;
    while world.now.steady < until {
        if let Some(call) = next_commit(&mut world) {
            let outcomes = vec![Outcome::Locked; call.settlements.len()];
            let done = Done { outcomes, ..Done::default() };
            world.keeper.answer(world.now, &mut world.outbox, Answer::Commit(call, Ok(done)));
        }
        world.take();
        while !world.held.is_empty() {
            world.settle_one(0, Settled::Ack);
        }
    }
    assert_eq!((world.keeper.held_up(), world.held_told()), (2, vec![]));
}

#[test]
fn memory_that_is_full_and_no_more_keeps_what_is_near() {
    let fill = |near_rows, near_bytes| {
        let mut world = World::new(1);
        world.config = Config { near_rows, near_bytes, ..world.config };
        world.restart();
        world.settle_down();
        (0..20).for_each(|name| world.put(&format!("{name}"), world.now.wall + 500));
        world.settle_down();
        assert_eq!(world.keeper.near_rows(), 20, "{near_rows} rows, {near_bytes} bytes");
        world
    };
    let mut world = fill(20, 1 << 20);
    fill(100, world.keeper.bytes());
    // What a consumer holds is no reason to look for more to drop.
    world.config = Config { near_rows: 100, near_bytes: 1_000, in_flight: 9, ..world.config };
    world.restart();
    world.put_large("large", 0);
    take_many(&mut world, 1);
    world.put("far", 4_000_000);
    world.settle_down();
    assert!(world.config.near_bytes < world.keeper.bytes());
}

#[test]
fn names_that_were_refused_are_remembered_and_not_all_of_them() {
    let mut world = World::new(1);
    world.config = Config { group: 997, ..world.config };
    world.restart();
    (0..25_000_u64).for_each(|ticket| {
        let change = Change::put(&ticket.to_string(), 2_000_000, &[]);
        world.keeper.command(Command { ticket, change });
    });
    while world.keeper.has_commands() {
        let call = wait_for_commit(&mut world);
        let refused = || Err(Error::store("put it", "it is refused"));
        let changed = call.changes.iter().map(|_| refused()).collect();
        let done = Done { changed, ..Done::default() };
        world.keeper.answer(world.now, &mut world.outbox, Answer::Commit(call, Ok(done)));
        assert!(world.keeper.refused.len() <= 11_000);
    }
}

/// Counted they are before they come, and one that is not wanted would come as often as it may.
#[test]
fn as_many_are_counted_as_are_wanted() {
    let mut world = World::new(1);
    let counts = Config { max_attempts: Some(3), in_flight: 10, ..world.config };
    world.config = Config { near_rows: 60, near_bytes: 1 << 20, ..counts };
    world.restart();
    (0..20).for_each(|name| world.put(&format!("{name}"), 0));
    for wanted in [2, 3] {
        world.outbox.listeners = wanted;
        while world.step() {}
        assert_eq!(world.outbox.len(), wanted);
    }
}

/// What consumers settled may be what makes room on a full disk.
#[test]
fn callers_wait_once_while_what_was_settled_fails_alone_and_are_refused_then() {
    let mut world = with_one_acked();
    for is_refused in [false, true] {
        let call = wait_for_commit(&mut world);
        assert_eq!((call.settlements.len(), call.changes.len()), (1, 0));
        if !is_refused {
            let change = Change::put("b", 2_000_000, &[]);
            world.keeper.command(Command { ticket: 7, change });
        }
        fail(&mut world, call);
        assert_eq!(world.keeper.replies.len(), usize::from(is_refused));
    }
}

/// Returns the commit for which the keeper asks. If it asks for something else, that is done, and
/// if for nothing, time passes.
fn next_commit(world: &mut World) -> Option<CommitCall<u64>> {
    match world.poll() {
        Some(Call::Commit(call)) => return Some(call),
        Some(call) => {
            let answer = call.make(&mut world.store);
            world.keeper.answer(world.now, &mut world.outbox, answer);
        }
        None => {
            world.now.wall += 1;
            world.now.steady += 1;
        }
    }
    None
}

/// As `next_commit`, until it asks for one.
fn wait_for_commit(world: &mut World) -> CommitCall<u64> {
    (0..10_000).find_map(|_| next_commit(world)).expect("it asks for one")
}

/// A store refuses changes, or has time for the first of them only. Refused ones hold up no others.
#[test]
fn changes_of_one_name_are_made_in_the_order_asked_for_and_those_of_all_are_made() {
    for seed in 0..20 {
        let mut rng = Rng::with_seed(seed);
        let mut world = World::new(seed);
        world.config = Config { group: 4, ..world.config };
        world.restart();
        let (mut next_ticket, mut answered, mut last) = (0, 0, HashMap::<String, u64>::new());
        let refused = ["a", "b"];
        // Nothing is asked for in the second half.
        for commit in 0..2_000 {
            while commit < 1_000 && rng.usize(0..3) > 0 {
                let name = *rng.choice(&["a", "b", "c", "d", "e"]).expect("there are some");
                let payload = vec![0; if rng.u8(..4) == 0 { 1 << 19 } else { 0 }];
                next_ticket += 1;
                let change = Change::put(name, 2_000_000, &payload);
                world.keeper.command(Command { ticket: next_ticket, change });
            }
            let Some(call) = next_commit(&mut world) else { continue };
            let mut changed = Vec::new();
            for (change, &ticket) in call.changes.iter().zip(&call.tickets) {
                // There is no time for the rest.
                if !changed.is_empty() && rng.u8(..3) == 0 {
                    break;
                }
                let before = last.insert(change.name.to_string(), ticket);
                assert!(before < Some(ticket), "{before:?} after {ticket} of {}", change.name);
                let is_refused = refused.contains(&&*change.name) && rng.bool();
                changed.push(match is_refused {
                    true => Err(Error::store("put it", "it is refused")),
                    false => Ok(Changed { row: None, replaced: None, was_dead: false }),
                });
            }
            let done = Done { changed, ..Done::default() };
            world.keeper.answer(world.now, &mut world.outbox, Answer::Commit(call, Ok(done)));
            answered += world.keeper.replies.drain(..).count() as u64;
        }
        assert_eq!(answered, next_ticket, "each is answered");
    }
}

/// Of those that were refused last, and of the others.
#[test]
fn callers_of_names_that_are_refused_and_all_others_take_turns() {
    let mut world = World::new(1);
    world.config = Config { group: 8, ..world.config };
    world.restart();
    let ask = |world: &mut World, name: &str| {
        let change = Change::put(name, 2_000_000, &[]);
        world.keeper.command(Command { ticket: 0, change });
    };
    let mut commits = Vec::new();
    while commits.len() < 50 {
        (0..4).for_each(|_| ask(&mut world, "refused"));
        (0..4).for_each(|_| ask(&mut world, "good"));
        let Some(call) = next_commit(&mut world) else { continue };
        let is_refused = |change: &Change| &*change.name == "refused";
        let changed = call.changes.iter().map(|change| match is_refused(change) {
            true => Err(Error::store("put it", "it is refused")),
            false => Ok(Changed { row: None, replaced: None, was_dead: false }),
        });
        let done = Done { changed: changed.collect(), ..Done::default() };
        let refused = call.changes.iter().filter(|change| is_refused(change)).count();
        // It has seen none refused when it makes the first.
        assert!(commits.is_empty() || refused == 0 || refused == call.changes.len());
        commits.push(0 < refused);
        world.keeper.answer(world.now, &mut world.outbox, Answer::Commit(call, Ok(done)));
    }
    assert!(commits[1..].windows(2).all(|two| two[0] != two[1]), "{commits:?}");
}

#[test]
fn callers_who_were_many_leave_no_memory_behind() {
    for is_refused in [false, true] {
        let mut world = World::new(1);
        world.config = Config { group: 1_000, ..world.config };
        world.restart();
        for n in 0..20_000 {
            world.put(&n.to_string(), world.now.wall + 1_000_000);
        }
        match is_refused {
            true => world.keeper.refuse_commands(&Error::Closed),
            false => world.settle_down(),
        }
        let Keeper { commands, left, .. } = &world.keeper;
        let room = commands.capacity() + left.capacity();
        assert!(room <= 8_000, "{is_refused}: {room}");
    }
}

/// Enough to find every bug that was planted.
const RUNS: u64 = 40;
