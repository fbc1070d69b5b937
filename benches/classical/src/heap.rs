//! Scheme 3, as the tree that most programs take.

use crate::Scheme;

/// Scheme 3: a binary heap by the tick of expiry. Each record knows its place in the heap, so that
/// stopping a timer needs no search.
#[derive(Debug)]
pub struct BinaryHeap {
    /// Requests, each before the two behind twice its place.
    heap: Vec<u32>,
    records: Vec<Record>,
    now: u64,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    expiry: u64,
    place: u32,
}

impl BinaryHeap {
    /// Makes room for the requests below `requests`.
    #[must_use]
    pub fn new(requests: u32) -> Self {
        let none = Record { expiry: 0, place: 0 };
        let heap = Vec::with_capacity(requests as usize);
        Self { heap, records: vec![none; requests as usize], now: 0 }
    }

    fn remove(&mut self, place: usize) -> u32 {
        let removed = self.heap.swap_remove(place);
        if place < self.heap.len() {
            self.rise(place);
            self.sink(place);
        }
        removed
    }

    fn rise(&mut self, mut place: usize) {
        while 0 < place && self.expiry(place) < self.expiry((place - 1) / 2) {
            self.heap.swap(place, (place - 1) / 2);
            self.note(place);
            place = (place - 1) / 2;
        }
        self.note(place);
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let children = (2 * place + 1)..(2 * place + 3).min(self.heap.len());
            let Some(child) = children.min_by_key(|&child| self.expiry(child)) else { break };
            if self.expiry(place) <= self.expiry(child) {
                break;
            }
            self.heap.swap(place, child);
            self.note(place);
            place = child;
        }
        self.note(place);
    }

    fn note(&mut self, place: usize) {
        self.records[self.heap[place] as usize].place = place as u32;
    }

    fn expiry(&self, place: usize) -> u64 {
        self.records[self.heap[place] as usize].expiry
    }
}

impl Scheme for BinaryHeap {
    fn start_timer(&mut self, request: u32, interval: u64) {
        self.records[request as usize].expiry = self.now + interval;
        self.heap.push(request);
        self.rise(self.heap.len() - 1);
    }

    fn stop_timer(&mut self, request: u32) {
        self.remove(self.records[request as usize].place as usize);
    }

    fn per_tick_bookkeeping(&mut self, expired: &mut Vec<u32>) {
        self.now += 1;
        while !self.heap.is_empty() && self.expiry(0) <= self.now {
            expired.push(self.remove(0));
        }
    }
}
