//! The timer's threads: one has the keeper, and one makes the calls of the store.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use event_listener::IntoNotification;
use futures_channel::oneshot;

#[cfg(feature = "redb")]
use super::shared::Touched;
use super::shared::{Message, Read, Shared, Ticket};
use super::stats::Stats;
use crate::Error;
use crate::error::message;
use crate::keeper::{Answer, Call, Config, Event, Keeper, Now};
use crate::store::Store;
use crate::values::{lock, milliseconds_since_1970};

pub(super) type Clock = Box<dyn Fn() -> SystemTime + Send>;

pub(super) type Hook<T> = Box<dyn FnMut(&T) + Send>;

/// The code of others that the timer calls, and what it tells them of itself.
pub(super) struct Hooks {
    /// What the database is called, if it is one of several.
    pub(super) place: Option<String>,
    pub(super) clock: Clock,
    pub(super) on_error: Hook<Error>,
    pub(super) on_event: Option<Hook<Event>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct CommitTime {
    total: Duration,
    max: Duration,
}

/// What the keeper's thread has.
pub(super) struct Worker {
    keeper: Keeper<Ticket>,
    calls: Sender<Work>,
    /// What operators read goes here: to the same thread, or to one of its own.
    reads: Sender<Work>,
    store: JoinHandle<()>,
    receiver: Receiver<Message>,
    shared: Arc<Shared>,
    hooks: Hooks,
    closing: Vec<oneshot::Sender<Result<(), Error>>>,
    commit_time: CommitTime,
    /// How many had been handed out when consumers were notified last.
    handed_out: u64,
    /// The steady time at which nothing waited for a consumer, or all were notified once more.
    notified: u64,
    /// When the metrics were told.
    #[cfg(feature = "metrics")]
    told: Instant,
}

impl Worker {
    /// Starts both threads. `messages`: both ends of what the keeper's thread reads.
    pub(super) fn start(
        config: Config,
        store: Box<dyn Store>,
        messages: (Sender<Message>, Receiver<Message>),
        shared: Arc<Shared>,
        hooks: Hooks,
        name: String,
    ) -> Result<JoinHandle<()>, Error> {
        let failed = |error| Error::store("start the timer's threads", error);
        let (sender, receiver) = messages;
        let (calls, asked) = mpsc::channel();
        let mut reads = calls.clone();
        if let Some(store) = store.again() {
            let (other, asked) = mpsc::channel();
            let (sender, name) = (sender.clone(), format!("{name}/reads"));
            let again = Arc::clone(&shared);
            let serve = move || serve(store, &asked, &sender, &again);
            thread::Builder::new().name(name).spawn(serve).map_err(failed)?;
            reads = other;
            #[cfg(feature = "redb")]
            {
                *lock(&shared.touched) = Touched::Shared;
            }
        }
        let served = Arc::clone(&shared);
        let store = thread::Builder::new()
            .name(format!("{name}/store"))
            .spawn(move || serve(store, &asked, &sender, &served))
            .map_err(failed)?;
        let mut keeper = Keeper::new(config);
        keeper.events = hooks.on_event.as_ref().map(|_| Vec::new());
        let worker = Self {
            keeper,
            calls,
            reads,
            store,
            receiver,
            shared,
            hooks,
            closing: Vec::new(),
            commit_time: CommitTime::default(),
            handed_out: 0,
            notified: 0,
            #[cfg(feature = "metrics")]
            told: Instant::now(),
        };
        thread::Builder::new().name(name).spawn(move || worker.run()).map_err(failed)
    }

    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let result = catch_unwind(AssertUnwindSafe(|| self.work()));
        if let Err(panic) = &result {
            *lock(&shared.panic) = Some(message(&**panic));
        }
        shared.is_closed.store(true, Ordering::SeqCst);
        let closed = match result {
            Ok(()) => self.keeper.lost().map_or(Ok(()), Err),
            Err(panic) => Err(Error::panicked("close the timer", &*panic)),
        };
        let Self { calls, reads, store, closing, receiver, keeper, .. } = self;
        // The store is closed before callers hear of it, so that they can open it again.
        drop((calls, reads));
        // It catches its panics.
        let _ = store.join();
        drop((receiver, keeper));
        shared.due.notify(usize::MAX);
        for done in closing {
            let _ = done.send(closed.clone());
        }
    }

    fn work(&mut self) {
        loop {
            self.take_all();
            self.poll();
            self.tell();
            if self.keeper.is_closed() {
                return;
            }
            self.sleep();
        }
    }

    fn poll(&mut self) {
        let now = self.now();
        let mut outbox = lock(&self.shared.outbox);
        outbox.listeners = self.shared.due.total_listeners();
        let call = self.keeper.poll(now, &mut outbox);
        let waiting = outbox.len();
        drop(outbox);
        let new = (self.keeper.counts.handed_out - self.handed_out) as usize;
        self.handed_out = self.keeper.counts.handed_out;
        let new = new.min(waiting);
        // Who was notified may never look, as a stream that nobody polls: what is new is for others.
        self.shared.due.notify(waiting - new);
        self.shared.due.notify(new.additional());
        if waiting == 0 {
            self.notified = now.steady;
        } else if self.notified + NOTIFIED_EVERY <= now.steady {
            self.notified = now.steady;
            self.shared.due.notify(waiting.additional());
        }
        if let Some(call) = call {
            // It is there until `calls` is dropped.
            let _ = self.calls.send(Work::Call(call));
        }
    }

