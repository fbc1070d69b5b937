//! Loads: what to read of the store's front, and when.

use std::collections::{HashMap, HashSet};

use crate::Error;
use crate::keeper::Keeper;
use crate::keeper::manner::Manner;
use crate::keeper::words::{BehindCall, LoadCall, Now};
use crate::store::{Damaged, Lease, Limit, Loaded, Position, Start};

impl<T> Keeper<T> {
    pub(super) fn wants_load(&self, time: u64) -> bool {
        !self.is_closing()
            && self.has_room_in_memory()
            && self.incomplete(time.saturating_add(self.horizon() / 2)).next().is_some()
    }

    /// Whether it is time to look for what others did.
    pub(super) fn wants_look(&self, now: Now) -> bool {
        self.tenure.is_shared()
            && !self.is_closing()
            && !self.tenure.is_empty()
            && self.look_next <= now.steady
            && self.has_room_to_look()
    }

    /// Whether there is room for more of the past. It may fill a quarter of the memory.
    pub(super) fn has_room_behind(&self) -> bool {
        !self.is_closing()
            && self.known() < self.config.near_rows
            && self.bytes() < self.config.near_bytes
            && !self.has_full_past()
    }

    /// Whether no more of the past is read before some of it is handed out.
    fn has_full_past(&self) -> bool {
        let (rows, bytes) = (self.config.near_rows, self.config.near_bytes);
        let past = &self.front.past;
        Manner::BoundsPast.is_kept() && (rows / 8 < past.len() || bytes / 8 < past.bytes)
    }

