//! Holds each public operation of a type to the cost that its documentation states, after each of a
//! list of histories.
//!
//! An operation that may cost more than a constant says so in one sentence: "Cost: O(..).", or
//! "Cost: O(..) amortised, O(..) in one call." There n is the number of pending timeouts and p the
//! most that were pending at once. ", and O(..) more if hashed" adds what only hashed wheels cost,
//! and ", with at most .. looks" a constant that is more than others have. Every other operation
//! must cost a constant. The test judges the steps that the library counts in a build with debug
//! assertions, and the bytes that the allocator counts, of one call and of thousands. It prints the
//! most that it found.
//!
//! A history is made twice. What leaves its timeouts there is judged on one, first a few calls of
//! each operation, so that each is judged soon after the history, and then many. What drives, takes
//! out or ends is judged on the other. The operation that goes first is another after each history.
//! With `BOUNDS_PEAK=20000`, or less, each operation has a history of its own. With a million, what
//! a single call looks at is plain; `CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true` lets a release
//! build count steps. A further subject is an implementation of [`Subject`].

use crate::common::{asked, long};
use allocation_counter::measure;
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use tickwheel::{Mode, steps};

/// A type whose operations are held to their bounds.
pub(crate) trait Subject: Sized {
    /// The files with the public operations, and those of them that are not judged, with the
    /// reason.
    const SOURCES: &[&str];
    const LEFT_OUT: &[(&str, &str)];
    /// The mean number of steps that a call may take beyond what its cost states.
    const MEAN: f64;
    /// Whether a number is the caller's own key. Otherwise the test may keep one key for all.
    const IS_MAP: bool = false;
    /// The bytes per timeout of the peak that one that was stopped may keep, emptied and shrunk.
    const KEPT_STOPPED: f64 = 0.0;

    fn new(mode: Mode) -> Self;
    fn put(&mut self, deadline: u64, number: u64);
    fn put_within(&mut self, deadline: u64, number: u64);
    fn take(&mut self, number: u64);
    fn shift(&mut self, number: u64, deadline: u64);
    fn drive(&mut self, now: u64, work: &mut usize) -> bool;
    fn ask(&mut self);
    fn empty(&mut self);
    /// Drops the handles and keys that the test keeps.
    fn forget(&mut self) {}
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

/// What the "Cost" sentence of a public operation states.
pub(crate) struct Stated {
    mean: Sum,
    one_call: Sum,
    /// The looks that each call may take beyond a constant that all operations share.
    looks: f64,
}

impl Stated {
    /// Whether many calls in turn leave most of a history as it is.
    fn is_cheap(&self) -> bool {
        self.mean.terms.iter().all(|term| ["1", "log n"].contains(&term.as_str()))
    }
}

/// The terms of a bound like `n + p`.
#[derive(Clone, PartialEq, Debug)]
struct Sum {
    terms: Vec<String>,
    /// A term that holds for a hashed wheel only.
    hashed: Option<String>,
}

impl Sum {
    fn has(&self, term: &str) -> bool {
        self.terms.iter().any(|other| other == term)
    }

    /// Returns how many steps it allows.
    fn bound(&self, mode: Mode, live: f64, peak: f64) -> f64 {
        let term = |term: &String| match term.as_str() {
            // The tests reserve little, and no room is written in steps.
            "1" | "additional" => 0.0,
            "log n" => 32.0 * (1.0 + live.max(1.0).log2()),
            "n" => 40.0 * live,
            "p" => 8.0 * peak,
            "p / 4096" => 4.0 * peak / 4096.0,
            "n / buckets" => 4.0 * live / mode.buckets() as f64,
            _ => panic!("no term of a bound: {term:?}"),
        };
        let hashed = self.hashed.iter().filter(|_| mode.is_hashed());
        self.terms.iter().chain(hashed).map(term).sum()
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
                cost = Some(costs(sentence).unwrap_or_else(|| panic!("not of the shape: {line}")));
            } else if let Some(item) = public_function(line) {
                let name = item.split(['(', '<']).next().expect("a name");
                let (mean, one_call, looks) =
                    cost.take().or_else(|| costs("O(1).")).expect("of the shape");
                let costs = (mean.clone(), one_call.clone(), looks);
                let new = Stated { mean, one_call, looks };
                if let Some(other) = stated.insert(name.into(), new) {
                    let other = (other.mean, other.one_call, other.looks);
                    assert_eq!(other, costs, "two that are called {name}");
                }
            } else if !line.starts_with("//") && !line.starts_with("#[") {
                cost = None;
            }
        }
    }
    stated
}

