//! One measurement: which subject does which work, and what the process found.

use crate::log::Faults;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};

/// One measurement, which has a process of its own.
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
    /// By the names of the workload's metrics.
    pub(crate) values: BTreeMap<String, f64>,
    pub(crate) faults: Faults,
    /// Why some or all values are missing.
    pub(crate) failure: Option<String>,
}

impl Sample {
    pub(crate) fn of(faults: Faults, values: &[(&str, f64)]) -> Self {
        let values = values.iter().map(|&(name, value)| (name.into(), value)).collect();
        Self { values, faults, failure: None }
    }

    pub(crate) fn failed(failure: String) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }
}

/// Runs `work`; if it panics, the sample says so.
pub(crate) fn caught(work: impl FnOnce() -> Sample) -> Sample {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        Sample::failed(format!("PANICKED: {}", text.unwrap_or("no message")))
    })
}
