use std::any::Any;
use std::error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

/// What went wrong.
///
/// It is cloned to all callers whose changes were in one commit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A name was empty.
    EmptyName,
    /// A name was longer than [`MAX_NAME`](crate::MAX_NAME) bytes.
    LongName {
        /// Its length in bytes.
        length: usize,
    },
    /// A name had a NUL character in it.
    NulInName,
    /// A payload was longer than [`MAX_PAYLOAD`](crate::MAX_PAYLOAD) bytes.
    LongPayload {
        /// Its length in bytes.
        length: usize,
    },
    /// Metadata was longer than [`MAX_METADATA`](crate::MAX_METADATA) bytes.
    LongMetadata {
        /// Its length in bytes.
        length: usize,
    },
    /// Metadata had a NUL character in it.
    NulInMetadata,
    /// The builder was given a number that makes no sense.
    Setting {
        /// The method of the builder.
        setting: &'static str,
        /// What would be right.
        expected: &'static str,
    },
    /// There is no such cron expression, or no such time zone.
    Cron {
        /// The expression, or the name of the time zone.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// Callers have asked for more than the store can commit, and have not waited for it.
    Backlog {
        /// The bytes of names, payloads and metadata that wait.
        bytes: usize,
    },
    /// The call has waited for a minute while others read the store, or wait for a store that does
    /// not answer. Nothing was done.
    NoTurn,
    /// The timer was closed.
    Closed,
    /// The call would wait for the timer's thread, on that thread: it was made by the hook
    /// [`on_error`](crate::Builder::on_error), or by a waker that runs what it wakes.
    OwnThread,
    /// The process was forked: the timer belongs to the parent, and no thread serves it here.
    Forked,
    /// Another timer, in this process or another, has the file.
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The file was made by a newer version of this crate.
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The format of the file.
        found: u64,
        /// The newest format that this version knows.
        known: u64,
    },
    /// The file holds something else, or its format is one that no version writes.
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file was removed or replaced while it was open: what is written to it would be lost.
    Removed {
        /// The file.
        path: PathBuf,
    },
    /// The store could not do it.
    Store {
        /// What was being done, and where.
        doing: String,
        /// What the engine said.
        source: Arc<dyn error::Error + Send + Sync>,
    },
    /// Another database of the fleet has the partition of this name, or it is on its way. Nothing was
    /// done.
    Elsewhere {
        /// The name of the timeout.
        name: String,
        /// The database to ask, or the one that it comes from.
        place: String,
    },
    /// A timeout was damaged in the store. It was set aside, and all others go on.
    Damaged {
        /// The name, as far as it could be read.
        name: String,
        /// The deadline in milliseconds since 1970, as far as it could be read.
        deadline: u64,
        /// What was wrong.
        reason: &'static str,
    },
    /// Consumers have settled none for long, or some of them have not: what is due waits for them,
    /// because they hold as many as they may or because they take none.
    Held {
        /// How many they hold for long. With none, they take none.
        timeouts: usize,
    },
    /// The engine of the store panicked, or the timer's own thread did.
    Panicked {
        /// What was being done.
        doing: String,
        /// The message of the panic.
        message: String,
    },
}

impl Error {
    /// Makes an error of a store out of what its engine said.
    ///
    /// `doing` names the act and the place, as in "commit to timeouts.redb".
    pub fn store(
        doing: impl Into<String>,
        source: impl Into<Box<dyn error::Error + Send + Sync>>,
    ) -> Self {
        Self::Store { doing: doing.into(), source: Arc::from(source.into()) }
    }

    /// Says in which database of several it happened, if it does not say that already.
    pub(crate) fn at(self, place: &str) -> Self {
        let at = |doing: String| match doing.contains(place) {
            true => doing,
            false => format!("{doing} at {place}"),
        };
        match self {
            Self::Store { doing, source } => Self::Store { doing: at(doing), source },
            Self::Panicked { doing, message } => Self::Panicked { doing: at(doing), message },
            Self::NewerFormat { found, known, .. } => {
                Self::NewerFormat { path: place.into(), found, known }
            }
            Self::Foreign { .. } => Self::Foreign { path: place.into() },
            error => error,
        }
    }

