//! What the command `tickwheel-watch` promises in a terminal.

#[path = "../../cli/tests/command/terminal.rs"]
mod terminal;

use std::io::Write;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use terminal::{PATIENCE, Terminal};
use tickwheel::Mode;
use tickwheel_cli::tick::Tick;
use tickwheel_watch::{Demo, Watch};

#[test]
fn plays_pauses_jumps_and_quits() {
    let Some(mut terminal) = Terminal::open("keys") else { return };
    terminal.run(&format!("{COMMAND} --demo"));
    terminal.wait_for("[playing]");
    terminal.wait_for("In the last");
    terminal.press("Space");
    terminal.wait_for("[paused]");
    terminal.press("d");
    let screen = terminal.wait_for("are demoted");
    assert!(screen.contains("hierarchical:64  pending ") && screen.contains("hashed:512"));
    terminal.press("r");
    terminal.wait_for("wait for a later round.");
    terminal.press("q");
    terminal.wait_for_exit(0);
    terminal.assert_is_restored();
}

#[test]
fn follows_the_size_of_the_terminal() {
    let Some(mut terminal) = Terminal::open("sizes") else { return };
    terminal.run(&format!("{COMMAND} --demo"));
    terminal.wait_for("[playing]");
    terminal.tmux(&["resize-window", "-x", "30", "-y", "10"]);
    terminal.wait_for("30x10 is too small");
    terminal.tmux(&["resize-window", "-x", "170", "-y", "40"]);
    terminal.wait_for("q quit");
    let screen = terminal.wait_for("hashed:512");
    let is_beside = |line: &str| line.contains("hierarchical:64") && line.contains("hashed:512");
    assert!(screen.lines().any(is_beside), "{screen}");
    terminal.press("q");
    terminal.wait_for_exit(0);
}

#[test]
fn follows_a_recording_to_its_end() {
    let Some(mut terminal) = Terminal::open("follow") else { return };
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("recording.csv");
    let begin = "time_ms,op,key,delay_ms\n0,begin,,\n0,schedule,1,5\n9,schedule,17,30000\n";
    std::fs::write(&file, begin).unwrap();
    terminal.run(&format!("{COMMAND} --follow {}", file.display()));
    terminal.wait_for("[following]");
    terminal.wait_for("schedule 17 in 30 s");
    let mut more = std::fs::OpenOptions::new().append(true).open(&file).unwrap();
    more.write_all(b"12,cancel,17,\n12,end,,\n").unwrap();
    terminal.wait_for("The recording is over.");
    terminal.press("?");
    terminal.wait_for("explain the keys");
    terminal.press("Space");
    terminal.press("q");
    terminal.wait_for_exit(0);
    terminal.assert_is_restored();
}

#[test]
fn a_silent_pipe_keeps_nobody_from_the_keys() {
    let Some(mut terminal) = Terminal::open("pipe") else { return };
    let begin = "time_ms,op,key,delay_ms\\n0,schedule,1,5\\n9,schedule,17,30000\\n";
    terminal.run(&format!("bash -c 'exec {COMMAND} - < <(printf \"{begin}\"; exec sleep 60)'"));
    terminal.wait_for("[playing]");
    terminal.press("q");
    terminal.wait_for_exit(0);
}

#[test]
fn control_c_restores_the_terminal() {
    let Some(mut terminal) = Terminal::open("control") else { return };
    terminal.run(&format!("{COMMAND} --demo"));
    terminal.wait_for("[playing]");
    terminal.press("C-c");
    terminal.wait_for_exit(130);
    terminal.assert_is_restored();
}

#[test]
fn a_signal_that_ends_it_restores_the_terminal() {
    let folder = tempfile::TempDir::new().unwrap();
    for signal in ["TERM", "HUP"] {
        let Some(mut terminal) = Terminal::open(signal) else { return };
        let now = folder.path().join(signal);
        let signals =
            format!("(until [ -e {} ]; do sleep 0.1; done; kill -{signal} $$) &", now.display());
        terminal.run(&format!("sh -c '{signals} exec {COMMAND} --demo'"));
        terminal.wait_for("[playing]");
        std::fs::write(now, "").unwrap();
        terminal.wait_for_exit(130);
        terminal.assert_is_restored();
    }
}

