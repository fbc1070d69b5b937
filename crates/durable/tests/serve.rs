//! What the page of the command `tickwheel-durable serve` promises.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs, io, thread};

use serde_json::{Value, json};
use tempfile::TempDir;
use tickwheel_durable::{Content, DurableTimer};

mod page;
#[cfg(feature = "postgres")]
#[allow(dead_code)]
mod server;

use page::Page;

#[test]
fn a_page_shows_what_is_pending_and_what_is_dead() {
    let folder = TempDir::new().unwrap();
    let page = Page::of(&file(&folder), &[]);
    let state = page.json("/state");
    let band =
        |at: usize| (state["bands"][at]["name"].as_str(), state["bands"][at]["rows"].as_u64());
    assert_eq!(band(0), (Some("overdue"), Some(1)));
    assert_eq!(band(3), (Some("in an hour"), Some(2)));
    assert_eq!(band(4), (Some("in a day"), Some(250)));
    assert_eq!((&state["pending"], &state["is_all"]), (&json!(253), &json!(true)));
    assert_eq!((&state["changes"], &state["error"]), (&json!(false), &Value::Null));
    assert!(state["first_ms"].as_u64() < state["now_ms"].as_u64(), "{state}");

    let dead = page.json("/dead");
    let names = |page: &Value| -> Vec<String> {
        let rows = page["rows"].as_array().unwrap();
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&dead), ["dead 0", "dead 1", "dead 10", "dead 2"]);
    assert_eq!((&dead["rows"][1]["payload"], &dead["next"]), (&json!("eur 1"), &Value::Null));
    assert_eq!(names(&page.json("/dead?prefix=dead%201")), ["dead 1", "dead 10"]);
    assert_eq!(names(&page.json("/dead?prefix=d&after=dead%201")), ["dead 10", "dead 2"]);
    assert_eq!(names(&page.json("/dead?prefix=e")), [""; 0]);
}

#[test]
fn a_long_list_comes_in_pages_that_leave_nothing_out() {
    let folder = TempDir::new().unwrap();
    let page = Page::of(&file(&folder), &[]);
    for (prefix, all) in [("", 253), ("late/", 250), ("late/24", 11), ("soon", 2), ("no", 0)] {
        let (mut names, mut next) = (Vec::new(), String::new());
        loop {
            let part = page.json(&format!("/pending?prefix={prefix}{next}"));
            let rows = part["rows"].as_array().unwrap();
            names.extend(rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()));
            let Some(after_ms) = part["next"]["after_ms"].as_str() else { break };
            let after = part["next"]["after"].as_str().unwrap();
            next = format!("&after_ms={after_ms}&after={after}");
        }
        assert_eq!(names.len(), all, "{prefix}: {names:?}");
        assert!(names.iter().all(|name| name.starts_with(prefix)));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "{prefix}: none comes twice");
    }
    assert_eq!(page.ask("GET", "/pending?after_ms=soon", &[], "").0, 400);
}