    /// Makes an error of a panic.
    pub(crate) fn panicked(doing: impl Into<String>, panic: &(dyn Any + Send)) -> Self {
        Self::Panicked { doing: doing.into(), message: message(panic) }
    }
}

/// Returns the message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|message| (*message).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

/// Runs `work`. A panic in it is an error.
pub(crate) fn caught<R>(doing: &str, work: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(Error::panicked(doing, &*panic)))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyName => {
                write!(f, "a timeout needs a name of 1 to {} bytes", crate::MAX_NAME)
            }
            Self::LongName { length } => {
                write!(f, "a name of {length} bytes: at most {} are allowed", crate::MAX_NAME)
            }
            Self::NulInName => write!(f, "a name with a NUL character in it"),
            Self::LongPayload { length } => write!(
                f,
                "a payload of {length} bytes: at most {} are allowed; \
                 keep the rest elsewhere and put its key here",
                crate::MAX_PAYLOAD
            ),
            Self::LongMetadata { length } => write!(
                f,
                "metadata of {length} bytes: at most {} are allowed; the rest is for the payload",
                crate::MAX_METADATA
            ),
            Self::NulInMetadata => write!(f, "metadata with a NUL character in it"),
            Self::Setting { setting, expected } => write!(f, "`{setting}` must be {expected}"),
            Self::Cron { what, why } => write!(f, "{what:?}: {why}"),
            Self::Backlog { bytes } => write!(
                f,
                "changes of {bytes} bytes wait for the store: wait for some of the commits before \
                 asking for more"
            ),
            Self::NoTurn => write!(
                f,
                "others have read the store for a minute, or have waited for its answer: there was \
                 no turn for this; try again later"
            ),
            Self::Closed => write!(f, "the timer is closed"),
            Self::OwnThread => write!(
                f,
                "this waits for the timer and runs on the timer's thread: call it on another thread"
            ),
            Self::Forked => write!(
                f,
                "this process was forked from the one that opened the timer; \
                 open the timer after the fork"
            ),
            Self::Locked { path } => write!(
                f,
                "{} is in use by another timer: by another instance of this program that still \
                 runs (`fuser {}` names it), by a second `open` in this process, or by a child \
                 that was forked while the file was open",
                path.display(),
                path.display()
            ),
            Self::NewerFormat { path, found, known } => write!(
                f,
                "{} has format {found}, and this version of tickwheel-durable knows formats up to \
                 {known}: use the newer version of the program that wrote it",
                path.display()
            ),
            Self::Foreign { path } => write!(
                f,
                "{} is not one of tickwheel-durable: it is empty, or it has other tables or a \
                 format that no version writes",
                path.display()
            ),
            Self::Removed { path } => write!(
                f,
                "{} was removed or replaced while it was open: nothing is written any more; \
                 put the file back, or restart the program to begin with a new one",
                path.display()
            ),
            Self::Store { doing, source } => {
                write!(f, "cannot {doing}: {source}")?;
                // Engines say "db error" and leave the rest to their source.
                let mut cause = source.source();
                while let Some(error) = cause {
                    write!(f, ": {error}")?;
                    cause = error.source();
                }
                Ok(())
            }
            Self::Elsewhere { name, place } => write!(
                f,
                "the partition of {name:?} is not in this database: ask {place}; if it is on its \
                 way from there, try again"
            ),
            Self::Damaged { name, deadline, reason } => write!(
                f,
                "the timeout {name:?}, due {deadline} ms after 1970, is damaged and was set aside: \
                 {reason}; schedule it again if it is still wanted"
            ),
            Self::Held { timeouts: 0 } => f.write_str(
                "cannot hand out what is due: consumers have taken none for a minute; are they \
                 stuck?",
            ),
            Self::Held { timeouts } => write!(
                f,
                "cannot hand out what is due: consumers hold {timeouts} timeouts, and have settled \
                 none of them for a minute; are they stuck?"
            ),
            Self::Panicked { doing, message } => write!(f, "cannot {doing}: a panic: {message}"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Store { source, .. } => Some(&**source),
            _ => None,
        }
    }
}
