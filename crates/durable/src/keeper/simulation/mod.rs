//! Many workers on stores with several owners, in virtual time from a seed: latencies, pauses,
//! kills, cut connections and clocks apart. The keepers are those that run on a thread.

mod database;
mod liveness;
mod world;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::outbox::Outbox;
use super::words::{LeaseCall, LoadCall};
use super::{Answer, Call, Command, Config, Keeper, Now, Settled};
use crate::Error;
use crate::store::{
    Act, Change, Changed, Done, Lease, Leases, Loaded, Outcome, Position, RateLimit, Row,
    Settlement, Then,
};
use world::Simulation;

/// `few`, or `many` if `TICKWHEEL_LONG` is set, as `.ci/full long` sets it.
fn long<T>(few: T, many: T) -> T {
    if std::env::var_os("TICKWHEEL_LONG").is_some() { many } else { few }
}

/// `few`, or `many` under CI or if tests are long.
fn under_ci<T>(few: T, many: T) -> T {
    if long(false, true) || std::env::var_os("CI").is_some() { many } else { few }
}

/// Says which seed a panic was with.
struct TellsSeed(u64);

impl Drop for TellsSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("with seed {}", self.0);
        }
    }
}

#[test]
fn many_workers_lose_nothing_and_make_nothing_early_and_no_two_own_a_partition() {
    let number = |variable: &str, default: u64| {
        std::env::var(variable).map_or(default, |number| number.parse().unwrap())
    };
    let first = number("TICKWHEEL_DURABLE_FIRST_SEED", 0);
    let seeds = number("TICKWHEEL_DURABLE_SEEDS", long(4, 8));
    let size = match std::env::var_os("TICKWHEEL_DURABLE_LARGE") {
        Some(_) => Size { workers: 100, stores: 16, partitions: 64, lease: LEASE },
        None => SMALL,
    };
    let mut told = Told::default();
    for seed in first..first + seeds {
        let _telling = TellsSeed(seed);
        let most = (seed % 2 == 1).then_some(3);
        Simulation::new(seed, size.of(seed)).with_most(most).run(&mut told);
    }
    told.late.sort_unstable();
    let late = |quantile: usize| told.late[(told.late.len() - 1) * quantile / 1000];
    println!(
        "{seeds} seeds from {first} of {size:?}: {} put, {} fired, {} again, {} acks fenced, \
         {} cancelled, {} moved, {} kills, {} closed, {} pauses, {} cuts, {} given up, {} dead, {} revived, \
         {} poisoned, {} expired; late {} / {} / {} ms",
        told.put,
        told.fired,
        told.again,
        told.fenced,
        told.cancelled,
        told.moved,
        told.kills,
        told.closed,
        told.pauses,
        told.cuts,
        told.given_up,
        told.dead,
        told.revived,
        told.poisoned,
        told.expired,
        late(500),
        late(990),
        late(1000),
    );
    assert!(
        told.closed > 0
            && told.again > 0
            && told.fenced > 0
            && told.cancelled > 0
            && told.moved > 0
            && told.dead > 0
            && told.revived > 0
            && told.poisoned > 0
            && told.expired > 0
    );
}

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

#[derive(Clone, Copy, Debug)]
struct Size {
    workers: usize,
    stores: usize,
    partitions: u32,
    /// How long a lease is good for, in milliseconds.
    lease: u64,
}

impl Size {
    /// Returns the same with the default lease of a timer, for some seeds.
    fn of(self, seed: u64) -> Self {
        Self { lease: if seed % 4 == 3 { LONG } else { self.lease }, ..self }
    }
}

