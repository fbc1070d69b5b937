//! Counts the allocations of a timer: for a timeout hardly more than its boxed task.

use allocation_counter::{AllocationInfo, measure};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tickwheel::{ExpiringMap, ManualClock, Mode, Next, Status, Timeout, Timer, steps};

fn timer(mode: Mode) -> Timer {
    Timer::builder().mode(mode).clock(ManualClock::new()).build().expect("in range")
}

fn modes() -> [Mode; 2] {
    [Mode::default(), Mode::hashed(512).expect("in range")]
}

fn allocations(run: impl FnOnce()) -> (u64, i64) {
    let AllocationInfo { count_total, count_current, .. } = measure(run);
    (count_total, count_current)
}

#[test]
fn scheduling_and_cancelling_allocates_the_task_alone() {
    for mode in modes() {
        let timer = timer(mode);
        let other = || timer.schedule(DELAY, || {}).expect("it runs");
        let others: Vec<_> = (0..1_000).map(|_| other()).collect();
        let captured = [1_u64; 100];
        let round = || {
            let task = move || assert_eq!(captured[0], 1);
            let timeout = timer.schedule(DELAY, task).expect("it runs");
            assert!(timeout.reschedule(DELAY * 2));
            assert!(timeout.cancel());
        };
        // The first ones make the wheel's arrays. These grow and shrink now and then, as the
        // entries of what was cancelled are cleared away many at a time.
        const FEW: u64 = 500;
        (0..10_000).for_each(|_| round());
        let (count, _) = allocations(|| (0..10_000).for_each(|_| round()));
        assert!((10_000..10_000 + FEW).contains(&count), "{count} allocations");
        // A task that captures nothing needs no box.
        let small = || assert!(timer.schedule(DELAY, || {}).expect("it runs").cancel());
        let (count, _) = allocations(|| (0..10_000).for_each(|_| small()));
        assert!(count < FEW, "{count} allocations");
        drop(others);
    }
}

#[test]
fn cancelling_all_gives_back_what_they_captured() {
    for mode in modes() {
        let timer = timer(mode);
        timer.schedule(DELAY, || {}).expect("it runs");
        let live = measure(|| {
            let schedule = |delay| {
                let captured = [1_u8; 1_024];
                let task = move || assert_eq!(captured[0], 1);
                timer.schedule(DELAY + Duration::from_millis(delay), task).expect("it runs")
            };
            let timeouts: Vec<_> = (0..10_000).map(schedule).collect();
            assert!(timeouts.iter().all(Timeout::cancel));
        });
        // Of 10 MB of captures nothing is left but the wheel's arrays.
        assert!(live.bytes_max > 10_240_000);
        assert!(live.bytes_current < 1_000_000, "{live:?}");
        assert_eq!(timer.pending(), 1);
    }
}

/// Schedules many timeouts with the handles that `keep` takes of them.
fn crowd(timer: &Timer, keep: impl Fn(u64) -> bool) -> Vec<Timeout> {
    let schedule = |number| {
        let timeout = timer.schedule(DELAY + Duration::from_millis(number), || {});
        (number, timeout.expect("it runs"))
    };
    (0..MANY).map(schedule).filter(|(number, _)| keep(*number)).map(|(_, kept)| kept).collect()
}

#[test]
fn a_handle_to_a_timer_that_is_gone_keeps_hardly_anything() {
    for mode in modes() {
        let mut kept = Vec::new();
        let info = measure(|| {
            let timer = timer(mode);
            kept = crowd(&timer, |number| number == MANY / 2);
            drop(timer);
        });
        assert!(1_000_000 < info.bytes_max);
        assert!(info.bytes_current < AT_REST, "{} bytes in {mode}", info.bytes_current);
        assert_eq!(kept[0].status(), Status::Stopped);
    }
}

