//! The command `tickwheel-durable serve`, and a caller.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// Dropping it ends the command.
pub(crate) struct Page {
    pub(crate) command: Child,
    pub(crate) port: u16,
}

impl Page {
    /// Serves a place on a port that is free.
    pub(crate) fn of(place: &(impl AsRef<OsStr> + ?Sized), words: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tickwheel-durable"));
        command.arg("serve").arg(place);
        if !words.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let mut command = command.args(words).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(command.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.split_once("http://").expect("it tells its address").1;
        let port = address.split_once('/').unwrap().0.rsplit_once(':').unwrap().1.parse().unwrap();
        Self { command, port }
    }

    /// Returns the code, the headers and the body of an answer.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, String, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if headers.iter().all(|&(name, _)| name != "Host") {
            request += "Host: localhost\r\n";
        }
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        request += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        (code, format!("{head}\r\n"), body.to_owned())
    }

    pub(crate) fn json(&self, path: &str) -> Value {
        let (code, _, body) = self.ask("GET", path, &[], "");
        assert_eq!(code, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.command.kill();
        let _ = self.command.wait();
    }
}