    /// Takes all that came since the last look.
    fn take_all(&mut self) {
        while let Ok(message) = self.receiver.try_recv() {
            self.take(message);
        }
        let settled = lock(&self.shared.settlements).take();
        let now = self.now();
        for (held, settled) in settled {
            self.keeper.settle(now, held, settled);
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Command(command) => self.keeper.command(command),
            Message::Answer(answer, took) => {
                if matches!(answer, Answer::Commit(..)) {
                    self.commit_time.total += took;
                    self.commit_time.max = self.commit_time.max.max(took);
                }
                let now = self.now();
                self.keeper.answer(now, &mut lock(&self.shared.outbox), answer);
            }
            Message::Read(read) => {
                let _ = self.reads.send(Work::Read(read));
            }
            Message::Note(note) => {
                let _ = self.calls.send(Work::Read(note));
            }
            Message::Damaged(damaged) => self.keeper.tell_damaged(damaged),
            Message::Close { waits, done } => {
                self.closing.extend(done);
                let now = self.now();
                self.keeper.close(now, &mut lock(&self.shared.outbox), waits);
                self.shared.is_closed.store(true, Ordering::SeqCst);
                self.shared.due.notify(usize::MAX);
            }
            Message::Pause { pauses, done } => {
                let now = self.now();
                self.keeper.pause(now, &mut lock(&self.shared.outbox), pauses);
                let _ = done.send(());
            }
            Message::Limit { limit, done } => {
                self.keeper.limit_rate(self.now(), limit);
                let _ = done.send(());
            }
            Message::Wake => {}
        }
    }

    fn sleep(&mut self) {
        let now = self.now();
        // The wall clock may be set, and the machine may be asleep.
        let wake = self.keeper.wake(now).min(now.steady + LONGEST_SLEEP);
        if !lock(&self.shared.settlements).sleep(self.keeper.lingers()) {
            return;
        }
        let time = Duration::from_millis(wake.saturating_sub(now.steady));
        match self.receiver.recv_timeout(time) {
            Ok(message) => self.take(message),
            Err(RecvTimeoutError::Timeout) => {}
            // Nobody has a handle, and the store's thread is gone.
            Err(RecvTimeoutError::Disconnected) => {
                self.take(Message::Close { waits: false, done: None });
            }
        }
    }

    /// Tells callers and operators what came of it.
    fn tell(&mut self) {
        for error in std::mem::take(&mut self.keeper.troubles) {
            let error = match &self.hooks.place {
                Some(place) => error.at(place),
                None => error,
            };
            log::error!("{error}");
            call("on_error", &mut *self.hooks.on_error, &error);
        }
        if let (Some(hook), Some(events)) = (&mut self.hooks.on_event, &mut self.keeper.events) {
            for event in std::mem::take(events) {
                call("on_event", &mut **hook, &event);
            }
        }
        for (ticket, reply) in std::mem::take(&mut self.keeper.replies) {
            self.shared.waiting.fetch_sub(ticket.bytes, Ordering::Relaxed);
            ticket.reply.send(reply);
        }
        let counts = self.keeper.counts;
        let stats = Stats {
            near: self.keeper.near_rows(),
            near_bytes: self.keeper.bytes(),
            in_flight: self.keeper.in_flight(),
            waiting: 0,
            held_up: self.keeper.held_up(),
            is_paused: self.keeper.is_paused,
            partitions: self.keeper.partitions(),
            handed_out: counts.handed_out,
            acked: counts.acked,
            retried: counts.retried,
            fenced: counts.fenced,
            commits: counts.commits,
            changes: counts.changes,
            commit_time: self.commit_time.total,
            commit_time_max: self.commit_time.max,
            loads: counts.loads,
            forgotten: counts.forgotten,
            errors: counts.errors,
            damaged: counts.damaged,
            dead: counts.dead,
            expired: counts.expired,
            late: Duration::from_millis(counts.late_total),
            late_max: Duration::from_millis(counts.late_max),
        };
        #[cfg(feature = "metrics")]
        if TOLD_EVERY <= self.told.elapsed() {
            self.told = Instant::now();
            let waiting = lock(&self.shared.outbox).len();
            Stats { waiting, ..stats.clone() }.tell(self.hooks.place.as_deref());
        }
        *lock(&self.shared.stats) = stats;
    }

    fn now(&self) -> Now {
        Now { wall: milliseconds_since_1970((self.hooks.clock)()), steady: self.shared.steady() }
    }
}

/// Calls a hook. If it panics, the timer goes on.
pub(super) fn call<T>(name: &str, hook: &mut dyn FnMut(&T), with: &T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| hook(with))) {
        log::error!("the hook `{name}` panicked: {}", message(&*panic));
    }
}

/// What the store's thread does.
enum Work {
    Call(Call<Ticket>),
    Read(Read),
}

/// Works until nobody can ask for more.
fn serve(
    mut store: Box<dyn Store>,
    asked: &Receiver<Work>,
    answers: &Sender<Message>,
    #[cfg_attr(not(feature = "redb"), expect(unused_variables))] shared: &Shared,
) {
    for work in asked {
        match work {
            Work::Call(call) => {
                #[cfg(feature = "redb")]
                lock(&shared.touched).note(&call);
                let began = Instant::now();
                let answer = call.make(&mut *store);
                let _ = answers.send(Message::Answer(answer, began.elapsed()));
            }
            Work::Read(read) => read(&mut *store, Instant::now()),
        }
    }
}

/// The longest time in which the wall clock is not looked at, in milliseconds.
const LONGEST_SLEEP: u64 = 1_000;

/// How long what waits for a consumer may wait for one who was notified, in milliseconds.
const NOTIFIED_EVERY: u64 = 1_000;

/// How often metrics are told, less what the longest sleep may be late.
#[cfg(feature = "metrics")]
const TOLD_EVERY: Duration = Duration::from_millis(900);
