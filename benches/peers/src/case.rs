//! One measurement: which subject does which work, and what the measurement found.
//!
//! Each measurement runs in its own process. A subject that panics, hangs or takes all memory
//! spoils only its own row, and each measurement begins with an unused heap.

use crate::log::Faults;
use process_control::{ChildExt, Control};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::process::{Command, Stdio};
use std::time::Duration;

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

/// The sample that `command` writes, after `patience` at most.
pub(crate) fn run(command: &mut Command, patience: Duration) -> Sample {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let output = child.and_then(|child| {
        child.controlled_with_output().time_limit(patience).terminate_for_timeout().wait()
    });
    Sample::failed(match output {
        Ok(Some(output)) => match serde_json::from_slice(&output.stdout) {
            Ok(sample) if output.status.success() => return sample,
            _ => format!("CRASHED: {}", output.status),
        },
        Ok(None) => format!("{HUNG}: not done after {} s", patience.as_secs()),
        Err(error) => format!("CRASHED: {error}"),
    })
}

/// What the failure of one begins with that was not done in time.
pub(crate) const HUNG: &str = "HUNG";

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(script: &str) -> Sample {
        run(Command::new("sh").args(["-c", script]), Duration::from_secs(1))
    }

    fn failure(script: &str) -> String {
        ran(script).failure.expect("a failure")
    }

    #[test]
    fn one_that_hangs_is_ended_and_said_to_hang() {
        assert_eq!(failure("sleep 60"), "HUNG: not done after 1 s");
    }

    #[test]
    fn one_that_dies_is_said_to_have_crashed() {
        assert!(failure("kill -9 $$").starts_with("CRASHED"));
        assert!(failure("echo nonsense").starts_with("CRASHED"));
    }

    #[test]
    fn one_that_answers_is_believed() {
        let sample = ran(r#"echo '{"values":{"poll":2.5},"faults":{},"failure":null}'"#);
        assert_eq!(sample, Sample::of(Faults::default(), &[("poll", 2.5)]));
    }
}
