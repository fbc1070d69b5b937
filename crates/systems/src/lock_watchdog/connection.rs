//! A connection to Redis that outlives a restart.

use redis::{Client, Connection, RedisError, RedisResult};
use std::io::{Error, ErrorKind};
use std::time::{Duration, Instant};

/// A connection that is made again after it was lost.
pub(super) struct Redis {
    client: Client,
    connection: Option<Connection>,
    patience: Duration,
    /// When the present caller began to wait for its turn.
    pub(super) asked: Instant,
    /// When a call last ended without an answer in time.
    hung: Option<Instant>,
}

impl Redis {
    /// Waits for `patience` at most, for each answer.
    pub(super) fn new(client: Client, patience: Duration) -> Self {
        Self { client, connection: None, patience, asked: Instant::now(), hung: None }
    }

    /// Runs `query`, and once more if the connection turns out to be lost: so `query`
    /// must do the same if it runs twice. Fails at once if Redis did not answer another call while
    /// this one waited for its turn: all callers wait for a hanging Redis once, and not in a row.
    pub(super) fn run<T>(
        &mut self,
        query: impl Fn(&mut Connection) -> RedisResult<T>,
    ) -> RedisResult<T> {
        if self.hung.is_some_and(|hung| self.asked <= hung) {
            return Err(Error::new(ErrorKind::TimedOut, "no answer to the call before").into());
        }
        let result = self.attempt(query);
        if result.as_ref().is_err_and(RedisError::is_timeout) {
            self.hung = Some(Instant::now());
        }
        result
    }

    fn attempt<T>(&mut self, query: impl Fn(&mut Connection) -> RedisResult<T>) -> RedisResult<T> {
        let is_old = self.connection.is_some();
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        match query(&mut connection) {
            Err(error) if error.is_connection_dropped() && is_old => self.attempt(query),
            Err(error) if error.is_io_error() || error.is_unrecoverable_error() => Err(error),
            result => {
                self.connection = Some(connection);
                result
            }
        }
    }

    fn connect(&self) -> RedisResult<Connection> {
        let connection = self.client.get_connection_with_timeout(self.patience)?;
        connection.set_read_timeout(Some(self.patience))?;
        connection.set_write_timeout(Some(self.patience))?;
        Ok(connection)
    }
}
