//! Each of the classical structures does what a sorted map does.

use classical::{
    BinaryHeap, HashedRounds, HashedSorted, Hierarchical, Scheme, SortedList, Tickwheel,
    UnsortedList,
};
use std::collections::BTreeSet;
use tickwheel::Mode;

fn schemes() -> Vec<(&'static str, Box<dyn Scheme>)> {
    let hashed = Mode::hashed(16).expect("a power of two");
    vec![
        ("unsorted list", Box::new(UnsortedList::new(REQUESTS))),
        ("sorted list", Box::new(SortedList::new(REQUESTS))),
        ("binary heap", Box::new(BinaryHeap::new(REQUESTS))),
        ("hashed, sorted", Box::new(HashedSorted::new(REQUESTS, 16))),
        ("hashed, rounds", Box::new(HashedRounds::new(REQUESTS, 16))),
        ("hierarchical", Box::new(Hierarchical::new(REQUESTS))),
        ("tickwheel, hashed", Box::new(Tickwheel::new(REQUESTS, hashed))),
        ("tickwheel, hierarchical", Box::new(Tickwheel::new(REQUESTS, Mode::hierarchical()))),
    ]
}

#[test]
fn each_timer_expires_at_its_tick_unless_it_is_stopped() {
    for (name, mut scheme) in schemes() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut running = [None; REQUESTS as usize];
        let mut by_expiry = BTreeSet::new();
        for now in 1..=TICKS {
            for _ in 0..rng.u32(0..4) {
                let request = rng.u32(..REQUESTS);
                if let Some(expiry) = running[request as usize].take() {
                    scheme.stop_timer(request);
                    by_expiry.remove(&(expiry, request));
                } else {
                    // Near and far ones, and some of whole rounds.
                    let (longest, multiple) =
                        (1 << rng.u32(1..20), rng.choice([1, 16]).unwrap_or(1));
                    let interval = rng.u64(1..=longest).next_multiple_of(multiple);
                    scheme.start_timer(request, interval);
                    running[request as usize] = Some(now - 1 + interval);
                    by_expiry.insert((now - 1 + interval, request));
                }
            }
            let mut expired = Vec::new();
            scheme.per_tick_bookkeeping(&mut expired);
            expired.sort_unstable();
            let later = by_expiry.split_off(&(now + 1, 0));
            let due = std::mem::replace(&mut by_expiry, later);
            let due: Vec<_> = due.into_iter().map(|(_, request)| request).collect();
            due.iter().for_each(|&request| running[request as usize] = None);
            assert_eq!(expired, due, "{name}, tick {now}");
        }
    }
}

const REQUESTS: u32 = 50;
/// In which a bucket of the fourth level of the hierarchical wheel comes up, the first after 2^18.
const TICKS: u64 = 270_000;