#[derive(Debug, Default)]
struct Told {
    put: u64,
    fired: u64,
    again: u64,
    fenced: u64,
    cancelled: u64,
    moved: u64,
    kills: u64,
    closed: u64,
    pauses: u64,
    cuts: u64,
    given_up: u64,
    dead: u64,
    revived: u64,
    poisoned: u64,
    expired: u64,
    held_up: usize,
    late: Vec<u64>,
    /// When a change of each name was answered last.
    answered: HashMap<Arc<str>, u64>,
    /// By number: when a timeout was taken first, and how late that was.
    fired_at: HashMap<u64, (u64, u64)>,
}

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
fn each_load_is_of_all_partitions() {
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

/// As by a process that was stopped, and whose consumers go on before its keeper.
#[test]
fn nothing_is_taken_in_the_last_quarter_of_a_lease_though_the_keeper_does_not_look() {
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

#[test]
fn after_a_slow_part_of_the_past_without_rows_it_reads_no_other_for_as_long() {
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

/// What consumers have acked goes alone then, and fails each time.
#[test]
fn while_the_store_does_not_answer_callers_are_told_so_though_acks_wait() {
    let (mut keeper, mut outbox) = holds_one();
    keeper.settle(now(0), 1, Settled::Ack);
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

#[test]
fn a_slow_call_for_leases_takes_nothing_back_and_a_clock_that_was_set_back_does() {
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

#[test]
fn a_new_owner_reads_what_is_recent_first_and_after_an_error_nothing_that_it_knows() {
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

/// It was passed over when the worker owned its partition anew, because it was in flight.
#[test]
fn what_is_fenced_is_read_again_and_handed_out_under_the_new_epoch() {
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
    keeper.settle(now(15_002), taken.number, Settled::Ack);
    let later = now(15_100);
    let fenced = Done { outcomes: vec![Outcome::Fenced], changed: Vec::new() };
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
                let Call::Behind(past) = &call else { panic!("{call:?}") };
                assert!(Position::start() < past.from[0].after, "what is known is read again");
                super::simulation::past(&mut keeper, &mut outbox, late, Some(call));
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
                    let done = Done { outcomes, changed: Vec::new() };
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
                        keeper.settle(now(at), 1, Settled::Extend { time });
                    }
                    let next = if at < 500 { 500 } else { u64::MAX };
                    at = keeper.wake(now(at)).clamp(at + 1, next);
                }
            }
        }
        // It goes along with another commit if there is one.
        assert!((over..over + 10).contains(&again.unwrap()), "{again:?} with {extends:?}");
        // What the consumer does now is too late.
        keeper.settle(now(at), 1, Settled::Ack);
        assert_eq!((keeper.counts.expired, keeper.in_flight()), (1, 0));
    }
}

#[test]
fn a_consumer_that_asks_for_more_time_wakes_nobody_where_it_has_any_time() {
    let (mut keeper, mut outbox) = holds_one();
    keeper.settle(now(2), 1, Settled::Extend { time: 100 });
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

/// Else many workers commit many times as often as one, each time little.
#[test]
fn the_more_workers_the_longer_acks_wait_unless_they_take_the_room_of_what_is_due() {
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
                        keeper.settle(now(time), taken.number, Settled::Ack);
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
                    let done = Done { outcomes: vec![Outcome::Locked], changed: Vec::new() };
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
        keeper.settle(now(2), 1, Settled::Ack);
        keeper.close(now(2), &mut outbox, true);
        while keeper.in_flight() + keeper.bytes() > 0 {
            match keeper.poll(now(2), &mut outbox) {
                Some(Call::Commit(call)) => {
                    let done = Done { outcomes: vec![outcome.clone()], changed: Vec::new() };
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
                    keeper.settle(now(at), taken.number, Settled::Ack);
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
                    let done = Done { outcomes, changed: Vec::new() };
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
                    let done = Done { outcomes, changed };
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
                let done = Done { outcomes: Vec::new(), changed };
                keeper.answer(now(at), &mut outbox, Answer::Commit(call, Ok(done)));
            }
            Some(call) => past(&mut keeper, &mut outbox, now(at), Some(call)),
            None => at += 1,
        }
    }
    assert!(matches!(keeper.replies[..], [((), Ok(_))]), "{:?}", keeper.replies);
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
                Answer::Commit(call, Ok(Done { outcomes: Vec::new(), changed }))
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
                Answer::Commit(call, Ok(Done { outcomes: Vec::new(), changed }))
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

#[test]
fn what_the_store_refuses_is_tried_again_and_told_more_and_more_rarely() {
    let (mut keeper, mut outbox) = holds_one();
    keeper.settle(now(2), 1, Settled::Ack);
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
                let done = Done { outcomes, changed: Vec::new() };
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

/// Answers each call as a store does that has nothing, and leases with what is told, until the time.
fn idle(
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

/// As in a copy of another table.
#[test]
fn of_two_timeouts_with_one_number_the_second_waits_for_the_first() {
    let (mut keeper, mut outbox) = (Keeper::<()>::new(config()), received());
    lease(&mut keeper, &mut outbox, now(0), Ok(leases(1_000_000)));
    let Some(Call::Load(call)) = keeper.poll(now(0), &mut outbox) else { panic!("it looks") };
    let rows = ["a", "b"].map(|name| Row { name: name.into(), ..row(1_000_100) }).to_vec();
    let loaded = Loaded { rows, ends: vec![None], ..Loaded::default() };
    keeper.answer(now(200), &mut outbox, Answer::Load(call, Ok(loaded)));
    keeper.poll(now(200), &mut outbox);
    assert_eq!((outbox.len(), keeper.in_flight()), (1, 1));
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
                let done = Done { outcomes: vec![Outcome::Settled(None)], changed: Vec::new() };
                keeper.answer(now(at), &mut outbox, Answer::Commit(call, Ok(done)));
                is_settled = true;
            }
            Some(call) => panic!("it has nothing to look for: {call:?}"),
            None if 40_000 <= at && !acks => {
                keeper.settle(now(at), 1, Settled::Ack);
                acks = true;
            }
            None => at = keeper.wake(now(at)).clamp(at + 1, at + 1_000),
        }
    };
    assert!(is_settled && at < 60_000, "{at}");
    assert_eq!((&given.given_back[..], given.wanted), (&[0][..], true));
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
                let done = Done { outcomes, changed: Vec::new() };
                keeper.answer(now(at), &mut outbox, Answer::Commit(call, Ok(done)));
            }
            Some(call) => past(&mut keeper, &mut outbox, now(at), Some(call)),
            None if at < 90_000 && 0 < outbox.len() => _ = outbox.take(at),
            None if 90_000 <= at && settled == 0 => {
                keeper.settle(now(at), 1, Settled::Ack);
                settled = at;
            }
            None if 0 < settled && !outbox.is_asked() => left = at,
            None => at = keeper.wake(now(at)).clamp(at + 1, at + 1_000),
        }
    }
    assert!(settled + 60_000 < left, "it settled at {settled}, and is given up at {left}");
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

