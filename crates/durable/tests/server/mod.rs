//! A PostgreSQL of its own for a test, from the distribution's package.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use postgres::{Client, NoTls};
use tempfile::TempDir;

pub(crate) struct Server {
    folder: TempDir,
    programs: PathBuf,
    port: u16,
    /// The server refuses to run as root.
    pub(crate) user: Option<(u32, u32)>,
    databases: AtomicU32,
}

impl Server {
    /// Starts a server. `None`, and a word why, where there is no PostgreSQL; under CI that is a
    /// failure.
    pub(crate) fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            assert!(
                std::env::var_os("CI").is_none(),
                "PostgreSQL is not installed: apt-get install postgresql"
            );
            println!("skipped: PostgreSQL is not installed (apt-get install postgresql)");
            return None;
        };
        let mut server = Self::new(programs);
        server.make();
        // Another test may have taken its port meanwhile.
        let mut tries = 0;
        while !server.goes() {
            tries += 1;
            assert!(tries < 5, "it does not start");
            server.port = free_port();
        }
        Some(server)
    }

    /// Makes its files. That takes a while, so tests keep a copy for those that start later.
    fn make(&self) {
        let version = self.programs.components().rev().nth(1).unwrap();
        let kept =
            option_env!("CARGO_TARGET_TMPDIR").map(|folder| Path::new(folder).join("postgresql"));
        let copied = kept.as_ref().map(|kept| kept.join(version)).filter(|copied| copied.exists());
        if let Some(copied) = copied {
            return copy(&copied, &self.data());
        }
        self.run("initdb", &["-A", "trust", "-U", "tickwheel", "--no-sync", "-E", "UTF8"]);
        if let Some(kept) = kept {
            fs::create_dir_all(&kept).unwrap();
            let part = tempfile::tempdir_in(&kept).unwrap();
            let data = part.path().join("data");
            copy(&self.data(), &data);
            // Unless another was faster.
            let _ = fs::rename(data, kept.join(version));
        }
    }

    fn new(programs: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let user = (id("-u", &[]) == 0).then(|| (id("-u", &["postgres"]), id("-g", &["postgres"])));
        if let Some((user, group)) = user {
            chown(folder.path(), Some(user), Some(group)).unwrap();
        }
        let port = free_port();
        Self { folder, programs, port, user, databases: AtomicU32::new(0) }
    }

    /// Starts a standby that has what was committed here before the commit returns.
    pub(crate) fn standby(&self) -> Self {
        let standby = Self::new(self.programs.clone());
        let url = self.url("postgres");
        standby.run("pg_basebackup", &["-R", "-c", "fast", "--no-sync", "-d", &url]);
        let (mut sql, mut other) = (client(&url), client(&url));
        sql.batch_execute("alter system set synchronous_standby_names = '*'").unwrap();
        sql.batch_execute("select pg_reload_conf()").unwrap();
        // A commit waits once the checkpointer has read that, and until the standby receives.
        let waits = Arc::new(AtomicBool::new(false));
        let is_seen = waits.clone();
        let commits = thread::spawn(move || {
            while !is_seen.load(Ordering::SeqCst) {
                sql.batch_execute("select pg_logical_emit_message(true, '', '')").unwrap();
            }
        });
        let waiting = "select from pg_stat_activity where wait_event = 'SyncRep'";
        while other.query(waiting, &[]).unwrap().is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
        waits.store(true, Ordering::SeqCst);
        standby.go();
        commits.join().unwrap();
        standby
    }

    pub(crate) fn promote(&self) {
        self.run("pg_ctl", &["promote", "-w"]);
    }

    /// The URL of the same database where either server has it, with this one first.
    pub(crate) fn either(&self, other: &Self, url: &str) -> String {
        let (_, database) = url.rsplit_once('/').unwrap();
        let hosts = format!("127.0.0.1:{},127.0.0.1:{}", self.port, other.port);
        format!("postgresql://tickwheel@{hosts}/{database}")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn run(&self, program: &str, words: &[&str]) {
        assert!(self.runs(program, words), "{program} {words:?}");
    }

    /// Runs a program of PostgreSQL, and returns whether it did what it was to.
    fn runs(&self, program: &str, words: &[&str]) -> bool {
        let mut command = Command::new(self.programs.join(program));
        command.arg("-D").arg(self.data()).args(words).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command.status().unwrap().success()
    }

    pub(crate) fn go(&self) {
        assert!(self.goes(), "it does not start");
    }

    fn goes(&self) -> bool {
        let settings = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories={} -c fsync={} \
             -c max_connections=200 -c max_prepared_transactions=1000",
            self.port,
            self.folder.path().display(),
            std::env::var("TICKWHEEL_DURABLE_FSYNC").unwrap_or_else(|_| "off".to_owned()),
        );
        let log = self.folder.path().join("log").display().to_string();
        self.runs("pg_ctl", &["start", "-w", "-l", &log, "-o", &settings])
    }

    pub(crate) fn stop(&self, mode: &str) {
        self.run("pg_ctl", &["stop", "-w", "-m", mode]);
    }

    /// Makes a database with nothing in it, and returns its URL.
    pub(crate) fn database(&self) -> String {
        self.database_of("UTF8")
    }

    /// Makes a database with the tables, and returns its URL.
    pub(crate) fn tables(&self) -> String {
        let url = self.database();
        tickwheel_durable::PostgresStore::connect(&url).unwrap();
        url
    }

    /// Makes one of this encoding.
    pub(crate) fn database_of(&self, encoding: &str) -> String {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::SeqCst));
        let create = format!(
            "create database {name} encoding '{encoding}' template template0 lc_collate 'C'
             lc_ctype 'C'"
        );
        client(&self.url("postgres")).batch_execute(&create).unwrap();
        self.url(&name)
    }

    fn url(&self, database: &str) -> String {
        format!("postgresql://tickwheel@127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut command = Command::new(self.programs.join("pg_ctl"));
        command.arg("-D").arg(self.data()).args(["stop", "-m", "immediate"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        let _ = command.status();
    }
}

/// Copies a folder, with its owner if it may.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-Rp").arg(from).arg(to).status().unwrap();
    assert!(status.success(), "cp {from:?} {to:?}: {status}");
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub(crate) fn client(url: &str) -> Client {
    Client::connect(url, NoTls).unwrap()
}

fn programs() -> Option<PathBuf> {
    let mut versions: Vec<PathBuf> = fs::read_dir(Path::new("/usr/lib/postgresql"))
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|programs| programs.join("initdb").exists())
        .collect();
    versions.sort();
    versions.pop()
}

fn id(what: &str, user: &[&str]) -> u32 {
    let output = Command::new("id").arg(what).args(user).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}