/// As under `nohup`. A command that goes on is killed, because it takes a core.
#[cfg(target_os = "linux")]
#[test]
fn ends_when_its_terminal_is_gone_though_no_signal_says_so() {
    let Some(mut terminal) = Terminal::open("nohup") else { return };
    let folder = tempfile::TempDir::new().unwrap();
    let script = "trap '' HUP; cd $0; sh -c 'echo $$ > process; exec $0 --demo 2> said' $1; \
                  echo $? > code";
    std::fs::write(folder.path().join("script"), script).unwrap();
    let path = folder.path().display();
    terminal.run(&format!("sh -c \"$(cat {path}/script)\" {path} {COMMAND}"));
    terminal.wait_for("[playing]");
    terminal.press("Space");
    terminal.wait_for("[paused]");
    drop(terminal);
    let read = |name| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let started = Instant::now();
    while read("code").is_empty() && started.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(50));
    }
    let code = read("code");
    if code.is_empty() {
        Command::new("kill").args(["-s", "KILL", read("process").trim()]).status().unwrap();
    }
    assert_eq!(code.trim(), "1");
    assert!(read("said").contains("the terminal does not answer: "), "{}", read("said"));
}

#[test]
fn the_keyboard_is_no_trace() {
    let Some(mut terminal) = Terminal::open("keyboard") else { return };
    for arguments in ["-", "--follow -"] {
        terminal.run(&format!("{COMMAND} {arguments}"));
        let screen = terminal.wait_for_exit(2);
        assert!(screen.contains("standard input is a terminal, which the keys"), "{screen}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn ends_when_its_terminal_is_gone() {
    let Some(mut terminal) = Terminal::open("gone") else { return };
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("process");
    terminal.run(&format!("sh -c 'echo $$ > {}; exec {COMMAND} --demo'", file.display()));
    terminal.wait_for("[playing]");
    // From then on it waits for keys.
    terminal.press("Space");
    terminal.wait_for("[paused]");
    let process = std::fs::read_to_string(file).unwrap();
    let process = std::path::Path::new("/proc").join(process.trim());
    assert!(process.exists());
    drop(terminal);
    let started = Instant::now();
    while process.exists() {
        assert!(started.elapsed() < PATIENCE, "{} goes on", process.display());
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_bad_line_further_on_restores_the_terminal_and_is_told() {
    let Some(mut terminal) = Terminal::open("bad") else { return };
    let trace = "time_ms,op,key,delay_ms\n0,schedule,1,5\n4,schedule,2,5\n9,wait,1,5\n";
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("bad.csv");
    std::fs::write(&file, trace).unwrap();
    terminal.run(&format!("{COMMAND} --speed 10ms {}", file.display()));
    terminal.wait_for("bad.csv:4: found op `wait`");
    terminal.wait_for_exit(2);
    terminal.assert_is_restored();
}

/// Runs itself again in a terminal, and panics there. A backtrace would fill the screen.
#[test]
fn a_panic_restores_the_terminal_and_is_told() {
    const INSIDE: &str = "TICKWHEEL_WATCH_PANICS";
    if std::env::var_os(INSIDE).is_some() {
        let operations = Demo::new(1).map(|operation| {
            assert!(operation.time_ms < 10_000, "planted");
            Ok(operation)
        });
        let modes = [Mode::hierarchical()];
        let mut watch = Watch::new("a demo", operations, &modes, Tick::default()).unwrap();
        watch.set_speed(Duration::from_secs(20));
        watch.play();
        let mut terminal = ratatui::try_init().unwrap();
        let ended = watch.run(&mut terminal, || false);
        unreachable!("{ended:?}");
    }
    let Some(mut terminal) = Terminal::open("panic") else { return };
    let itself = std::env::current_exe().unwrap();
    let name = "a_panic_restores_the_terminal_and_is_told";
    let itself = itself.display();
    terminal.run(&format!("RUST_BACKTRACE=0 {INSIDE}=1 {itself} --exact {name} --nocapture"));
    terminal.wait_for_written("planted");
    terminal.wait_for_exit(101);
    terminal.assert_is_restored();
}

#[test]
fn without_a_terminal_there_is_an_error() {
    let output = Command::new(COMMAND).arg("--demo").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("standard output is no terminal"), "{said}");
}

#[test]
fn a_made_up_server_is_not_followed() {
    let output = Command::new(COMMAND).args(["--follow", "--demo"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("'--follow' cannot be used with '--demo'"), "{said}");
}

#[test]
fn a_recording_is_followed_at_its_own_speed() {
    let arguments = ["--follow", "trace.csv", "--speed", "1s"];
    let output = Command::new(COMMAND).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("'--follow' cannot be used with '--speed"), "{said}");
}

/// Its reader would take its present end for the end of the recording.
#[test]
fn a_file_on_standard_input_is_not_followed() {
    let file = tempfile::tempfile().unwrap();
    let output = Command::new(COMMAND).args(["--follow", "-"]).stdin(file).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("standard input is a file: to follow it, give its name"), "{said}");
}

const COMMAND: &str = env!("CARGO_BIN_EXE_tickwheel-watch");
