//! A place that the page shows, and what was seen of it last.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::{JoinError, spawn_blocking};
use tokio::time::timeout;

use super::look::{Looker, Part, Sight};
use crate::failure::Failure;

#[derive(Clone)]
pub(super) struct Shown {
    pub(super) name: String,
    /// Whether others are shown beside it, which do not wait for it.
    has_others: bool,
    looker: Arc<tokio::sync::Mutex<Looker>>,
    memory: Arc<Mutex<Memory>>,
}

#[derive(Default)]
struct Memory {
    /// When it was asked what it has not answered yet.
    asked: Option<Instant>,
    /// When the last look ended.
    looked: Option<Instant>,
    /// Why that look failed.
    error: Option<String>,
    /// What was seen last, and when.
    seen: Option<(Instant, Sight)>,
}

/// What is known of a place.
pub(super) struct Seen {
    pub(super) name: String,
    /// What was seen last.
    pub(super) sight: Option<Sight>,
    /// How long ago.
    pub(super) age: Duration,
    /// Why that is not what there is now.
    pub(super) error: Option<String>,
}

impl Shown {
    pub(super) fn new(name: String, has_others: bool, looker: Looker) -> Self {
        let looker = Arc::new(tokio::sync::Mutex::new(looker));
        Self { name, has_others, looker, memory: Arc::default() }
    }

    /// Does `work`, on a thread that may wait for the place. A caller who hangs up before its turn
    /// leaves no work.
    async fn ask<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Looker) -> R + Send + 'static,
    ) -> Result<R, JoinError> {
        let mut looker = self.looker.clone().lock_owned().await;
        let memory = self.memory.clone();
        let work = move || {
            lock(&memory).asked = Some(Instant::now());
            let answer = work(&mut looker);
            lock(&memory).asked = None;
            answer
        };
        spawn_blocking(work).await
    }

    /// Returns what there is now, or what there was less than a second ago. What cannot be read, or
    /// takes long beside others, is told beside what was seen last.
    pub(super) async fn seen(&self) -> Seen {
        let memory = self.memory.clone();
        let look = self.ask(move |looker| {
            let rests = |looked: Instant| looked.elapsed() < REST;
            if lock(&memory).looked.is_some_and(rests) {
                return;
            }
            let seen = looker.look();
            let mut memory = lock(&memory);
            // When the look ended: a slow place is asked no more often than a fast one rests.
            let now = Instant::now();
            memory.looked = Some(now);
            memory.error = seen.as_ref().err().map(Failure::to_string);
            if let Ok(sight) = seen {
                memory.seen = Some((now, sight));
            }
        });
        let looked = timeout(self.patience(), look).await;
        let memory = lock(&self.memory);
        let error = match looked {
            Ok(Ok(())) => memory.error.clone(),
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(memory.why()),
        };
        let (age, sight) = memory.seen.clone().map(|(at, sight)| (at.elapsed(), sight)).unzip();
        Seen { name: self.name.clone(), sight, age: age.unwrap_or_default(), error }
    }

    /// Reads a part of a list. In words why, if it cannot be read or takes long beside others.
    pub(super) async fn list<P: Send + 'static>(
        &self,
        read: impl FnOnce(&mut Looker) -> Result<Part<P>, Failure> + Send + 'static,
    ) -> Result<Part<P>, String> {
        let patience = self.patience();
        if patience.is_zero() {
            return Err(lock(&self.memory).why());
        }
        let read = timeout(patience, self.ask(read)).await;
        let read = read.map_err(|_| lock(&self.memory).why())?;
        read.map_err(|error| error.to_string())?.map_err(|failure| failure.to_string())
    }

    /// Changes something, and forgets what was seen before.
    pub(super) async fn change<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Looker) -> R + Send + 'static,
    ) -> Result<R, JoinError> {
        let memory = self.memory.clone();
        self.ask(move |looker| {
            let changed = work(looker);
            lock(&memory).looked = None;
            changed
        })
        .await
    }

    /// How long to wait for it: not at all if it has not answered for long.
    fn patience(&self) -> Duration {
        let memory = lock(&self.memory);
        match memory.error {
            _ if !self.has_others => Duration::MAX,
            Some(_) => Duration::ZERO,
            None => PATIENCE.saturating_sub(memory.waited()),
        }
    }
}

impl Memory {
    /// How long an answer has been waited for.
    fn waited(&self) -> Duration {
        self.asked.map_or(Duration::ZERO, |asked| asked.elapsed())
    }

    /// Why there is no answer yet.
    fn why(&self) -> String {
        let silent = || format!("no answer within {} s", PATIENCE.as_secs());
        self.error.clone().unwrap_or_else(silent)
    }
}

/// What is in it holds whoever panics.
fn lock(memory: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long what was seen is good for.
const REST: Duration = Duration::from_secs(1);
/// How long others wait for one that answered before.
const PATIENCE: Duration = Duration::from_secs(4);