/// Reads what follows "Cost: ": the mean, that of one call, and the looks.
fn costs(sentence: &str) -> Option<(Sum, Sum, f64)> {
    let sentence = sentence.strip_suffix('.')?;
    let (sentence, looks) = match sentence.split_once(", with at most ") {
        Some((sentence, looks)) => (sentence, looks.strip_suffix(" looks")?.parse().ok()?),
        None => (sentence, 0.0),
    };
    let (sentence, hashed) = match sentence.split_once(", and O(") {
        Some((sentence, term)) => {
            (sentence, Some(term.strip_suffix(") more if hashed")?.to_owned()))
        }
        None => (sentence, None),
    };
    let (mean, one_call) = match sentence.split_once(" amortised, ") {
        Some((mean, one_call)) => (mean, one_call.strip_suffix(" in one call")?),
        None => (sentence, sentence),
    };
    let sum = |sum: &str| {
        let terms = sum.strip_prefix("O(")?.strip_suffix(')')?;
        let terms = terms.split(" + ").map(str::to_owned).collect();
        Some(Sum { terms, hashed: hashed.clone() })
    };
    Some((sum(mean)?, sum(one_call)?, looks))
}

/// Returns what follows `fn` if the line begins a public function.
fn public_function(line: &str) -> Option<&str> {
    let item = line.strip_prefix("pub ")?;
    ["fn ", "async fn ", "const fn "].into_iter().find_map(|words| item.strip_prefix(words))
}

