//! A Chromium without a window, driven by its DevTools protocol.

use serde_json::{Value, json};
use std::fs;
use std::io::{Write, stderr};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use systems::process::Process;
use systems::push_server::Client;
use tempfile::TempDir;
use tungstenite::{Message, WebSocket, client};

/// One page in a browser of its own. Dropping it kills the browser.
pub(crate) struct Browser {
    /// Killed before its profile is removed.
    _chromium: Process,
    _profile: TempDir,
    page: WebSocket<TcpStream>,
    calls: u64,
}

impl Browser {
    /// Opens `url`. `None`, and a word why, where there is no Chromium; under CI that is a failure.
    pub(crate) async fn open(url: &str) -> Option<Self> {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("chromium");
        command.args(FLAGS).arg(format!("--user-data-dir={}", profile.path().display())).arg(url);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut chromium = match Process::start(&mut command) {
            Ok(chromium) => chromium,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "apt-get install chromium: {error}");
                // Past the harness, which would keep it to itself.
                let why = format!("skipped: no Chromium ({error}); apt-get install chromium");
                let _ = writeln!(stderr(), "{why}");
                return None;
            }
        };
        let begun = Instant::now();
        let port = loop {
            // It writes there where it listens.
            let said = fs::read_to_string(profile.path().join("DevToolsActivePort"));
            let first = said.ok().and_then(|said| said.split_once('\n')?.0.parse().ok());
            if let Some(port) = first {
                break port;
            }
            assert_eq!(chromium.ended().unwrap(), None, "it ended");
            assert!(begun.elapsed() < Duration::from_secs(300), "it does not listen");
            std::thread::sleep(Duration::from_millis(20));
        };
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let page = loop {
            if let Ok(mut asks) = Client::connect(address).await
                && let Ok((_, pages)) = asks.get("/json/list").await
                && let Some(pages) = pages.as_array()
                && let Some(page) = pages.iter().find(|page| page["type"] == "page")
            {
                break page["webSocketDebuggerUrl"].as_str().unwrap().to_owned();
            }
            assert!(begun.elapsed() < Duration::from_secs(300), "it has no page");
            std::thread::sleep(Duration::from_millis(20));
        };
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
        let page = client(page, stream).unwrap().0;
        Some(Self { _chromium: chromium, _profile: profile, page, calls: 0 })
    }

    /// Calls a method of the protocol, and returns its result.
    pub(crate) fn call(&mut self, method: &str, words: &Value) -> Value {
        self.calls += 1;
        let call = json!({ "id": self.calls, "method": method, "params": words });
        self.page.send(Message::text(call.to_string())).unwrap();
        loop {
            let Message::Text(text) = self.page.read().unwrap() else { continue };
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
            assert!(begun.elapsed() < Duration::from_secs(300), "{expression} is {is}");
            std::thread::sleep(Duration::from_millis(20));
        }
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
