//! Loads: what to read of the store's front, and when.

use std::collections::HashSet;

use crate::Error;
use crate::keeper::Keeper;
use crate::keeper::words::{LoadCall, Now};
use crate::store::{Damaged, Limit, Loaded, Position, Start};

impl<T> Keeper<T> {
    pub(super) fn wants_load(&self, time: u64) -> bool {
        !self.closing
            && self.has_room_in_memory()
            && self.incomplete(time.saturating_add(self.horizon() / 2)).next().is_some()
    }

    /// Whether it is time to look for what others did.
    pub(super) fn wants_look(&self, now: Now) -> bool {
        self.tenure.is_shared()
            && !self.closing
            && !self.tenure.is_empty()
            && self.look_next <= now.steady
            && self.flights.len() < self.config.near_rows
    }

    /// Returns the partitions of which not all is known up to this deadline.
    fn incomplete(&self, until: u64) -> impl Iterator<Item = u32> + '_ {
        let partitions = self.tenure.epochs.keys().copied();
        partitions.filter(move |&partition| self.front.complete_until(partition) < until)
    }

    /// Loading begins below a quarter of what may be near and ends at half of it: what is put
    /// near has the other half, so that dropping the far half and loading it again are rare. Where
    /// nothing is near, what is in flight may fill more than that.
    fn has_room_in_memory(&self) -> bool {
        let (rows, bytes) = (self.config.near_rows, self.config.near_bytes);
        if self.front.len() == 0 {
            self.known() < rows && self.bytes() < bytes
        } else {
            self.known() < rows / 4 && self.bytes() < bytes / 4
        }
    }

    /// How far a load fills the memory.
    fn is_filled(&self) -> bool {
        let (rows, bytes) = (self.config.near_rows, self.config.near_bytes);
        self.front.len() > 0 && (rows / 2 <= self.known() || bytes / 2 <= self.bytes())
    }

    /// How far ahead rows are loaded. Of what is further away than the margin another caller may be
    /// told that it will not come.
    fn horizon(&self) -> u64 {
        match self.tenure.is_shared() {
            false => self.config.horizon,
            true => self.config.horizon.min(self.config.margin),
        }
    }

    pub(super) fn load(&mut self, now: Now) -> Option<LoadCall> {
        let time = self.tenure.time(now);
        let looks = self.wants_look(now);
        if !looks && !self.wants_load(time) || !self.load_pause.is_over(now.steady) {
            return None;
        }
        self.refresh_one(now);
        // A look finds what is before the positions, whatever room there is for what is after.
        let until = match self.is_filled() {
            true => 0,
            false => time.saturating_add(self.horizon()),
        };
        // All of them, because the store tells once what has become visible.
        let mut partitions: Vec<u32> = self.tenure.epochs.keys().copied().collect();
        // Those that are furthest behind come first.
        partitions.sort_by_cached_key(|&partition| {
            (self.front.place(partition).loaded.clone(), partition)
        });
        let from = partitions.into_iter().map(|partition| Start {
            lease: self.tenure.lease(partition),
            after: self.front.place(partition).loaded.clone(),
        });
        let call = LoadCall {
            from: from.collect(),
            until,
            limit: Limit {
                // What is in flight comes again if all was forgotten.
                rows: self.config.page.min(self.config.near_rows) + self.flights.len(),
                bytes: (self.config.near_bytes / 2).saturating_sub(self.front.bytes).max(1),
            },
            asked: now.steady,
            forgotten: self.counts.forgotten,
        };
        self.counts.loads += 1;
        Some(call)
    }

    /// Lets one partition be read again from the front, now and then.
    fn refresh_one(&mut self, now: Now) {
        if !self.tenure.is_shared() || now.steady < self.refresh_at || self.tenure.is_empty() {
            return;
        }
        let partitions = self.tenure.epochs.keys();
        let next = partitions.clone().filter(|&&partition| self.refreshed < partition).min();
        self.refreshed = *next.or_else(|| partitions.min()).expect("there is one");
        self.front.restart(self.refreshed);
        self.refresh_at = now.steady + self.config.refresh;
    }

    pub(super) fn loaded(&mut self, now: Now, call: LoadCall, loaded: Loaded) {
        if call.forgotten != self.counts.forgotten {
            return;
        }
        // Where the store is slow, time is left for other calls.
        let took = now.steady.saturating_sub(call.asked);
        let pause = (took * 4).min(self.config.margin / 4).max(self.config.look);
        self.look_next = now.steady.saturating_add(pause);
        let (mut full, mut news) = (HashSet::new(), false);
        for row in loaded.rows {
            news |= self.front.reaches(&row);
            if !self.front.reaches(&row) {
                if full.contains(&row.partition) || self.is_filled() {
                    full.insert(row.partition);
                    continue;
                }
                self.front.place(row.partition).loaded = row.position();
            }
            if !self.flights.has(row.number) && self.tenure.has(row.partition) {
                self.front.insert(row);
            }
        }
        for (Start { lease, .. }, end) in call.from.into_iter().zip(loaded.ends) {
            if full.contains(&lease.partition) {
                continue;
            }
            let place = self.front.place(lease.partition);
            let all = || Position::before(call.until.saturating_add(1));
            place.complete_until = place.complete_until.max(match end {
                None => call.until,
                Some(_) => 0,
            });
            place.loaded = end.unwrap_or_else(all).max(place.loaded.clone());
        }
        if loaded.overflows {
            self.forget();
        } else if news {
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
