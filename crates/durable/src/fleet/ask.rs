//! Asking the database that has a name, and another one if the name is elsewhere.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use event_listener::Listener;
use futures_channel::oneshot;

use super::calls::{Answered, Call, PATIENCE, Refused, Search, Unsent};
use super::map::Route;
use super::shared::Core;
use crate::store::Change;
use crate::values::lock;
use crate::{DurableTimer, Error};

enum Step {
    Ask(usize),
    Wait,
    Fail(Error),
}

/// A call that a timer has. If the timer ends without an answer, that is the answer.
struct Asked {
    core: Arc<Core>,
    at: usize,
    call: Mutex<Option<Call>>,
}

impl Asked {
    fn answer(&self, answered: Answered) {
        let call = lock(&self.call).take();
        if let Some(call) = call {
            self.core.answered(self.at, call, answered);
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.answer(Err(Error::Closed));
    }
}

impl Core {
    /// Asks for a change. What it found comes to the receiver.
    pub(super) fn ask(
        self: &Arc<Self>,
        change: Change,
    ) -> Result<oneshot::Receiver<Answered>, Error> {
        self.check()?;
        let (reply, receiver) = oneshot::channel();
        let name = change.name.clone();
        let search = Search::new(name.clone());
        let partition = search.partition;
        let mut call = Call { change, reply, search, room: None };
        let route = lock(&self.map).route(partition);
        match lock(&self.calls.lanes[partition]).entry(name.clone()) {
            Entry::Occupied(mut others) => {
                call.room = Some(self.calls.room(route, &call.change)?);
                others.get_mut().push_back(call);
                return Ok(receiver);
            }
            Entry::Vacant(lane) => {
                self.calls.names.fetch_add(1, Ordering::SeqCst);
                lane.insert(VecDeque::new());
            }
        }
        let sent = self.send(call);
        if sent.is_err() {
            self.finish(&name, partition);
        }
        sent.map(|()| receiver).map_err(|(_, error)| error)
    }

    /// Reads what is kept under a name, in the database that has it. Blocks until that has answered,
    /// or until nobody has said for long who has it.
    pub(super) fn find<R>(
        &self,
        name: &str,
        read: impl Fn(&DurableTimer) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.check()?;
        self.threads.check()?;
        let mut search = Search::new(name.into());
        loop {
            let learned = self.learned.listen();
            match self.step(&search) {
                Step::Ask(at) => match read(self.timer(at)?) {
                    Err(error @ Error::Elsewhere { .. }) => {
                        search.refuse(at, self.clock.now(), error);
                    }
                    done => return done.map_err(|error| error.at(&self.members[at].place)),
                },
                Step::Wait => {
                    let since = *search.since.get_or_insert_with(|| self.clock.now());
                    self.wanted.notify(usize::MAX);
                    learned.wait_deadline(since + PATIENCE);
                    self.check()?;
                }
                Step::Fail(error) => return Err(error),
            }
        }
    }

    /// Tries the calls again that wait for a newer map.
    pub(super) fn retry(self: &Arc<Self>) {
        let (mut asks, mut fails) = (Vec::new(), Vec::new());
        let mut parked = lock(&self.calls.parked);
        for call in std::mem::take(&mut parked.calls) {
            match self.step(&call.search) {
                Step::Ask(at) => asks.push((at, call)),
                Step::Wait => parked.calls.push(call),
                Step::Fail(error) => fails.push((call, error)),
            }
        }
        drop(parked);
        for (at, call) in asks {
            let (name, partition) = (call.search.name.clone(), call.search.partition);
            if let Err((reply, error)) = self.ask_at(at, call) {
                let _ = reply.send(Err(error));
                self.finish(&name, partition);
            }
        }
        for (call, error) in fails {
            self.fail(call, error);
        }
    }

    /// Refuses the calls that wait for a newer map, and lets none wait any more.
    pub(super) fn refuse_parked(self: &Arc<Self>) {
        let mut parked = lock(&self.calls.parked);
        parked.is_over = true;
        let calls = std::mem::take(&mut parked.calls);
        drop(parked);
        for call in calls {
            self.fail(call, Error::Closed);
        }
    }

    fn fail(self: &Arc<Self>, call: Call, error: Error) {
        // The caller may have dropped the commit.
        let _ = call.reply.send(Err(error));
        self.finish(&call.search.name, call.search.partition);
    }

    /// Lets the database that has the name make the change, or the call wait for a newer map.
    fn send(self: &Arc<Self>, call: Call) -> Result<(), Unsent> {
        match self.step(&call.search) {
            Step::Ask(at) => self.ask_at(at, call),
            Step::Wait => self.park(call),
            Step::Fail(error) => Err((call.reply, error)),
        }
    }

