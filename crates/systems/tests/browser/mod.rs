//! A Chromium without a window, driven by its DevTools protocol.

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write, stderr};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use systems::push_server::Client;
use tempfile::TempDir;
use tungstenite::{Message, WebSocket, client};

/// One page in a browser of its own. Dropping it kills the browser.
pub(crate) struct Browser {
    child: Child,
    _profile: TempDir,
    page: Option<WebSocket<TcpStream>>,
    calls: u64,
}

impl Browser {
    /// Opens `url`. `None`, and a word why, where there is no Chromium; under CI that is a failure.
    pub(crate) async fn open(url: &str) -> Option<Self> {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("chromium");
        command.args(FLAGS).arg(format!("--user-data-dir={}", profile.path().display())).arg(url);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "apt-get install chromium: {error}");
                // Past the harness, which would keep it to itself.
                let why = format!("skipped: no Chromium ({error}); apt-get install chromium");
                let _ = writeln!(stderr(), "{why}");
                return None;
            }
        };
        let mut browser = Self { child, _profile: profile, page: None, calls: 0 };
        let mut lines = BufReader::new(browser.child.stderr.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().expect("it says where it listens").unwrap();
            if let Some(rest) = line.strip_prefix("DevTools listening on ws://") {
                break rest.split_once('/').unwrap().0.parse().unwrap();
            }
        };
        // Read on, so that it can write on.
        std::thread::spawn(move || lines.for_each(drop));
        let (_, pages) = Client::connect(address).await.unwrap().get("/json/list").await.unwrap();
        let pages = pages.as_array().unwrap();
        let page = pages.iter().find(|page| page["type"] == "page").expect("it has a page");
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let page = client(page["webSocketDebuggerUrl"].as_str().unwrap(), stream).unwrap().0;
        browser.page = Some(page);
        Some(browser)
    }

    /// Calls a method of the protocol, and returns its result.
    pub(crate) fn call(&mut self, method: &str, words: &Value) -> Value {
        self.calls += 1;
        let page = self.page.as_mut().unwrap();
        let call = json!({ "id": self.calls, "method": method, "params": words });
        page.send(Message::text(call.to_string())).unwrap();
        loop {
            let Message::Text(text) = page.read().unwrap() else { continue };
            let mut said: Value = serde_json::from_str(&text).unwrap();
            if said["id"] == self.calls {
                return said["result"].take();
            }
        }
    }

    /// Returns the value of an expression in the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let words = json!({ "expression": expression, "returnByValue": true });
        self.call("Runtime.evaluate", &words)["result"]["value"].take()
    }

    /// Waits until the expression has this value.
    pub(crate) fn wait_for(&mut self, expression: &str, value: &Value) {
        let begun = Instant::now();
        while self.evaluate(expression) != *value {
            let is = self.evaluate(expression);
            assert!(begun.elapsed() < Duration::from_secs(20), "{expression} is {is}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-breakpad",
    "--remote-debugging-port=0",
];
