//! What callers and consumers share with the timer's thread.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use event_listener::Event;

use super::due::Due;
use super::stats::Stats;
use super::values::lock;
use super::worker::{Clock, Hook, Worker};
use crate::Error;
use crate::keeper::outbox::Outbox;
use crate::keeper::{Answer, Command, Config, Reply, Request, Settled};
use crate::store::Store;

/// What all clones of a timer share. The thread stops when it is dropped.
pub(super) struct Handle {
    sender: Sender<Message>,
    pub(super) shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Handle {
    pub(super) fn start(
        config: Config,
        store: impl Store + 'static,
        clock: Clock,
        on_error: Hook,
        backlog: usize,
        thread_name: String,
    ) -> Result<Self, Error> {
        let (sender, receiver) = mpsc::channel();
        let shared = Arc::new(Shared {
            outbox: Mutex::default(),
            due: Event::new(),
            settlements: Mutex::new(Settlements {
                wake_at: (config.in_flight / 4).min(config.group).clamp(1, 256),
                ..Settlements::default()
            }),
            waiting: AtomicUsize::new(0),
            backlog,
            is_closed: AtomicBool::new(false),
            panic: Mutex::default(),
            stats: Mutex::default(),
            process: AtomicU32::new(std::process::id()),
        });
        let messages = (sender.clone(), receiver);
        let thread = Worker::start(
            config,
            Box::new(store),
            messages,
            Arc::clone(&shared),
            clock,
            on_error,
            thread_name,
        )?;
        Ok(Self { sender, shared, thread: Mutex::new(Some(thread)) })
    }

    /// Sends a command. Its reply comes to the receiver.
    pub(super) fn ask(&self, request: Request) -> Result<oneshot::Receiver<Answered>, Error> {
        let bytes = request.bytes();
        let waiting = self.shared.waiting.fetch_add(bytes, Ordering::Relaxed);
        let (reply, receiver) = oneshot::channel();
        let ticket = Ticket { reply, bytes };
        let sent = if self.shared.backlog < waiting {
            Err(Error::Backlog { bytes: waiting })
        } else {
            self.send(Message::Command(Command { ticket, request }))
        };
        if sent.is_err() {
            self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
        sent.map(|()| receiver)
    }

    pub(super) fn send(&self, message: Message) -> Result<(), Error> {
        self.check_process()?;
        if self.shared.is_closed.load(Ordering::SeqCst) {
            return Err(self.closed());
        }
        self.sender.send(message).map_err(|_| self.closed())
    }

    pub(super) fn closed(&self) -> Error {
        match &*lock(&self.shared.panic) {
            None => Error::Closed,
            Some(message) => Error::Panicked {
                doing: "go on with the timer; open it again".to_owned(),
                message: message.clone(),
            },
        }
    }

    fn check_process(&self) -> Result<(), Error> {
        let process = self.shared.process.load(Ordering::Relaxed);
        if process == std::process::id() { Ok(()) } else { Err(Error::Forked) }
    }

    /// `None`: nothing is due. `Some(None)`: nothing will be.
    pub(super) fn try_take(&self) -> Result<Option<Option<Due>>, Error> {
        self.check_process()?;
        let taken = lock(&self.shared.outbox).take();
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
        match self.closed() {
            Error::Closed => Ok(Some(None)),
            error => Err(error),
        }
    }

    pub(super) fn join(&self) {
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // A panic of the thread is told by `closed`.
            let _ = thread.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            return;
        }
        let _ = self.sender.send(Message::Close { waits: false, done: None });
        self.join();
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) outbox: Mutex<Outbox>,
    /// Something is in the outbox, or the timer is closed.
    pub(super) due: Event,
    pub(super) settlements: Mutex<Settlements>,
    /// The bytes of the commands that were not answered.
    pub(super) waiting: AtomicUsize,
    /// The most of them.
    backlog: usize,
    pub(super) is_closed: AtomicBool,
    /// The message of the panic that ended the thread.
    pub(super) panic: Mutex<Option<String>>,
    pub(super) stats: Mutex<Stats>,
    /// The process that has the thread.
    pub(super) process: AtomicU32,
}

/// What consumers settled and the keeper has not seen.
#[derive(Debug, Default)]
pub(super) struct Settlements {
    list: Vec<(u64, Settled)>,
    /// The keeper will look by itself soon, and need not be woken for each.
    keeper_lingers: bool,
    /// How many settlements wake a keeper that lingers.
    wake_at: usize,
}

impl Settlements {
    /// Adds one. Returns whether the keeper must be woken.
    pub(super) fn push(&mut self, number: u64, settled: Settled) -> bool {
        self.list.push((number, settled));
        !self.keeper_lingers || self.list.len() == self.wake_at
    }

    /// Takes all out. The keeper is awake.
    pub(super) fn take(&mut self) -> Vec<(u64, Settled)> {
        self.keeper_lingers = true;
        std::mem::take(&mut self.list)
    }

    /// Says that the keeper goes to sleep. False: it must not, because there is work.
    pub(super) fn sleep(&mut self, lingers: bool) -> bool {
        self.keeper_lingers = lingers;
        self.list.is_empty() || lingers && self.list.len() < self.wake_at
    }
}

pub(super) type Answered = Result<Reply, Error>;

/// Where a reply goes.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) reply: oneshot::Sender<Answered>,
    /// What the command counts for in the backlog.
    pub(super) bytes: usize,
}

pub(super) enum Message {
    Command(Command<Ticket>),
    /// What the store answered, and how long that took.
    Answer(Result<Answer, Error>, Duration),
    Close {
        waits: bool,
        done: Option<oneshot::Sender<Result<(), Error>>>,
    },
    Wake,
}
