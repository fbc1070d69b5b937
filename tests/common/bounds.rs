//! Holds each public operation of a type to the cost that its documentation states, after each of a
//! list of histories.
//!
//! An operation that may cost more than a constant says so in one sentence: "Cost: O(..).", or
//! "Cost: O(..) amortised, O(..) in one call." There n is the number of pending timeouts and p the
//! most that were pending at once. Every other operation must cost a constant. The test
//! judges the steps that the library counts in a build with debug assertions, and the bytes that
//! the allocator counts, of one call and of thousands.
//!
//! `BOUNDS_PEAK=1000000` has a million in each history. A further subject is an implementation of
//! [`Subject`].

use crate::common::{asked, long};
use allocation_counter::measure;
use std::collections::BTreeMap;
use std::fs;
use tickwheel::{Mode, steps};

/// A type whose operations are held to their bounds.
pub(crate) trait Subject: Sized {
    /// The files with the public operations, and those of them that are not judged, with the
    /// reason.
    const SOURCES: &[&str];
    const LEFT_OUT: &[(&str, &str)];
    /// The mean number of steps that a call may take beyond what its cost states.
    const MEAN: f64;

    fn new(mode: Mode) -> Self;
    fn put(&mut self, deadline: u64, number: u64);
    fn put_within(&mut self, deadline: u64, number: u64);
    fn take(&mut self, number: u64);
    fn shift(&mut self, number: u64, deadline: u64);
    fn drive(&mut self, now: u64, work: &mut usize) -> bool;
    fn ask(&mut self);
    fn empty(&mut self);
    fn len(&self) -> usize;
    /// Calls the public operation of this name once, in turn `turn`, on timeout `number` if the
    /// operation takes one. Returns false if the operation is unknown.
    fn call(&mut self, name: &str, turn: u64, number: u64) -> bool;
}