/// Judges each operation after each history, and prints the most that each took.
pub(crate) fn keeps_its_bounds<S: Subject>(mode: Mode) {
    let fewer = if is_wide(mode) { 4 } else { 1 };
    let asked = asked("BOUNDS_PEAK");
    let peak = asked.unwrap_or_else(|| long(PEAK, LONG_PEAK)) / fewer;
    let many = if asked.is_some() { 10_000 } else { long(80, 1_000) };
    let has_its_own = asked.is_some_and(|peak| peak <= OWN_HISTORY);
    let mut stated = stated(S::SOURCES);
    for (name, reason) in S::LEFT_OUT {
        assert!(stated.remove(*name).is_some(), "{name}, left out ({reason}), is no operation");
    }
    let operations = [Kind::Stays, Kind::Leaves].map(|kind| {
        let mut operations: Vec<_> =
            stated.iter().filter(|&(name, _)| kind == Kind::of(name)).collect();
        // What costs much comes last, because it changes much.
        operations.sort_by_key(|(_, stated)| !stated.is_cheap());
        operations
    });
    let (mut most, mut above) = (BTreeMap::<_, [f64; FOUND.len()]>::new(), Vec::new());
    let mut most_kept = 0;
    for (at, (history, make)) in histories::<S>().into_iter().enumerate() {
        let mut judge = |subject: &mut S, name, stated: &Stated, turns: Range<u64>| {
            let found = judge(subject, (mode, peak, turns), (name, stated));
            let most = most.entry(name).or_default();
            for (at, [found, allowed]) in found.into_iter().enumerate() {
                most[at] = found.max(most[at]);
                if allowed < found {
                    let what = FOUND[at];
                    above.push(format!("{history}, {name}: {found} {what}, above {allowed}"));
                }
            }
        };
        let (mut too_large, mut left) = (None, Vec::new());
        let mut made = || {
            let mut subject = S::new(mode);
            let held = measure(|| make(&mut subject, mode, peak)).bytes_max as f64;
            if BYTES[0] + bytes_each(mode) * (peak as f64) < held {
                too_large = Some(format!("{history}: {held} bytes"));
            }
            subject
        };
        for operations in &operations {
            let (cheap, costly) =
                operations.split_at(operations.partition_point(|(_, stated)| stated.is_cheap()));
            let turn = |some: &[_]| {
                let mut turned = some.to_vec();
                turned.rotate_left(at % some.len().max(1));
                turned
            };
            if has_its_own {
                for &(name, stated) in cheap.iter().chain(costly) {
                    let calls = if stated.is_cheap() { 1_000 } else { 4 };
                    let mut subject = made();
                    judge(&mut subject, name, stated, 0..4);
                    judge(&mut subject, name, stated, 4..calls);
                }
                continue;
            }
            let calls = || {
                let mut subject = made();
                for turns in [0..3, 3..many] {
                    for (name, stated) in turn(cheap) {
                        judge(&mut subject, name, stated, turns.clone());
                    }
                }
                for (name, stated) in turn(costly) {
                    judge(&mut subject, name, stated, 0..2);
                }
                subject
            };
            let kept = at_rest(calls) - at_rest(|| S::new(mode));
            most_kept = most_kept.max(kept);
            let is_stopped = operations.iter().any(|&(name, _)| name == "stop");
            let each = if is_stopped { S::KEPT_STOPPED } else { 0.0 };
            if (AT_REST as f64 + each * peak as f64) < kept as f64 {
                left.push(format!("{history}: {kept} bytes at rest"));
            }
        }
        above.extend(too_large.into_iter().chain(left));
    }
    println!("{mode}: {most_kept} bytes at rest");
    for (name, most) in most {
        println!("{mode} {name}: {most:.1?}");
    }
    assert!(above.is_empty(), "{mode}:\n{}", above.join("\n"));
}

/// Judges each insertion while a subject grows to its peak, and prints and returns the most that one
/// took: steps, and bytes moved to a larger array.
pub(crate) fn grows_in_steps<S: Subject>(mode: Mode) -> [u64; 2] {
    let peak = asked("BOUNDS_PEAK").unwrap_or_else(|| long(PEAK, LONG_PEAK) * 5);
    let mut subject = S::new(mode);
    let (mut most, mut into_buckets) = ([(0, 0); 2], 0);
    for number in 0..peak {
        let before = steps();
        let key = if S::IS_MAP { number } else { 0 };
        let measured = measure(|| subject.put(deadline(number), key));
        let grown = measured.bytes_current.max(0) as u64;
        let moved = if 0 < grown { measured.bytes_total - grown } else { 0 };
        let moved = if (moved as f64) < WHOLE_PAGES { moved } else { 0 };
        let mut taken = steps() - before;
        if 0 == into_buckets && (GROWS + 1..=INTO_BUCKETS).contains(&taken) {
            into_buckets = std::mem::take(&mut taken);
        }
        for (most, found) in most.iter_mut().zip([taken, moved]) {
            *most = (*most).max((found, number));
        }
    }
    assert_eq!(subject.len() as u64, peak);
    println!("{mode}, {}: {most:?}", std::any::type_name::<S>());
    let [(steps, _), (moved, _)] = most;
    let may_move = MOVED_WHOLE + peak / 32;
    assert!(
        steps <= GROWS && moved <= may_move,
        "{mode}: steps and bytes, with how many: {most:?}"
    );
    [steps, moved]
}

