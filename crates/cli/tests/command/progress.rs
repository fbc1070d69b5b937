//! What the command shows on a terminal while it works.

use crate::terminal::{Terminal, wait_for};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// The command behind it in a pipe shows its own.
#[test]
fn generate_shows_no_progress_into_a_pipe() {
    let Some(mut terminal) = Terminal::open("generate") else { return };
    // The terminal shows what is typed as well, which must not be what is waited for.
    let reader = "(read line && echo it 'has' read; sleep 2)";
    terminal.run(&format!("{COMMAND} generate bursts --operations 1e15 | {reader}"));
    terminal.wait_for("it has read");
    thread::sleep(Duration::from_secs(1));
    let screen = terminal.tmux(&["capture-pane", "-p"]);
    assert!(!screen.contains("operations ("), "{screen}");
    let screen = terminal.wait_for_exit(0);
    assert!(!screen.contains("operations ("), "{screen}");
}

#[test]
fn progress_is_shown_on_a_terminal_alone_and_an_interrupt_leaves_nothing_behind() {
    let Some(mut terminal) = Terminal::open("progress") else { return };
    let folder = tempfile::TempDir::new().unwrap();
    let file = |name| folder.path().join(name).display().to_string();
    let [trace, page, said] = ["trace.csv", "page.html", "said"].map(file);
    // So many that it measures for seconds, in which this test may be kept from its core.
    let size = ["--operations", "300000", "-o", &trace];
    let made = Command::new(COMMAND).args(["generate", "cancelled"]).args(size).status();
    assert!(made.unwrap().success());
    let report = format!("{COMMAND} report {trace} -o {page} --limit-time 60s");
    terminal.run(&report);
    terminal.wait_for_written("of 9 wheels");
    terminal.wait_for_written("measuring,");
    terminal.press("C-c");
    let screen = terminal.wait_for_exit(130);
    // One phase does not leave its line to the next.
    assert!(!screen.contains("wheels"), "{screen}");
    terminal.assert_is_restored();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);

    terminal.run(&format!("{COMMAND} choose {trace} --limit-time 1s > {page} 2> {said}"));
    terminal.wait_for_exit(0);
    assert_eq!(std::fs::read_to_string(said).unwrap(), "");
}

#[test]
fn a_signal_ends_it_though_its_terminal_takes_no_output() {
    let Some(mut terminal) = Terminal::open("stopped") else { return };
    let folder = tempfile::TempDir::new().unwrap();
    let [process, code] = ["process", "code"].map(|name| folder.path().join(name));
    // It waits for a trace from the keyboard.
    let replay = format!("sh -c 'echo $$ > {}; exec {COMMAND} replay -'", process.display());
    terminal.run(&format!("{replay}; echo $? > {}", code.display()));
    terminal.wait_for("reading, 0 operations");
    terminal.press("C-s");
    thread::sleep(Duration::from_secs(1));
    let process = std::fs::read_to_string(process).unwrap();
    let sent = Command::new("kill").args(["-s", "TERM", process.trim()]).status();
    assert!(sent.unwrap().success());
    wait_for("130", || std::fs::read_to_string(&code).unwrap_or_default());
}

const COMMAND: &str = env!("CARGO_BIN_EXE_tickwheel");