/// What happened to a subject before its operations are judged. At its peak, `peak` timeouts are
/// pending at once.
type History<S> = (&'static str, fn(&mut S, Mode, u64));

/// Deadlines near and far, most of them apart.
pub(crate) fn deadline(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    100 + (mixed >> [40, 44, 50, 24][number as usize % 4])
}

fn fill<S: Subject>(subject: &mut S, _: Mode, peak: u64) {
    (0..peak).for_each(|number| subject.put(deadline(number), number));
}

/// Deadlines that all fall into one coarse bucket.
fn fill_far<S: Subject>(subject: &mut S, _: Mode, peak: u64) {
    (0..peak).for_each(|number| subject.put((1 << 45) + deadline(number) % (1 << 30), number));
}

fn cancel_but<S: Subject>(subject: &mut S, peak: u64, left: u64) {
    (0..peak).filter(|&number| number != left).for_each(|number| subject.take(number));
}

fn histories<S: Subject>() -> Vec<History<S>> {
    vec![
        ("nothing", |_, _, _| {}),
        ("many pending", fill),
        ("many far", fill_far),
        ("the last is left of many cancelled", |subject, mode, peak| {
            fill(subject, mode, peak);
            cancel_but(subject, peak, peak - 1);
        }),
        ("the first is left of many cancelled", |subject, mode, peak| {
            fill_far(subject, mode, peak);
            cancel_but(subject, peak, 0);
        }),
        ("all were cancelled", |subject, mode, peak| {
            fill(subject, mode, peak);
            cancel_but(subject, peak, peak);
        }),
        ("all were moved twice", |subject, mode, peak| {
            fill(subject, mode, peak);
            for turn in 1..3 {
                for number in 0..peak {
                    subject.shift(number, deadline(number + turn * peak));
                }
            }
        }),
        ("all have come but one", |subject, mode, peak| {
            fill(subject, mode, peak);
            subject.put(1 << 60, peak);
            while subject.drive(1 << 50, &mut { usize::MAX }) {}
        }),
        ("cleared", |subject, mode, peak| {
            fill(subject, mode, peak);
            subject.empty();
            subject.put(1 << 40, 0);
        }),
        ("ranges", |subject, _, peak| {
            (0..peak).for_each(|number| subject.put_within(deadline(number), number));
        }),
        ("asks between", |subject, _, peak| {
            for number in 0..peak {
                subject.put((1 << 45) + deadline(number) % (1 << 30), number);
                if number % 16 == 0 {
                    subject.ask();
                }
                if number % 3 == 0 {
                    subject.take(number / 2);
                }
            }
        }),
        ("rows that were passed", |subject, mode, peak| {
            // A hashed wheel scans all of a bucket in each round in which something there is due.
            let most = if mode.is_hashed() { mode.buckets() as u64 / 16 } else { peak };
            let rows = most.clamp(16, peak / 2);
            for row in 0..rows {
                subject.put(16 * row + 1, 2 * row);
                subject.put((1 << 40) + 16 * row + 5, 2 * row + 1);
            }
            for now in 0..16 * rows {
                while subject.drive(now, &mut { usize::MAX }) {}
            }
        }),
        ("in the middle of a step", |subject, mode, peak| {
            fill_far(subject, mode, peak);
            subject.drive((1 << 45) + (1 << 29), &mut 1);
        }),
    ]
}

/// Returns how many steps a bound like `n + p` allows.
fn bound(terms: &str, live: f64, peak: f64) -> f64 {
    let term = |term: &str| match term {
        "1" => 0.0,
        "log n" => 32.0 * (1.0 + live.max(1.0).log2()),
        "n" => 40.0 * live,
        "p" => 8.0 * peak,
        "p / 64" => 4.0 * peak / 64.0,
        _ => panic!("no term of a bound: {term:?}"),
    };
    terms.split(" + ").map(term).sum()
}

/// A public operation: the sums that its "Cost" sentence states, and whether it only reads.
pub(crate) struct Stated {
    mean: String,
    one_call: String,
    reads: bool,
}

impl Stated {
    /// Whether many calls in turn leave most of a history as it is.
    fn is_cheap(&self) -> bool {
        ["1", "log n"].contains(&self.mean.as_str())
    }
}

/// The public operations of these files, by name. Those that share a name state the same cost.
pub(crate) fn stated(sources: &[&str]) -> BTreeMap<String, Stated> {
    let mut stated = BTreeMap::<_, Stated>::new();
    for source in sources {
        let mut cost = None;
        let path = format!("{}/{source}", env!("CARGO_MANIFEST_DIR"));
        let source = fs::read_to_string(path).expect("it is there");
        let code = source.split("#[cfg(test)]").next().expect("there is code");
        for line in code.lines().map(str::trim) {
            if let Some(sentence) = line.strip_prefix("/// Cost: ") {
                let sentence = sentence.replace(" amortised, ", ";").replace(" in one call.", "");
                let terms = sentence.trim_end_matches('.').split(';').map(|term| {
                    let term = term.strip_prefix("O(").and_then(|term| term.strip_suffix(')'));
                    term.unwrap_or_else(|| panic!("not of the shape: {line}")).to_owned()
                });
                cost = Some(terms.collect::<Vec<_>>());
            } else if let Some(item) = public_function(line) {
                let name = item.split(['(', '<']).next().expect("a name");
                let terms = cost.take().unwrap_or_else(|| vec!["1".to_owned()]);
                let [mean, one_call] = [0, terms.len() - 1].map(|at| terms[at].clone());
                let reads = item.contains("(&self");
                let costs = (mean.clone(), one_call.clone());
                if let Some(other) = stated.insert(name.into(), Stated { mean, one_call, reads }) {
                    assert_eq!((other.mean, other.one_call), costs, "two that are called {name}");
                }
            } else if !line.starts_with("//") && !line.starts_with("#[") {
                cost = None;
            }
        }
    }
    stated
}

/// Returns what follows `fn` if the line begins a public function.
fn public_function(line: &str) -> Option<&str> {
    let item = line.strip_prefix("pub ")?;
    ["fn ", "async fn ", "const fn "].into_iter().find_map(|words| item.strip_prefix(words))
}

/// Judges each operation after each history.
pub(crate) fn keeps_its_bounds<S: Subject>(mode: Mode) {
    let (peak, calls) = asked("BOUNDS_PEAK")
        .map_or_else(|| long((PEAK, 80), (LONG_PEAK, 1_000)), |peak| (peak, 10_000));
    let mut stated = stated(S::SOURCES);
    for (name, reason) in S::LEFT_OUT {
        assert!(stated.remove(*name).is_some(), "{name}, left out ({reason}), is no operation");
    }
    for (history, make) in histories::<S>() {
        let made = || {
            let mut subject = S::new(mode);
            make(&mut subject, mode, peak);
            subject
        };
        // An operation that looks at little leaves the history as it is for the next.
        let mut shared = S::new(mode);
        let held = measure(|| shared = made()).bytes_max as f64;
        let most = BYTES[0] + bytes_each(mode) * peak as f64;
        assert!(held <= most, "{mode}, {history}: {held} bytes");
        for (name, stated) in &stated {
            let what = format!("{mode}, {history}, {name}");
            let calls = if stated.is_cheap() { calls } else { 4 };
            let keeps = |subject: &mut S| {
                keeps_its_bound(subject, (mode, peak, calls), (name, stated), &what);
            };
            match stated.reads || stated.is_cheap() && !name.starts_with("expire") {
                true => keeps(&mut shared),
                false => keeps(&mut made()),
            }
        }
    }
}

/// The bytes per timeout that an array may take while it grows. Where there are many buckets, each
/// timeout may have a row of them to itself, and the nodes that lead to it.
fn bytes_each(mode: Mode) -> f64 {
    if mode.buckets() <= 512 { 1_500.0 } else { 12_000.0 }
}

/// Makes the calls, and panics if one of them, or their mean, costs more than is stated.
fn keeps_its_bound<S: Subject>(
    subject: &mut S,
    (mode, peak, calls): (Mode, u64, usize),
    (name, stated): (&str, &Stated),
    what: &str,
) {
    let most = (peak + calls as u64) as f64;
    let (mut total, mut allowed) = (0.0, ONE_CALL);
    let (mut bytes, mut dearest_bytes) = (0, 0);
    for turn in 0..calls as u64 {
        // Turn 0 takes the first timeout, turn 1 the last one.
        let number = if turn == 1 { peak - 1 } else { turn * 7919 % peak };
        let live = subject.len() as f64 + 1.0;
        let before = steps();
        let mut is_known = false;
        let measured = measure(|| is_known = subject.call(name, turn, number));
        assert!(is_known, "{what}: there is no such call");
        let taken = (steps() - before) as f64;
        let one_call = ONE_CALL.min(FEW[0] + FEW[1] * live) + bound(&stated.one_call, live, most);
        assert!(taken <= one_call, "{what}: call {turn} takes {taken} steps, with {live} pending");
        total += taken;
        allowed += S::MEAN + bound(&stated.mean, live, most);
        bytes += measured.bytes_total;
        dearest_bytes = measured.bytes_total.max(dearest_bytes);
    }
    let found = format!(
        "{what}: {dearest_bytes} bytes in one call, {total} steps and {bytes} bytes in {calls}"
    );
    let (calls, each) = (calls as f64, bytes_each(mode) * most);
    let times = if stated.is_cheap() { 2.0 } else { calls };
    assert!(total <= allowed, "mean: {found}");
    assert!(dearest_bytes as f64 <= BYTES[0] + each, "bytes of one call: {found}");
    assert!(bytes as f64 <= BYTES[1] * calls + times * each, "bytes: {found}");
}

/// Steps that any call may take: it sorts a bucket of 8192, and leaves a chunk or two behind.
const ONE_CALL: f64 = 12_000.0;
/// The same where few timeouts are pending: some steps for each stale entry that no sweep has found
/// yet, which are a chunk at most, and for each timeout.
const FEW: [f64; 2] = [2_500.0, 16.0];
/// The bytes that any call may allocate, and the mean that a call may.
const BYTES: [f64; 2] = [65_536.0, 1_024.0];
/// The timeouts of each history.
const PEAK: u64 = 1_000;
/// The same, if tests are to be long.
const LONG_PEAK: u64 = 6_000;