/// Returns the bytes that a subject holds after `make`, emptied and shrunk.
fn at_rest<S: Subject>(make: impl FnOnce() -> S) -> i64 {
    let mut kept = None;
    let held = measure(|| {
        let mut subject = make();
        subject.empty();
        subject.forget();
        while subject.drive(1 << 61, &mut { usize::MAX }) {}
        assert_eq!(subject.len(), 0, "it is empty");
        subject.call("shrink_to_fit", 0, 0);
        kept = Some(subject);
    });
    held.bytes_current
}

/// What calls leave of a history.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Most of it.
    Stays,
    /// Little, because they drive, take out or end.
    Leaves,
}

impl Kind {
    fn of(name: &str) -> Self {
        let ends = ["cancel", "clear", "close", "drain", "remove", "retain", "stop"];
        let leaves = drives(name) || ends.iter().any(|word| name.starts_with(word));
        if leaves { Self::Leaves } else { Self::Stays }
    }
}

/// Whether the operation of this name drives to a later tick.
fn drives(name: &str) -> bool {
    let others = ["next", "next_batch", "next_due", "poll_expired", "try_recv", "turn"];
    ["expire", "extract", "recv"].iter().any(|word| name.starts_with(word))
        || others.contains(&name)
}

/// Makes the calls. Returns what [`FOUND`] names, and what is allowed. What a call may take goes by
/// what is pending then. So if a call takes more, what was allowed is told of the one furthest above.
fn judge<S: Subject>(
    subject: &mut S,
    (mode, peak, turns): (Mode, u64, Range<u64>),
    (name, stated): (&str, &Stated),
) -> [[f64; 2]; FOUND.len()] {
    let calls = turns.end.saturating_sub(turns.start) as f64;
    if calls == 0.0 {
        return Default::default();
    }
    let at_once = if drives(name) { SORTED } else { ONE_CALL };
    let peak_then = (peak + turns.end) as f64;
    let rows = if is_wide(mode) { ROWS } else { 0.0 };
    let per_timeout = if stated.is_cheap() { LAID_OUT } else { bytes_each(mode) };
    let laid_out = BYTES[0] + rows + per_timeout * peak_then;
    let by_n = if stated.one_call.has("n") { bytes_each(mode) } else { 0.0 };
    let (mut beyond, mut most, mut total) = ([0.0_f64; 3], [0.0_f64; 3], [0.0; 2]);
    let (mut allowed, mut more) = (at_once, 0.0);
    for turn in turns {
        let number = if turn == 1 { peak - 1 } else { turn * 7919 % peak };
        let live = subject.len() as f64 + 1.0;
        let before = steps();
        let mut is_known = false;
        let measured = measure(|| is_known = subject.call(name, turn, number));
        assert!(is_known, "{name}: there is no such call");
        let (taken, bytes) = ((steps() - before) as f64, measured.bytes_total as f64);
        more += (subject.len() as f64 + 1.0 - live).max(0.0);
        let one_call = at_once.min(FEW[0] + FEW[1] * live)
            + stated.looks
            + stated.one_call.bound(mode, live, peak_then);
        // If more is held then, what was freed has moved to a larger array.
        let grown = measured.bytes_current as f64;
        let moves = if 0.0 < grown { bytes - grown } else { 0.0 };
        let moves = if moves < WHOLE_PAGES { moves } else { 0.0 };
        let may = [one_call, laid_out + by_n * live, MOVED.min(laid_out) + by_n * live];
        for (at, found) in [taken, bytes, moves].into_iter().enumerate() {
            beyond[at] = beyond[at].max(found - may[at]);
            most[at] = most[at].max(found);
        }
        total = [total[0] + taken, total[1] + bytes];
        let batch = if name == "turn" { peak_then / MANY_TURNS } else { 0.0 };
        let mean = S::MEAN.max(batch);
        allowed += mean + stated.looks + stated.mean.bound(mode, live, peak_then);
    }
    allowed += ARRAYS * peak_then.min(MOVED_WITH_EACH * more);
    // One call may do what earlier ones have left.
    let is_amortised = stated.mean != stated.one_call;
    let [steps, bytes] =
        [0, 1].map(|at| if is_amortised { total[at] - most[at] } else { total[at] });
    let each = if stated.is_cheap() { 2.0 * laid_out / calls } else { laid_out };
    let in_one_call = |at: usize| {
        [most[at], if 0.0 < beyond[at] { most[at] - beyond[at] } else { f64::INFINITY }]
    };
    [
        in_one_call(0),
        // A few calls may be those that do what earlier ones have left.
        [steps / calls, if is_amortised && calls < 20.0 { f64::INFINITY } else { allowed / calls }],
        in_one_call(1),
        in_one_call(2),
        [bytes / calls, BYTES[1] + rows + each],
    ]
}

