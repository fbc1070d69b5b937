//! What the command `tickwheel watch` promises: that it runs another one.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

#[test]
fn without_its_package_it_says_how_to_get_it() {
    let folder = TempDir::new().unwrap();
    let output = watch(&folder);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("`cargo install tickwheel-watch` installs it"), "{said}");
}

#[cfg(unix)]
#[test]
fn all_arguments_go_to_the_command_beside_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let other = folder.path().join("tickwheel-watch");
    fs::write(&other, "#!/bin/sh\necho \"$@\"\nexit 3\n").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    let output = watch(&folder);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(output.stdout, b"trace.csv --ascii --help\n");
}

/// Runs a copy of the command in `folder`.
fn watch(folder: &TempDir) -> Output {
    let own = Path::new(env!("CARGO_BIN_EXE_tickwheel"));
    let copy = folder.path().join(own.file_name().unwrap());
    fs::copy(own, &copy).unwrap();
    let mut command = Command::new(copy);
    command.args(["watch", "trace.csv", "--ascii", "--help"]).env("PATH", folder.path());
    command.output().unwrap()
}
