//! What a timer tells of its timeouts if it is recorded. Without the feature `record`
//! these types are empty and cost nothing.

#[cfg(feature = "record")]
pub(super) use recorded::{Now, ShardLane, Sink, TimerRecording};
#[cfg(not(feature = "record"))]
pub(super) use unrecorded::{Now, ShardLane, Sink, TimerRecording};

#[cfg(feature = "record")]
mod recorded {
    use crate::platform::Instant;
    use crate::ticks::Ticks;
    use crate::timer::Clock;
    use crate::wheel::Growing;
    use crate::{Key, Recorded, record};
    use alloc::boxed::Box;
    use alloc::collections::BTreeMap;
    use alloc::sync::Arc;
    use alloc::vec::Vec;
    use std::io::{self, Write};
    use std::sync::{Mutex, PoisonError};

    /// In milliseconds since tick 0.
    pub(in crate::timer) type Now = u64;

    /// Where to record to. The lock lets threads share the builder, and is never waited for.
    #[derive(Default)]
    pub(in crate::timer) struct Sink(Option<Mutex<Box<dyn Write + Send>>>);

    impl Sink {
        pub(in crate::timer) fn to(writer: impl Write + Send + 'static) -> Self {
            Self(Some(Mutex::new(Box::new(writer))))
        }
    }

    pub(in crate::timer) struct TimerRecording(Option<OfTimer>);

    struct OfTimer {
        recording: record::Recording,
        start: Instant,
    }

    impl OfTimer {
        fn millis(&self, now: Instant) -> u64 {
            millis(self.start, now)
        }
    }

    fn millis(start: Instant, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(start);
        let millis = u64::from(passed.subsec_millis());
        passed.as_secs().saturating_mul(1_000).saturating_add(millis)
    }

    impl TimerRecording {
        pub(in crate::timer) fn new(sink: Sink, shards: usize, ticks: &Ticks<Instant>) -> Self {
            let start = ticks.instant(0);
            let Some((sink, start)) = sink.0.zip(start) else { return Self(None) };
            let sink = sink.into_inner().unwrap_or_else(PoisonError::into_inner);
            let recording = record::Recording::new(sink, shards, ticks.tick());
            Self(Some(OfTimer { recording, start }))
        }

        pub(in crate::timer) fn recorded(&self) -> Option<Recorded> {
            Some(self.0.as_ref()?.recording.recorded())
        }

        pub(in crate::timer) fn start(&self, clock: &Arc<dyn Clock>) -> io::Result<()> {
            let Some(OfTimer { recording, start }) = &self.0 else { return Ok(()) };
            let (clock, start) = (Arc::clone(clock), *start);
            let now = move || millis(start, clock.now());
            recording.start(now)
        }

        pub(in crate::timer) fn lane(&self, shard: usize) -> ShardLane {
            let named = |lane| Named {
                lane,
                names: Growing::new(),
                due: Vec::new(),
                repeating: BTreeMap::new(),
                free: Growing::new(),
                free_len: 0,
                count: 0,
            };
            ShardLane(self.0.as_ref().map(|timer| named(timer.recording.lane(shard))))
        }

        /// Returns the present as lanes want it. The caller holds no lock.
        #[inline]
        pub(in crate::timer) fn now(&self, clock: &dyn Clock) -> Now {
            self.0.as_ref().map_or(0, |timer| timer.millis(clock.now()))
        }

        pub(in crate::timer) fn end(&self, clock: &dyn Clock, waits: bool) {
            if let Some(timer) = &self.0 {
                timer.recording.end(timer.millis(clock.now()), waits);
            }
        }
    }

    /// The part of a recording that belongs to a shard, under its lock.
    ///
    /// A timeout has its name in the trace from when it is scheduled until it is cancelled or runs.
    /// Its place in the wheel is no such name: what is due leaves the wheel before it runs, may
    /// still be cancelled or moved then, and another timeout may have its place.
    pub(in crate::timer) struct ShardLane(Option<Named>);

