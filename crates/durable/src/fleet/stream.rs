//! The stream of what comes due in all databases.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use event_listener::EventListener;
use futures_core::Stream;

use super::Owner;
use crate::{Due, DueStream, Error};

/// A stream of what comes due; by [`Fleet::stream`](crate::Fleet::stream).
pub struct FleetStream {
    owner: Arc<Owner>,
    /// Of each database, if its timer is open and something is waited for.
    streams: Vec<Option<DueStream>>,
    /// For a timer that is opened.
    changed: Option<EventListener>,
}

impl FleetStream {
    pub(super) fn new(owner: Arc<Owner>) -> Self {
        Self { owner, streams: Vec::new(), changed: None }
    }

    pub(super) fn poll_due(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Due>, Error>> {
        let taken = self.poll_all(context);
        if taken.is_ready() {
            // The other databases are not to think that somebody waits.
            self.streams.clear();
            self.changed = None;
        }
        taken
    }

    fn poll_all(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Due>, Error>> {
        let core = &self.owner.core;
        self.streams.resize_with(core.members.len(), || None);
        loop {
            if core.is_closed() {
                return Poll::Ready(Ok(None));
            }
            for (at, timer) in core.in_turn() {
                let stream = self.streams[at].get_or_insert_with(|| timer.stream());
                match stream.poll_due(context) {
                    Poll::Ready(Ok(Some(due))) => return Poll::Ready(Ok(Some(due))),
                    Poll::Ready(Err(error)) => {
                        return Poll::Ready(Err(error.at(&core.members[at].place)));
                    }
                    // It is being closed with the fleet.
                    Poll::Ready(Ok(None)) | Poll::Pending => {}
                }
            }
            let Some(changed) = &mut self.changed else {
                self.changed = Some(core.changed.listen());
                continue;
            };
            match Pin::new(changed).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => self.changed = None,
            }
        }
    }
}

impl Stream for FleetStream {
    type Item = Result<Due, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_due(context).map(Result::transpose)
    }
}

impl fmt::Debug for FleetStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetStream").finish_non_exhaustive()
    }
}