    /// Returns the partitions of which not all is known up to this deadline.
    fn incomplete(&self, until: u64) -> impl Iterator<Item = u32> + '_ {
        let partitions = self.tenure.epochs.keys().copied();
        partitions.filter(move |&partition| self.front.complete_until(partition) < until)
    }

    /// Loading begins below a quarter of what may be near and ends at half of it: what is put
    /// near has room beside it and beside the past, so that dropping the far half and loading it
    /// again are rare. Where nothing is near, what is in flight may fill more than that.
    fn has_room_in_memory(&self) -> bool {
        let (rows, bytes) = (self.config.near_rows, self.config.near_bytes);
        match self.front.present.len() {
            0 => self.known() < rows && self.bytes() < bytes,
            _ => self.is_below(rows / 4, bytes / 4),
        }
    }

    /// How far a load fills the memory.
    fn is_filled(&self) -> bool {
        let (rows, bytes) = (self.config.near_rows, self.config.near_bytes);
        self.front.present.len() > 0 && !self.is_below(rows / 2, bytes / 2)
    }

    /// Whether fewer rows and bytes are in memory. The past does not count.
    fn is_below(&self, rows: usize, bytes: usize) -> bool {
        self.front.present.len() + self.flights.going() < rows
            && self.front.present.bytes + self.flights.bytes < bytes
    }

    /// What was due before this lags behind: it is a backlog, and what becomes due does not wait for
    /// it.
    pub(super) fn lags(&self, time: u64) -> u64 {
        match self.tenure.is_shared() && Manner::PastLast.is_kept() {
            true => time.saturating_sub(self.config.margin),
            false => 0,
        }
    }

    /// How far ahead rows are loaded. Of what is further away than the margin another caller may be
    /// told that it will not come; the rest of the margin is for a clock that is slewed.
    fn horizon(&self) -> u64 {
        match self.tenure.is_shared() {
            false => self.config.horizon,
            true => self.config.horizon.min(self.config.margin / 10 * 9),
        }
    }

    pub(super) fn load(&mut self, now: Now) -> Option<LoadCall> {
        let time = self.tenure.time(now);
        let looks = self.wants_look(now);
        if !looks && !self.wants_load(time) || !self.load_pause.is_over(now.steady) {
            return None;
        }
        let recent = time.saturating_sub(self.tenure.outlasts());
        self.refresh_one(now, recent);
        let lags = self.lags(time);
        // A look finds what is before the positions, whatever room there is for what is after.
        let until = match self.is_filled() {
            true => 0,
            false => time.saturating_add(self.horizon()),
        };
        // All of them, because the store tells once what has become visible.
        let mut from: Vec<Start> = Vec::with_capacity(self.tenure.epochs.len());
        for &partition in self.tenure.epochs.keys() {
            if self.front.complete_until(partition) >= until && !Manner::LoadsAll.is_kept() {
                continue;
            }
            let lease = self.tenure.lease(partition);
            let place = self.front.begin(lease, recent, lags);
            if place.loaded < Position::before(lags) && Manner::LagsBehind.is_kept() {
                place.put_behind(place.loaded.clone(), time);
            }
            from.push(Start { lease, after: place.loaded.clone() });
        }
        // Those that lack most come first.
        from.sort_by(|a, b| (&a.after, a.lease.partition).cmp(&(&b.after, b.lease.partition)));
        let call = LoadCall {
            from,
            until,
            limit: Limit {
                // What is in flight comes again if all was forgotten.
                rows: self.config.page.min(self.config.near_rows) + self.flights.len(),
                bytes: (self.config.near_bytes / 2)
                    .saturating_sub(self.front.present.bytes)
                    .max(self.config.near_bytes / 4)
                    .max(1),
            },
            asked: now.steady,
        };
        self.counts.loads += 1;
        Some(call)
    }

    pub(super) fn load_behind(&mut self, now: Now) -> Option<BehindCall> {
        if !self.behind_pause.is_over(now.steady) || !self.has_room_behind() {
            return None;
        }
        let mut unread = self.front.next_unread(now.steady);
        unread.retain(|&(lease, _)| self.tenure.holds(lease));
        let (_, first) = unread.first()?;
        let (until, fails) = (first.before - 1, 0 < first.pause.failures);
        let rows = match fails {
            // It is asked for no more than what could not be read.
            true => 1,
            // What is in flight comes again if it was forgotten.
            false => self.config.page.min(self.config.near_rows / 8).max(1) + self.flights.len(),
        };
        let from = unread.into_iter().map(|(lease, unread)| Start { lease, after: unread.after });
        let call = BehindCall {
            from: from.collect(),
            until,
            limit: Limit { rows, bytes: (self.config.near_bytes / 8).max(1) },
            asked: now.steady,
        };
        self.counts.loads += 1;
        Some(call)
    }

    pub(super) fn loaded_behind(&mut self, now: Now, call: BehindCall, loaded: Loaded) {
        // Where there is nothing, what takes time is dead: then time is left for other calls.
        let took = now.steady.saturating_sub(call.asked);
        let rests = loaded.rows.is_empty() && SHORT < took && Manner::Rests.is_kept();
        let pause = if rests { took.min(REST) } else { 0 };
        self.behind_pause.reset();
        self.behind_pause.until = now.steady.saturating_add(pause);
        if let Some(error) = loaded.unreadable {
            self.failed_behind(now, &call, false, error);
        }
        let mut read = HashSet::new();
        for (Start { lease, after }, end) in call.from.into_iter().zip(loaded.ends) {
            // If it was moved back meanwhile, it is read again from there.
            let end = end.unwrap_or_else(|| Position::before(call.until + 1));
            if self.tenure.holds(lease)
                && let Some(place) = self.front.place(lease)
                && place.read_behind(&after, end)
            {
                read.insert(lease.partition);
            }
        }
        for row in loaded.rows {
            if read.contains(&row.partition) && !self.flights.has(&row.name, row.number) {
                self.front.insert(row);
            }
        }
        self.bound();
    }

    /// The past of the first of these partitions could not be read: if `all` is false, that of one
    /// deadline. All else is, and nothing waits.
    pub(super) fn failed_behind(&mut self, now: Now, call: &BehindCall, all: bool, error: Error) {
        self.behind_pause.fail(now.steady);
        let longest = self.tenure.outlasts().min(STUCK) / 2;
        let Start { lease, after } = &call.from[0];
        if let Some(place) = self.front.place(*lease) {
            let all = all || !Manner::FailsApart.is_kept();
            place.fail_behind(after, all, now.steady, longest);
        }
        self.tell(error);
    }

    /// Lets one partition be read again from the front, now and then.
    fn refresh_one(&mut self, now: Now, recent: u64) {
        if !self.tenure.is_shared() || now.steady < self.refresh_at || self.tenure.is_empty() {
            return;
        }
        let partitions = self.tenure.epochs.keys();
        let next = partitions.clone().filter(|&&partition| self.refreshed < partition).min();
        self.refreshed = *next.or_else(|| partitions.min()).expect("there is one");
        self.refresh_at = now.steady + self.config.refresh;
        let lease = self.tenure.lease(self.refreshed);
        // One whose past is still being read would begin again for ever.
        if let Some(place) = self.front.place(lease).filter(|place| !place.is_behind()) {
            place.read_again(recent, self.tenure.time(now));
        }
    }

    pub(super) fn loaded(&mut self, now: Now, call: LoadCall, loaded: Loaded) {
        self.sees_free = loaded.has_free;
        self.look_next = now.steady.saturating_add(self.config.look);
        let held = call.from.iter().map(|start| start.lease);
        let held: HashMap<u32, Lease> = held
            .filter(|&lease| self.tenure.holds(lease))
            .map(|lease| (lease.partition, lease))
            .collect();
        // What was moved back meanwhile is read again from there.
        let is_moved = |start: &&Start| {
            self.front.place(start.lease).is_none_or(|place| place.loaded != start.after)
        };
        let mut full: HashSet<u32> =
            call.from.iter().filter(is_moved).map(|start| start.lease.partition).collect();
        let mut news = false;
        for row in loaded.rows {
            let Some(&lease) = held.get(&row.partition) else {
                // The store may tell of it only once.
                self.front.forget(row.partition, Position::before(row.deadline));
                continue;
            };
            if self.front.reaches(&row) {
                news = true;
                if loaded.overflows
                    && self.has_full_past()
                    && self.front.is_past(&row)
                    && Manner::LeavesRoom.is_kept()
                {
                    // What the store has not told yet is due as well, and must find room.
                    self.front.forget(row.partition, Position::before(row.deadline));
                    continue;
                }
            } else if full.contains(&row.partition) || self.is_filled() {
                full.insert(row.partition);
                continue;
            } else if let Some(place) = self.front.place(lease) {
                place.loaded = row.position();
            }
            if !self.flights.has(&row.name, row.number) {
                self.front.insert(row);
            }
        }
        let time = self.tenure.time(now);
        let recent = time.saturating_sub(self.tenure.outlasts());
        for (Start { lease, after }, end) in call.from.into_iter().zip(loaded.ends) {
            let Some(place) = self.front.place(lease) else { continue };
            if full.contains(&lease.partition) || !held.contains_key(&lease.partition) {
                // The rest comes with another load.
            } else if loaded.outlasts {
                let recent = if after.deadline < time { time } else { call.until + 1 };
                place.put_behind(after.clone(), recent);
            } else {
                let all = || Position::before(call.until.saturating_add(1));
                place.complete_until = place.complete_until.max(match end {
                    None => call.until,
                    Some(_) => 0,
                });
                place.loaded = end.unwrap_or_else(all).max(place.loaded.clone());
            }
            if loaded.overflows {
                place.read_again(recent, time);
            }
        }
        let left_out = loaded.left_out.into_iter().filter(|_| Manner::ReadsLeftOut.is_kept());
        for (partition, deadline) in left_out {
            self.front.forget(partition, Position::before(deadline));
        }
        if news {
            // They come whatever room there is.
            self.bound();
        }
    }

    /// Tells what was found damaged and set aside.
    pub(crate) fn tell_damaged(&mut self, damaged: Vec<Damaged>) {
        self.counts.damaged += damaged.len() as u64;
        self.troubles.extend(damaged.into_iter().map(|damaged| {
            let Damaged { name, deadline, reason } = damaged;
            Error::Damaged { name, deadline, reason }
        }));
    }
}

