//! A connection to Redis that outlives a restart.

use redis::{Client, Connection, RedisResult};
use std::time::Duration;

/// A connection that is made again after it was lost.
pub(super) struct Redis {
    client: Client,
    connection: Option<Connection>,
    patience: Duration,
}

impl Redis {
    /// Waits for `patience` at most, for each answer.
    pub(super) fn new(client: Client, patience: Duration) -> Self {
        Self { client, connection: None, patience }
    }

    /// Runs `query`, and once more if the connection turns out to be lost: so `query`
    /// must do the same if it runs twice.
    pub(super) fn run<T>(
        &mut self,
        query: impl Fn(&mut Connection) -> RedisResult<T>,
    ) -> RedisResult<T> {
        let is_old = self.connection.is_some();
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        match query(&mut connection) {
            Err(error) if error.is_connection_dropped() && is_old => self.run(query),
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