    struct Named {
        lane: record::Lane,
        /// The names of the timeouts in the wheel, by place.
        names: Growing<u32>,
        /// The names of timeouts that have left the wheel because they were due: at most a batch.
        due: Vec<(Key, u32)>,
        /// The same for those that repeat, until a run has ended: also one that the worker or the
        /// executor has can be cancelled before it begins.
        repeating: BTreeMap<u64, u32>,
        /// Names that were used, and that no timeout has now: the first `free_len`.
        free: Growing<u32>,
        free_len: usize,
        /// How many names are used, or free.
        count: u32,
    }

    impl ShardLane {
        /// Sets the time of the next operations. It does not decrease: a thread that lost its core
        /// after it read the clock may get the name of a timeout that has fired meanwhile.
        #[inline]
        pub(in crate::timer) fn is_now(&mut self, now: Now) {
            if let Some(named) = &mut self.0 {
                named.lane.time_ms = named.lane.time_ms.max(now);
            }
        }

        #[inline]
        pub(in crate::timer) fn scheduled(&mut self, key: Key, deadline: u64) {
            if let Some(named) = &mut self.0 {
                let name = named.new_name();
                named.set_name(key, name);
                named.lane.scheduled(name, deadline);
            }
        }

        #[inline]
        pub(in crate::timer) fn rescheduled(&mut self, key: Key, deadline: u64) {
            if let Some(named) = &mut self.0 {
                named.lane.rescheduled(named.name(key), deadline);
            }
        }

        #[inline]
        pub(in crate::timer) fn cancelled(&mut self, key: Key) {
            if let Some(named) = &mut self.0 {
                let name = named.name(key);
                named.lane.cancelled(name);
                named.give_back(name);
            }
        }

        /// Says that a timeout has left the wheel because it is due.
        #[inline]
        pub(in crate::timer) fn is_due(&mut self, key: Key, repeats: bool) {
            if let Some(named) = &mut self.0 {
                let name = named.name(key);
                if repeats {
                    named.repeating.insert(key.to_bits(), name);
                } else {
                    named.due.push((key, name));
                }
            }
        }

        /// Says that all that was due has begun to run, but for what was cancelled or moved, and
        /// what repeats.
        #[inline]
        pub(in crate::timer) fn ran(&mut self) {
            if let Some(named) = &mut self.0 {
                while let Some((_, name)) = named.due.pop() {
                    named.give_back(name);
                }
            }
        }

        /// Says that a run of a timeout that repeats has ended.
        #[inline]
        pub(in crate::timer) fn has_run(&mut self, key: Key) {
            if let Some(named) = &mut self.0 {
                let name = named.take_due(key);
                named.give_back(name);
            }
        }

        pub(in crate::timer) fn due_cancelled(&mut self, key: Key) {
            if let Some(named) = &mut self.0 {
                let name = named.take_due(key);
                named.lane.cancelled(name);
                named.give_back(name);
            }
        }

        /// Says that a timeout that was due is in the wheel again, under a new key.
        pub(in crate::timer) fn due_rescheduled(&mut self, key: Key, new_key: Key, deadline: u64) {
            if let Some(named) = &mut self.0 {
                let name = named.take_due(key);
                named.set_name(new_key, name);
                named.lane.rescheduled(name, deadline);
            }
        }

        /// Gives back the memory that the timeouts that have names do not need. `live` are the keys
        /// of those in the wheel.
        pub(in crate::timer) fn shrink_to_fit(&mut self, live: impl Iterator<Item = Key>) {
            if let Some(named) = &mut self.0 {
                named.shrink_to_fit(live);
            }
        }

        /// Says that nothing more is recorded here. The caller drops what this returns, which holds
        /// the memory of all names, with no lock held.
        pub(in crate::timer) fn end(&mut self) -> Self {
            Self(self.0.take())
        }
    }

    impl Named {
        fn new_name(&mut self) -> u32 {
            if let Some(last) = self.free_len.checked_sub(1) {
                self.free_len = last;
                return self.free[last];
            }
            self.count += 1;
            self.count - 1
        }