#[test]
fn what_was_due_when_a_timer_was_stopped_leaves_no_memory_behind() {
    for mode in modes() {
        for (at_once, cancels) in [(true, false), (false, false), (true, true), (false, true)] {
            let clock = ManualClock::new();
            let builder = Timer::builder().mode(mode).shards(1).clock(clock.clone());
            let mut kept = Vec::new();
            let info = measure(|| {
                let (timer, mut driver) = builder.build_driven().expect("in range");
                let delay =
                    |number| DELAY + Duration::from_millis(if at_once { 0 } else { number });
                let schedule = |number| timer.schedule(delay(number), || {}).expect("it runs");
                let timeouts: Vec<_> = (0..MANY).map(schedule).collect();
                clock.advance(DELAY * 2);
                // Every other one is gone, and so no two keys that are left follow each other.
                let gone = |number: u64| cancels && number % 2 == 1;
                let cancelled = (0..).zip(&timeouts).filter(|(number, _)| gone(*number));
                assert!(cancelled.into_iter().all(|(_, timeout)| timeout.cancel()));
                while timer.stats().fired == 0 {
                    driver.turn();
                }
                let fired = timer.stats().fired;
                let (left, last) = if cancels { (MANY / 2, 2 * fired) } else { (MANY, fired) };
                assert_eq!(timer.stop().expect("outside").len() as u64, left - fired);
                let ends = |(number, timeout): (u64, &Timeout)| match timeout.status() {
                    Status::Cancelled => gone(number),
                    Status::Fired => number < last,
                    status => status == Status::Stopped && last <= number,
                };
                assert!((0..).zip(&timeouts).all(ends), "{mode}");
                let is_kept = |number: &usize| !gone(*number as u64);
                kept.extend(
                    (0..)
                        .zip(timeouts)
                        .filter(|(number, _)| is_kept(number))
                        .map(|(_, kept)| kept)
                        .last(),
                );
            });
            assert!(info.bytes_current < AT_REST, "{} bytes in {mode}", info.bytes_current);
            assert_eq!(kept[0].status(), Status::Stopped);
        }
    }
}

#[cfg(feature = "record")]
#[test]
fn a_recorded_timer_keeps_no_names_of_what_is_gone() {
    for mode in modes() {
        let clock = ManualClock::new();
        let builder = Timer::builder().mode(mode).clock(clock).shards(1).record(std::io::sink());
        let timer = builder.build().expect("in range");
        let schedule = || timer.schedule(DELAY, || {}).expect("it runs");
        let few: Vec<_> = (0..3).map(|_| schedule()).collect();
        timer.shrink_to_fit();
        let before = memory(&timer) as i64;
        let info = measure(|| {
            let many: Vec<_> = (0..MANY).map(|_| schedule()).collect();
            assert!(few[1].cancel() && many.iter().all(Timeout::cancel));
            timer.shrink_to_fit();
            // Their names, and a new one.
            assert!(few[0].reschedule(DELAY * 2) && schedule().cancel() && few[2].cancel());
        });
        let grown = info.bytes_current + before - memory(&timer) as i64;
        assert!(grown < 20_000, "{grown} bytes in {mode}");
    }
}

#[cfg(feature = "record")]
#[test]
fn a_recorded_timer_that_is_emptied_keeps_the_names_of_a_few() {
    let clock = ManualClock::new();
    let timer = Timer::builder().clock(clock).shards(1).record(std::io::sink()).build();
    let timer = timer.expect("in range");
    let schedule = || timer.schedule(DELAY, || {}).expect("it runs");
    assert!(schedule().cancel());
    let before = memory(&timer) as i64;
    let info = measure(|| {
        let many: Vec<_> = (0..MANY).map(|_| schedule()).collect();
        assert!(many.iter().all(Timeout::cancel));
        timer.shrink_to_fit();
    });
    let grown = info.bytes_current + before - memory(&timer) as i64;
    assert!(grown < 20_000, "{grown} bytes");
    // Each is the only one.
    (0..10).for_each(|_| assert!(schedule().cancel()));
    let (count, _) = allocations(|| (0..100).for_each(|_| assert!(schedule().cancel())));
    assert!(count < 150, "{count} allocations");
}

