//! What the page shows of one place.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use tickwheel_durable::Error;
#[cfg(feature = "postgres")]
use tickwheel_durable::Homes;
use tickwheel_durable::store::{Change, Counted, Dead, Limit, Position, RateLimit, Row};

use crate::failure::Failure;
use crate::place::{Opened, Place, change_each, dead_here, each_dead};
use crate::show;

/// Looks into a place, which may not answer yet.
pub(super) struct Looker {
    place: Place,
    opened: Option<Opened>,
    /// When it read the turnover last, and what that was.
    turnover: Option<(Instant, u64, u64)>,
}

/// What there is, as a look found it.
#[derive(Clone)]
pub(super) struct Sight {
    /// When the look began.
    pub(super) at: Instant,
    /// The time by the clock that deadlines are compared with, in milliseconds since 1970.
    now: u64,
    /// How much is pending in each stretch of time.
    counted: Vec<Counted>,
    /// The first deadline.
    first: Option<u64>,
    pub(super) is_paused: bool,
    pub(super) limit: Option<RateLimit>,
    /// The workers, and how many partitions have none, where there are workers.
    pub(super) workers: Option<(Vec<Value>, u64)>,
    /// How many are put, and how many leave, in a second.
    rates: Option<(f64, f64)>,
    #[cfg(feature = "postgres")]
    pub(super) homes: Option<Homes>,
}

/// A part of a list: rows with their places in the order, and the place after which there may be
/// more.
pub(super) struct Part<P> {
    pub(super) rows: Vec<(P, Value)>,
    pub(super) end: Option<P>,
}

impl Looker {
    /// Makes one of a place that is open, or did not answer yet.
    pub(super) fn new(place: Place, opened: Option<Opened>) -> Self {
        Self { place, opened, turnover: None }
    }

    fn opened(&mut self) -> Result<&mut Opened, Failure> {
        let opened = self.opened.take().map_or_else(|| self.place.open(), Ok)?;
        Ok(self.opened.insert(opened))
    }

    /// Returns what there is now.
    pub(super) fn look(&mut self) -> Result<Sight, Failure> {
        let (at, before) = (Instant::now(), self.turnover);
        let opened = self.opened()?;
        let now = show::milliseconds(opened.now()?);
        let ends = BANDS.map(|(_, after)| now.saturating_add(after));
        let counted = opened.store().count_until(&ends, MOST)?;
        let one = Limit { rows: 1, bytes: usize::MAX };
        let first = opened.store().list(&Position::start(), u64::MAX, one)?;
        let turnover = opened.turnover()?.map(|(put, left)| (at, put, left));
        let rates = before.zip(turnover).map(|((then, put_then, left_then), (at, put, left))| {
            let seconds = at.duration_since(then).as_secs_f64();
            let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
            (rate(put, put_then), rate(left, left_then))
        });
        let sight = Sight {
            at,
            now,
            counted,
            first: first.rows.first().map(|row| row.deadline),
            is_paused: opened.store().is_paused()?,
            limit: opened.store().rate_limit()?,
            workers: opened.each_worker()?,
            rates,
            #[cfg(feature = "postgres")]
            homes: opened.homes()?,
        };
        self.turnover = turnover;
        Ok(sight)
    }

    /// Returns some of what is pending after a place, of names that begin like this.
    pub(super) fn pending(
        &mut self,
        mut after: Position,
        prefix: &str,
    ) -> Result<Part<Position>, Failure> {
        let opened = self.opened()?;
        let now = opened.now()?;
        let (mut rows, mut looked) = (Vec::new(), 0);
        let end = loop {
            let page = opened.store().list(&after, u64::MAX, SOME)?;
            looked += 1;
            rows.extend(page.rows.iter().filter(|row| row.name.starts_with(prefix)).map(|row| {
                let shown = with_cut(&row.payload, |payload| {
                    show::row(&Row { payload, ..row.clone() }, now)
                });
                (Position { deadline: row.deadline, name: row.name.clone() }, shown)
            }));
            match page.end {
                // A rare prefix is looked for further at the next call.
                Some(end) if rows.is_empty() && looked < LOOKS => after = end,
                end => break end,
            }
        };
        Ok(Part { rows, end })
    }

    /// Returns some dead letters after a name, as [`pending`](Self::pending) does.
    pub(super) fn dead(&mut self, prefix: &str, after: &str) -> Result<Part<Arc<str>>, Failure> {
        let (mut rows, mut end) = (Vec::new(), None);
        each_dead(self.opened()?.store(), prefix, after, SOME, |page| {
            rows.extend(page.letters.iter().map(|dead| {
                let shown = with_cut(&dead.payload, |payload| {
                    show::dead(&Dead { payload, ..dead.clone() })
                });
                (dead.name.clone(), shown)
            }));
            end = page.end.clone();
            Ok(end.is_none())
        })?;
        Ok(Part { rows, end })
    }

