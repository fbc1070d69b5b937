//! Names, payloads and times as callers give them, and as stores keep them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{Content, Error, MAX_METADATA, MAX_NAME, MAX_PAYLOAD};

pub(crate) fn check(name: &str, Content { payload, metadata }: Content<'_>) -> Result<(), Error> {
    check_name(name)?;
    if MAX_PAYLOAD < payload.len() {
        return Err(Error::LongPayload { length: payload.len() });
    }
    if MAX_METADATA < metadata.len() {
        return Err(Error::LongMetadata { length: metadata.len() });
    }
    if metadata.contains('\0') { Err(Error::NulInMetadata) } else { Ok(()) }
}

pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    match name.len() {
        0 => Err(Error::EmptyName),
        1..=MAX_NAME if name.contains('\0') => Err(Error::NulInName),
        1..=MAX_NAME => Ok(()),
        length => Err(Error::LongName { length }),
    }
}

/// Most timeouts have no metadata: it takes no memory then.
pub(crate) fn metadata(text: &str) -> Arc<str> {
    if text.is_empty() { Arc::default() } else { text.into() }
}

/// Rounds up, so that nothing is early. Before 1970 is 1970.
pub(crate) fn deadline(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, milliseconds).min(NEVER)
}

/// Rounds up.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Rounds down, so that nothing is early.
pub(crate) fn milliseconds_since_1970(now: SystemTime) -> u64 {
    now.duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Where the system cannot tell so late a time, it is the last of the year 9999.
pub(crate) fn time(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH
        .checked_add(Duration::from_millis(milliseconds))
        .unwrap_or_else(|| UNIX_EPOCH + Duration::from_secs(253_402_300_799))
}

/// What a mutex guards here is whole at all times.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last deadline that every store can keep, some as an `i64`. It never comes.
pub(crate) const NEVER: u64 = i64::MAX as u64;
