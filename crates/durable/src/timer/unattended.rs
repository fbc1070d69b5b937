//! A timer without threads: a test has its keeper.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;

use super::DurableTimer;
use super::handle::Handle;
use super::shared::{Answered, Message, Shared, Ticket};
use crate::keeper::{Command, Config};

/// What such a timer is asked for.
pub(crate) struct Unattended {
    messages: Receiver<Message>,
    shared: Arc<Shared>,
}

impl Unattended {
    pub(crate) fn timer(config: &Config, backlog: usize) -> (DurableTimer, Self) {
        let (sender, messages) = mpsc::channel();
        let shared = Arc::new(Shared::new(config, backlog));
        let thread_id = thread::current().id();
        let handle =
            Handle { sender, shared: Arc::clone(&shared), thread: Mutex::new(None), thread_id };
        (DurableTimer::new(handle), Self { messages, shared })
    }

    /// Returns the commands that came since the last call.
    pub(crate) fn commands(&self) -> impl Iterator<Item = Command<Ticket>> + '_ {
        self.messages.try_iter().filter_map(|message| match message {
            Message::Command(command) => Some(command),
            _ => None,
        })
    }

    /// Answers as the thread of a timer does.
    pub(crate) fn reply(&self, ticket: Ticket, answered: Answered) {
        self.shared.waiting.fetch_sub(ticket.bytes, Ordering::Relaxed);
        ticket.reply.send(answered);
    }
}
