//! The users of a push server, and their deadlines. Time is an argument.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tickwheel::{Mode, Ticks, WheelMap};
use tokio::sync::oneshot;

/// Holds the polls of users until there is a message or the deadline comes.
///
/// Each user has one deadline: while a poll waits, that of its answer, and between two polls, that
/// of the user, who is forgotten then. Each poll and each answer moves it, in place.
///
/// The numbers of a user's messages follow those that the user had before it was forgotten, and
/// before a restart of the server, because they begin with the time. So a number that a client
/// sends need not be believed.
#[derive(Debug)]
pub struct Hub<T = Arc<str>> {
    ticks: Ticks<Instant>,
    start: Instant,
    /// The number before the first, of a user that is new at the start.
    first: u64,
    hold: Duration,
    grace: Duration,
    users: WheelMap<String, User<T>>,
}

/// What a poll is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T = Arc<str>> {
    /// All messages that the user has not told to have, by number.
    Messages(Vec<(u64, T)>),
    /// There is none: poll again.
    Reconnect,
    /// Another poll of the same user waits instead of this one.
    Replaced,
    /// The poll names a message after the last one, whose number this is. It has changed nothing.
    Ahead(u64),
    /// There are too many users.
    Full,
}

#[derive(Debug)]
struct User<T> {
    waits: Option<oneshot::Sender<Answer<T>>>,
    /// Kept until a poll tells that the user has them: a connection may break under an answer.
    unread: VecDeque<(u64, T)>,
    /// The number of the last message.
    last: u64,
}

impl<T: Clone> Hub<T> {
    /// Makes a hub without users, whose time begins at `start`, which is `first` microseconds after
    /// any time that all hubs share. A poll waits for `hold` at most, and a user that does not poll
    /// again is forgotten after `grace`.
    #[must_use]
    pub fn new(mode: Mode, start: Instant, first: u64, hold: Duration, grace: Duration) -> Self {
        let ticks = Ticks::new(start, Duration::from_millis(1));
        Self { ticks, start, first, hold, grace, users: WheelMap::new(mode) }
    }

    /// Begins a poll of `user`, who has all messages up to number `after`, and returns where its
    /// answer comes.
    pub fn poll(&mut self, now: Instant, user: &str, after: u64) -> oneshot::Receiver<Answer<T>> {
        let (waits, answer) = oneshot::channel();
        let known = self.users.get_mut(user);
        let last =
            known.as_ref().map_or_else(|| number(self.first, now - self.start), |it| it.last);
        if last < after {
            // Nobody waits yet.
            let _ = waits.send(Answer::Ahead(last));
            return answer;
        }
        let deadline = self.ticks.after(now, self.hold);
        if let Some(known) = known {
            known.answer(Answer::Replaced);
            known.waits = Some(waits);
            known.unread.retain(|&(number, _)| after < number);
            self.users.reschedule(user, deadline);
            self.deliver(now, user);
        } else if MOST_USERS <= self.users.len() {
            let _ = waits.send(Answer::Full);
        } else {
            let new = User { waits: Some(waits), unread: VecDeque::new(), last };
            self.users.insert(user.to_owned(), new, deadline);
        }
        answer
    }

    /// Leaves a message for `user`, and returns whether there is such a user. All who get the same
    /// text share it.
    pub fn publish(&mut self, now: Instant, user: &str, text: &T) -> bool {
        let Some(known) = self.users.get_mut(user) else { return false };
        known.last = known.last.saturating_add(1);
        known.unread.push_back((known.last, text.clone()));
        if MOST_UNREAD < known.unread.len() {
            known.unread.pop_front();
        }
        self.deliver(now, user);
        true
    }

    /// Returns the names of all users, in no particular order.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.users.iter().map(|(user, ..)| user.as_str())
    }

    /// Returns how many polls wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let waits = |user: &User<T>| user.waits.as_ref().is_some_and(|waits| !waits.is_closed());
        self.users.iter().filter(|(.., user)| waits(user)).count()
    }

    /// Answers each poll whose deadline has come, and forgets each user whose deadline has come.
    pub fn expire(&mut self, now: Instant) {
        while let Some(mut due) = self.users.expire(self.ticks.now(now)) {
            if due.value.waits.is_some() {
                due.value.answer(Answer::Reconnect);
                self.users.insert(due.key, due.value, self.ticks.after(now, self.grace));
            }
        }
    }

    /// Returns when to call [`expire`](Self::expire) next, at the latest.
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        self.ticks.instant(self.users.next_wake()?)
    }

    /// Answers the poll of `user`, if it waits and there are messages.
    fn deliver(&mut self, now: Instant, user: &str) {
        let Some(known) = self.users.get_mut(user) else { return };
        let messages = Answer::Messages(known.unread.iter().cloned().collect());
        if !known.unread.is_empty() && known.answer(messages) {
            self.users.reschedule(user, self.ticks.after(now, self.grace));
        }
    }
}

impl<T> User<T> {
    /// Answers the poll, and returns whether one waited. If its connection is gone, nobody gets the
    /// answer.
    fn answer(&mut self, answer: Answer<T>) -> bool {
        self.waits.take().is_some_and(|waits| waits.send(answer).is_ok())
    }
}

/// The number before the first, of a user that is new this long after the start: nobody gets more
/// than a message per microsecond.
fn number(first: u64, since: Duration) -> u64 {
    first.saturating_add(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// Names cost nothing, so there is a limit.
const MOST_USERS: usize = 100_000;
/// A user has at most this many unread messages: the oldest make room, and leave a gap in the
/// numbers.
const MOST_UNREAD: usize = 100;
