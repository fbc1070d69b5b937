//! Runs one measurement in a process of its own, so that a subject that panics, hangs or takes all
//! memory spoils nothing but its own row, and each begins with a heap that nobody has used.

use crate::case::{Case, Sample};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;
use wait_timeout::ChildExt;

/// The argument that makes this program measure one case, which it reads from its input.
pub(crate) const MEASURE: &str = "--measure-one";

/// What `command` writes as the sample of `case`, after `patience` at most.
pub(crate) fn run(command: &mut Command, case: &Case, patience: Duration) -> Sample {
    try_run(command, case, patience)
        .unwrap_or_else(|error| Sample::failed(format!("CRASHED: {error}")))
}

fn try_run(command: &mut Command, case: &Case, patience: Duration) -> std::io::Result<Sample> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // It may have ended before, which its status tells.
        let _ = input.write_all(&serde_json::to_vec(case)?);
    }
    let Some(status) = child.wait_timeout(patience)? else {
        child.kill()?;
        child.wait()?;
        let seconds = patience.as_secs();
        return Ok(Sample::failed(format!("HUNG: not done after {seconds} s")));
    };
    let mut output = Vec::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_end(&mut output)?;
    }
    match serde_json::from_slice(&output) {
        Ok(sample) if status.success() => Ok(sample),
        _ => Ok(Sample::failed(format!("CRASHED: {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Faults;

    fn case() -> Case {
        Case { workload: "w".into(), subject: "s".into(), size: 1, milliseconds: 1 }
    }

    fn ran(script: &str) -> Sample {
        run(Command::new("sh").args(["-c", script]), &case(), Duration::from_secs(1))
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
