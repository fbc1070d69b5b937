//! A terminal for tests, which is one of tmux.

use std::io::Write;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// A terminal of 80 columns and 24 lines, with a shell in it.
pub(crate) struct Terminal {
    socket: String,
    /// How many command lines were run.
    runs: u32,
    /// All that was written to it, with what has left the screen.
    written: tempfile::NamedTempFile,
}

impl Terminal {
    /// Returns None, and says so, where there is no tmux.
    pub(crate) fn open(name: &str) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            assert!(std::env::var_os("CI").is_none(), "tmux is absent");
            // Written past the capture of the test runner, so that it is seen.
            let mut output = std::io::stderr();
            writeln!(output, "SKIPPED: nothing was run in a terminal: no tmux").unwrap();
            return None;
        }
        let socket = format!("tickwheel-{name}-{}", std::process::id());
        let written = tempfile::NamedTempFile::new().unwrap();
        let terminal = Self { socket, runs: 0, written };
        let shell = "PS1= exec sh";
        terminal.tmux(&["-f/dev/null", "-u", "new-session", "-d", "-x80", "-y24", shell]);
        terminal.tmux(&["pipe-pane", &format!("cat > {}", terminal.written.path().display())]);
        Some(terminal)
    }

    pub(crate) fn tmux(&self, arguments: &[&str]) -> String {
        let command = Command::new("tmux").args(["-L", &self.socket]).args(arguments).output();
        let output = command.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a command line in the shell, which says its exit code at the end.
    pub(crate) fn run(&mut self, line: &str) {
        // In two halves, so that the line itself is not taken for what it prints.
        self.runs += 1;
        let line = format!("clear; {line}; echo exit 'code' $? of {}", self.runs);
        self.tmux(&["send-keys", "-l", &line]);
        self.press("Enter");
    }

    pub(crate) fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// Waits until `text` is on the screen, where lines may break it, and returns the screen.
    pub(crate) fn wait_for(&self, text: &str) -> String {
        wait_for(text, || self.tmux(&["capture-pane", "-p"]))
    }

    /// Waits until `text` was on the screen at any time.
    pub(crate) fn wait_for_written(&self, text: &str) {
        let written = || std::fs::read(self.written.path()).unwrap();
        wait_for(text, || String::from_utf8_lossy(&written()).into_owned());
    }

    /// Waits until the last command line ends, and returns the screen.
    pub(crate) fn wait_for_exit(&self, code: u8) -> String {
        self.wait_for(&format!("exit code {code} of {}", self.runs))
    }

    /// Asserts that the terminal echoes lines, shows its cursor and is on its own screen.
    pub(crate) fn assert_is_restored(&mut self) {
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

/// Waits until `text` is in what `read` returns, and returns that.
pub(crate) fn wait_for(text: &str, read: impl Fn() -> String) -> String {
    let started = Instant::now();
    loop {
        let screen = read();
        let words: Vec<_> = screen.split_whitespace().collect();
        if words.join(" ").contains(text) {
            return screen;
        }
        assert!(started.elapsed() < PATIENCE, "no {text:?} in:\n{screen}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A machine can be very busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
