//! Reading what is pending.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::handle::Handle;
use super::shared::Message;
use crate::Error;
use crate::store::{Limit, Position, Row};
use crate::values::time;

/// A timeout in the store; by [`DurableTimer::get`](crate::DurableTimer::get) and
/// [`DurableTimer::iter`](crate::DurableTimer::iter).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending(pub(super) Row);

impl Pending {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the deadline.
    pub fn deadline(&self) -> SystemTime {
        time(self.0.deadline)
    }

    /// Returns the payload.
    pub fn payload(&self) -> &[u8] {
        &self.0.payload
    }

    /// Returns the [metadata](crate::Content::metadata), which may be empty.
    pub fn metadata(&self) -> &str {
        &self.0.metadata
    }

    /// Returns the [attempt](crate::Due::attempt) that comes next.
    pub fn attempt(&self) -> u32 {
        self.0.attempt.saturating_add(1)
    }
}

/// All pending timeouts; by [`DurableTimer::iter`](crate::DurableTimer::iter).
pub struct Iter {
    handle: Arc<Handle>,
    rows: VecDeque<Row>,
    next: Option<Position>,
}

impl Iter {
    pub(super) fn new(handle: Arc<Handle>) -> Self {
        Self { handle, rows: VecDeque::new(), next: Some(Position::start()) }
    }
}

impl Iterator for Iter {
    type Item = Result<Pending, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.rows.is_empty() {
            let after = self.next.take()?;
            let limit = Limit { rows: 1000, bytes: 1 << 20 };
            let page = self.handle.read(move |store| store.list(&after, u64::MAX, limit));
            match page {
                Ok(page) => {
                    // If the timer was closed meanwhile, nobody is there to tell.
                    let _ = self.handle.send(Message::Damaged(page.damaged));
                    (self.rows, self.next) = (page.rows.into(), page.end);
                }
                Err(error) => return Some(Err(error)),
            }
        }
        self.rows.pop_front().map(|row| Ok(Pending(row)))
    }
}

impl fmt::Debug for Iter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("next", &self.next).finish_non_exhaustive()
    }
}
