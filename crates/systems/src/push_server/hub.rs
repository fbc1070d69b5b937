//! The users of a push server, and their deadlines. Time is an argument.

use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tickwheel::{Mode, Ticks, WheelMap};
use tokio::sync::oneshot;

/// Holds the polls of users until there is a message or the deadline comes.
///
/// Each user has one deadline: while a poll waits, that of its answer, and between two polls, that
/// of the user, who is forgotten then. Each poll and each answer moves it, in place.
#[derive(Debug)]
pub struct Hub {
    ticks: Ticks<Instant>,
    hold: Duration,
    grace: Duration,
    users: WheelMap<String, User>,
}

/// What a poll is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All messages that the user has not told to have, by number.
    Messages(Vec<(u64, String)>),
    /// There is none: poll again.
    Reconnect,
    /// Another poll of the same user waits instead of this one.
    Replaced,
}

#[derive(Debug)]
struct User {
    waits: Option<oneshot::Sender<Answer>>,
    /// Kept until a poll tells that the user has them: a connection may break under an answer.
    unread: VecDeque<(u64, String)>,
    /// The number of the last message.
    last: u64,
}

impl Hub {
    /// Makes a hub without users, whose time begins at `start`. A poll waits for `hold` at most,
    /// and a user that does not poll again is forgotten after `grace`.
    #[must_use]
    pub fn new(mode: Mode, start: Instant, hold: Duration, grace: Duration) -> Self {
        let ticks = Ticks::new(start, Duration::from_millis(1));
        Self { ticks, hold, grace, users: WheelMap::new(mode) }
    }

    /// Begins a poll of `user`, who has all messages up to number `after`, and returns where its
    /// answer comes.
    pub fn poll(&mut self, now: Instant, user: &str, after: u64) -> oneshot::Receiver<Answer> {
        let (waits, answer) = oneshot::channel();
        let deadline = self.ticks.after(now, self.hold);
        if let Some(known) = self.users.get_mut(user) {
            known.answer(Answer::Replaced);
            known.waits = Some(waits);
            known.unread.retain(|&(number, _)| after < number);
            // Before a restart of the server there may have been more than it knows.
            known.last = known.last.max(after);
            self.users.reschedule(user, deadline);
            self.deliver(now, user);
        } else {
            // New, or forgotten: the numbers go on from where the user is.
            let new = User { waits: Some(waits), unread: VecDeque::new(), last: after };
            self.users.insert(user.to_owned(), new, deadline);
        }
        answer
    }

    /// Leaves a message for `user`, and returns whether there is such a user.
    pub fn publish(&mut self, now: Instant, user: &str, text: &str) -> bool {
        let Some(known) = self.users.get_mut(user) else { return false };
        known.last = known.last.saturating_add(1);
        known.unread.push_back((known.last, text.to_owned()));
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
        let waits = |user: &User| user.waits.as_ref().is_some_and(|waits| !waits.is_closed());
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

impl User {
    /// Answers the poll, and returns whether one waited. If its connection is gone, nobody gets the
    /// answer.
    fn answer(&mut self, answer: Answer) -> bool {
        self.waits.take().is_some_and(|waits| waits.send(answer).is_ok())
    }
}

/// A user has at most this many unread messages: the oldest make room, and leave a gap in the
/// numbers.
const MOST_UNREAD: usize = 100;
