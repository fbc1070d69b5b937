//! What the command `tickwheel watch` promises: that it runs another one.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

// A file that this process writes cannot be run while another test, as it starts a program, has it
// open as well. So none is written here.

#[test]
fn without_its_package_it_says_how_to_get_it() {
    let folder = folder();
    let output = watch(&folder);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("`cargo install tickwheel-watch` installs it"), "{said}");
}

#[cfg(unix)]
#[test]
fn all_arguments_go_to_the_command_beside_it() {
    let folder = folder();
    let other = folder.path().join("tickwheel-watch");
    let line = r#"printf '#!/bin/sh\necho "$@"\nexit 3\n' > "$0" && chmod +x "$0""#;
    let written = Command::new("sh").args(["-c", line]).arg(other).status();
    assert!(written.unwrap().success());
    let output = watch(&folder);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(output.stdout, b"trace.csv --ascii --help\n");
}

/// Returns a folder on the command's file system.
fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Runs the command as if it stood in `folder`.
fn watch(folder: &TempDir) -> Output {
    let own = Path::new(env!("CARGO_BIN_EXE_tickwheel"));
    let link = folder.path().join(own.file_name().unwrap());
    fs::hard_link(own, &link).unwrap();
    let mut command = Command::new(link);
    command.args(["watch", "trace.csv", "--ascii", "--help"]).env("PATH", folder.path());
    command.output().unwrap()
}
