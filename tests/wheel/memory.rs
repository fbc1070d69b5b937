//! Memory stays within a constant factor of the most timeouts that were live, and a wheel at rest
//! is a few kilobytes.
//!
//! [`Metered`] compares what the wheel says with what the allocator counts, after every step.

use crate::common::{Numbers, is_run, long, under_ci};
use tickwheel::{Key, Mode, Wheel};

in_each_mode! {
    a_new_wheel_allocates_nothing,
    what_the_wheel_says_is_what_the_allocator_counts,
    at_rest_it_is_a_few_kilobytes,
    emptied_and_shrunk_it_holds_nothing,
    a_dropped_wheel_gives_everything_back,
    all_but_one_a_bucket_cancelled,
    successive_far_buckets_filled_and_emptied,
    a_crowd_moved_through_all_buckets,
    a_crowd_that_never_comes_because_it_is_moved,
    cancelled_places_are_used_again_at_once,
    a_bucket_that_always_has_one_left,
    due_again_at_once_for_ever_holds_no_more_than_what_is_live,
    a_large_batch_leaves_nothing_behind,
    room_made_beforehand_is_enough,
    room_that_is_there_is_not_made_again,
    one_left_behind_keeps_no_room_for_the_crowd_that_was_with_it,
    a_crowd_handed_out_leaves_no_room_for_its_entries,
    growing_allocates_a_few_times_what_is_needed,
    what_is_known_of_a_crowd_in_one_bucket_is_counted,
    few_that_are_demoted_take_little_room,
    shrunk_after_a_jump_it_keeps_no_room_for_what_was_gathered,
}

/// A wheel whose allocations are counted.
struct Metered {
    wheel: Wheel<u64>,
    bytes: i64,
    /// The most timeouts that were live.
    most: usize,
}

impl Metered {
    fn new(mode: Mode) -> Self {
        Self { wheel: Wheel::new(mode), bytes: 0, most: 0 }
    }

    /// Takes a step, which must not allocate for itself.
    #[track_caller]
    fn step<R>(&mut self, step: impl FnOnce(&mut Wheel<u64>) -> R) -> R {
        let mut result = None;
        let info = allocation_counter::measure(|| result = Some(step(&mut self.wheel)));
        self.bytes += info.bytes_current;
        self.most = self.most.max(self.wheel.len());
        result.expect("the step was taken")
    }

    /// Bytes allocated, on which wheel and allocator must agree.
    #[track_caller]
    fn memory(&self) -> usize {
        let memory = self.wheel.stats().memory;
        assert_eq!(memory as i64, self.bytes, "the wheel knows what it allocated");
        memory
    }

    #[track_caller]
    fn assert_bounded(&self) {
        let (memory, bound) = (self.memory(), FEW + EACH * self.most);
        assert!(memory <= bound, "{memory} bytes where {} were live at most", self.most);
    }
}

/// Panics unless a wheel takes as much as `bound`, or at least half of it.
#[track_caller]
fn assert_near(memory: usize, bound: usize) {
    let is_near = memory <= bound && bound <= 2 * memory;
    assert!(is_near, "{memory} bytes, and the bound is {bound}");
}

fn a_new_wheel_allocates_nothing(mode: Mode) {
    let info = allocation_counter::measure(|| {
        let mut wheel = Wheel::<u64>::new(mode);
        assert!(wheel.expire(u64::MAX).is_none());
        assert_eq!((wheel.next_deadline(), wheel.next_wake()), (None, None));
        assert_eq!(wheel.iter().count() + wheel.drain().count(), 0);
        wheel.shrink_to_fit();
    });
    assert_eq!(info.count_total, 0);
    assert_eq!(Metered::new(mode).memory(), 0);
}