/// JSON writes a control character in six bytes.
#[test]
fn an_answer_is_small_however_long_payloads_are() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("timeouts.redb");
    let payloads = [vec![1; 65_536], vec![255; 65_536], "\u{e9}x".repeat(342).into_bytes()];
    let metadata = "\u{1}".repeat(1024);
    let timer = DurableTimer::builder().max_attempts(1).open(&file).unwrap();
    for at in 0..300 {
        let content = (&payloads[at % 3], &*metadata);
        put(&timer, &format!("{at:03}"), SystemTime::now() - HOUR, content);
    }
    for _ in 0..150 {
        drop(timer.recv_timeout(HOUR).unwrap().expect("it is due"));
    }
    timer.close().unwrap();
    let page = Page::of(&file, &[]);
    let mut shown = HashMap::new();
    for list in ["/dead", "/pending"] {
        let mut next = String::new();
        loop {
            let (_, _, body) = page.ask("GET", &format!("{list}?{next}"), &[], "");
            assert!(body.len() < 2 << 20, "{list}: {} bytes", body.len());
            let part: Value = serde_json::from_str(&body).unwrap();
            for row in part["rows"].as_array().unwrap() {
                shown.insert(row["name"].as_str().unwrap().to_owned(), row.clone());
            }
            let Some(after) = part["next"]["after"].as_str() else { break };
            next = format!(
                "after={after}&after_ms={}",
                part["next"]["after_ms"].as_str().unwrap_or("0")
            );
        }
    }
    assert_eq!(shown.len(), 300);
    for at in 0..300 {
        let row = &shown[&format!("{at:03}")];
        let (field, payload) = match at % 3 {
            0 => ("payload", "\u{1}".repeat(1024)),
            1 => ("payload_hex", "ff".repeat(1024)),
            _ => ("payload", "\u{e9}x".repeat(341)),
        };
        assert_eq!(
            (&row[field], &row["payload_bytes"], &row["metadata"]),
            (&json!(payload), &json!(payloads[at % 3].len()), &json!(metadata))
        );
    }
    drop(page);
    let mut get = Command::new(env!("CARGO_BIN_EXE_tickwheel-durable"));
    let got = get.args(["dead", "get"]).arg(&file).args(["000", "--json"]).output().unwrap();
    let whole: Value = serde_json::from_slice(&got.stdout).unwrap();
    assert_eq!(whole["payload"].as_str().map(str::len), Some(65_536));
}

