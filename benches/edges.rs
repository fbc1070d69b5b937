//! What does the dearest call cost, and does it go by what is pending?
//!
//! Each table looks at one edge of `Wheel` or `WheelMap`: a long row of steps, asks between
//! schedules, slack beside cancelled requests, a map that grows, calls after a long history, and
//! memory in modes of many buckets. Times are of the thread's own CPU; wake-ups and bytes are
//! counted, so every run gives the same.
//!
//! `cargo bench --bench edges`, with a part of a table's name for one, and `-- --quick` for a look
//! at whether it works.

mod report;

use cpu_time::ThreadTime;
use fastrand::Rng;
use report::{Report, is_asked_for, is_quick};
use std::array;
use std::collections::{BTreeSet, VecDeque};
use std::hash::RandomState;
use std::hint::black_box;
use tickwheel::{Key, Mode, Wheel, WheelMap};

/// A table's name, and what fills it.
type Table = (&'static str, fn());

fn main() {
    for (name, fill) in TABLES {
        if is_asked_for(name) {
            fill();
            println!();
        }
    }
}

fn mode(text: &str) -> Mode {
    text.parse().expect("a mode")
}

/// Microseconds of CPU time.
fn time<R>(work: impl FnOnce() -> R) -> f64 {
    let before = ThreadTime::now();
    black_box(work());
    before.elapsed().as_secs_f64() * 1e6
}

/// The median and the largest.
fn spread(mut times: Vec<f64>) -> [f64; 2] {
    times.sort_by(f64::total_cmp);
    [times[times.len() / 2], times[times.len() - 1]]
}

/// In each row of buckets, one timeout is due soon and one stays; then comes a gap.
fn steps() {
    println!("steps: one call of expire_bounded with work = 1, in us");
    let mut report = Report::new(["", "pending", "median", "dearest"]);
    for bits in if is_quick() { [10, 11, 12, 13] } else { [16, 18, 20, 22] } {
        let mut wheel = Wheel::new(Mode::hashed(1 << bits).expect("a mode"));
        let (round, rows) = (1_u64 << bits, 1_u64 << (bits - 4));
        for row in 0..rows {
            wheel.schedule(16 * row + 1, 0);
            wheel.schedule(1000 * round + 16 * row + 5, 1);
        }
        let pending = wheel.len() as f64;
        let mut times = Vec::new();
        for now in (0..round + 64).step_by(8) {
            loop {
                let mut work = 1;
                let mut is_some = false;
                times.push(time(|| is_some = wheel.expire_bounded(now, &mut work).is_some()));
                if !is_some && work > 0 {
                    break;
                }
            }
        }
        report.row(&wheel.mode().to_string(), [pending].into_iter().chain(spread(times)));
    }
    report.print();
}

/// All are in one coarse bucket, or spread over those of a hashed wheel.
fn asks() {
    println!("asks: ns for each turn, of a wheel and of a BTreeSet; medians of three rounds");
    println!("FromEmpty: for each turn and each schedule before; what a call costs amortised");
    let heads =
        ["", "pending", "wheel", "wheel, ask", "set", "set, ask", "of it", "dearest ask, us"];
    let mut report = Report::new(heads);
    for pending in
        if is_quick() { [1 << 10, 1 << 12, 1 << 14] } else { [1 << 16, 1 << 20, 1 << 22] }
    {
        for turn in ALL_TURNS {
            let rounds = [0; 3].map(|_| {
                let [set, set_asked] = [false, true].map(|asks| ask_set(turn, pending, asks));
                MODES.map(|text| {
                    let [wheel, _] = ask_wheel(text, turn, pending, false);
                    let [asked, dearest] = ask_wheel(text, turn, pending, true);
                    [wheel, asked, set, set_asked, asked / set_asked, dearest]
                })
            });
            for (at, text) in MODES.into_iter().enumerate() {
                let medians: [f64; 6] = array::from_fn(|figure| {
                    let [median, _] =
                        spread(rounds.iter().map(|round| round[at][figure]).collect());
                    median
                });
                report
                    .row(&format!("{turn:?}, {text}"), [pending as f64].into_iter().chain(medians));
            }
        }
    }
    report.print();
}

/// What is done before each ask.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Schedule,
    /// And one is scheduled. The first turns look at each timeout once.
    CancelEarliest,
    /// The same, after as many turns.
    CancelAgain,
    /// The same, from the first schedule on: then what was put off then is paid for, too.
    FromEmpty,
    /// One of all, at random.
    Move,
}

