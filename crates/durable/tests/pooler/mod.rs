//! A pgbouncer of its own for a test, in transaction mode.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::{HOUR, SHARED, now, until, worker};
use crate::live::{schedule, take_all};
use crate::server::{Server, client};

struct Pooler(Child);

impl Pooler {
    /// Starts a pooler with so many connections to the server of this URL, and returns the URL of
    /// the pooler. `None`, and a word why, where there is no pgbouncer; under CI that is a failure.
    fn start(server: &Server, url: &str, connections: u32) -> Option<(Self, String)> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let of_server = url.rsplit(':').next().unwrap().split('/').next().unwrap();
        let file = server.data().with_file_name(format!("pooler-{port}.ini"));
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={of_server} user=tickwheel\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = {connections}\n"
        );
        std::fs::write(&file, settings).unwrap();
        let mut command = Command::new("pgbouncer");
        command.arg(&file).stderr(Stdio::null());
        if let Some((user, group)) = server.user {
            chown(&file, Some(user), Some(group)).unwrap();
            command.uid(user).gid(group);
        }
        let Ok(child) = command.spawn() else {
            assert!(std::env::var_os("CI").is_none(), "apt-get install pgbouncer");
            println!("skipped: pgbouncer is not installed (apt-get install pgbouncer)");
            return None;
        };
        let pooler = Self(child);
        until("the pooler listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some((pooler, url.replace(&format!(":{of_server}/"), &format!(":{port}/"))))
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn workers_behind_a_pooler_in_transaction_mode_work_and_leave_nothing_to_its_other_clients() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    // Fewer connections than clients, so that each transaction may have another one.
    let Some((_pooler, pooled)) = Pooler::start(&server, &url, 2) else { return };
    let timers = [(); 3].map(|()| worker(&pooled, SHARED));
    until("they share all", || {
        timers.iter().map(|timer| timer.stats().partitions).sum::<usize>() == 64
    });
    let mut other = client(&pooled);
    for round in 0..5 {
        let mut names = schedule(&timers[round % 3], &format!("{round}"), 100);
        names.extend(schedule(&timers[(round + 1) % 3], &format!("{round} more"), 100));
        timers[0].schedule("far", now() + HOUR, b"").unwrap().wait().unwrap();
        timers[1].cancel("far").unwrap().wait().unwrap();
        take_all(&timers.each_ref(), names);
        let settings = other.simple_query("show statement_timeout; show lock_timeout").unwrap();
        for message in settings {
            if let postgres::SimpleQueryMessage::Row(row) = message {
                assert_eq!(row.get(0), Some("0"), "a setting of ours is left");
            }
        }
        thread::sleep(Duration::from_millis(50));
    }
    let errors: Vec<u64> = timers.iter().map(|timer| timer.stats().errors).collect();
    assert_eq!(errors, [0; 3]);
    until("all are acked", || {
        // One whose partition went to another worker comes again.
        for timer in &timers {
            while let Some(due) = timer.try_recv().unwrap() {
                due.ack();
            }
        }
        timers[0].is_empty().unwrap()
    });
    for timer in timers {
        timer.close().unwrap();
    }
}