#[test]
fn dead_letters_change_only_if_the_page_may_change_them() {
    let folder = TempDir::new().unwrap();
    let file = file(&folder);
    let kind = [("Content-Type", "application/json")];
    let reader = Page::of(&file, &[]);
    let died = reader.json("/dead")["rows"][0]["died_ms"].clone();
    let names = json!([["dead 0", died], ["nobody", 0]]).to_string();
    for path in ["/dead/retry", "/dead/drop"] {
        let (code, _, body) = reader.ask("POST", path, &kind, &names);
        assert!(code == 403 && body.contains("read only"), "{code} {body}");
    }
    assert_eq!(reader.json("/dead")["rows"].as_array().unwrap().len(), 4);
    drop(reader);

    let page = Page::of(&file, &["--changes"]);
    assert_eq!(page.json("/state")["bands"][0]["rows"], 1);
    let (_, _, told) = page.ask("POST", "/dead/retry", &kind, &names);
    assert!(told.contains("retried: it is due now") && told.contains("it is not dead"), "{told}");
    assert_eq!(page.json("/state")["bands"][0]["rows"], 2, "what changed is seen at once");
    let died = page.json("/dead")["rows"][0]["died_ms"].as_u64().unwrap();
    let (_, _, told) =
        page.ask("POST", "/dead/drop", &kind, &json!([["dead 1", died - 1]]).to_string());
    assert!(told.contains("once more since it was shown"), "{told}");
    assert_eq!(page.json("/dead")["rows"][0]["name"], "dead 1");
    let (_, _, told) =
        page.ask("POST", "/dead/drop", &kind, &json!([["dead 1", died]]).to_string());
    assert!(told.contains("dropped"), "{told}");
    assert_eq!(page.json("/dead")["rows"][0]["name"], "dead 10");
    let many: Vec<(String, u64)> = (0..101).map(|at| (at.to_string(), 0)).collect();
    assert_eq!(page.ask("POST", "/dead/drop", &kind, &json!(many).to_string()).0, 413);
    assert_eq!(page.ask("POST", "/dead/drop", &kind, r#"{"names": 1}"#).0, 422);
    assert_eq!(page.ask("GET", "/dead/drop", &[], "").0, 405);
}

/// As a page from elsewhere could, by a script, by a form, or by a name that leads to this machine.
#[test]
fn no_page_from_elsewhere_reads_or_changes_anything() {
    let folder = TempDir::new().unwrap();
    let page = Page::of(&file(&folder), &["--changes"]);
    let names = r#"[["dead 0", 0]]"#;
    let kind = ("Content-Type", "application/json");
    for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", ""] {
        assert_eq!(page.ask("GET", "/state", &[("Host", host)], "").0, 403, "{host}");
    }
    for origin in ["http://evil.example", "null", "https://127.0.0.1"] {
        let from = [kind, ("Origin", origin)];
        assert_eq!(page.ask("POST", "/dead/drop", &from, names).0, 403, "{origin}");
    }
    let form = [("Content-Type", "text/plain")];
    assert_eq!(page.ask("POST", "/dead/drop", &form, names).0, 415);
    assert_eq!(page.json("/dead")["rows"].as_array().unwrap().len(), 4);
    for host in ["localhost", "LOCALHOST:7878", "127.0.0.1", "127.0.0.9:1", "[::1]:7878"] {
        let own = format!("http://{host}");
        let (code, headers, _) = page.ask("GET", "/", &[("Host", host), ("Origin", &own)], "");
        assert_eq!(code, 200, "{host}");
        assert!(headers.contains("default-src 'self'"), "{headers}");
    }
}

#[test]
fn where_other_machines_reach_it_callers_must_know_a_token() {
    let folder = TempDir::new().unwrap();
    let file = file(&folder);
    let everywhere = ["--listen", "0.0.0.0:0"];
    let refused = |words: &[&str], why: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tickwheel-durable"));
        command.arg("serve").arg(&file).args(everywhere).args(words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if !line.is_empty() {
            child.kill().unwrap();
        }
        let done = child.wait_with_output().unwrap();
        assert_eq!(line, "", "it serves with {words:?}");
        let errors = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.code() == Some(2) && errors.contains(why), "{errors}");
    };
    refused(&[], "expected --token-file");
    let token_file = folder.path().join("token");
    let words = ["--token-file", token_file.to_str().unwrap()];
    refused(&words, "token: ");
    for bad in ["", "short", "with spaces and more", "semicolons;;;;;;;;;"] {
        fs::write(&token_file, bad).unwrap();
        refused(&words, "expected a token of 16 or more");
    }
    fs::write(&token_file, "0123456789abcdef\n").unwrap();
    let page = Page::of(&file, &[&everywhere[..], &words].concat());
    let code = |headers: &[(&str, &str)], path: &str| page.ask("GET", path, headers, "").0;
    assert_eq!(code(&[], "/state"), 401);
    assert_eq!(code(&[("Authorization", "Bearer 0123456789abcdeX")], "/state"), 401);
    assert_eq!(code(&[("Authorization", "Bearer 0123456789abcdef")], "/state"), 200);
    assert_eq!(code(&[("Host", "timers.example")], "/?token=0123456789abcde"), 401);
    let (moved, headers, _) = page.ask("GET", "/?token=0123456789abcdef", &[], "");
    assert_eq!(moved, 303);
    let headers = headers.to_ascii_lowercase();
    let cookie = "set-cookie: tickwheel_token_=0123456789abcdef; httponly; samesite=strict";
    assert!(headers.contains(cookie) && headers.contains("location: /\r\n"), "{headers}");
    let known = ("Cookie", "a=b; tickwheel_token_=0123456789abcdef");
    assert_eq!(code(&[known], "/state"), 200);
    assert_eq!(code(&[known, ("Origin", "http://evil.example")], "/state"), 403);
    // As through a proxy that speaks TLS.
    let proxied = |site| {
        let origin = ("Origin", "https://timers.example");
        code(&[known, origin, ("Sec-Fetch-Site", site)], "/state")
    };
    assert_eq!(
        (proxied("same-origin"), proxied("cross-site"), proxied("same-site")),
        (200, 403, 403)
    );
}

/// A browser sends a cookie to all ports of a host.
#[test]
fn one_browser_may_see_two_pages_of_one_host() {
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let tokens = ["0123456789abcdef", "fedcba9876543210"];
    let pages: Vec<Page> = folders
        .iter()
        .zip(tokens)
        .map(|(folder, token)| {
            let token_file = folder.path().join("token");
            fs::write(&token_file, token).unwrap();
            Page::of(&file(folder), &["--token-file", token_file.to_str().unwrap()])
        })
        .collect();
    let mut cookies = HashMap::new();
    for (page, token) in pages.iter().zip(tokens) {
        let host = format!("localhost:{}", page.port);
        let (_, headers, _) = page.ask("GET", &format!("/?token={token}"), &[("Host", &host)], "");
        let cookie = headers.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
        let (name, value) = cookie.split_once(';').unwrap().0.split_once('=').unwrap();
        cookies.insert(name.to_owned(), value.to_owned());
    }
    let all: Vec<String> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let all = all.join("; ");
    for page in &pages {
        let headers = [("Host", &*format!("localhost:{}", page.port)), ("Cookie", &all)];
        assert_eq!(page.ask("GET", "/state", &headers, "").0, 200);
    }
}