    fn ask_at(self: &Arc<Self>, at: usize, mut call: Call) -> Result<(), Unsent> {
        let timer = match self.timer(at) {
            Ok(timer) => timer,
            Err(error) => return Err((call.reply, error)),
        };
        call.room = None;
        let change = call.change.clone();
        let call = Mutex::new(Some(call));
        let asked = Arc::new(Asked { core: Arc::clone(self), at, call });
        let then = Arc::clone(&asked);
        let Err(error) = timer.ask_then(change, move |answered| then.answer(answered)) else {
            return Ok(());
        };
        let call = lock(&asked.call).take();
        call.map_or(Ok(()), |call| Err((call.reply, error.at(&self.members[at].place))))
    }

    /// Lets a call wait for a newer map.
    fn park(&self, mut call: Call) -> Result<(), Unsent> {
        call.search.since.get_or_insert_with(|| self.clock.now());
        if call.room.is_none() {
            let route = lock(&self.map).route(call.search.partition);
            match self.calls.room(route, &call.change) {
                Ok(room) => call.room = Some(room),
                Err(error) => return Err((call.reply, error)),
            }
        }
        let mut parked = lock(&self.calls.parked);
        if parked.is_over {
            return Err((call.reply, Error::Closed));
        }
        parked.calls.push(call);
        drop(parked);
        self.wanted.notify(usize::MAX);
        Ok(())
    }

    /// Takes the answer of a timer. If the name is elsewhere, that is no answer yet.
    fn answered(self: &Arc<Self>, at: usize, mut call: Call, answered: Answered) {
        let (name, partition) = (call.search.name.clone(), call.search.partition);
        let (reply, answered) = match answered {
            Err(error @ Error::Elsewhere { .. }) => {
                call.search.refuse(at, self.clock.now(), error);
                match self.park(call) {
                    Ok(()) => return,
                    Err((reply, error)) => (reply, Err(error)),
                }
            }
            answered => (call.reply, answered.map_err(|error| error.at(&self.members[at].place))),
        };
        // The caller may have dropped the commit.
        let _ = reply.send(answered);
        self.finish(&name, partition);
    }

    /// Sends the call that waits for the one of this name that was answered.
    fn finish(self: &Arc<Self>, name: &str, partition: usize) {
        loop {
            let mut lane = lock(&self.calls.lanes[partition]);
            let next = lane.get_mut(name).and_then(VecDeque::pop_front);
            let is_last = next.is_none()
                && lane.remove(name).is_some()
                && self.calls.names.fetch_sub(1, Ordering::SeqCst) == 1;
            // It gives back what it needed when it was long.
            let room = lane.len().max(SHORT) * 4;
            lane.shrink_to(room);
            drop(lane);
            if is_last {
                self.calls.idle.notify(usize::MAX);
            }
            let Some(next) = next else { return };
            let Err((reply, error)) = self.send(next) else { return };
            let _ = reply.send(Err(error));
        }
    }

    /// Returns what to do to find the database of a name.
    fn step(&self, search: &Search) -> Step {
        let map = lock(&self.map);
        let route = map.route(search.partition);
        if let Route::At(at) = route {
            // Who has refused may have answered before that it has the name.
            let began = map.readings[at].as_ref().map(|reading| reading.began);
            let is_new = |when: Instant| began.is_some_and(|began| when < began);
            let may_ask = |refused: &Refused| refused.by != at || is_new(refused.when);
            if search.refused.as_ref().is_none_or(may_ask) {
                return Step::Ask(at);
            }
        }
        let Some(since) = search.since else { return Step::Wait };
        let is_known = matches!(route, Route::Beyond(_)) && map.is_newer(since);
        if !is_known && self.clock.now().saturating_duration_since(since) < PATIENCE {
            return Step::Wait;
        }
        let name = &search.name;
        let reach = |id| match map.place(id) {
            Some(place) => format!("reach {place}, which has {name:?}"),
            None => format!("reach the database {id}, which has {name:?}"),
        };
        Step::Fail(match (route, &search.refused) {
            (Route::Beyond(id), _) if is_known => {
                Error::store(reach(id), "the fleet was opened without its URL: add it")
            }
            (_, Some(refused)) => refused.error.clone(),
            (Route::Beyond(id), None) => Error::store(reach(id), self.silence()),
            (Route::Unknown, None) => {
                Error::store(format!("find the database that has {name:?}"), self.silence())
            }
            (Route::At(at) | Route::Coming(at), None) => {
                Error::Elsewhere { name: name.to_string(), place: self.members[at].place.clone() }
            }
        })
    }

    /// Returns what is wrong with the databases that have never answered.
    fn silence(&self) -> String {
        let silent = (0..self.members.len()).filter_map(|at| self.timer(at).err());
        let words: Vec<String> = silent.map(|error| error.to_string()).collect();
        if words.is_empty() { "none of them says who has it".to_owned() } else { words.join("; ") }
    }
}

/// A lane of so many names is short.
const SHORT: usize = 100;
