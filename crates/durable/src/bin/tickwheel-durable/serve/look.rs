//! What the page shows, as JSON.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tickwheel_durable::Error;
use tickwheel_durable::store::{Change, Dead, Limit, Position, Row};

use crate::failure::Failure;
use crate::place::{Opened, change_each, dead_here, each_dead};
use crate::show;

pub(super) struct Looker {
    opened: Opened,
    /// What is shown, for people.
    place: String,
    /// When it looked last, and what it saw.
    seen: Option<(Instant, Value)>,
    /// When it read the turnover last, and what that was.
    turnover: Option<(Instant, u64, u64)>,
}

impl Looker {
    pub(super) fn new(opened: Opened, place: String) -> Self {
        Self { opened, place, seen: None, turnover: None }
    }

    /// Returns what there is now, or what there was less than a second ago. What cannot be read is
    /// told beside what was seen last.
    pub(super) fn state(&mut self) -> Value {
        let now = Instant::now();
        if let Some((at, seen)) = &self.seen
            && now.duration_since(*at) < REST
        {
            return seen.clone();
        }
        let state = match self.look(now) {
            Ok(state) => state,
            Err(failure) => {
                let last = self.seen.take().map(|(_, seen)| seen);
                let mut state = last.unwrap_or_else(|| json!({ "place": self.place }));
                state["error"] = json!(failure.to_string());
                state
            }
        };
        // As seen when the look ended: a slow place is asked no more often than a fast one rests.
        self.seen = Some((Instant::now(), state.clone()));
        state
    }

    fn look(&mut self, at: Instant) -> Result<Value, Failure> {
        let now = show::milliseconds(self.opened.now()?);
        let ends = BANDS.map(|(_, after)| now.saturating_add(after));
        let counted = self.opened.store().count_until(&ends, MOST)?;
        let bands = BANDS.iter().zip(&counted).map(|((name, _), counted)| {
            json!({ "name": name, "rows": counted.rows, "is_all": counted.is_all })
        });
        let bands: Vec<Value> = bands.collect();
        let one = Limit { rows: 1, bytes: usize::MAX };
        let first = self.opened.store().list(&Position::start(), u64::MAX, one)?;
        let mut state = json!({
            "place": self.place,
            "now_ms": now,
            "now": show::time(now),
            "bands": bands,
            "pending": counted.iter().map(|counted| counted.rows).sum::<u64>(),
            "is_all": counted.iter().all(|counted| counted.is_all),
            "first_ms": first.rows.first().map(|row| row.deadline),
            "is_paused": self.opened.store().is_paused()?,
        });
        if let Some((workers, free)) = self.opened.each_worker()? {
            state["workers"] = workers;
            state["free_partitions"] = json!(free);
        }
        if let Some((put, left)) = self.opened.turnover()? {
            if let Some((before, put_before, left_before)) = self.turnover {
                let seconds = at.duration_since(before).as_secs_f64();
                let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
                state["put_per_second"] = json!(rate(put, put_before));
                state["left_per_second"] = json!(rate(left, left_before));
            }
            self.turnover = Some((at, put, left));
        }
        Ok(state)
    }

    /// Returns some of what is pending after a place, of names that begin like this, and where to go
    /// on if there may be more.
    pub(super) fn pending(&mut self, after: Position, prefix: &str) -> Result<Value, Failure> {
        let now = self.opened.now()?;
        let (mut rows, mut after, mut looked) = (Vec::new(), after, 0);
        let next = loop {
            let page = self.opened.store().list(&after, u64::MAX, SOME)?;
            looked += 1;
            rows.extend(page.rows.iter().filter(|row| row.name.starts_with(prefix)).map(|row| {
                with_cut(&row.payload, |payload| show::row(&Row { payload, ..row.clone() }, now))
            }));
            match page.end {
                // A rare prefix is looked for further at the next call.
                Some(end) if rows.is_empty() && looked < LOOKS => after = end,
                end => break end,
            }
        };
        let next =
            next.map(|end| json!({ "after_ms": end.deadline.to_string(), "after": &*end.name }));
        Ok(json!({ "rows": rows, "next": next }))
    }

    /// Returns some dead letters after a name, as [`pending`](Self::pending) does.
    pub(super) fn dead(&mut self, prefix: &str, after: &str) -> Result<Value, Failure> {
        let (mut letters, mut next) = (Vec::new(), None);
        each_dead(self.opened.store(), prefix, after, SOME, |page| {
            letters.extend(page.letters.iter().map(|dead| {
                with_cut(&dead.payload, |payload| show::dead(&Dead { payload, ..dead.clone() }))
            }));
            next = page.end.as_deref().map(|end| json!({ "after": end }));
            Ok(next.is_none())
        })?;
        Ok(json!({ "rows": letters, "next": next }))
    }

    /// Changes dead letters of these names that died then, and tells what became of each.
    pub(super) fn change(
        &mut self,
        letters: &[(String, u64)],
        to: fn(&str, u64) -> Change,
    ) -> Result<Value, Failure> {
        let now = show::milliseconds(self.opened.now()?);
        let (mut changes, mut told) = (Vec::new(), Vec::new());
        for (name, died) in letters {
            match dead_here(self.opened.store(), name)? {
                Some(letter) if letter.died != *died => told.push(json!({
                    "name": name,
                    "told": "unseen",
                    "error": "it has died once more since it was shown, and stays",
                })),
                _ => changes.push(to(name, now)),
            }
        }
        change_each(self.opened.store(), &changes, |change, changed| {
            let (_, text) = show::dead_changed(change, &changed);
            let why = changed.err().map(|error: Error| error.to_string());
            told.push(json!({ "name": &*change.name, "told": text, "error": why }));
            Ok(())
        })?;
        self.seen = None;
        Ok(json!(told))
    }
}

/// Shows a payload, or the beginning of a long one and how long all of it is: JSON needs much more
/// room for characters that do not print.
fn with_cut(payload: &Arc<[u8]>, shown: impl FnOnce(Arc<[u8]>) -> Value) -> Value {
    let Some(part) = payload.get(..SHOWN).filter(|part| part.len() < payload.len()) else {
        return shown(payload.clone());
    };
    let part = match str::from_utf8(part) {
        // The last character goes on.
        Err(error) if error.error_len().is_none() => &part[..error.valid_up_to()],
        _ => part,
    };
    let mut value = shown(part.into());
    value["payload_bytes"] = json!(payload.len());
    value
}

/// How long what was seen is good for.
const REST: Duration = Duration::from_secs(1);
/// What is counted of a stretch of time, or of each partition in it.
const MOST: u64 = 1_000;
/// What one look reads.
const SOME: Limit = Limit { rows: 100, bytes: 1 << 20 };
/// How many bytes of a payload are shown.
const SHOWN: usize = 1 << 10;
/// How often a call looks for a prefix.
const LOOKS: usize = 20;
/// The most that one request may change.
pub(super) const LETTERS_AT_ONCE: usize = 100;

/// Stretches of time, each up to so many milliseconds from now.
const BANDS: [(&str, u64); 8] = [
    ("overdue", 0),
    ("in a second", 1_000),
    ("in a minute", 60_000),
    ("in an hour", 3_600_000),
    ("in a day", 86_400_000),
    ("in a week", 7 * 86_400_000),
    ("in a month", 30 * 86_400_000),
    ("later", u64::MAX),
];
