//! Commits: what consumers settled and what callers ask for, and what came of it.

use std::sync::Arc;

use crate::Error;
use crate::keeper::outbox::Outbox;
use crate::keeper::words::{
    Answer, Call, Cancelled, Command, Now, Reply, Request, Scheduled, Settled,
};
use crate::keeper::{Keeper, Pending};
use crate::store::{Op, Outcome, Replaced, Row};

impl<T> Keeper<T> {
    /// Settlements come first, so that a name that was acked is unknown to a cancel after it.
    pub(super) fn commit(&mut self, now: Now) -> Option<Call> {
        // Without the store's clock it cannot be told what may be out.
        if !self.commit_pause.is_over(now.steady) || !self.tenure.is_known {
            let error = self.last_error.clone().unwrap_or(Error::Closed);
            while let Some(command) = self.commands.pop_front() {
                if command.request.is_read() {
                    return Some(self.read(command));
                }
                self.replies.push((command.ticket, Err(error.clone())));
            }
            return None;
        }
        if self.commands.front().is_some_and(|command| command.request.is_read()) {
            let command = self.commands.pop_front().expect("it was there");
            return Some(self.read(command));
        }
        let lingers = self.commands.is_empty()
            && self.flights.settled.len() < self.config.group
            && now.steady < self.flights.settled_since.saturating_add(self.config.linger)
            && !self.closing;
        if self.commands.is_empty() && (self.flights.settled.is_empty() || lingers) {
            return None;
        }
        let time = self.tenure.time(now);
        let settled = self.flights.settled.len().min(self.config.group);
        let mut ops: Vec<Op> = self
            .flights
            .first_settled(settled)
            .map(|(held, settled)| match settled {
                Settled::Ack => Op::Ack(held),
                Settled::Retry { delay } => Op::Retry(held, time.saturating_add(delay)),
                Settled::Dropped => Op::Retry(held, time.saturating_add(self.config.redeliver)),
            })
            .collect();
        // After a failure what was handed out goes alone: what callers want put may be too much
        // for a full disk, and then nobody could make room.
        let mut commands = Vec::new();
        let alone = self.commit_pause.failures > 0 && settled > 0;
        while !alone && commands.len() < self.config.group {
            if self.commands.front().is_none_or(|command| command.request.is_read()) {
                break;
            }
            let command = self.commands.pop_front().expect("it was there");
            ops.push(match &command.request {
                Request::Put { name, deadline, payload } => {
                    Op::Put { name: name.clone(), deadline: *deadline, payload: payload.clone() }
                }
                Request::Cancel { name } => Op::Cancel { name: name.clone() },
                _ => unreachable!("reads are not committed"),
            });
            commands.push(command);
        }
        self.counts.commits += 1;
        self.counts.changes += ops.len() as u64;
        self.pending = Some(Pending::Commit { settled, commands });
        Some(Call::Commit { ops })
    }

    fn read(&mut self, command: Command<T>) -> Call {
        let call = match &command.request {
            Request::Get { name } => Call::Get { name: name.clone() },
            Request::Len => Call::Len,
            Request::Page { after, limit } => {
                Call::Load { leases: None, after: after.clone(), until: u64::MAX, limit: *limit }
            }
            Request::Put { .. } | Request::Cancel { .. } => unreachable!("not a read"),
        };
        self.pending = Some(Pending::Read(command));
        call
    }

    pub(super) fn was_read(&mut self, command: Command<T>, answer: Answer) {
        let reply = match answer {
            Answer::Row(row) => Reply::Found(row),
            Answer::Len(len) => Reply::Len(len),
            Answer::Page(page) => {
                self.tell_damaged(page.damaged);
                Reply::Page { rows: page.rows, end: page.end }
            }
            _ => unreachable!("the answer fits the call"),
        };
        self.replies.push((command.ticket, Ok(reply)));
    }

    pub(super) fn committed(
        &mut self,
        now: Now,
        outbox: &mut Outbox,
        settled: usize,
        commands: Vec<Command<T>>,
        outcomes: Vec<Outcome>,
    ) {
        let mut outcomes = outcomes.into_iter();
        let mut fenced = false;
        for number in self.flights.take_settled(settled) {
            self.flights.end(number);
            match outcomes.next().expect("an outcome for each change") {
                Outcome::Acked => self.counts.acked += 1,
                Outcome::Retried(row) => {
                    self.counts.retried += 1;
                    self.insert_if_loaded(row);
                }
                Outcome::Fenced => {
                    self.counts.fenced += 1;
                    fenced = true;
                }
                Outcome::Gone => {}
                outcome => unreachable!("{outcome:?} for what was settled"),
            }
        }
        self.flights.settled_since = now.steady;
        for command in commands {
            let reply = match outcomes.next().expect("an outcome for each change") {
                Outcome::Put { row, replaced } => {
                    let reply = match replaced.map(|old| self.take_out(now, outbox, &row.name, old))
                    {
                        None => Scheduled::New,
                        Some(false) => Scheduled::Moved,
                        Some(true) => Scheduled::Firing,
                    };
                    self.insert_if_loaded(row);
                    Reply::Scheduled(reply)
                }
                Outcome::Cancelled(old) => {
                    let Request::Cancel { name } = &command.request else {
                        unreachable!("the outcome fits the change")
                    };
                    Reply::Cancelled(match old.map(|old| self.take_out(now, outbox, name, old)) {
                        None => Cancelled::Unknown,
                        Some(false) => Cancelled::Cancelled,
                        Some(true) => Cancelled::Firing,
                    })
                }
                outcome => unreachable!("{outcome:?} for a command"),
            };
            self.replies.push((command.ticket, Ok(reply)));
        }
        if fenced {
            self.forget();
        }
        self.bound();
    }

    /// Forgets a row that is gone from the store. Returns whether a consumer has it, or may have.
    fn take_out(&mut self, now: Now, outbox: &mut Outbox, name: &Arc<str>, old: Replaced) -> bool {
        let Replaced { number, deadline } = old;
        if self.flights.has(number) {
            if !outbox.take_back(number) {
                return true;
            }
            self.flights.take_back(number);
        } else {
            self.front.remove(name, Some(number));
        }
        self.may_be_out(now, deadline)
    }

    fn insert_if_loaded(&mut self, row: Row) {
        if row.position() <= self.front.loaded && self.tenure.has(row.partition) {
            self.front.insert(row);
        }
    }

    /// Drops the far half of the wheel if more is near than may be.
    fn bound(&mut self) {
        while self.front.len() > 0
            && (self.known() > self.config.near_rows || self.bytes() > self.config.near_bytes)
        {
            self.front.halve();
        }
    }
}
