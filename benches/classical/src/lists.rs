//! Schemes 1 and 2, and the lists that all but the heap are made of.

use crate::Scheme;

/// Scheme 1: every tick counts down every timer.
#[derive(Debug)]
pub struct UnsortedList {
    lists: Lists,
}

impl UnsortedList {
    /// Makes room for the requests below `requests`.
    #[must_use]
    pub fn new(requests: u32) -> Self {
        Self { lists: Lists::new(requests, 1) }
    }
}

impl Scheme for UnsortedList {
    fn start_timer(&mut self, request: u32, interval: u64) {
        self.lists.push(0, request, interval);
    }

    fn stop_timer(&mut self, request: u32) {
        self.lists.unlink(request);
    }

    fn per_tick_bookkeeping(&mut self, expired: &mut Vec<u32>) {
        let lists = &mut self.lists;
        let mut timer = lists.first(0);
        while !lists.is_end(timer) {
            let next = lists.next(timer);
            *lists.time_mut(timer) -= 1;
            if lists.time(timer) == 0 {
                lists.unlink(timer);
                expired.push(timer);
            }
            timer = next;
        }
    }
}

/// Scheme 2: a list sorted by the tick of expiry, searched from its end.
#[derive(Debug)]
pub struct SortedList {
    lists: Lists,
    now: u64,
}

impl SortedList {
    /// Makes room for the requests below `requests`.
    #[must_use]
    pub fn new(requests: u32) -> Self {
        Self { lists: Lists::new(requests, 1), now: 0 }
    }
}

impl Scheme for SortedList {
    fn start_timer(&mut self, request: u32, interval: u64) {
        self.lists.insert(0, request, self.now + interval);
    }

    fn stop_timer(&mut self, request: u32) {
        self.lists.unlink(request);
    }

    fn per_tick_bookkeeping(&mut self, expired: &mut Vec<u32>) {
        self.now += 1;
        self.lists.take_due(0, self.now, expired);
    }
}

/// Circular lists of the timers, each through a head of its own, which is no timer.
#[derive(Debug)]
pub(super) struct Lists {
    /// The records of the timers by their requests, and then the heads of the lists.
    nodes: Vec<Node>,
    heads: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// The tick of expiry, or what is left: ticks, or rounds.
    time: u64,
    next: u32,
    previous: u32,
}

impl Lists {
    pub(super) fn new(requests: u32, lists: u32) -> Self {
        let alone = |node| Node { time: 0, next: node, previous: node };
        Self { nodes: (0..requests + lists).map(alone).collect(), heads: requests }
    }

    /// Puts the timer at the end of the list.
    pub(super) fn push(&mut self, list: u32, timer: u32, time: u64) {
        self.link_after(self.nodes[(self.heads + list) as usize].previous, timer, time);
    }

    /// Puts the timer where the list stays sorted, behind those of the same time.
    pub(super) fn insert(&mut self, list: u32, timer: u32, time: u64) {
        let mut before = self.nodes[(self.heads + list) as usize].previous;
        while !self.is_end(before) && time < self.time(before) {
            before = self.nodes[before as usize].previous;
        }
        self.link_after(before, timer, time);
    }

    fn link_after(&mut self, before: u32, timer: u32, time: u64) {
        let next = self.next(before);
        self.nodes[timer as usize] = Node { time, next, previous: before };
        self.nodes[before as usize].next = timer;
        self.nodes[next as usize].previous = timer;
    }

    pub(super) fn unlink(&mut self, timer: u32) {
        let Node { next, previous, .. } = self.nodes[timer as usize];
        self.nodes[previous as usize].next = next;
        self.nodes[next as usize].previous = previous;
    }

    /// Takes the timers that expire by `now` from the front of a sorted list.
    pub(super) fn take_due(&mut self, list: u32, now: u64, expired: &mut Vec<u32>) {
        let mut timer = self.first(list);
        while !self.is_end(timer) && self.time(timer) <= now {
            self.unlink(timer);
            expired.push(timer);
            timer = self.first(list);
        }
    }

    /// Returns the first timer of the list, or its end.
    pub(super) fn first(&self, list: u32) -> u32 {
        self.next(self.heads + list)
    }

    pub(super) fn next(&self, timer: u32) -> u32 {
        self.nodes[timer as usize].next
    }

    /// Returns whether this is no timer, but where a list ends.
    pub(super) fn is_end(&self, timer: u32) -> bool {
        self.heads <= timer
    }

    pub(super) fn time(&self, timer: u32) -> u64 {
        self.nodes[timer as usize].time
    }

    pub(super) fn time_mut(&mut self, timer: u32) -> &mut u64 {
        &mut self.nodes[timer as usize].time
    }
}