        fn give_back(&mut self, name: u32) {
            match self.free.get_mut(self.free_len) {
                Some(free) => *free = name,
                None => self.free.push(name),
            }
            self.free_len += 1;
            if self.free_len == self.count as usize {
                // No timeout has a name. The room for a few is kept.
                (self.count, self.free_len) = (0, 0);
                if KEPT < self.free.len().max(self.names.len()) {
                    (self.names, self.free) = (Growing::new(), Growing::new());
                }
            }
        }

        /// A timeout keeps its name, so the names before the last that is in use stay.
        fn shrink_to_fit(&mut self, live: impl Iterator<Item = Key>) {
            let mut places = 0;
            let due = self.due.iter().map(|&(_, name)| name);
            let due = due.chain(self.repeating.values().copied());
            self.count = due.map(|name| name + 1).max().unwrap_or(0);
            for place in live.map(place) {
                places = places.max(place + 1);
                self.count = self.count.max(self.names[place] + 1);
            }
            self.names.shrink_to(places);
            let mut kept = 0;
            for at in 0..self.free_len {
                let name = self.free[at];
                if name < self.count {
                    self.free[kept] = name;
                    kept += 1;
                }
            }
            self.free_len = kept;
            self.free.shrink_to(kept);
        }

        fn name(&self, key: Key) -> u32 {
            self.names[place(key)]
        }

        fn set_name(&mut self, key: Key, name: u32) {
            let place = place(key);
            while self.names.len() <= place {
                self.names.push(0);
            }
            self.names[place] = name;
        }

        fn take_due(&mut self, key: Key) -> u32 {
            if let Some(name) = self.repeating.remove(&key.to_bits()) {
                return name;
            }
            let index = self.due.iter().position(|&(due, _)| due == key);
            self.due.swap_remove(index.expect("it is told of each that is due")).1
        }
    }

    /// The place in the wheel.
    fn place(key: Key) -> usize {
        key.to_bits() as u32 as usize
    }

    /// How many names an idle lane has room for, at most.
    const KEPT: usize = 1 << 10;
}

#[cfg(not(feature = "record"))]
mod unrecorded {
    use crate::Key;
    use crate::platform::Instant;
    use crate::ticks::Ticks;
    use crate::timer::Clock;
    use alloc::sync::Arc;
    use std::io;

    #[derive(Default)]
    pub(in crate::timer) struct Sink(());

    pub(in crate::timer) struct Now;

    pub(in crate::timer) struct TimerRecording;

    impl TimerRecording {
        pub(in crate::timer) fn new(_: Sink, _: usize, _: &Ticks<Instant>) -> Self {
            Self
        }

        pub(in crate::timer) fn start(&self, _: &Arc<dyn Clock>) -> io::Result<()> {
            Ok(())
        }

        pub(in crate::timer) fn lane(&self, _: usize) -> ShardLane {
            ShardLane
        }

        #[inline(always)]
        pub(in crate::timer) fn now(&self, _: &dyn Clock) -> Now {
            Now
        }

        pub(in crate::timer) fn end(&self, _: &dyn Clock, _: bool) {}
    }

    pub(in crate::timer) struct ShardLane;

    impl ShardLane {
        #[inline(always)]
        pub(in crate::timer) fn is_now(&mut self, _: Now) {}

        #[inline(always)]
        pub(in crate::timer) fn scheduled(&self, _: Key, _: u64) {}

        #[inline(always)]
        pub(in crate::timer) fn rescheduled(&self, _: Key, _: u64) {}

        #[inline(always)]
        pub(in crate::timer) fn cancelled(&self, _: Key) {}

        #[inline(always)]
        pub(in crate::timer) fn is_due(&self, _: Key, _: bool) {}

        #[inline(always)]
        pub(in crate::timer) fn ran(&self) {}

        #[inline(always)]
        pub(in crate::timer) fn has_run(&self, _: Key) {}

        #[inline(always)]
        pub(in crate::timer) fn due_cancelled(&self, _: Key) {}

        #[inline(always)]
        pub(in crate::timer) fn due_rescheduled(&self, _: Key, _: Key, _: u64) {}

        #[inline(always)]
        pub(in crate::timer) fn shrink_to_fit(&self, _: impl Iterator<Item = Key>) {}

        pub(in crate::timer) fn end(&self) -> Self {
            Self
        }
    }
}