#[test]
fn a_timer_that_is_emptied_gives_back_its_memory() {
    for mode in modes() {
        for fires in [true, false] {
            let clock = ManualClock::new();
            let timer = Timer::builder().mode(mode).clock(clock.clone()).shards(1).build();
            let timer = timer.expect("in range");
            if fires {
                drop(crowd(&timer, |_| false));
                clock.jump(DELAY * 10);
            } else {
                assert!(crowd(&timer, |_| true).iter().all(Timeout::cancel));
            }
            let memory = timer.stats().shards[0].memory;
            assert_eq!((timer.pending(), memory), (0, 0), "{mode}, {fires}");
        }
    }
}

/// By the call or the turn that takes out the last value, whichever it is.
#[test]
fn a_shared_map_that_is_emptied_gives_back_its_memory() {
    type Map = ExpiringMap<u64, u64>;
    type Way = (&'static str, fn(&Map));
    let ways: [Way; 6] = [
        ("remove", |map| (0..MANY).for_each(|key| assert!(map.remove(&key).is_some()))),
        ("remove_if", |map| {
            (0..MANY).for_each(|key| assert!(map.remove_if(&key, |_| true).is_some()))
        }),
        ("retain", |map| map.retain(|_, _| false)),
        ("drain", |map| assert_eq!(map.drain().count(), MOST)),
        ("clear", Map::clear),
        ("expiry", |_| {}),
    ];
    let is_whole = ["CI", "TICKWHEEL_LONG"].iter().any(|name| std::env::var_os(name).is_some());
    for mode in modes().into_iter().take(if is_whole { 2 } else { 1 }) {
        for (way, empty) in ways {
            let outlets =
                if way == "expiry" { &["none", "hook", "receiver"][..] } else { &["none"] };
            for &outlet in outlets {
                let clock = ManualClock::new();
                let builder = Timer::builder().mode(mode).clock(clock.clone()).shards(1);
                // This thread takes the turns, so that it frees what it allocated.
                let (timer, mut driver) = builder.build_driven().expect("in range");
                let builder = Map::builder().shards(1);
                let (map, mut receiver) = match outlet {
                    "none" => (builder.build(&timer), None),
                    "hook" => (builder.on_expired(|_| {}).build(&timer), None),
                    _ => {
                        let (map, receiver) = builder.build_with_receiver(&timer);
                        (map, Some(receiver))
                    }
                };
                let mut round = || {
                    for key in 0..MANY {
                        assert!(map.insert(key, key, DELAY).is_ok());
                    }
                    empty(&map);
                    clock.jump(DELAY * 2);
                    // Found by callers, too.
                    (0..100).for_each(|key| assert!(map.insert(key, key, DELAY).is_ok()));
                    (0..100).for_each(|key| assert!(map.remove(&key).is_some()));
                    while driver.turn().is_some_and(|next| next <= clock.now()) {}
                    while receiver.as_mut().is_some_and(|receiver| receiver.try_recv().is_some()) {}
                    assert!(map.is_empty());
                };
                let held = measure(&mut round);
                assert!(500_000 < held.bytes_max);
                let kept = held.bytes_current;
                assert!(kept < 40_000, "{kept} bytes after {way}, outlet {outlet}, in {mode}");
            }
        }
    }
}

#[test]
fn a_shared_map_that_keeps_some_of_many_gives_back_memory_when_it_is_told_to() {
    for mode in modes() {
        let (timer, clock) = manual(mode);
        let (map, mut receiver) = ExpiringMap::builder().shards(1).build_with_receiver(&timer);
        let held = measure(|| {
            for key in 0..MANY {
                assert!(map.insert(key, key, DELAY).is_ok());
            }
            (10..MANY).for_each(|key| assert_eq!(map.remove(&key), Some(key)));
            map.shrink_to_fit();
        });
        assert!(500_000 < held.bytes_max && held.bytes_current < 40_000, "{held:?} in {mode}");
        assert!((0..10).all(|key| map.get(&key) == Some(key)));
        (10..MANY).for_each(|key| assert!(map.insert(key, key, DELAY).is_ok()));
        clock.advance(DELAY);
        assert_eq!(receiver.len(), MOST);
        (10..MOST).for_each(|_| assert!(receiver.try_recv().is_some()));
        let given_back = -measure(|| receiver.shrink_to_fit()).bytes_current;
        assert!(100_000 < given_back, "{given_back} bytes in {mode}");
        assert_eq!(receiver.len(), 10);
    }
}

/// A timer of one shard, on a clock that the test moves.
fn manual(mode: Mode) -> (Timer, ManualClock) {
    let clock = ManualClock::new();
    let timer = Timer::builder().mode(mode).clock(clock.clone()).shards(1).max_pending(MOST);
    (timer.build().expect("in range"), clock)
}

fn memory(timer: &Timer) -> usize {
    timer.stats().shards[0].memory
}

#[test]
fn repeating_timeouts_that_end_give_back_their_memory() {
    for mode in modes() {
        let clock = ManualClock::new();
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keeps = Arc::clone(&kept);
        let timer = Timer::builder().mode(mode).clock(clock.clone()).shards(1);
        let timer = timer.executor(move |task| keeps.lock().unwrap().push(task)).build();
        let timer = timer.expect("in range");
        let repeat = |_| timer.schedule_with(DELAY, |_| Next::After(DELAY)).expect("it runs");
        let repeating: Vec<_> = (0..MANY).map(repeat).collect();
        // All are out of the wheel at once, and then back in it.
        clock.jump(DELAY);
        assert_eq!(timer.pending(), MOST);
        assert!(memory(&timer) < 20 * MOST, "the keys of what the executor has");
        let tasks = std::mem::take(&mut *kept.lock().unwrap());
        tasks.into_iter().for_each(|task| task());
        assert_eq!(timer.pending(), MOST);
        assert!(500_000 < memory(&timer));
        assert!(repeating.iter().all(Timeout::cancel));
        assert_eq!(memory(&timer), 0, "{mode}");
    }
}

#[test]
fn a_few_that_move_a_lot_give_back_the_memory_of_all_their_buckets() {
    for mode in ["hierarchical:64", "hashed:65536", "hashed:1073741824"] {
        let (timer, _) = manual(mode.parse().expect("a mode"));
        let few: Vec<_> =
            (0..100).map(|_| timer.schedule(DELAY, || {}).expect("it runs")).collect();
        for number in 0..MANY {
            let delay = DELAY + Duration::from_millis(number * 61 % 60_000);
            assert!(few[number as usize % few.len()].reschedule(delay));
        }
        assert!(0 < memory(&timer));
        assert!(few.iter().all(Timeout::cancel));
        assert_eq!(memory(&timer), 0, "{mode}");
    }
}

#[test]
fn the_worker_frees_the_memory_of_a_peak_when_all_tasks_have_run() {
    for mode in modes() {
        let (timer, clock) = manual(mode);
        let others = crowd(&timer, |_| true);
        assert!(others[0].cancel());
        let (asks, found) = (timer.clone(), Arc::new(AtomicU64::new(0)));
        let tells = Arc::clone(&found);
        let last = move || tells.store(memory(&asks) as u64, SeqCst);
        timer.schedule(DELAY * 20, last).expect("it runs");
        clock.jump(DELAY * 20);
        assert!(500_000 < found.load(SeqCst), "{} bytes in {mode}", found.load(SeqCst));
        assert_eq!((timer.pending(), memory(&timer)), (0, 0), "{mode}");
    }
}

/// Says in its `Drop` how many steps this thread had counted, and whether the timer had room; and
/// how many steps that took.
struct Looks {
    timer: Timer,
    found: Arc<Mutex<Option<(u64, bool, u64)>>>,
}

impl Drop for Looks {
    fn drop(&mut self) {
        let counted = steps();
        // At the limit, but for the place of this one.
        let has_room = (0..MOST).all(|_| self.timer.schedule(DELAY, || {}).is_ok());
        *self.found.lock().unwrap() = Some((counted, has_room, steps()));
    }
}

#[test]
fn a_cancel_gives_back_its_place_and_drops_its_task_before_it_frees_the_memory_of_a_peak() {
    for mode in modes() {
        let (timer, _) = manual(mode);
        let mut others = crowd(&timer, |_| true);
        assert!(others.pop().expect("many").cancel());
        let found = Arc::default();
        let looks = Looks { timer: timer.clone(), found: Arc::<Mutex<_>>::clone(&found) };
        let last = timer.schedule(DELAY, move || drop(looks)).expect("it runs");
        assert!(others.iter().all(Timeout::cancel));
        let begin = steps();
        assert!(last.cancel());
        let (until_drop, has_room, after_drop) = found.lock().unwrap().expect("it was dropped");
        assert!(has_room, "{mode}");
        if cfg!(debug_assertions) {
            let freed = steps() - after_drop;
            assert!(MANY <= freed, "{mode}: {freed} steps");
            assert!(until_drop - begin < MANY, "{mode}: {until_drop}, {begin}");
        }
    }
}

#[test]
fn a_timer_that_keeps_some_of_many_gives_back_memory_when_it_is_told_to() {
    for mode in modes() {
        let timer = timer(mode);
        let (kept, others): (Vec<_>, Vec<_>) = {
            let mut all = crowd(&timer, |_| true);
            let others = all.split_off(10);
            (all, others)
        };
        assert!(others.iter().all(Timeout::cancel));
        timer.shrink_to_fit();
        let memory: usize = timer.stats().shards.iter().map(|shard| shard.memory).sum();
        assert!(memory < 100_000, "{memory} bytes in {mode}");
        assert!(kept.iter().all(|timeout| timeout.status() == Status::Pending && timeout.cancel()));
    }
}

/// So the call that empties it costs as much as the timeouts before it, and not more: whether these
/// were one at a time, or many.
#[test]
fn a_timer_that_is_emptied_again_and_again_allocates_little_for_each_timeout() {
    for mode in modes() {
        for crowd in [1, 100, 1_500, 10_000] {
            let timer = timer(mode);
            let rounds = || {
                for _ in 0..MANY / crowd {
                    let timeouts = (0..crowd).map(|_| timer.schedule(DELAY, || {}));
                    let timeouts: Vec<_> =
                        timeouts.map(|timeout| timeout.expect("it runs")).collect();
                    assert!(timeouts.iter().all(Timeout::cancel));
                }
            };
            rounds();
            let info = measure(rounds);
            let handles = (size_of::<Timeout>() as u64 * 2) * MANY;
            let each = info.bytes_total.saturating_sub(handles) / MANY;
            assert!(each < 256, "{each} bytes for each of {crowd} at once in {mode}");
        }
    }
}

#[test]
fn what_an_executor_had_at_once_leaves_no_memory_behind() {
    let (clock, kept) = (ManualClock::new(), Arc::new(Mutex::new(Vec::new())));
    let keeps = Arc::clone(&kept);
    let executor = move |task: Box<dyn FnOnce() + Send>| keeps.lock().unwrap().push(task);
    let timer = Timer::builder().shards(1).clock(clock.clone()).executor(executor).build();
    let timer = timer.expect("in range");
    let memory = || timer.stats().shards[0].memory;
    drop(crowd(&timer, |_| false));
    clock.jump(DELAY * 10);
    assert!(8 * MOST < memory(), "it is counted: {}", memory());
    let mut tasks = std::mem::take(&mut *kept.lock().unwrap());
    tasks.drain(1..).for_each(|task| task());
    timer.shrink_to_fit();
    assert!(memory() < 1_000, "{} bytes for one", memory());
    // And by itself with the last.
    drop(crowd(&timer, |_| false));
    clock.jump(DELAY * 10);
    tasks.append(&mut kept.lock().unwrap());
    tasks.into_iter().for_each(|task| task());
    assert!(memory() < 10_000, "{} bytes for none", memory());
}

#[test]
fn a_clock_gives_back_what_it_kept_of_timers_that_are_gone() {
    let clock = ManualClock::new();
    let make = || Timer::builder().shards(1).clock(clock.clone()).build_driven();
    let info = measure(|| {
        let timers: Vec<_> = (0..1_000).map(|_| make()).collect();
        drop(timers);
        clock.advance(Duration::from_millis(1));
    });
    assert!(info.bytes_current < 1_000, "{info:?}");
}

const DELAY: Duration = Duration::from_secs(30);

const MANY: u64 = 20_000;
/// What a timer holds at most when it has become idle: its shards, and the arrays of a few
/// timeouts.
const AT_REST: i64 = 100_000;

const MOST: usize = MANY as usize;