fn what_the_wheel_says_is_what_the_allocator_counts(mode: Mode) {
    let mut numbers = Numbers(20);
    let mut metered = Metered::new(mode);
    let quarter = under_ci(400, 1000);
    let mut keys: Vec<Key> = Vec::with_capacity(4000);
    for step in 0..4 * quarter {
        let deadline = metered.wheel.now().saturating_add(numbers.below(5000));
        let far = metered.wheel.now().saturating_add(numbers.of_any_size());
        let key = keys.get(numbers.below(keys.len().max(1) as u64) as usize).copied();
        match (numbers.below(10), key) {
            (0..4, _) => keys.push(metered.step(|wheel| wheel.schedule(deadline, step))),
            (4, _) => keys.push(metered.step(|wheel| wheel.schedule(far, step))),
            (5, Some(key)) => drop(metered.step(|wheel| wheel.cancel(key))),
            (6, Some(key)) => drop(metered.step(|wheel| wheel.reschedule(key, deadline))),
            (7, Some(key)) => drop(metered.step(|wheel| wheel.reschedule(key, far))),
            _ => {
                let now = metered.wheel.now() + numbers.below(300);
                metered.step(|wheel| (0..3).map_while(|_| wheel.expire(now)).count());
            }
        }
        match (step % quarter, step / quarter) {
            (0, 1) => metered.step(|wheel| wheel.shrink_to_fit()),
            (0, 2) => metered.step(|wheel| wheel.reserve(3000)),
            (0, 3) => metered.step(|wheel| wheel.clear()),
            _ => {}
        }
        metered.memory();
    }
    metered.step(|wheel| drop(wheel.drain()));
    metered.step(|wheel| wheel.shrink_to_fit());
    assert_eq!(metered.memory(), 0);
}

fn at_rest_it_is_a_few_kilobytes(mode: Mode) {
    let mut metered = Metered::new(mode);
    metered.step(|wheel| {
        for value in 0..10_000 {
            wheel.schedule(value * value, value);
        }
        while wheel.expire(5000 * 5000).is_some() {}
    });
    assert_near(metered.memory(), FEW + EACH * metered.most);
    metered.step(|wheel| drop(wheel.drain()));
    metered.step(|wheel| wheel.shrink_to_fit());
    assert_eq!(metered.memory(), 0);
    metered.step(|wheel| wheel.schedule(u64::MAX, 1));
    assert_near(metered.memory(), ONE);
    metered.step(|wheel| wheel.shrink_to_fit());
    assert!(metered.memory() <= ONE);
}

fn emptied_and_shrunk_it_holds_nothing(mode: Mode) {
    let empty: [fn(&mut Wheel<u64>); 4] = [
        |wheel| while wheel.expire(u64::MAX).is_some() {},
        |wheel| wheel.clear(),
        |wheel| drop(wheel.drain()),
        |wheel| {
            while let Some((key, ..)) = wheel.iter().next() {
                wheel.cancel(key);
            }
        },
    ];
    for empty in empty {
        let mut metered = Metered::new(mode);
        metered.step(|wheel| {
            for value in 0..500 {
                wheel.schedule(value * value * value, value);
            }
        });
        assert!(0 < metered.memory());
        metered.step(empty);
        metered.step(|wheel| wheel.shrink_to_fit());
        assert_eq!(metered.memory(), 0);
    }
}

fn a_dropped_wheel_gives_everything_back(mode: Mode) {
    let info = allocation_counter::measure(|| {
        let mut wheel = Wheel::new(mode);
        for value in 0..500 {
            wheel.schedule(value * value * value, Box::new(value));
        }
        while wheel.expire(10_000).is_some() {}
    });
    assert!(0 < info.bytes_total);
    assert_eq!((info.bytes_current, info.count_current), (0, 0));
}