/// Otherwise the next timer would have to read all of the file first.
#[cfg(unix)]
#[test]
fn it_closes_the_file_when_it_is_told_to_end() {
    for signal in ["-INT", "-TERM"] {
        let folder = TempDir::new().unwrap();
        let file = file(&folder);
        let mut page = Page::of(&file, &[]);
        assert_eq!(page.ask("GET", "/", &[], "").0, 200);
        // Whoever sends half a request, and reads nothing, holds it up for little.
        let mut silent = TcpStream::connect(("127.0.0.1", page.port)).unwrap();
        silent.write_all(b"GET / HTTP/1.1\r\nHost:").unwrap();
        let mut asked = TcpStream::connect(("127.0.0.1", page.port)).unwrap();
        let body = "POST /dead/drop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n";
        asked.write_all(body.as_bytes()).unwrap();
        thread::sleep(Duration::from_millis(100));
        let id = page.command.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        let began = Instant::now();
        let status = loop {
            if let Some(status) = page.command.try_wait().unwrap() {
                break status;
            }
            assert!(began.elapsed() < Duration::from_secs(120), "{signal}: it does not end");
            thread::sleep(Duration::from_millis(20));
        };
        assert!(status.success());
        let timer = DurableTimer::open(&file).unwrap();
        assert_eq!(timer.len().unwrap(), 253);
    }
}

/// Otherwise 32 callers who do so would lock all others out for ever.
#[test]
fn whoever_does_not_finish_a_request_makes_room_for_others() {
    let folder = TempDir::new().unwrap();
    let page = Page::of(&file(&folder), &[]);
    let begin = |text: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", page.port)).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    };
    let half = "POST /dead/drop HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let body = format!("{half}Content-Length: 9\r\n\r\n[");
    let mut silent: Vec<TcpStream> =
        ["", half, &body].iter().cycle().take(32).map(|text| begin(text)).collect();
    // It waits until one of them has lost its place.
    assert_eq!(page.ask("GET", "/", &[], "").0, 200);
    let is_closed = |stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let closed = stream.peek(&mut [0]).is_ok();
        stream.set_nonblocking(false).unwrap();
        closed
    };
    assert!(silent.iter().any(is_closed), "more than 32 are served at once");
    for stream in &mut silent {
        io::copy(stream, &mut io::sink()).expect("it is closed within a minute");
    }
}