fn coarse(rng: &mut Rng) -> u64 {
    (1 << 40) + rng.u64(..1 << 36)
}

/// The time of a turn in ns, and of the dearest ask in us.
fn ask_wheel(text: &str, turn: Turn, pending: u64, asks: bool) -> [f64; 2] {
    let mut rng = Rng::with_seed(1);
    let mut wheel = Wheel::new(mode(text));
    let mut keys: Vec<Key> = Vec::with_capacity(pending as usize);
    let before = time(|| keys.extend((0..pending).map(|at| wheel.schedule(coarse(&mut rng), at))));
    let mut dearest = 0_f64;
    let mut ask = |wheel: &mut Wheel<u64>| {
        if asks {
            dearest = dearest.max(time(|| wheel.next_deadline()));
        }
    };
    ask(&mut wheel);
    let mut turns = || {
        for _ in 0..TURNS {
            match turn {
                Turn::Schedule => _ = wheel.schedule(coarse(&mut rng), 0),
                Turn::CancelEarliest | Turn::CancelAgain | Turn::FromEmpty if asks => {
                    let (key, ..) = wheel.peek().expect("many are pending");
                    wheel.cancel(key);
                    wheel.schedule(coarse(&mut rng), 0);
                }
                Turn::CancelEarliest | Turn::CancelAgain | Turn::FromEmpty => {
                    let at = rng.usize(..keys.len());
                    wheel.cancel(keys[at]);
                    keys[at] = wheel.schedule(coarse(&mut rng), 0);
                }
                Turn::Move => _ = wheel.reschedule(keys[rng.usize(..keys.len())], coarse(&mut rng)),
            }
            if asks {
                black_box(wheel.next_deadline());
            }
        }
    };
    let each = time_of(turn, [before, pending as f64], &mut turns);
    for _ in 0..TURNS / 10 {
        if let Some((key, ..)) = wheel.peek() {
            wheel.cancel(key);
        }
        ask(&mut wheel);
    }
    [each, dearest]
}

/// The time of a turn in ns, of the second ones if they are done again. So many schedules took so
/// long before.
fn time_of(turn: Turn, [before, schedules]: [f64; 2], mut turns: impl FnMut()) -> f64 {
    if matches!(turn, Turn::CancelAgain) {
        turns();
    }
    let (total, calls) = match turn {
        Turn::FromEmpty => (before + time(turns), schedules + TURNS as f64),
        _ => (time(turns), TURNS as f64),
    };
    total * 1e3 / calls
}

fn ask_set(turn: Turn, pending: u64, asks: bool) -> f64 {
    let mut rng = Rng::with_seed(1);
    let mut set = BTreeSet::new();
    let mut keys: Vec<(u64, u64)> = (0..pending).map(|at| (coarse(&mut rng), at)).collect();
    let before = time(|| keys.iter().for_each(|&key| _ = set.insert(key)));
    let mut next = pending;
    let turns = || {
        for _ in 0..TURNS {
            next += 1;
            let new = (coarse(&mut rng), next);
            match turn {
                Turn::Schedule => _ = set.insert(new),
                Turn::CancelEarliest | Turn::CancelAgain | Turn::FromEmpty if asks => {
                    set.pop_first();
                    set.insert(new);
                }
                Turn::CancelEarliest | Turn::CancelAgain | Turn::FromEmpty | Turn::Move => {
                    let at = rng.usize(..keys.len());
                    set.remove(&std::mem::replace(&mut keys[at], new));
                    set.insert(new);
                }
            }
            if asks {
                black_box(set.first());
            }
        }
    };
    time_of(turn, [before, pending as f64], turns)
}

