//! What callers and consumers have of a timer, and how it starts and ends.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use futures_channel::oneshot;

use super::due::Due;
use super::shared::{Answered, Message, Read, Reply, Shared, Ticket};
use super::worker::{Hooks, Worker};
use crate::Error;
use crate::block_on::block_on;
use crate::error::caught;
use crate::keeper::{Command, Config, Settled};
use crate::store::{Change, READS, Store};
use crate::values::lock;

/// What all clones of a timer share. The thread stops when it is dropped.
pub(super) struct Handle {
    pub(super) sender: Sender<Message>,
    pub(super) shared: Arc<Shared>,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
    /// Which thread that is.
    pub(super) thread_id: ThreadId,
}

impl Handle {
    pub(super) fn start(
        config: Config,
        store: impl Store + 'static,
        hooks: Hooks,
        backlog: usize,
        thread_name: String,
    ) -> Result<Self, Error> {
        let (sender, receiver) = mpsc::channel();
        let shared = Arc::new(Shared::new(&config, backlog));
        let messages = (sender.clone(), receiver);
        let thread = Worker::start(
            config,
            Box::new(store),
            messages,
            Arc::clone(&shared),
            hooks,
            thread_name,
        )?;
        let thread_id = thread.thread().id();
        Ok(Self { sender, shared, thread: Mutex::new(Some(thread)), thread_id })
    }

    /// Asks for a change. What it found comes to the receiver.
    pub(super) fn ask(&self, change: Change) -> Result<oneshot::Receiver<Answered>, Error> {
        let (reply, receiver) = oneshot::channel();
        self.ask_for(change, Reply::Caller(reply)).map(|()| receiver)
    }

    /// Asks for a change. What it found is told by the reply, unless this is an error.
    pub(super) fn ask_for(&self, change: Change, reply: Reply) -> Result<(), Error> {
        let bytes = change.bytes();
        let waiting = self.shared.waiting.fetch_add(bytes, Ordering::Relaxed);
        let ticket = Ticket { reply, bytes };
        let sent = if self.shared.backlog < waiting {
            Err(Error::Backlog { bytes: waiting })
        } else {
            self.send(Message::Command(Command { ticket, change }))
        };
        if sent.is_err() {
            self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
        sent
    }

    /// Reads the store, and blocks until it has answered.
    pub(super) fn read<R: Send + 'static>(
        &self,
        read: impl FnOnce(&mut dyn Store) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        self.ask_store(Message::Read, read)
    }

    /// Lets the store note something, and then the timer, and blocks until the store has. In a
    /// database that waits for no read. It is not tried if another was, and has failed, while this
    /// waited: each would wait anew for a lock that somebody has, and the timer for each.
    pub(super) fn note(
        &self,
        note: impl FnOnce(&mut dyn Store) -> Result<(), Error> + Send + 'static,
        noted: Message,
    ) -> Result<(), Error> {
        let (asked, shared) = (Instant::now(), Arc::clone(&self.shared));
        let timer = self.sender.clone();
        self.ask_store(Message::Note, move |store| {
            if let Some((tried, error)) = &*lock(&shared.failed_note)
                && asked < *tried
            {
                return Err(Error::store("note what waited for another call", error.to_string()));
            }
            let tried = Instant::now();
            note(store).inspect_err(|error| {
                // What fails at once may fail for this call alone.
                if WAITED <= tried.elapsed() {
                    *lock(&shared.failed_note) = Some((tried, error.clone()));
                }
            })?;
            // Here, so that of two calls at a time the timer keeps the one that the store keeps.
            timer.send(noted).map_err(|_| shared.closed())
        })
    }

