//! The worker thread: look at every shard, fire what is due, sleep.

use super::hub::Hub;
use super::local::{self, Inside};
use super::park::Woken;
use super::repeat::Repeating;
use super::shard::{Entry, Found, Shard};
use super::{Core, Task, Unfired};
use crate::clock::NEVER;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::ControlFlow;

/// What the worker thread does, until the timer is stopped.
pub(super) fn run(core: Arc<Core>) {
    let hub = Arc::clone(&core.hub);
    let _exits = Exits(&hub);
    let _inside = Inside::enter(hub.id());
    let mut asked = 0;
    loop {
        let until = look(&core);
        let wakes_up = || hub.counters.wakes_up();
        match hub.park.sleep(&*hub.clock, &hub.ticks, until, asked, wakes_up) {
            Woken::Look { asked: latest } => asked = latest,
            Woken::Stop => break,
        }
    }
    core.worker_ends();
    // If nobody waits for this thread, the executor is dropped here.
    hub.guarded(|| drop(core));
}

/// Tells those who wait for the worker to settle that it never will.
struct Exits<'a>(&'a Hub);

impl Drop for Exits<'_> {
    fn drop(&mut self) {
        self.0.park.exits();
    }
}

/// Fires what is due in all shards, and returns the tick to look again at.
fn look(core: &Core) -> u64 {
    loop {
        let mut until = NEVER;
        let mut is_more = false;
        for (number, shard) in core.shards.iter().enumerate() {
            // What a task schedules goes where its own timeout was: chains stay together, and the
            // order within them does not depend on threads.
            local::use_shard(number);
            match take_turn(core, shard) {
                Some(tick) => until = until.min(tick),
                None => is_more = true,
            }
        }
        if !is_more {
            return until;
        }
    }
}

/// Fires what is due in one shard, and returns the tick to look again at, or None if there is more
/// than one turn allows: it is another shard's turn then.
fn take_turn(core: &Core, shard: &Arc<Shard>) -> Option<u64> {
    let hub = &core.hub;
    let mut now = hub.clock.now();
    for _ in 0..TURN {
        match shard.take_due(hub.ticks.present(now)) {
            Found::Due(expired) => {
                hub.counters.fires(hub.ticks.late(now, expired.deadline));
                fire(core, shard, expired.value);
                let end = hub.clock.now();
                hub.counters.took(end.saturating_duration_since(now));
                now = end;
            }
            Found::More => {}
            Found::Nothing(tick) => return Some(tick),
        }
    }
    None
}

fn fire(core: &Core, shard: &Arc<Shard>, entry: Entry) {
    let hub = &core.hub;
    match (entry, &core.executor) {
        (Entry::Once(task), None) => {
            hub.guarded(task);
        }
        (Entry::Once(task), Some(executor)) => {
            let running = Arc::clone(hub);
            let task = move || {
                let _inside = Inside::enter(running.id());
                running.guarded(task);
            };
            hub.guarded(|| executor.execute(Box::new(task)));
        }
        (Entry::Repeating(repeating), None) => {
            if let Some(task) = repeating.run(shard) {
                let deadline = hub.ticks.instant(repeating.deadline());
                core.leave(Unfired { deadline, task: Task::Repeating(task) });
            }
        }
        (Entry::Repeating(repeating), Some(executor)) => {
            let mut run = Run { repeating, shard: Arc::clone(shard), is_left: true };
            hub.guarded(|| executor.execute(Box::new(move || run.run())));
        }
        (Entry::Wake(waker), _) => {
            hub.guarded(|| waker.wake());
        }
    }
}

/// One run of a repeating timeout, in the hands of an executor.
struct Run {
    repeating: Arc<Repeating>,
    shard: Arc<Shard>,
    is_left: bool,
}

impl Run {
    fn run(&mut self) {
        let hub = &self.shard.hub;
        let _inside = Inside::enter(hub.id());
        self.is_left = false;
        let left = self.repeating.run(&self.shard);
        hub.guarded(|| drop(left));
    }
}

impl Drop for Run {
    /// A run that the executor drops is left out; the next may be luckier.
    fn drop(&mut self) {
        if self.is_left {
            let left = self.repeating.end_run(&self.shard, Some(ControlFlow::Continue(())));
            self.shard.hub.guarded(|| drop(left));
        }
    }
}

/// How many tasks of one shard are run before it is another shard's turn.
const TURN: usize = 64;