/// Heartbeats with slack, and at each tick requests that are answered some ticks later. A wake-up
/// at which a request is due, too, would be there without heartbeats, and so does not count.
fn slack() {
    let columns =
        [(0, 0, false), (1, 0, false), (1, 5, false), (20, 0, false), (20, 5, false), (2, 5, true)];
    let heads = columns.map(|(each, after, is_one)| {
        format!("{each} a tick, after {after}{}", if is_one { ", of one limit" } else { "" })
    });
    for (period, slack) in [(30_000, 1_000), (300, 100)] {
        println!(
            "slack: heartbeats per wake-up that only they cause, of 10,000 each {period} ticks with \
             {slack} of slack"
        );
        let mut report = Report::new([""].into_iter().chain(heads.iter().map(String::as_str)));
        for text in ["hierarchical:64", "hierarchical:256", "hashed:512", "hashed:65536"] {
            let beats = |requests| heartbeats(text, [period, slack], requests);
            report.row(text, columns.map(beats));
        }
        report.print();
    }
}

/// Of requests: how many come at each tick, after how many ticks they are cancelled, and whether all
/// have one time limit, within the slack of the heartbeats.
fn heartbeats(
    text: &str,
    beat: [u64; 2],
    (requests, answered_after, is_one): (usize, usize, bool),
) -> f64 {
    let [period, slack] = if is_quick() { beat.map(|ticks| ticks / 10) } else { beat };
    let heartbeats = if is_quick() { 100 } else { 10_000 };
    let ahead = |now: u64| now + period..=now + period + slack;
    let mut rng = Rng::with_seed(1);
    let mut wheel = Wheel::new(mode(text));
    let mut asked = VecDeque::new();
    let (mut wake_ups, mut beats, mut sent) = (0_u32, 0_u32, 0);
    for now in 1..=5 * period {
        let (mut came, mut is_shared) = (0, false);
        while let Some(expired) = wheel.expire(now) {
            if expired.value == REQUEST {
                is_shared = true;
                continue;
            }
            came += 1;
            wheel.schedule_within(ahead(now), expired.value);
        }
        if 3 * period < now {
            beats += came;
            wake_ups += u32::from(0 < came && !is_shared);
        }
        while sent < heartbeats && sent * period < now * heartbeats {
            wheel.schedule_within(ahead(now), sent);
            sent += 1;
        }
        let mut limit = || if is_one { period + slack / 2 } else { rng.u64(..2 * period) };
        asked.extend((0..requests).map(|_| wheel.schedule(now + limit(), REQUEST)));
        while requests * answered_after < asked.len() {
            let key = asked.pop_front().expect("some are asked");
            wheel.cancel(key);
        }
    }
    f64::from(beats) / f64::from(wake_ups.max(1))
}

/// A call that makes room, beside one of a bare wheel. Equal turns do equal work at equal counts, so
/// what only one of them shows there is of the machine: the cheapest of them counts.
fn growth() {
    println!("growth: the dearest insert or schedule while so many come, in us, least of 3 turns");
    let mut report = Report::new(["", "WheelMap::insert", "Wheel::schedule"]);
    let most = if is_quick() { 1 << 12 } else { 1 << 22 };
    let hasher = RandomState::new();
    let mut least = vec![[f64::MAX; 2]; most];
    // So that each turn has memory that is new.
    let mut kept = Vec::new();
    for _ in 0..3 {
        let mut map = WheelMap::with_hasher(Mode::hierarchical(), hasher.clone());
        let mut wheel = Wheel::new(Mode::hierarchical());
        for (key, [insert, schedule]) in (0..).zip(&mut least) {
            *insert = insert.min(time(|| map.insert(key, 0, 1 + key % 60_000)));
            *schedule = schedule.min(time(|| wheel.schedule(1 + key % 60_000, 0)));
        }
        kept.push((map, wheel));
    }
    let mut from = 0;
    for to in [most / 4, most / 2, most] {
        let dearest =
            [0, 1].map(|at| least[from..to].iter().map(|each| each[at]).fold(0.0, f64::max));
        report.row(&format!("up to {to}"), dearest);
        from = to;
    }
    report.print();
}

