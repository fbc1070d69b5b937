//! Netty's HashedWheelTimer, which runs in a JVM.

use crate::case::{self, Case, Sample};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Why it cannot run here, if it cannot.
pub(crate) fn missing() -> Option<&'static str> {
    let mut java = Command::new("java");
    java.arg("-version").stdout(Stdio::null()).stderr(Stdio::null());
    if !java.status().is_ok_and(|status| status.success()) {
        return Some("there is no JVM");
    }
    let has_jars = JARS.iter().all(|jar| jars().join(jar).exists());
    (!has_jars).then_some("run benches/peers/netty/fetch first")
}

pub(crate) fn run(case: &Case) -> Sample {
    let jars = JARS.map(|jar| jars().join(jar).display().to_string());
    let mut java = Command::new("java");
    java.args(["-cp", &jars.join(":")]).arg(Path::new(FOLDER).join("Netty.java"));
    java.args([&case.workload, &case.size.to_string(), &case.milliseconds.to_string()]);
    case::run(&mut java, PATIENCE)
}

fn jars() -> PathBuf {
    Path::new(FOLDER).join("../../../target/netty/usr/share/java")
}

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/netty");
const JARS: [&str; 2] = ["netty-common.jar", "jctools-core.jar"];

/// Longer than the patience with the process that waits for the JVM.
const PATIENCE: Duration = Duration::from_secs(600);