fn all_but_one_a_bucket_cancelled(mode: Mode) {
    const BUCKETS: u64 = 512;
    let crowd = long(16, 40);
    for kept in [0, crowd / 2, crowd - 1] {
        let mut metered = Metered::new(mode);
        let mut keys = Vec::with_capacity((BUCKETS * crowd) as usize);
        for value in 0..BUCKETS * crowd {
            keys.push(metered.step(|wheel| wheel.schedule(1000 + value % BUCKETS, value)));
        }
        metered.assert_bounded();
        for (value, &key) in (0..).zip(&keys) {
            if value / BUCKETS != kept {
                assert_eq!(metered.step(|wheel| wheel.cancel(key)), Some(value));
            }
        }
        assert_eq!(metered.wheel.len(), BUCKETS as usize);
        metered.assert_bounded();
        // Once the room for the others is given back, what is left is held to what is live; the
        // places before a live timeout are not given back, and keys are places.
        metered.step(|wheel| wheel.shrink_to_fit());
        let places = ((kept + 1) * BUCKETS) as usize;
        assert!(metered.memory() <= FEW + EACH * BUCKETS as usize + 24 * places);
        metered.wheel.check();
    }
}

fn successive_far_buckets_filled_and_emptied(mode: Mode) {
    const CROWD: u64 = 1000;
    let mut numbers = Numbers(21);
    let mut metered = Metered::new(mode);
    let mut keys = Vec::with_capacity(CROWD as usize);
    for bit in (0..64).step_by(EVERY) {
        for turn in 0..long(2, 4) {
            let deadline = (1_u64 << bit).saturating_add(numbers.below(1 << bit) / 4 * turn);
            for value in 0..CROWD {
                keys.push(metered.step(|wheel| wheel.schedule(deadline, value)));
            }
            for key in keys.drain(..) {
                metered.step(|wheel| wheel.cancel(key));
            }
            metered.assert_bounded();
        }
    }
    assert_eq!(metered.most, CROWD as usize);
}

fn a_crowd_moved_through_all_buckets(mode: Mode) {
    const CROWD: u64 = 100;
    let mut metered = Metered::new(mode);
    let mut keys = Vec::with_capacity(CROWD as usize);
    for value in 0..CROWD {
        keys.push(metered.step(|wheel| wheel.schedule(1, value)));
    }
    let stops =
        (2..512).chain((9..64).map(|bit| 1 << bit)).chain((0..64).map(|bit| u64::MAX << bit));
    for stop in stops {
        for (value, &key) in (0..).zip(&keys) {
            assert!(metered.step(|wheel| wheel.reschedule(key, stop - value % 2)));
        }
        metered.assert_bounded();
    }
    metered.wheel.check();
    assert_eq!(metered.most, CROWD as usize);
}

fn a_crowd_that_never_comes_because_it_is_moved(mode: Mode) {
    const CROWD: usize = 100;
    let mut metered = Metered::new(mode);
    let mut keys = Vec::with_capacity(CROWD);
    for _ in 0..CROWD {
        keys.push(metered.step(|wheel| wheel.schedule(1000, 0)));
    }
    for tick in 0..2000 {
        for &key in keys.iter().skip(tick as usize % 3).step_by(3) {
            assert!(metered.step(|wheel| wheel.reschedule(key, tick + 1000)));
        }
        assert!(metered.step(|wheel| wheel.expire(tick)).is_none());
        if tick % 100 == 0 {
            metered.assert_bounded();
        }
    }
    metered.assert_bounded();
    assert_eq!(metered.most, CROWD);
}

fn cancelled_places_are_used_again_at_once(mode: Mode) {
    let mut metered = Metered::new(mode);
    let key = metered.step(|wheel| wheel.schedule(5000, 0));
    metered.step(|wheel| wheel.cancel(key));
    let memory = metered.memory();
    for value in 0..10_000 {
        let key = metered.step(|wheel| wheel.schedule(5000, value));
        assert_eq!(metered.step(|wheel| wheel.cancel(key)), Some(value));
    }
    assert_eq!(metered.memory(), memory);
    assert_eq!(metered.most, 1);
}

