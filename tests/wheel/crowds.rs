//! A wheel agrees with a sorted map while many timeouts at a time are cancelled, moved or passed
//! between the steps of a bounded expire.
//!
//! Each mode runs random operations once, and prints their seed.
//! `CROWD_MINUTES=1 cargo test --release --test wheel crowds` gives each mode a minute of CPU time,
//! and `CROWD_SEED` takes a seed again.

use crate::checked::MANY;
use crate::common::{asked, long};
use crate::pair::Pair;
use cpu_time::ThreadTime;
use fastrand::Rng;
use std::ops::{Deref, DerefMut};
use std::time::Duration;
use tickwheel::{Mode, Wheel, steps};

in_each_mode_and_large! {
    operations_between_steps_agree_with_a_sorted_map,
    cancelled_while_a_bucket_is_taken_apart,
    moved_while_a_bucket_is_taken_apart,
    the_next_deadline_is_known_while_a_bucket_is_taken_apart,
    the_next_deadline_of_a_crowd_cancelled_in_order_is_not_searched_for_anew,
}

/// The least number of live timeouts of a crowd; the most is three times that, which fills chunks
/// of a bucket.
fn few() -> usize {
    if cfg!(debug_assertions) { long(400, 1_000) } else { 100_000 }
}

/// Timeouts in a bucket that is taken apart in several steps, of 1024 at most.
fn in_a_bucket() -> usize {
    if cfg!(debug_assertions) { long(1_100, 2_000) } else { 20_000 }
}

/// A wheel and its map, and the random numbers for their operations.
struct Crowd {
    pair: Pair,
    rng: Rng,
}

impl Deref for Crowd {
    type Target = Pair;

    fn deref(&self) -> &Pair {
        &self.pair
    }
}

impl DerefMut for Crowd {
    fn deref_mut(&mut self) -> &mut Pair {
        &mut self.pair
    }
}

/// Some deadlines.
#[derive(Clone, Copy, Debug)]
struct Deadlines {
    first: u64,
    span: u64,
}

impl Deadlines {
    fn draw(rng: &mut Rng, now: u64) -> Self {
        let bits = rng.u32(..40);
        let first = match rng.u8(..4) {
            0 => now,
            1 => now + rng.u64(..1 << bits),
            // Where a bucket begins.
            _ => ((now >> bits) + 1) << bits,
        };
        Self { first, span: 1 << rng.u32(..=bits.min(24)) }
    }
}

impl Crowd {
    fn new(mode: Mode, seed: u64) -> Self {
        Self { pair: Pair::new(mode), rng: Rng::with_seed(seed) }
    }

    fn fill(&mut self, crowd: usize, deadlines: Deadlines) {
        for _ in self.pending.len()..crowd {
            let deadline = deadlines.first + self.rng.u64(..deadlines.span);
            self.schedule(deadline);
        }
    }

    /// Returns some pending timeouts: the earliest, the latest, or random ones.
    fn some(&mut self) -> Vec<usize> {
        let Self { pair, rng } = self;
        let some = rng.usize(..=pair.pending.len());
        let pending = pair.pending.values().copied();
        match rng.u8(..4) {
            0 => pending.take(some).collect(),
            1 => pending.rev().take(some).collect(),
            2 => pending.step_by(rng.usize(1..50)).collect(),
            _ => (0..some).map(|_| rng.usize(..pair.timeouts.len())).collect(),
        }
    }

    fn cancel_some(&mut self) {
        for value in self.some() {
            self.cancel(value);
        }
    }

    /// Has one in the place of the first, and takes it back when the wheel has looked for it.
    fn take_back(&mut self) {
        let Some((&(deadline, _), &first)) = self.pending.first_key_value() else { return };
        self.cancel(first);
        let newest = self.timeouts.len();
        self.schedule(deadline);
        self.look_for_next();
        self.cancel(newest);
        self.check_all();
    }

    fn move_some(&mut self) {
        let deadlines = Deadlines::draw(&mut self.rng, self.pair.now);
        for value in self.some() {
            let deadline = deadlines.first + self.rng.u64(..deadlines.span);
            self.reschedule(value, deadline);
        }
    }

    fn check_all(&mut self) {
        self.look_for_next();
        self.check();
    }

    /// A crowd, and a jump past some of it in steps, with random operations between the steps.
    fn round(&mut self) {
        let crowd = self.rng.usize(few()..=3 * few());
        let parts = self.rng.usize(1..5);
        for part in 1..=parts {
            let deadlines = Deadlines::draw(&mut self.rng, self.pair.now);
            self.fill(crowd * part / parts, deadlines);
            self.take_back();
        }
        let at = self.rng.usize(..self.pair.pending.len());
        let (&(deadline, _), _) = self.pending.iter().nth(at).expect("it is pending");
        let now = deadline + self.rng.u64(..8);
        let work = 1 << self.rng.u32(..14);
        // Enough steps to see any state. Then the crowd goes to the end in one jump.
        let steps = self.rng.usize(..100);
        for step in 0..steps {
            if self.expire_bounded(now, work) {
                break;
            }
            match self.rng.u8(..64) {
                0..3 => self.cancel_some(),
                3..6 => self.move_some(),
                6 => self.wheel.shrink_to_fit(),
                _ => {}
            }
            match step % 32 {
                0 => self.check_all(),
                1..8 => self.look_for_next(),
                _ => {}
            }
        }
        self.jump(now, usize::MAX);
    }
}

/// Runs rounds until `10 * few()` timeouts were scheduled or moved, and then to the end.
fn live(mode: Mode, seed: u64) {
    println!("CROWD_SEED={seed}");
    let mut crowd = Crowd::new(mode, seed);
    while crowd.scheduled < 10 * few() as u64 {
        crowd.round();
    }
    crowd.jump(u64::MAX, usize::MAX);
    assert!(crowd.wheel.is_empty());
}

