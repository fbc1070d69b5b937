//! Loads: what to read of the store's front, and when.

use crate::Error;
use crate::keeper::Keeper;
use crate::keeper::words::{LoadCall, Now};
use crate::store::{Damaged, Limit, Page, Position};

impl<T> Keeper<T> {
    pub(super) fn wants_load(&self, time: u64) -> bool {
        !self.closing
            && !self.tenure.is_empty()
            && self.has_room_in_memory()
            && self.front.complete_until < time.saturating_add(self.horizon() / 2)
    }

    /// Whether it is time to read the front again, for what others did.
    pub(super) fn wants_look(&self, now: Now) -> bool {
        self.tenure.is_shared()
            && !self.closing
            && !self.tenure.is_empty()
            && self.look_next <= now.steady
            && self.flights.len() < self.config.near_rows
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

    /// How far ahead rows are loaded. Beyond the margin a look is too old to hand out by.
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
        let until = time.saturating_add(self.horizon());
        let after = if looks { Position::start() } else { self.front.loaded.clone() };
        // A look replaces all that is near, so it is one page.
        let rows = if looks { self.config.near_rows / 2 } else { self.config.page };
        let limit = Limit {
            // What is in flight comes again if all was forgotten.
            rows: rows.min(self.config.near_rows) + self.flights.len(),
            bytes: self.config.near_bytes,
        };
        let look = (after == Position::start()).then_some((time, now.steady));
        self.counts.loads += 1;
        let forgotten = self.counts.forgotten;
        Some(LoadCall { leases: self.tenure.all(), after, until, limit, look, forgotten })
    }

    pub(super) fn loaded(&mut self, now: Now, call: LoadCall, page: Page) {
        let LoadCall { until, look, forgotten, .. } = call;
        if forgotten != self.counts.forgotten {
            return;
        }
        if let Some((time, asked)) = look
            && self.tenure.is_shared()
        {
            // All at once, so that nothing is missing meanwhile.
            self.front.clear();
            self.looked_at = time;
            // Where looks take long, time is left for other calls; but the next one must be there
            // before the margin is over, or nothing is handed out until it is.
            let took = now.steady.saturating_sub(asked);
            let pause = (took * 4).min(self.config.margin / 4).max(self.config.look);
            self.look_next = now.steady.saturating_add(pause);
        }
        for row in page.rows {
            if self.is_filled() {
                return;
            }
            self.front.loaded = row.position();
            if !self.flights.has(row.number) && self.tenure.has(row.partition) {
                self.front.insert(row);
            }
        }
        match page.end {
            Some(end) => self.front.loaded = end,
            None => {
                self.front.loaded = Position::before(until.saturating_add(1));
                self.front.complete_until = until;
            }
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