fn a_bucket_that_always_has_one_left(mode: Mode) {
    let mut metered = Metered::new(mode);
    let mut last = metered.step(|wheel| wheel.schedule(5000, 0));
    for value in 1..10_000 {
        let key = metered.step(|wheel| wheel.schedule(5000, value));
        assert_eq!(metered.step(|wheel| wheel.cancel(last)), Some(value - 1));
        last = key;
    }
    metered.assert_bounded();
    assert_eq!(metered.most, 2);
    metered.wheel.check();
}

fn a_large_batch_leaves_nothing_behind(mode: Mode) {
    const BATCH: u64 = 10_000;
    let mut metered = Metered::new(mode);
    for turn in 1..long(4, 10) {
        metered.step(|wheel| {
            for value in 0..BATCH {
                wheel.schedule(turn * 1000 - value % 3, value);
            }
        });
        metered.assert_bounded();
        for taken in 0..BATCH {
            assert!(metered.step(|wheel| wheel.expire(turn * 1000)).is_some());
            if taken % 1000 == 0 {
                metered.assert_bounded();
            }
        }
        metered.assert_bounded();
    }
}

fn room_made_beforehand_is_enough(mode: Mode) {
    let mut metered = Metered::new(mode);
    metered.step(|wheel| wheel.reserve(1000));
    let roomy = metered.memory();
    assert!(1000 * size_of::<u64>() <= roomy);
    metered.step(|wheel| {
        for value in 0..1000 {
            wheel.schedule(77, value);
        }
    });
    assert!(metered.memory() <= 2 * roomy);
    metered.assert_bounded();
}

/// Also where an array that is to be smaller is copied, as it is by the allocator of these tests.
fn growing_allocates_a_few_times_what_is_needed(mode: Mode) {
    let mut wheel = Wheel::new(mode);
    let info = allocation_counter::measure(|| {
        for value in 0..long(60_000, 300_000) {
            wheel.schedule(77, value);
        }
    });
    let needed = wheel.stats().memory as u64;
    assert!(info.bytes_total <= 6 * needed, "{} bytes allocated", info.bytes_total);
}

/// At most `most` bytes per timeout beyond its value, for many pending at random within 30 s of
/// milliseconds, in long runs for a million within a minute, an hour or a day: 8 in the slot, 8 for
/// the deadline, 16 for the entry, and what arrays have to spare.
fn many_pending_cost_little_more_than_their_values(mode: &str, most: f64) {
    if !is_run(mode) {
        return;
    }
    let many = long(500_000, 1_000_000);
    let mut numbers = Numbers(22);
    for &span in long(&[30_000][..], &[60_000, 3_600_000, 86_400_000]) {
        let mut metered = Metered::new(mode.parse().expect("a mode"));
        metered.step(|wheel| {
            for value in 0..many {
                wheel.schedule(1 + numbers.below(span), value);
            }
        });
        let each = metered.memory() as f64 / many as f64 - size_of::<u64>() as f64;
        assert!(each <= most, "{each} bytes each for {mode} over {span} ticks");
    }
}

#[test]
fn many_pending_cost_little_in_hierarchical_64() {
    many_pending_cost_little_more_than_their_values("hierarchical:64", 36.0);
}

#[test]
fn many_pending_cost_little_in_hashed_512() {
    many_pending_cost_little_more_than_their_values("hashed:512", 40.0);
}

#[test]
fn many_pending_cost_little_in_hashed_4096() {
    many_pending_cost_little_more_than_their_values("hashed:4096", 40.0);
}

#[test]
fn many_pending_cost_little_in_hashed_65536() {
    many_pending_cost_little_more_than_their_values("hashed:65536", 44.0);
}

