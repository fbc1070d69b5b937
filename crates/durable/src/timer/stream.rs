//! The stream of what comes due.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use event_listener::EventListener;
use futures_core::Stream;

use super::due::Due;
use super::handle::Handle;
use crate::Error;

/// A stream of what comes due; by [`DurableTimer::stream`](crate::DurableTimer::stream).
pub struct DueStream {
    handle: Arc<Handle>,
    listener: Option<EventListener>,
}

impl DueStream {
    pub(super) fn new(handle: Arc<Handle>) -> Self {
        Self { handle, listener: None }
    }

    pub(crate) fn poll_due(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Due>, Error>> {
        loop {
            if let Some(taken) = self.handle.try_take()? {
                self.listener = None;
                return Poll::Ready(Ok(taken));
            }
            let Some(listener) = &mut self.listener else {
                self.listener = Some(self.handle.shared.due.listen());
                continue;
            };
            match Pin::new(listener).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => self.listener = None,
            }
        }
    }
}

impl Stream for DueStream {
    type Item = Result<Due, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_due(context).map(Result::transpose)
    }
}

impl fmt::Debug for DueStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DueStream").finish_non_exhaustive()
    }
}
