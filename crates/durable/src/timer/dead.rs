//! Reading dead letters.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::handle::Handle;
use super::shared::Message;
use crate::Error;
use crate::store::{Dead, Limit};
use crate::values::time;

/// A timeout that was handed out as often as it may be, and not acked; by
/// [`DurableTimer::dead_letter`](crate::DurableTimer::dead_letter) and
/// [`DurableTimer::dead_letters`](crate::DurableTimer::dead_letters).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter(pub(super) Dead);

impl DeadLetter {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the deadline that it had last.
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

    /// Returns how often it was handed out.
    pub fn attempts(&self) -> u32 {
        self.0.attempt
    }

    /// Returns when it was found dead.
    pub fn died(&self) -> SystemTime {
        time(self.0.died)
    }
}

/// All dead letters; by [`DurableTimer::dead_letters`](crate::DurableTimer::dead_letters).
pub struct DeadLetters {
    handle: Arc<Handle>,
    letters: VecDeque<Dead>,
    next: Option<Arc<str>>,
}

impl DeadLetters {
    pub(super) fn new(handle: Arc<Handle>) -> Self {
        Self { handle, letters: VecDeque::new(), next: Some(Arc::from("")) }
    }
}

impl Iterator for DeadLetters {
    type Item = Result<DeadLetter, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.letters.is_empty() {
            let after = self.next.take()?;
            let limit = Limit { rows: 1000, bytes: 1 << 20 };
            match self.handle.read(move |store| store.list_dead(&after, limit)) {
                Ok(page) => {
                    // If the timer was closed meanwhile, nobody is there to tell.
                    let _ = self.handle.send(Message::Damaged(page.damaged));
                    (self.letters, self.next) = (page.letters.into(), page.end);
                }
                Err(error) => return Some(Err(error)),
            }
        }
        self.letters.pop_front().map(|dead| Ok(DeadLetter(dead)))
    }
}

impl fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetters").field("next", &self.next).finish_non_exhaustive()
    }
}