#[test]
fn a_billion_buckets_cost_nothing_until_they_are_used() {
    for mode in [Mode::hashed(1 << 30), Mode::hierarchical_with(1 << 30)] {
        let mut metered = Metered::new(mode.expect("it is in range"));
        assert_eq!(metered.memory(), 0);
        metered.step(|wheel| wheel.schedule((1 << 60) - 1, 0));
        assert!(metered.memory() < 64 << 10);
        assert_eq!(
            metered.step(|wheel| wheel.expire(1 << 60)).map(|expired| expired.value),
            Some(0)
        );
    }
}

/// What is due never runs out, so that the array it is in is never empty.
fn due_again_at_once_for_ever_holds_no_more_than_what_is_live(mode: Mode) {
    let mut metered = Metered::new(mode);
    metered.step(|wheel| [wheel.schedule(10, 0), wheel.schedule(10, 1)]);
    for value in 0..long(20_000, 100_000) {
        assert!(metered.step(|wheel| wheel.expire(10)).is_some());
        metered.step(|wheel| wheel.schedule(0, value));
    }
    assert_eq!(metered.wheel.len(), 2);
    metered.assert_bounded();
}

/// Buckets are allocated by the row: a row for each bucket it was in would be 57 MB.
#[test]
fn one_timeout_moved_through_a_million_buckets_stays_one() {
    for mode in ["hashed:1048576", "hierarchical:1048576"] {
        let mut metered = Metered::new(mode.parse().expect("a mode"));
        let key = metered.step(|wheel| wheel.schedule(1, 0));
        for deadline in (1..1 << 20).step_by(64) {
            assert!(metered.step(|wheel| wheel.reschedule(key, deadline)));
        }
        assert_near(metered.memory(), FEW);
    }
}

fn room_that_is_there_is_not_made_again(mode: Mode) {
    const MANY: usize = 1000;
    let mut metered = Metered::new(mode);
    for value in 0..MANY {
        metered.step(|wheel| wheel.schedule(77, value as u64));
    }
    metered.step(|wheel| wheel.clear());
    let before = metered.memory();
    metered.step(|wheel| wheel.reserve(MANY));
    assert_eq!(metered.memory(), before);
}

fn one_left_behind_keeps_no_room_for_the_crowd_that_was_with_it(mode: Mode) {
    let crowd = long(1_500, 4_000);
    let mut metered = Metered::new(mode);
    let mut keys = Vec::with_capacity(crowd);
    for deadline in (1..60).chain((6..64).map(|bit| 1 << bit)).step_by(EVERY) {
        for value in 0..crowd {
            keys.push(metered.step(|wheel| wheel.schedule(deadline, value as u64)));
        }
        for key in keys.drain(..).skip(1) {
            metered.step(|wheel| wheel.cancel(key));
        }
        metered.assert_bounded();
    }
}

fn what_is_known_of_a_crowd_in_one_bucket_is_counted(mode: Mode) {
    let mut metered = Metered::new(mode);
    let mut keys = Vec::new();
    for value in 0..3_000 {
        keys.push(metered.step(|wheel| wheel.schedule(1 << 40, value)));
    }
    let before = metered.memory();
    assert_eq!(metered.step(|wheel| wheel.cancel(keys[0])), Some(0));
    assert_eq!(metered.step(Wheel::next_deadline), Some(1 << 40));
    assert!(before < metered.memory(), "what it has seen of each piece");
}

#[test]
fn rows_and_nodes_to_use_again_are_counted() {
    for mode in ["hashed:1048576", "hierarchical:1048576"] {
        let mut metered = Metered::new(mode.parse().expect("a mode"));
        metered.step(|wheel| wheel.reserve(2_000));
        metered.step(|wheel| wheel.schedule((1 << 20) - 1, 0));
        for tick in 1..50 {
            metered.step(|wheel| wheel.schedule(tick << 14, tick));
            metered.memory();
        }
        for tick in 1..50 {
            assert!(metered.step(|wheel| wheel.expire(tick << 14)).is_some());
            assert!(metered.step(|wheel| wheel.expire(tick << 14)).is_none());
            metered.memory();
        }
    }
}

