//! `Asked`: a mode as it was asked for.

use std::str::FromStr;
use tickwheel::{Mode, ModeError};

#[derive(Clone, Debug)]
pub struct Asked {
    mode: Mode,
    text: String,
}

impl FromStr for Asked {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        Ok(Self { mode: text.parse()?, text: text.into() })
    }
}

/// Returns the modes, and says which are not those that were asked for.
#[must_use]
pub fn modes(asked: &[Asked], say: fn(String)) -> Vec<Mode> {
    for Asked { mode, text } in asked {
        let buckets = text.rsplit(':').next().and_then(|buckets| buckets.parse().ok());
        if buckets.is_some_and(|buckets: usize| buckets != mode.buckets()) {
            say(format!("{text} is run as {mode}: the buckets are a power of two"));
        }
    }
    asked.iter().map(|asked| asked.mode).collect()
}
