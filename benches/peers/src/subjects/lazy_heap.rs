use crate::log::Log;
use crate::subject::{Cancelled, Kind, Profile, Setup, Subject};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// std's `BinaryHeap` beside an array of values, as most write it who write it themselves.
///
/// A cancel takes the value and leaves the heap's entry behind, until it surfaces, or until those
/// left behind outnumber the others and are thrown out all at once.
#[derive(Debug, Default)]
pub(crate) struct LazyHeap {
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// By index: the number of its present entry, and the value unless vacant.
    places: Vec<(u64, Option<u64>)>,
    vacant: Vec<u32>,
    scheduled: u64,
}

impl LazyHeap {
    fn take(&mut self, number: u64, index: u32) -> Option<u64> {
        let (present, value) = &mut self.places[index as usize];
        if *present != number {
            return None;
        }
        let value = value.take()?;
        self.vacant.push(index);
        Some(value)
    }

    fn clean(&mut self) {
        let live = self.places.len() - self.vacant.len();
        if self.heap.len() > 64 + 2 * live {
            let places = &self.places;
            self.heap.retain(|&Reverse((_, number, index))| {
                let (present, value) = places[index as usize];
                present == number && value.is_some()
            });
        }
    }

    fn pop(&mut self, now: u64) -> Option<u64> {
        while let Some(&Reverse((deadline, number, index))) = self.heap.peek() {
            if now < deadline {
                break;
            }
            self.heap.pop();
            if let Some(value) = self.take(number, index) {
                return Some(value);
            }
        }
        None
    }
}

impl Subject for LazyHeap {
    type Key = (u64, u32);

    const PROFILE: Profile = Profile::new("lazy-heap", Kind::Peer).cancels_lazily();

    fn new(_setup: &Setup) -> Self {
        Self::default()
    }

    fn schedule(&mut self, deadline: u64, value: u64) -> Self::Key {
        self.scheduled += 1;
        let place = (self.scheduled, Some(value));
        let index = match self.vacant.pop() {
            Some(index) => {
                self.places[index as usize] = place;
                index
            }
            None => {
                self.places.push(place);
                (self.places.len() - 1) as u32
            }
        };
        self.heap.push(Reverse((deadline, self.scheduled, index)));
        (self.scheduled, index)
    }

    fn cancel(&mut self, (number, index): Self::Key) -> Cancelled {
        let value = self.take(number, index);
        self.clean();
        value.into()
    }

    fn expire_some(&mut self, now: u64, log: &mut Log) -> bool {
        self.pop(now).map(|value| log.push(value)).is_some()
    }

    fn next_wake(&mut self) -> Option<u64> {
        self.heap.peek().map(|&Reverse((deadline, ..))| deadline)
    }
}