fn operations_between_steps_agree_with_a_sorted_map(mode: Mode) {
    let (minutes, seed) = (asked("CROWD_MINUTES"), asked("CROWD_SEED"));
    let begin = ThreadTime::now();
    loop {
        live(mode, seed.unwrap_or_else(|| fastrand::u64(..)));
        if begin.elapsed() >= Duration::from_secs(60 * minutes.unwrap_or(0)) {
            break;
        }
    }
}

type Draw = fn(&mut Rng) -> u64;

/// A crowd in `BUCKETS[bucket]`, after `steps` steps of taking it apart, and 64 elsewhere.
fn in_the_middle(mode: Mode, bucket: usize, steps: usize) -> Crowd {
    let mut crowd = Crowd::new(mode, steps as u64);
    let (now, deadline) = BUCKETS[bucket];
    for _ in 0..in_a_bucket() {
        let deadline = deadline(&mut crowd.rng);
        crowd.schedule(deadline);
    }
    crowd.fill(in_a_bucket() + 64, Deadlines { first: 5 * FAR + 3, span: 1 });
    for step in 0..steps {
        let is_over = crowd.expire_bounded(now, 1);
        let is_for_this_mode = bucket == usize::from(mode.is_hashed());
        assert!(!is_over || 0 < step || !is_for_this_mode, "the bucket takes more than a step");
    }
    crowd
}

fn cancelled_while_a_bucket_is_taken_apart(mode: Mode) {
    for (bucket, (now, _)) in BUCKETS.into_iter().enumerate() {
        for (steps, is_backward, kept) in
            [(1, false, 16), (2, true, 16), (4, false, 16), (30, true, 16), (1, false, 1 << 20)]
        {
            let mut crowd = in_the_middle(mode, bucket, steps);
            for nth in 0..in_a_bucket() {
                let value = if is_backward { in_a_bucket() - 1 - nth } else { nth };
                if value % kept != 5 {
                    crowd.cancel(value);
                }
                if nth % (in_a_bucket() / 4) == 0 {
                    crowd.check_all();
                }
            }
            crowd.check_all();
            crowd.jump(now, 1000);
            crowd.jump(u64::MAX, 1000);
        }
    }
}

fn moved_while_a_bucket_is_taken_apart(mode: Mode) {
    for (bucket, (now, _)) in BUCKETS.into_iter().enumerate() {
        // Within the bucket, to what is due, and to another one.
        for (steps, first, span) in [(1, FAR, SPAN), (2, 0, 1), (4, 2 * FAR, SPAN)] {
            let mut crowd = in_the_middle(mode, bucket, steps);
            for value in (0..in_a_bucket()).filter(|value| value % 16 != 5) {
                let deadline = first + crowd.rng.u64(..span);
                crowd.reschedule(value, deadline);
                if value % (in_a_bucket() / 4) == 0 {
                    crowd.expire_bounded(now, 1);
                    crowd.check_all();
                }
            }
            crowd.jump(now, 1000);
            crowd.jump(u64::MAX, 1000);
        }
    }
}

fn the_next_deadline_is_known_while_a_bucket_is_taken_apart(mode: Mode) {
    for (bucket, (now, _)) in BUCKETS.into_iter().enumerate() {
        let mut crowd = in_the_middle(mode, bucket, 1);
        for step in 0..in_a_bucket() / 100 {
            crowd.look_for_next();
            // The earliest is cancelled, so the wheel has to find the next one.
            for _ in 0..2 {
                let next = crowd.pending.first_key_value().map(|(_, &value)| value);
                crowd.cancel(next.expect("one is pending"));
                crowd.look_for_next();
            }
            if crowd.expire_bounded(now, 1 + step / 16) {
                break;
            }
        }
        crowd.jump(u64::MAX, 1000);
    }
}

/// Returns the steps of cancelling a crowd in order, asking for the next deadline after each.
fn cancelling_in_order(mode: Mode, crowd: u64) -> u64 {
    // A hashed wheel looks at all buckets that are occupied, so all deadlines fall into one.
    let deadline = |value| if mode.is_hashed() { FAR + (value << 20) } else { FAR + value };
    let mut wheel = Wheel::with_capacity(mode, MANY);
    let keys: Vec<_> = (0..crowd).map(|value| wheel.schedule(deadline(value), value)).collect();
    let begin = steps();
    for (value, key) in (0..crowd).zip(keys) {
        assert_eq!(wheel.next_deadline(), Some(deadline(value)));
        assert_eq!(wheel.cancel(key), Some(value));
    }
    assert_eq!(wheel.next_deadline(), None);
    steps() - begin
}

/// Eight times as many timeouts take about eight times the steps, and would take 64 times if the
/// wheel searched for each.
fn the_next_deadline_of_a_crowd_cancelled_in_order_is_not_searched_for_anew(mode: Mode) {
    let [few, many] = [1 << 8, 1 << 11].map(|crowd| cancelling_in_order(mode, crowd));
    assert!(many <= 24 * few, "{many} steps, and {few} for an eighth");
}

/// Where a coarse bucket of each hierarchical wheel begins.
const FAR: u64 = 1 << 30;
/// Deadlines in it: more than one bucket of the level below covers.
const SPAN: u64 = 1 << 16;

/// Where a bucket of `in_a_bucket()` timeouts is driven to, and what is in it.
const BUCKETS: [(u64, Draw); 2] = [
    // One coarse bucket of a hierarchical wheel.
    (FAR + SPAN / 2, |rng| FAR + rng.u64(..SPAN)),
    // One bucket of a hashed wheel, most of which waits.
    (FAR, |rng| FAR + (rng.u64(..4) << 20)),
];
