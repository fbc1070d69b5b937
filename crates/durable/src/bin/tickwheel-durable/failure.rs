//! Why a command ends early.

use std::fmt;
use std::io;

/// Why a command ends early, or with something to tell.
pub(super) enum Failure {
    /// The arguments, the file or the database are wrong.
    Input(String),
    /// A result cannot be written.
    Output(io::Error),
    /// A name is unknown or was not cancelled, or the check found something. All is said already.
    Found,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(message) => f.write_str(message),
            Self::Output(error) => write!(f, "standard output: {error}"),
            Self::Found => f.write_str("not all was done"),
        }
    }
}

impl From<tickwheel_durable::Error> for Failure {
    fn from(error: tickwheel_durable::Error) -> Self {
        Self::Input(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}