    /// Changes dead letters of these names that died then, and tells what became of each.
    pub(super) fn change(
        &mut self,
        letters: &[(String, u64)],
        to: fn(&str, u64) -> Change,
    ) -> Result<Value, Failure> {
        let opened = self.opened()?;
        let now = show::milliseconds(opened.now()?);
        let (mut changes, mut told) = (Vec::new(), Vec::new());
        for (name, died) in letters {
            match dead_here(opened.store(), name)? {
                Some(letter) if letter.died != *died => told.push(json!({
                    "name": name,
                    "told": "unseen",
                    "error": "it has died once more since it was shown, and stays",
                })),
                _ => changes.push(to(name, now)),
            }
        }
        change_each(opened.store(), &changes, |change, changed| {
            let (_, text) = show::dead_changed(change, &changed);
            let why = changed.err().map(|error: Error| error.to_string());
            told.push(json!({ "name": &*change.name, "told": text, "error": why }));
            Ok(())
        })?;
        Ok(json!(told))
    }
}

impl Sight {
    /// Returns what several places have together, with the names of those whose workers there are.
    pub(super) fn sum<'a>(sights: impl Iterator<Item = (&'a str, &'a Self)>) -> Option<Self> {
        sights
            .map(|(place, sight)| {
                let mut sight = sight.clone();
                for worker in sight.workers.iter_mut().flat_map(|(workers, _)| workers) {
                    worker["database"] = json!(place);
                }
                sight
            })
            .reduce(|one, other| {
                // The latest of all is that of one, by its own clock.
                let (now, first) = match one.left() <= other.left() {
                    true => (one.now, one.first),
                    false => (other.now, other.first),
                };
                let counted = one.counted.iter().zip(&other.counted).map(|(one, other)| Counted {
                    rows: one.rows + other.rows,
                    is_all: one.is_all && other.is_all,
                });
                Self {
                    at: one.at.min(other.at),
                    now,
                    counted: counted.collect(),
                    first,
                    is_paused: one.is_paused && other.is_paused,
                    limit: None,
                    workers: both(one.workers, other.workers, |(mut all, free), (more, also)| {
                        all.extend(more);
                        (all, free + also)
                    }),
                    rates: both(one.rates, other.rates, |one, other| {
                        (one.0 + other.0, one.1 + other.1)
                    }),
                    #[cfg(feature = "postgres")]
                    homes: None,
                }
            })
    }

    /// Milliseconds until the first is due; more than any if there is none.
    fn left(&self) -> i128 {
        self.first.map_or(i128::MAX, |first| i128::from(first) - i128::from(self.now))
    }

    /// By how many milliseconds the first is late.
    pub(super) fn late(&self) -> Option<u64> {
        self.first.and_then(|first| self.now.checked_sub(first))
    }

    pub(super) fn pending(&self) -> Counted {
        Counted {
            rows: self.counted.iter().map(|counted| counted.rows).sum(),
            is_all: self.counted.iter().all(|counted| counted.is_all),
        }
    }

    pub(super) fn overdue(&self) -> Counted {
        self.counted.first().copied().unwrap_or_default()
    }

    pub(super) fn json(&self) -> Value {
        let bands = BANDS.iter().zip(&self.counted).map(|((name, _), counted)| {
            json!({ "name": name, "rows": counted.rows, "is_all": counted.is_all })
        });
        let bands: Vec<Value> = bands.collect();
        let pending = self.pending();
        let mut state = json!({
            "now_ms": self.now,
            "now": show::time(self.now),
            "bands": bands,
            "pending": pending.rows,
            "is_all": pending.is_all,
            "first_ms": self.first,
            "is_paused": self.is_paused,
            "limit": self.limit.map(show::limit),
        });
        if let Some((workers, free)) = &self.workers {
            state["workers"] = json!(workers);
            state["free_partitions"] = json!(free);
        }
        if let Some((put, left)) = self.rates {
            state["put_per_second"] = json!(put);
            state["left_per_second"] = json!(left);
        }
        state
    }
}

fn both<T>(one: Option<T>, other: Option<T>, add: impl FnOnce(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(add(one, other)),
        (one, other) => one.or(other),
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

/// What is counted of a stretch of time, or of each partition in it.
const MOST: u64 = 1_000;
/// What one look reads.
pub(super) const SOME: Limit = Limit { rows: 100, bytes: 1 << 20 };
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
