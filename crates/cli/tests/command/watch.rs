//! What the command `tickwheel watch` promises in a terminal, which is one of tmux; and what
//! a command says that was built without it.

use std::process::Command;

#[cfg(not(feature = "watch"))]
#[test]
fn without_its_feature_it_says_how_to_get_it() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tickwheel"));
    let output = command.args(["watch", "trace.csv", "--ascii"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("cargo install tickwheel-cli --features watch"), "{said}");
}

#[cfg(feature = "watch")]
mod terminal {
    use super::Command;
    use std::io::Write;
    use std::thread;
    use std::time::{Duration, Instant};
    use tickwheel::Mode;
    use tickwheel_cli::tick::Tick;
    use tickwheel_cli::watch::{Demo, Watch};

    const COMMAND: &str = env!("CARGO_BIN_EXE_tickwheel");

    #[test]
    fn plays_pauses_jumps_and_quits() {
        let Some(mut terminal) = Terminal::open("keys") else { return };
        terminal.run(&format!("{COMMAND} watch --demo"));
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
        terminal.run(&format!("{COMMAND} watch --demo"));
        terminal.wait_for("[playing]");
        terminal.tmux(&["resize-window", "-x", "30", "-y", "10"]);
        terminal.wait_for("30x10 is too small");
        terminal.tmux(&["resize-window", "-x", "170", "-y", "40"]);
        terminal.wait_for("q quit");
        let screen = terminal.wait_for("hashed:512");
        let is_beside =
            |line: &str| line.contains("hierarchical:64") && line.contains("hashed:512");
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
        terminal.run(&format!("{COMMAND} watch --follow {}", file.display()));
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
        terminal.run(&format!(
            "bash -c 'exec {COMMAND} watch - < <(printf \"{begin}\"; exec sleep 60)'"
        ));
        terminal.wait_for("[playing]");
        terminal.press("q");
        terminal.wait_for_exit(0);
    }

