//! Requests over a connection, heartbeats with another process, failed calls, operations that wait
//! for others, and jobs: of each a little all the time, with faults.

use super::{Figures, Over, nap, word};
use std::env::current_exe;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use systems::failed_calls::{FailedCalls, Policy};
use systems::heartbeats::{Client as Heart, Event, SILENT, ServerProcess, Settings};
use systems::job_limits::Supervisor;
use systems::purgatory::{End, Operation, Purgatory};
use systems::requests::{Client, Fault, Server};
use tickwheel::Timer;

pub(super) fn systems() {
    let (over, figures, timer) = (Over::default(), Figures::new(), Timer::new());
    let parts: [fn(&Timer, &Figures, &Over); 5] = [requests, hearts, calls, operations, jobs];
    let threads = parts.map(|part| {
        let (timer, figures, over) = (timer.clone(), Arc::clone(&figures), over.clone());
        thread::spawn(move || part(&timer, &figures, &over))
    });
    let told = timer.clone();
    figures.tell(&over, move || told.pending());
    while word().is_some() {}
    over.end();
    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    until("no timeout is left", || timer.pending() == 0);
}

/// Waits, and panics if it takes ten minutes.
fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

/// Each call has one end.
fn requests(timer: &Timer, figures: &Figures, over: &Over) {
    let servers_timer = Timer::new();
    while !over.is_over() {
        let (server, _seen) = Server::faulty(&servers_timer).expect("a port is free");
        let client = Client::connect(server.address(), timer).expect("it listens");
        for _ in 0..50 {
            let answers: Vec<_> = (0..20)
                .map(|_| {
                    let fault = match fastrand::u32(..40) {
                        0 => Fault::Drop,
                        1 => Fault::Twice,
                        2 => Fault::Unknown,
                        3 => Fault::Delay(150),
                        _ => Fault::None,
                    };
                    client.call(fault.body(), Duration::from_millis(100))
                })
                .collect();
            for answer in answers {
                if fastrand::u32(..8) > 0 {
                    let _ = answer.wait();
                }
                figures.done.fetch_add(1, SeqCst);
            }
            nap(Duration::from_millis(50));
        }
        let account = client.account();
        let ended = account.answered + account.timed_out + account.failed + account.given_up;
        assert!(account.asked == ended + account.pending, "requests: {account:?}");
        assert!(account.pending == 0, "requests: {account:?}");
    }
}

/// All connections are there again after any stop or end of the server.
fn hearts(timer: &Timer, figures: &Figures, over: &Over) {
    let program = current_exe().expect("it has a name");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _inside = runtime.enter();
    let interval = Duration::from_millis(300);
    let connected = Arc::<AtomicI64>::default();
    let told = Arc::clone(&connected);
    let tell = Arc::new(move |event| match event {
        Event::Connected(_) => _ = told.fetch_add(1, SeqCst),
        Event::Silent(_) | Event::Closed(_) => _ = told.fetch_sub(1, SeqCst),
        Event::Asked(_) | Event::Alive(_) => {}
    });
    let settings = Settings { timer: timer.clone(), interval, tell };
    let start = |address| ServerProcess::start(&program, address, interval).expect("it starts");
    let mut server = start(SocketAddr::from(([127, 0, 0, 1], 0)));
    let address = server.address;
    let clients: Vec<_> = (0..HEARTS).map(|_| Heart::start(address, settings.clone())).collect();
    while !over.is_over() {
        until("all are connected", || connected.load(SeqCst) == HEARTS);
        figures.done.fetch_add(1, SeqCst);
        nap(interval * SILENT * 10);
        drop(server);
        until("none is connected", || connected.load(SeqCst) == 0);
        server = start(address);
    }
    drop(clients);
}

/// Each call succeeds, is given up or is withdrawn.
fn calls(timer: &Timer, figures: &Figures, over: &Over) {
    let given_up = Arc::<AtomicU64>::default();
    let told = Arc::clone(&given_up);
    let (first, longest) = (Duration::from_millis(20), Duration::from_millis(200));
    let policy = Policy { first, factor: 2, longest, jitter: 0.5, retries: 4 };
    let calls = FailedCalls::new(timer, policy, move |_, _| _ = told.fetch_add(1, SeqCst));
    while !over.is_over() {
        for _ in 0..20 {
            let call = || match fastrand::u32(..2) {
                0 => Ok(()),
                _ => Err("it is down".into()),
            };
            let call = calls.register("call", call).expect("it has no limit");
            if fastrand::u32(..8) == 0 {
                call.withdraw();
            }
            figures.done.fetch_add(1, SeqCst);
        }
        nap(Duration::from_millis(50));
    }
    until("no call is left", || calls.account().pending == 0);
    let account = calls.account();
    let ended = account.succeeded + account.given_up + account.withdrawn;
    assert!(account.registered == ended, "calls: {account:?}");
    assert!(account.given_up == given_up.load(SeqCst), "calls: {account:?}");
}

/// Ends once.
struct Waits(Arc<AtomicU64>);

impl Operation for Waits {
    fn is_satisfied(&mut self) -> bool {
        fastrand::u32(..4) == 0
    }

    fn complete(self, _: End) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn operations(timer: &Timer, figures: &Figures, over: &Over) {
    let (purgatory, ended) = (Purgatory::new(timer, 1_000), Arc::<AtomicU64>::default());
    let mut begun = 0;
    while !over.is_over() {
        for _ in 0..50 {
            let (key, limit) = (fastrand::u64(..100), Duration::from_millis(fastrand::u64(..500)));
            let waits = Waits(Arc::clone(&ended));
            purgatory.complete_or_watch(waits, [key], limit).ok().expect("it has no limit");
            purgatory.check(&fastrand::u64(..100));
            begun += 1;
            figures.done.fetch_add(1, SeqCst);
        }
        nap(Duration::from_millis(20));
    }
    until("no operation is left", || purgatory.delayed() == 0);
    until("each has ended once", || ended.load(SeqCst) == begun);
}

/// Each job ends by itself or by its limit.
fn jobs(timer: &Timer, figures: &Figures, over: &Over) {
    let supervisor = Supervisor::new(timer, Duration::from_millis(200)).expect("it has files");
    while !over.is_over() {
        let scripts = ["sleep 0.1", "sleep 3600", "trap '' TERM; while :; do sleep 0.1; done"];
        for script in scripts {
            let mut command = Command::new("sh");
            let job = supervisor.start(command.args(["-c", script]), Duration::from_millis(500));
            let ended = job.expect("a process more").wait(Duration::from_secs(600));
            ended.expect("it ends in ten minutes");
            figures.done.fetch_add(1, SeqCst);
        }
        nap(Duration::from_secs(1));
    }
    supervisor.shut_down();
    assert!(supervisor.running() == 0, "a job is left");
}

/// Connections that are watched.
const HEARTS: i64 = 50;
