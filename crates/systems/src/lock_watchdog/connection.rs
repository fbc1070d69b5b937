//! A connection to Redis that outlives a restart.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, Pipeline, RedisResult};
use std::io::{Error, ErrorKind};
use std::time::Instant;
use tokio::time::timeout_at;

/// A connection that is made again after it was lost.
pub(super) struct Redis {
    client: Client,
    connection: Option<MultiplexedConnection>,
}

impl Redis {
    pub(super) fn new(client: Client) -> Self {
        Self { client, connection: None }
    }

    /// Runs `query`, and once more if the connection turns out to be lost: so `query` must do the
    /// same if it runs twice. Fails at `deadline`, however Redis answers: an answer that comes byte
    /// by byte has no more time than one that does not come.
    pub(super) async fn run<T: FromRedisValue>(
        &mut self,
        query: &Pipeline,
        deadline: Instant,
    ) -> RedisResult<T> {
        let late = || Error::new(ErrorKind::TimedOut, "no answer in time");
        if deadline <= Instant::now() {
            return Err(late().into());
        }
        timeout_at(deadline.into(), self.attempt(query)).await.map_err(|_| late())?
    }

    /// Takes the connection meanwhile: it is closed if this is dropped before the end.
    async fn attempt<T: FromRedisValue>(&mut self, query: &Pipeline) -> RedisResult<T> {
        loop {
            let old = self.connection.take();
            let is_old = old.is_some();
            let mut connection = match old {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            match query.query_async(&mut connection).await {
                Err(error) if error.is_connection_dropped() && is_old => {}
                Err(error) if error.is_io_error() || error.is_unrecoverable_error() => {
                    return Err(error);
                }
                result => {
                    self.connection = Some(connection);
                    return result;
                }
            }
        }
    }

    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        // The caller's deadline is for all.
        let config = AsyncConnectionConfig::new();
        let config = config.set_connection_timeout(None).set_response_timeout(None);
        self.client.get_multiplexed_async_connection_with_config(&config).await
    }
}