/// On a phone, a tablet and a desktop, light and dark: all is shown, by keyboard too, no text is cut,
/// and axe-core finds nothing.
#[test]
fn a_browser_shows_it_and_retries_by_keyboard() {
    let folder = TempDir::new().unwrap();
    let page = Page::of(&file(&folder), &["--changes"]);
    let Some(mut checker) = checker("file.mjs", &page) else { return };
    let done = checker.output().expect("where npm is, node is");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// The same for two databases, of which one is stopped while the page is open.
#[cfg(feature = "postgres")]
#[test]
fn a_browser_shows_a_fleet_and_goes_on_while_one_of_its_databases_is_down() {
    use server::{Server, client};
    use tickwheel_durable::{PostgresStore, join_fleet, move_partition};

    let (Some(server), Some(other)) = (Server::start(), Server::start()) else { return };
    let [one, two] = [server.tables(), other.tables()];
    client(&one)
        .batch_execute(
            "select tickwheel_schedule('order ' || n, now() + n * interval '1 min', 'eur 20')
             from generate_series(1, 300) n;
             select tickwheel_schedule('late', now() - interval '1 h', '');
             insert into tickwheel_dead select 'dead ' || n, 1000, 2000, 3, 'eur 20'
             from generate_series(1, 12) n",
        )
        .unwrap();
    let [mut from, mut to] = [&one, &two].map(|url| PostgresStore::connect(url).unwrap());
    join_fleet(&mut to, &mut from).unwrap();
    for partition in 32..64 {
        move_partition(&mut from, &mut to, partition, |_| ()).unwrap();
    }
    let page = Page::of(&one, &[&two, "--changes"]);
    let Some(mut checker) = checker("fleet.mjs", &page) else { return };
    checker.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut checker = checker.spawn().expect("where npm is, node is");
    let (mut input, output) = (checker.stdin.take().unwrap(), checker.stdout.take().unwrap());
    for line in BufReader::new(output).lines() {
        match &*line.unwrap() {
            "stop" => other.stop("fast"),
            "go" => other.go(),
            line => panic!("it says {line}"),
        }
        writeln!(input, "done").unwrap();
    }
    let done = checker.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Prepares a script that opens a page in a browser. `None`, and a word why, where there is none;
/// under CI that is a failure.
#[expect(clippy::explicit_write, reason = "the test runner captures the macro's output")]
fn checker(script: &str, page: &Page) -> Option<Command> {
    let skip = |absent: &str| {
        assert!(env::var_os("CI").is_none(), "{absent}");
        writeln!(io::stderr(), "SKIPPED: no browser opened the page: {absent}").unwrap();
        None
    };
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    let mut all = names.iter().flat_map(|name| folders.iter().map(move |at| at.join(name)));
    let Some(browser) = all.find(|path| path.is_file()) else { return skip("Chromium is absent") };
    let checker = Path::new(env!("CARGO_TARGET_TMPDIR")).join("serve").join(script);
    fs::create_dir_all(&checker).unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["package.json", "package-lock.json"] {
        let of_the_command = here.join("../cli/tests/page").join(name);
        if fs::copy(of_the_command, checker.join(name)).is_err() {
            return skip("this is not the repository");
        }
    }
    for name in ["browser.mjs", script] {
        fs::copy(here.join("tests/page").join(name), checker.join(name)).unwrap();
    }
    let words = ["ci", "--no-audit", "--no-fund", "--ignore-scripts"];
    match Command::new("npm").args(words).current_dir(&checker).output() {
        Ok(done) if done.status.success() => {}
        Ok(done) => return skip(&format!("npm ci: {}", String::from_utf8_lossy(&done.stderr))),
        Err(error) => return skip(&format!("npm: {error}")),
    }
    let mut node = Command::new("node");
    let url = format!("http://127.0.0.1:{}/", page.port);
    node.arg(script).arg(browser).arg(url).arg(&checker).current_dir(&checker);
    Some(node)
}

/// A file with 253 that are pending, of which one is overdue, and four dead letters.
fn file(folder: &TempDir) -> PathBuf {
    let file = folder.path().join("timeouts.redb");
    let timer = DurableTimer::builder().max_attempts(1).open(&file).unwrap();
    let now = SystemTime::now();
    for at in [0, 1, 2, 10] {
        let payload = format!("eur {at}");
        put(&timer, &format!("dead {at}"), now - HOUR, payload.as_bytes());
    }
    for _ in 0..4 {
        drop(timer.recv_timeout(HOUR).unwrap().expect("it is due"));
    }
    timer.close().unwrap();
    let timer = DurableTimer::open(&file).unwrap();
    for at in 0..250 {
        put(&timer, &format!("late/{at}"), now + 2 * HOUR, &[at]);
    }
    put(&timer, "soon/1", now + HOUR / 2, (b"<b>no tag</b>", "<b>shop 3</b>"));
    put(&timer, "soon/2", now + HOUR / 2, b"");
    put(&timer, &"x".repeat(255), now - HOUR, &[b'y'; 3000]);
    timer.close().unwrap();
    file
}

/// It is committed when the timer is closed.
fn put<'a>(
    timer: &DurableTimer,
    name: &str,
    deadline: SystemTime,
    content: impl Into<Content<'a>>,
) {
    drop(timer.schedule(name, deadline, content).unwrap());
}

const HOUR: Duration = Duration::from_secs(3600);
