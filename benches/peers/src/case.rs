//! One measurement: which subject does which work, and what came of it.

use crate::log::Faults;
use serde::{Deserialize, Serialize};
use std::panic::{self, AssertUnwindSafe};

/// What is measured at a time, in a process of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) workload: String,
    pub(crate) subject: String,
    /// Timeouts, or threads.
    pub(crate) size: usize,
    /// How long a workload runs that has no end of its own, in ms.
    pub(crate) milliseconds: u64,
}

/// What one measurement found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// By name, in the order of the workload's metrics.
    pub(crate) values: Vec<(String, f64)>,
    pub(crate) faults: Faults,
    /// Why there is no measurement, or not all of it.
    pub(crate) failure: Option<Failure>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Failure {
    Panicked(String),
    /// Not done after so many seconds.
    Hung(u64),
    /// The process ended without a word.
    Crashed(String),
}

impl Sample {
    pub(crate) fn of(faults: Faults, values: &[(&str, f64)]) -> Self {
        let values = values.iter().map(|&(name, value)| (name.into(), value)).collect();
        Self { values, faults, failure: None }
    }

    pub(crate) fn failed(failure: Failure) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }

    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(other, _)| other == name).map(|&(_, value)| value)
    }
}

/// Runs `work`, and says so if it panics.
pub(crate) fn caught(work: impl FnOnce() -> Sample) -> Sample {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        Sample::failed(Failure::Panicked(text.unwrap_or("no message").into()))
    })
}