/// So many that they are in buckets, of which each falls apart into all buckets of the level below.
fn few_that_are_demoted_take_little_room(mode: Mode) {
    const DEMOTED: u64 = 1_100;
    let span = (mode.buckets() * mode.buckets()) as u64;
    let mut metered = Metered::new(mode);
    for value in 0..DEMOTED {
        metered.step(|wheel| wheel.schedule(2 * span + value * span / DEMOTED, value));
    }
    assert!(metered.step(|wheel| wheel.expire(2 * span)).is_some());
    metered.assert_bounded();
}

fn shrunk_after_a_jump_it_keeps_no_room_for_what_was_gathered(mode: Mode) {
    const CROWD: u64 = 5_000;
    let mut metered = Metered::new(mode);
    let mut keys = Vec::with_capacity(CROWD as usize);
    for value in 0..CROWD {
        keys.push(metered.step(|wheel| wheel.schedule(1000 + 7 * value, value)));
    }
    assert!(metered.step(|wheel| wheel.expire(8 * CROWD)).is_some());
    for key in keys.drain(2..) {
        metered.step(|wheel| wheel.cancel(key));
    }
    metered.step(Wheel::shrink_to_fit);
    assert_eq!(metered.wheel.len(), 1);
    assert!(metered.memory() <= FEW, "{} bytes where one is live", metered.memory());
}

/// A crowd that is sorted at once takes an array for that, too.
fn a_crowd_handed_out_leaves_no_room_for_its_entries(mode: Mode) {
    const CROWD: usize = 4000;
    let mut metered = Metered::new(mode);
    // Room for the values: what else is allocated is for buckets and what they hold.
    metered.step(|wheel| wheel.reserve(CROWD + 1));
    metered.step(|wheel| wheel.schedule(1 << 40, 0));
    let span = mode.buckets() as u64;
    let mut filled = |values: std::ops::Range<u64>| {
        for value in values {
            metered.step(|wheel| wheel.schedule(span + value % span, value));
        }
        metered.memory()
    };
    // One in each bucket, which is kept.
    let buckets = filled(0..span);
    let entries = filled(span..CROWD as u64) - buckets;
    while metered.step(|wheel| wheel.expire(2 * span)).is_some() {}
    assert_eq!(metered.wheel.len(), 1);
    let left = metered.memory().saturating_sub(buckets);
    assert!(left <= entries / 4, "{left} bytes left of {entries} that the entries took");
}

#[test]
fn one_that_stays_does_not_keep_the_rows_that_another_left() {
    for mode in ["hashed:1048576", "hierarchical:1048576"] {
        let mut metered = Metered::new(mode.parse().expect("a mode"));
        metered.step(|wheel| wheel.schedule(1, 0));
        let key = metered.step(|wheel| wheel.schedule(1, 1));
        for deadline in (1..1 << 20).step_by(64) {
            assert!(metered.step(|wheel| wheel.reschedule(key, deadline)));
        }
        assert_near(metered.memory(), FEW);
    }
}

/// More than there is, or than there could be, is not an error.
#[test]
fn room_that_cannot_be_had_is_not_made() {
    let mut wheel = Wheel::<u64>::with_capacity(Mode::hierarchical(), usize::MAX);
    wheel.reserve(usize::MAX);
    assert_eq!(wheel.stats().memory, 0);
    let key = wheel.schedule(1, 1);
    assert_eq!(wheel.cancel(key), Some(1));
}

/// What each of the most timeouts that were live may cost, value included.
const EACH: usize = 192;
/// The same for one that is alone.
const ONE: usize = 160;
/// What a wheel may hold whatever is in it: the entries and rows of a few timeouts that were moved.
const FEW: usize = 1 << 10;
/// Of long lists of deadlines a debug build takes every fifth.
const EVERY: usize = if cfg!(debug_assertions) { 5 } else { 1 };