/// Many were, and one is left.
fn history() {
    let many = if is_quick() { 1 << 12 } else { 1 << 22 };
    println!("history: one call with one timeout left of {many}, in us");
    let mut report = Report::new(["", "the first is left", "the last is left"]);
    let mut rows: Vec<(&str, Vec<f64>)> = Vec::new();
    for is_last in [false, true] {
        let mut wheel = Wheel::new(Mode::hierarchical());
        let keys: Vec<_> = (0..many).map(|at| wheel.schedule(1 << 40, at)).collect();
        let (rest, cancelled) = match is_last {
            true => (many - 1, &keys[..keys.len() - 1]),
            false => (0, &keys[1..]),
        };
        cancelled.iter().for_each(|&key| _ = wheel.cancel(key));
        let mut map = WheelMap::new(Mode::hierarchical());
        (0..many).for_each(|key| _ = map.insert(key, 0, 1 << 40));
        (0..many).filter(|&key| key != rest).for_each(|key| _ = map.remove(&key));
        let times = [
            ("Wheel::iter", time(|| wheel.iter().count())),
            ("Wheel::iter_mut", time(|| wheel.iter_mut().count())),
            ("Wheel::retain", time(|| wheel.retain(|_, _, _| true))),
            ("WheelMap::retain", time(|| map.retain(|_, _| true))),
            ("WheelMap::clear", time(|| map.clear())),
            ("WheelMap::insert", time(|| map.insert(1, 0, 7))),
        ];
        for (at, (name, figure)) in times.into_iter().enumerate() {
            match rows.get_mut(at) {
                Some((_, figures)) => figures.push(figure),
                None => rows.push((name, vec![figure])),
            }
        }
    }
    for (name, figures) in rows {
        report.row(name, figures);
    }
    report.print();
}

/// Each is moved again and again, to any of the ticks of a round.
fn memory() {
    println!("memory: bytes for each timeout, at most, while they move");
    let mut report = Report::new(["", "100", "1,000", "10,000"]);
    for text in ["hierarchical:64", "hashed:65536", "hashed:1073741824", "hierarchical:1073741824"]
    {
        let each = [100, 1_000, 10_000].map(|pending| {
            let mut rng = Rng::with_seed(1);
            let mut wheel = Wheel::new(mode(text));
            let keys: Vec<_> =
                (0..pending).map(|at| wheel.schedule(1 + rng.u64(..1 << 30), at)).collect();
            let mut most = 0;
            for turn in 0..20 * pending {
                let key = keys[rng.usize(..keys.len())];
                wheel.reschedule(key, 1 + rng.u64(..1 << 30));
                if turn % (pending / 2) == 0 {
                    most = most.max(wheel.stats().memory);
                }
            }
            most as f64 / pending as f64
        });
        report.row(text, each);
    }
    report.print();
}

const TABLES: [Table; 6] = [
    ("steps", steps),
    ("asks", asks),
    ("slack", slack),
    ("growth", growth),
    ("history", history),
    ("memory", memory),
];

const MODES: [&str; 3] = ["hierarchical:64", "hashed:512", "hashed:65536"];
const ALL_TURNS: [Turn; 5] =
    [Turn::Schedule, Turn::CancelEarliest, Turn::CancelAgain, Turn::FromEmpty, Turn::Move];
const TURNS: u64 = 20_000;

/// The value of a request. Heartbeats are numbered from 0 on.
const REQUEST: u64 = u64::MAX;