/// What cannot be read is tried again within half of this, in milliseconds, or of what a new owner
/// would take.
const STUCK: u64 = 10_000;

/// After a call that took no longer, in milliseconds, no time is left for others.
const SHORT: u64 = 40;

/// And no more than this: what took longer did not read, but the process was stopped.
const REST: u64 = 250;

#[cfg(test)]
mod tests {
    use crate::keeper::answered::config;
    use crate::keeper::front::tests::row;
    use crate::keeper::{Config, Keeper};
    use crate::store::{Damaged, Lease};

    /// So many of the past, of the present, and in flight.
    fn keeper(near: [usize; 2], past: u64, present: u64, flights: u64) -> Keeper<()> {
        let [near_rows, near_bytes] = near;
        let mut keeper = Keeper::new(Config { near_rows, near_bytes, ..config() });
        let lease = Lease { partition: 0, epoch: 1 };
        keeper.front.begin(lease, 0, 100);
        // Names of one length.
        let mut names = 10..;
        let mut rows = |count: u64, deadline| -> Vec<_> {
            names.by_ref().take(count as usize).map(|name| row(name, deadline)).collect()
        };
        let near = [rows(past, 0), rows(present, 100)].concat();
        near.into_iter().for_each(|row| keeper.front.insert(row));
        rows(flights, 0).iter().for_each(|row| keeper.flights.begin(row, lease));
        keeper
    }

    /// Sixteen may be near, or as many bytes as they have.
    #[test]
    fn a_load_begins_below_a_quarter_and_ends_at_half_and_the_past_fills_an_eighth() {
        let bytes = row(10, 0).bytes();
        for near in [[16, usize::MAX], [usize::MAX, 16 * bytes]] {
            let keeper = |past, present, flights| keeper(near, past, present, flights);
            for (past, is_full) in [(0, false), (2, false), (3, true)] {
                assert_eq!(keeper(past, 0, 0).has_full_past(), is_full);
                assert_eq!(keeper(past, 1, 1).has_room_behind(), !is_full);
            }
            for (present, flights, has_room) in [(15, 0, true), (8, 8, false)] {
                assert_eq!(keeper(0, present, flights).has_room_behind(), has_room);
            }
            for (past, present, flights, has_room) in [
                (0, 0, 15, true),
                (1, 0, 15, false),
                (9, 1, 2, true),
                (0, 1, 3, false),
                (0, 4, 0, false),
            ] {
                assert_eq!(keeper(past, present, flights).has_room_in_memory(), has_room);
            }
            for (present, flights, is_filled) in [(0, 9, false), (5, 2, false), (5, 3, true)] {
                assert_eq!(keeper(0, present, flights).is_filled(), is_filled);
            }
        }
    }

    #[test]
    fn each_damaged_row_is_counted_and_told() {
        let mut keeper = keeper([100, 1_000], 0, 0, 0);
        for (found, count) in [(2, 2), (0, 2), (1, 3)] {
            let damaged = || Damaged { deadline: 1, name: "a".into(), reason: "a bit" };
            keeper.tell_damaged((0..found).map(|_| damaged()).collect());
            assert_eq!((keeper.counts.damaged, keeper.troubles.len() as u64), (count, count));
        }
    }
}
