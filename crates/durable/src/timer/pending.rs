//! Reading what is pending.

use std::collections::VecDeque;
use std::time::SystemTime;

use super::DurableTimer;
use super::commit::Commit;
use super::values::time;
use crate::Error;
use crate::keeper::{Reply, Request};
use crate::store::{Limit, Position, Row};

/// A timeout in the store; by [`DurableTimer::get`] and [`DurableTimer::iter`].
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

    /// Returns the [attempt](crate::Due::attempt) that comes next.
    pub fn attempt(&self) -> u32 {
        self.0.attempt.saturating_add(1)
    }
}

/// All pending timeouts; by [`DurableTimer::iter`].
#[derive(Debug)]
pub struct Iter {
    timer: DurableTimer,
    rows: VecDeque<Row>,
    next: Option<Position>,
}

impl Iter {
    pub(super) fn new(timer: DurableTimer) -> Self {
        Self { timer, rows: VecDeque::new(), next: Some(Position::start()) }
    }
}

impl Iterator for Iter {
    type Item = Result<Pending, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.rows.is_empty() {
            let after = self.next.take()?;
            let request = Request::Page { after, limit: Limit { rows: 1000, bytes: 1 << 20 } };
            let page = self.timer.ask(request, |reply| match reply {
                Reply::Page { rows, end } => (rows, end),
                reply => unreachable!("{reply:?} to a page"),
            });
            match page.and_then(Commit::wait) {
                Ok((rows, end)) => (self.rows, self.next) = (rows.into(), end),
                Err(error) => return Some(Err(error)),
            }
        }
        self.rows.pop_front().map(|row| Ok(Pending(row)))
    }
}