    #[test]
    fn control_c_restores_the_terminal() {
        let Some(mut terminal) = Terminal::open("control") else { return };
        terminal.run(&format!("{COMMAND} watch --demo"));
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
            let signals = format!(
                "(until [ -e {} ]; do sleep 0.1; done; kill -{signal} $$) &",
                now.display()
            );
            terminal.run(&format!("sh -c '{signals} exec {COMMAND} watch --demo'"));
            terminal.wait_for("[playing]");
            std::fs::write(now, "").unwrap();
            terminal.wait_for_exit(130);
            terminal.assert_is_restored();
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn ends_when_its_terminal_is_gone() {
        let Some(mut terminal) = Terminal::open("gone") else { return };
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("process");
        terminal.run(&format!("sh -c 'echo $$ > {}; exec {COMMAND} watch --demo'", file.display()));
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
        terminal.run(&format!("{COMMAND} watch --speed 10ms {}", file.display()));
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
        let name = "watch::terminal::a_panic_restores_the_terminal_and_is_told";
        let itself = itself.display();
        terminal.run(&format!("RUST_BACKTRACE=0 {INSIDE}=1 {itself} --exact {name} --nocapture"));
        terminal.wait_for("planted");
        terminal.wait_for_exit(101);
        terminal.assert_is_restored();
    }

    #[test]
    fn progress_is_shown_on_a_terminal_alone_and_an_interrupt_leaves_nothing_behind() {
        let Some(mut terminal) = Terminal::open("progress") else { return };
        let folder = tempfile::TempDir::new().unwrap();
        let file = |name| folder.path().join(name).display().to_string();
        let [trace, page, said] = ["trace.csv", "page.html", "said"].map(file);
        let size = ["--operations", "30000", "-o", &trace];
        let made = Command::new(COMMAND).args(["generate", "cancelled"]).args(size).status();
        assert!(made.unwrap().success());
        let report = format!("{COMMAND} report {trace} -o {page} --limit-time 60s");
        terminal.run(&report);
        terminal.wait_for("of 9 wheels");
        terminal.wait_for("measuring,");
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

    /// The command behind it in a pipe shows its own.
    #[test]
    fn generate_shows_no_progress_into_a_pipe() {
        let Some(mut terminal) = Terminal::open("generate") else { return };
        let reader = "(read line; echo read; sleep 2)";
        terminal.run(&format!("{COMMAND} generate bursts --operations 1e15 | {reader}"));
        terminal.wait_for("read");
        thread::sleep(Duration::from_secs(1));
        let screen = terminal.tmux(&["capture-pane", "-p"]);
        assert!(!screen.contains("operations ("), "{screen}");
        let screen = terminal.wait_for_exit(0);
        assert!(!screen.contains("operations ("), "{screen}");
    }

    #[test]
    fn without_a_terminal_there_is_an_error() {
        let output = Command::new(COMMAND).args(["watch", "--demo"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("standard output is no terminal"), "{said}");
    }

    /// A terminal of 80 columns and 24 lines, with a shell in it.
    struct Terminal {
        socket: String,
        /// How many command lines were run.
        runs: u32,
    }

    impl Terminal {
        /// Returns None, and says so, where there is no tmux.
        fn open(name: &str) -> Option<Self> {
            if Command::new("tmux").arg("-V").output().is_err() {
                assert!(std::env::var_os("CI").is_none(), "tmux is absent");
                // Written past the capture of the test runner, so that it is seen.
                let mut output = std::io::stderr();
                writeln!(output, "SKIPPED: `watch` was not run in a terminal: no tmux").unwrap();
                return None;
            }
            let terminal =
                Self { socket: format!("tickwheel-{name}-{}", std::process::id()), runs: 0 };
            let shell = "PS1= exec sh";
            terminal.tmux(&["-f/dev/null", "-u", "new-session", "-d", "-x80", "-y24", shell]);
            Some(terminal)
        }

        fn tmux(&self, arguments: &[&str]) -> String {
            let command = Command::new("tmux").args(["-L", &self.socket]).args(arguments).output();
            let output = command.unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{arguments:?}: {said}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        }

        /// Runs a command line in the shell, which says its exit code at the end.
        fn run(&mut self, line: &str) {
            // In two halves, so that the line itself is not taken for what it prints.
            self.runs += 1;
            let line = format!("clear; {line}; echo exit 'code' $? of {}", self.runs);
            self.tmux(&["send-keys", "-l", &line]);
            self.press("Enter");
        }

        fn press(&self, key: &str) {
            self.tmux(&["send-keys", key]);
        }

        /// Waits until `text` is on the screen, where lines may break it, and returns the screen.
        fn wait_for(&self, text: &str) -> String {
            let started = Instant::now();
            loop {
                let screen = self.tmux(&["capture-pane", "-p"]);
                let words: Vec<_> = screen.split_whitespace().collect();
                if words.join(" ").contains(text) {
                    return screen;
                }
                assert!(started.elapsed() < PATIENCE, "no {text:?} in:\n{screen}");
                thread::sleep(Duration::from_millis(50));
            }
        }

        /// Waits until the last command line ends, and returns the screen.
        fn wait_for_exit(&self, code: u8) -> String {
            self.wait_for(&format!("exit code {code} of {}", self.runs))
        }

        /// Asserts that the terminal echoes lines, shows its cursor and is on its own screen.
        fn assert_is_restored(&mut self) {
            let state = self.tmux(&["display", "-p", "#{alternate_on} #{cursor_flag}"]);
            assert_eq!(state.trim(), "0 1");
            self.run("stty -a | tr ' ;' '\\n\\n' | grep -x -e icanon -e echo -e isig | wc -l");
            let screen = self.wait_for_exit(0);
            assert!(screen.lines().any(|line| line.trim() == "3"), "{screen}");
        }
    }

    impl Drop for Terminal {
        fn drop(&mut self) {
            let _ = Command::new("tmux").args(["-L", &self.socket, "kill-server"]).output();
        }
    }

    /// A machine can be very busy.
    const PATIENCE: Duration = Duration::from_secs(60);
}