    /// Asks the store, unless its turn comes too late: many may wait for a store that is silent.
    fn ask_store<R: Send + 'static>(
        &self,
        message: fn(Read) -> Message,
        ask: impl FnOnce(&mut dyn Store) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        check_thread(self.thread_id)?;
        let (sender, receiver) = oneshot::channel();
        let (until, shared) = (Instant::now() + READS, Arc::clone(&self.shared));
        self.send(message(Box::new(move |store, now| {
            let answer = if shared.is_closed.load(Ordering::SeqCst) {
                Err(shared.closed())
            } else if until <= now {
                Err(Error::NoTurn)
            } else {
                caught("read the store", || ask(store))
            };
            let _ = sender.send(answer);
        })))?;
        block_on(receiver).unwrap_or(Err(Error::Closed))
    }

    pub(super) fn send(&self, message: Message) -> Result<(), Error> {
        self.shared.check_process()?;
        if self.shared.is_closed.load(Ordering::SeqCst) {
            return Err(self.shared.closed());
        }
        self.sender.send(message).map_err(|_| self.shared.closed())
    }

    /// `None`: nothing is due. `Some(None)`: nothing will be.
    pub(super) fn try_take(&self) -> Result<Option<Option<Due>>, Error> {
        self.shared.check_process()?;
        let mut outbox = lock(&self.shared.outbox);
        let (is_asked, is_missed) = (outbox.is_asked(), outbox.is_missed());
        let taken = outbox.take(self.shared.steady());
        let is_paced = taken.is_some() && std::mem::take(&mut outbox.is_paced);
        drop(outbox);
        if !is_asked || self.shared.counts && !is_missed && taken.is_none() || is_paced {
            // From now on the keeper wants something to hand out.
            let _ = self.sender.send(Message::Wake);
        }
        if let Some((row, epoch)) = taken {
            return Ok(Some(Some(Due {
                row,
                epoch,
                settled: Settled::Dropped,
                shared: Arc::clone(&self.shared),
                sender: self.sender.clone(),
            })));
        }
        if !self.shared.is_closed.load(Ordering::SeqCst) {
            return Ok(None);
        }
        match self.shared.closed() {
            Error::Closed => Ok(Some(None)),
            error => Err(error),
        }
    }

    /// Returns the thread of the timer, if nobody has it.
    pub(super) fn take_thread(&self) -> Option<JoinHandle<()>> {
        lock(&self.thread).take()
    }
}

impl Handle {
    /// Lets the timer commit what was asked for and stop, whatever consumers hold.
    pub(super) fn give_up(&self) {
        let _ = self.sender.send(Message::Close { waits: false, done: None });
    }

    /// Gives up as [`give_up`](Self::give_up) does, and waits until the timer has stopped.
    pub(super) fn stop(&self) {
        self.give_up();
        join(self.take_thread());
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.shared.check_process().is_ok() {
            self.stop();
        }
    }
}

/// Waits for the end of the timer's thread.
pub(super) fn join(thread: Option<JoinHandle<()>>) {
    // What runs on that thread may have dropped the last handle.
    if let Some(thread) = thread
        && check_thread(thread.thread().id()).is_ok()
    {
        // A panic of the thread is told by `closed`.
        let _ = thread.join();
    }
}

/// Refuses to wait for the timer's thread on that thread.
pub(crate) fn check_thread(waits_for: ThreadId) -> Result<(), Error> {
    if thread::current().id() == waits_for { Err(Error::OwnThread) } else { Ok(()) }
}