/// A keeper whose consumer holds the one timeout that there is.
fn holds_one() -> (Keeper<()>, Outbox) {
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

fn now(steady: u64) -> Now {
    Now { wall: 0, steady }
}

/// An outbox that somebody takes from.
fn received() -> Outbox {
    let mut outbox = Outbox::default();
    outbox.take(0);
    outbox
}

/// Answers as a store does that has one row.
fn answer_load(keeper: &mut Keeper<()>, outbox: &mut Outbox, now: Now, call: LoadCall) {
    let row = row(1_000_100);
    let is_wanted = call.from[0].after < row.position() && row.deadline <= call.until;
    let rows = if is_wanted { vec![row] } else { Vec::new() };
    let loaded = Loaded { rows, ends: vec![None], ..Loaded::default() };
    keeper.answer(now, outbox, Answer::Load(call, Ok(loaded)));
}

/// Answers of the past as a store does that has one row.
fn past(keeper: &mut Keeper<()>, outbox: &mut Outbox, now: Now, call: Option<Call<()>>) {
    let Some(Call::Behind(call)) = call else { panic!("{call:?}") };
    let row = row(1_000_100);
    let is_wanted = call.from[0].after < row.position() && row.deadline <= call.until;
    let rows = if is_wanted { vec![row] } else { Vec::new() };
    let loaded = Loaded { rows, ends: vec![None; call.from.len()], ..Loaded::default() };
    keeper.answer(now, outbox, Answer::Behind(call, Ok(loaded)));
}

/// Answers the call for leases that the keeper makes now.
fn lease(keeper: &mut Keeper<()>, outbox: &mut Outbox, now: Now, leases: Result<Leases, Error>) {
    let call = keeper.poll(now, outbox);
    let Some(Call::Lease(call @ LeaseCall { wanted: true, .. })) = call else { panic!("{call:?}") };
    keeper.answer(now, outbox, Answer::Lease(call, leases));
}

fn load(keeper: &mut Keeper<()>, outbox: &mut Outbox, now: Now, call: LoadCall) {
    let loaded = Loaded { rows: vec![row(1_000_100)], ends: vec![None], ..Loaded::default() };
    keeper.answer(now, outbox, Answer::Load(call, Ok(loaded)));
}

fn leases(clock: u64) -> Leases {
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

fn row(deadline: u64) -> Row {
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

const LEASE: u64 = 2_000;
/// The default of a timer.
const LONG: u64 = 10_000;
const SMALL: Size = Size { workers: 6, stores: 2, partitions: 12, lease: LEASE };