/// Whether each timeout may have a row of buckets to itself, and the nodes that lead to it.
fn is_wide(mode: Mode) -> bool {
    512 < mode.buckets()
}

/// The bytes per timeout that an array may take while it grows.
fn bytes_each(mode: Mode) -> f64 {
    if is_wide(mode) { 12_000.0 } else { 1_500.0 }
}

/// What is judged.
const FOUND: [&str; 5] = [
    "steps in one call",
    "steps per call",
    "bytes in one call",
    "bytes moved in one call",
    "bytes per call",
];
/// Steps that any call may take: it looks for the pieces of a sweep, or moves a chunk or two. One
/// after a call that drives may put back what that has sorted, which no history here makes it do.
pub(crate) const ONE_CALL: f64 = 3_500.0;
/// The same for a call that drives: it sorts a bucket of 8192, and leaves a chunk or two behind.
pub(crate) const SORTED: f64 = 12_000.0;
/// The same where few timeouts are pending: some steps for each stale entry that no sweep has found
/// yet, which are a chunk at most, and for each timeout.
const FEW: [f64; 2] = [2_500.0, 16.0];
/// The arrays that grow with the timeouts: slots, deadlines, and the names of a recording. While
/// they grow, each new timeout moves so many elements of each, until all have moved. All of many
/// calls may come while that is so.
const ARRAYS: f64 = 3.0;
const MOVED_WITH_EACH: f64 = 64.0;
/// The steps that one insertion may take while a subject grows.
pub(crate) const GROWS: u64 = 280;
/// The same for the one that puts a wheel of few into buckets.
const INTO_BUCKETS: u64 = 1_100;
/// The bytes of an array that one insertion may move to a larger one, beside a list of bits.
pub(crate) const MOVED_WHOLE: u64 = 65_536;
/// The bytes that any call may allocate beside arrays, and the mean that a call may: a step copies
/// what it takes apart.
const BYTES: [f64; 2] = [65_536.0, 16_384.0];
/// The bytes that a subject may keep of a history and of all calls, once it is emptied and shrunk.
const AT_REST: i64 = 14_000;
/// The bytes per timeout of an array that a call may lay out to grow into, and the most that a call
/// may move to a larger array: it sorts a bucket of 8192, and moves lists of bits and of chunks.
const LAID_OUT: f64 = 256.0;
const MOVED: f64 = 1_048_576.0;
/// Bytes from which on the allocator moves an array by its pages, so that the library leaves it to
/// it.
const WHOLE_PAGES: f64 = if cfg!(target_os = "linux") { 33_554_432.0 } else { f64::INFINITY };
/// The rows of 1024 timeouts, which is as many as a step takes out of a bucket.
const ROWS: f64 = 1_024.0 * 4_096.0;
/// A turn takes a bounded batch, which is little beside so large a part of what was pending.
const MANY_TURNS: f64 = 1_000.0;
/// The timeouts of each history, and four times those of one in a mode of many buckets.
const PEAK: u64 = 4_000;
/// The same, if tests are to be long.
const LONG_PEAK: u64 = 20_000;
/// With no more than that, each operation may have a history of its own.
const OWN_HISTORY: u64 = 20_000;