/// What has failed after less has waited for no lock.
const WAITED: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DurableTimer, MemoryStore};
    use std::sync::atomic::AtomicU32;
    use std::thread::{Scope, ScopedJoinHandle};

    #[test]
    fn what_has_its_turn_within_a_minute_the_store_and_then_the_timer_notes_and_nothing_else() {
        let timer = DurableTimer::builder().open_store(MemoryStore::new()).unwrap();
        // The test has what the store is asked.
        let (sender, messages) = mpsc::channel();
        let (shared, thread_id) = (Arc::clone(&timer.handle.shared), timer.handle.thread_id);
        let handle = Handle { sender, shared, thread: Mutex::new(None), thread_id };
        type Ask = fn(&Handle) -> Result<(), Error>;
        let read: Ask = |handle| handle.read(|store| store.pause(true));
        let note: Ask = |handle| handle.note(|store| store.pause(true), Message::Wake);
        for (ask, notes) in [(read, false), (note, true)] {
            for has_turn in [false, true] {
                let (mut store, began) = (MemoryStore::new(), Instant::now());
                let mut is_noted = false;
                let answer = thread::scope(|scope| {
                    let asking = scope.spawn(|| ask(&handle));
                    let (Message::Read(read) | Message::Note(read)) = messages.recv().unwrap()
                    else {
                        panic!("the store is asked")
                    };
                    let late = || Instant::now() + READS;
                    let last = || began + READS - Duration::from_millis(1);
                    read(&mut store, if has_turn { last() } else { late() });
                    // Before another can ask the store.
                    is_noted = matches!(messages.try_recv(), Ok(Message::Wake));
                    asking.join().unwrap()
                });
                assert_eq!(store.is_paused().unwrap(), has_turn);
                assert_eq!(is_noted, has_turn && notes);
                let is_right = match has_turn {
                    true => answer.is_ok(),
                    false => matches!(answer, Err(Error::NoTurn)),
                };
                assert!(is_right, "{has_turn}: {answer:?}");
            }
        }
    }

    /// Somebody has locked what they need.
    #[test]
    fn of_many_that_wait_to_be_noted_one_is_tried_and_all_are_told_why_it_failed() {
        let timer = DurableTimer::builder().open_store(MemoryStore::new()).unwrap();
        let tries = Arc::new(AtomicU32::new(0));
        let fails = || {
            let tries = Arc::clone(&tries);
            timer.handle.note(
                move |_| {
                    tries.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(WAITED);
                    Err(Error::store("pause", "somebody else has locked it"))
                },
                Message::Wake,
            )
        };
        thread::scope(|scope| {
            let (first, go) = reads_on(scope, &timer);
            let parts = || Arc::strong_count(&timer.handle.shared);
            let before = parts();
            let asking: Vec<_> = (0..20).map(|_| scope.spawn(fails)).collect();
            // What is asked has two parts in it until it is answered.
            while parts() < before + 40 {
                thread::yield_now();
            }
            drop(go);
            first.join().unwrap().unwrap();
            for asking in asking {
                let error = asking.join().unwrap().unwrap_err().to_string();
                assert!(error.contains("somebody else has locked it"), "{error}");
            }
        });
        assert_eq!(tries.load(Ordering::SeqCst), 1);
        fails().unwrap_err();
        assert_eq!(tries.load(Ordering::SeqCst), 2, "what is asked later is tried");
        timer.pause().unwrap();
    }

    #[test]
    fn what_waits_for_its_turn_when_the_timer_is_closed_is_told_that() {
        let timer = DurableTimer::builder().open_store(MemoryStore::new()).unwrap();
        thread::scope(|scope| {
            let (first, go) = reads_on(scope, &timer);
            // What is asked has a part in it until it is answered.
            let parts = || Arc::strong_count(&timer.handle.shared);
            let before = parts();
            let waits = scope.spawn(|| timer.handle.read(asked));
            while parts() == before {
                thread::yield_now();
            }
            let closing = scope.spawn(|| timer.clone().close());
            while !timer.handle.shared.is_closed.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            drop(go);
            first.join().unwrap().unwrap();
            let answer = waits.join().unwrap();
            assert!(matches!(answer, Err(Error::Closed)), "{answer:?}");
            closing.join().unwrap().unwrap();
        });
    }

    /// Begins to read, until what this returns beside the thread is dropped.
    fn reads_on<'a>(
        scope: &'a Scope<'a, '_>,
        timer: &'a DurableTimer,
    ) -> (ScopedJoinHandle<'a, Result<(), Error>>, Sender<()>) {
        let (begun, begins) = mpsc::channel();
        let (go, may) = mpsc::channel::<()>();
        let reads = move |_: &mut dyn Store| {
            begun.send(()).unwrap();
            may.recv().unwrap_err();
            Ok(())
        };
        let first = scope.spawn(|| timer.handle.read(reads));
        begins.recv().unwrap();
        (first, go)
    }

    fn asked(_: &mut dyn Store) -> Result<(), Error> {
        panic!("the store is asked")
    }
}
