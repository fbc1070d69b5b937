//! Locks in a real Redis, and each fault that they promise to survive.

mod limit;

use limit::within_minutes;
use redis::Connection;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write, copy, stderr};
use std::mem::replace;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::{scope, sleep, spawn};
use std::time::{Duration, Instant};
use systems::lock_watchdog::{Lock, LockError, Locks, start_holder};
use systems::process::Process;
use systems::redis_server::RedisServer;
use tickwheel::{ManualClock, TimeoutGuard, Timer};

/// Says so if there is no Redis; under CI that is a failure.
fn server() -> Option<(TimeoutGuard, RedisServer)> {
    match RedisServer::start() {
        Ok(server) => Some((within_minutes(), server)),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "apt-get install redis-server: {error}");
            // Past the harness, which would keep it to itself.
            let _ = writeln!(stderr(), "skipped: no Redis ({error}); apt-get install redis-server");
            None
        }
    }
}

/// Returns locks, and the names and fencing numbers of those that were lost.
fn locks(server: &RedisServer, timer: &Timer, lease: Duration) -> (Locks, Receiver<(String, u64)>) {
    let (lost, losses) = mpsc::channel();
    let tell = move |name: &str, fence| lost.send((name.to_owned(), fence)).unwrap_or_default();
    (Locks::new(&server.url(), timer, lease, tell).unwrap(), losses)
}

/// A timer on a clock that the test moves.
fn still() -> (ManualClock, Timer) {
    let clock = ManualClock::new();
    let timer = Timer::builder().clock(clock.clone()).build().unwrap();
    (clock, timer)
}

fn holder(server: &RedisServer) -> Process {
    start_holder(Path::new(env!("CARGO_BIN_EXE_lock_watchdog")), &server.url(), LEASE).unwrap()
}

fn signal(server: &RedisServer, signal: Signal) {
    let pid = Pid::from_raw(server.pid().try_into().unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// How many milliseconds Redis gives the lock of a holder; -2 if there is none.
fn left(redis: &mut Connection) -> i64 {
    redis::cmd("PTTL").arg("lock:stock").query(redis).unwrap()
}

fn is_taken(result: &Result<Lock, LockError>) -> bool {
    matches!(result, Err(LockError::Taken(_)))
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "it never was so");
        sleep(Duration::from_millis(1));
    }
}

/// How often Redis itself ran `command`, in scripts too.
fn calls(redis: &mut Connection, command: &str) -> u64 {
    let info: String = redis::cmd("INFO").arg("commandstats").query(redis).unwrap();
    let start = format!("cmdstat_{command}:calls=");
    let rest = info.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or("0,");
    rest.split_once(',').unwrap().0.parse().unwrap()
}

#[test]
fn one_owner_has_a_lock_and_enters_again() {
    let Some((_limit, server)) = server() else { return };
    let timer = Timer::new();
    let (here, losses) = locks(&server, &timer, LONG);
    let (there, _) = locks(&server, &timer, LONG);
    let first = here.try_lock("stock", "ann").unwrap();
    let again = here.try_lock("stock", "ann").unwrap();
    assert_eq!(first.fence(), again.fence());
    assert!(is_taken(&here.try_lock("stock", "bob")), "another owner in the same process");
    assert!(is_taken(&there.try_lock("stock", "ann")), "another process");
    assert!(here.try_lock("price", "bob").unwrap().is_held());

    assert!(first.unlock().unwrap());
    assert!(again.is_held() && is_taken(&there.try_lock("stock", "bob")));
    let fence = again.fence();
    drop(again);
    let mut next = there.try_lock("stock", "bob");
    wait_until(|| {
        if is_taken(&next) {
            next = there.try_lock("stock", "bob");
        }
        !is_taken(&next)
    });
    let next = next.unwrap();
    assert!(fence < next.fence());
    assert!(next.unlock().unwrap());

    drop(here);
    let gone = losses.recv_timeout(LONG);
    assert_eq!(gone, Err(RecvTimeoutError::Disconnected), "nothing is left to tell a loss");
}

#[test]
fn a_timer_that_is_full_or_stopped_locks_nothing_more() {
    let Some((_limit, server)) = server() else { return };
    let clock = ManualClock::new();
    let timer = Timer::builder().clock(clock.clone()).max_pending(3).build().unwrap();
    let (full, losses) = locks(&server, &timer, 30 * SECOND);
    let lock = full.try_lock("stock", "ann").unwrap();
    // From now on others take each timeout, also that which wakes the thread of the renewals.
    let (mut others, mut renewals, mut without) = (Vec::new(), 0, 0);
    while without < 2 {
        without += u32::from(others.len() == 2);
        renewals += 1;
        clock.advance(10 * SECOND);
        wait_until(|| {
            others.extend(timer.schedule(Duration::MAX, || {}));
            full.renewals().0 == renewals
        });
    }
    for _ in 0..2 {
        assert!(matches!(full.try_lock("fence", "ann"), Err(LockError::Timer)));
    }
    assert!(lock.unlock().unwrap() && losses.try_recv().is_err());

    let timer = Timer::new();
    timer.stop().unwrap();
    let (stopped, _) = locks(&server, &timer, LONG);
    assert!(matches!(stopped.try_lock("fence", "ann"), Err(LockError::Timer)));
    let (good, _) = locks(&server, &Timer::new(), LONG);
    assert!(good.try_lock("fence", "ann").unwrap().is_held(), "it was given back");
}

#[test]
fn a_lease_whose_end_no_clock_tells_is_refused() {
    let refused = Locks::new("redis://localhost", &Timer::new(), Duration::MAX, |_, _| {});
    assert!(refused.unwrap_err().to_string().contains("at most a hundred years"));
}

#[test]
fn a_lease_is_renewed_at_each_third_and_ends_by_the_clock() {
    let Some((_limit, server)) = server() else { return };
    let (clock, timer) = still();
    let (locks, losses) = locks(&server, &timer, 30 * SECOND);
    let lock = locks.try_lock("stock", "ann").unwrap();
    for third in 1..=9 {
        clock.advance(10 * SECOND - Duration::from_millis(1));
        assert_eq!(locks.renewals().0, third - 1, "not early");
        clock.advance(Duration::from_millis(1));
        wait_until(|| locks.renewals().0 == third);
    }
    drop(server);
    let lease = Duration::from_millis(29_700); // a hundredth less
    clock.advance(lease - Duration::from_millis(1));
    assert!(lock.is_held() && losses.try_recv().is_err(), "not early");
    clock.advance(Duration::from_millis(1));
    assert_eq!(losses.try_recv(), Ok(("stock".to_owned(), lock.fence())));
    assert!(!lock.is_held() && losses.try_recv().is_err(), "told once");
    assert!(matches!(lock.unlock(), Err(LockError::Redis(_))));
}

#[test]
fn the_flag_ends_with_the_lease_though_no_task_can_run() {
    let Some((_limit, server)) = server() else { return };
    let (clock, timer) = still();
    let (locks, losses) = locks(&server, &timer, LONG);
    let lock = locks.try_lock("stock", "ann").unwrap();
    let (begins, begun) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let blocks = move || {
        clock.jump(LONG); // inside a task, it waits for nothing
        begins.send(()).unwrap();
        ends.recv().unwrap_err();
    };
    timer.schedule(Duration::ZERO, blocks).unwrap();
    begun.recv().unwrap();
    assert!(!lock.is_held());
    assert_eq!(losses.try_recv(), Ok(("stock".to_owned(), lock.fence())), "by the look itself");
    drop(end);
}

#[test]
fn the_lock_of_a_killed_holder_is_free_within_the_lease() {
    let Some((_limit, server)) = server() else { return };
    let mut redis = server.connect().unwrap();
    let timer = Timer::new();
    let (locks, _) = locks(&server, &timer, LONG);
    let mut holder = holder(&server);
    let mut last = left(&mut redis);
    wait_until(|| {
        let now = left(&mut redis);
        replace(&mut last, now) < now // it was renewed
    });
    assert!(is_taken(&locks.try_lock("stock", "ann")));
    holder.kill().unwrap();
    let lease = i64::try_from(LEASE.as_millis()).unwrap();
    assert!(left(&mut redis) <= lease, "and nobody is there who would make that more");
    wait_until(|| !is_taken(&locks.try_lock("stock", "ann")));
}

#[test]
fn a_stopped_holder_learns_that_it_lost_the_lock_before_it_writes() {
    let Some((_limit, server)) = server() else { return };
    let mut redis = server.connect().unwrap();
    let mut stopped = holder(&server);
    stopped.tell("write").unwrap();
    assert_eq!(stopped.answer().unwrap(), "written");
    stopped.signal(Signal::STOP).unwrap();
    wait_until(|| left(&mut redis) < 0);
    let mut next = holder(&server);
    next.tell("write").unwrap();
    assert_eq!(next.answer().unwrap(), "written");

    stopped.tell("write").unwrap();
    stopped.tell("write unchecked").unwrap();
    stopped.signal(Signal::CONT).unwrap();
    assert_eq!(stopped.answer().unwrap(), "lost");
    assert_eq!(stopped.answer().unwrap(), "refused", "its fencing number is old");
    next.tell("write").unwrap();
    assert_eq!(next.answer().unwrap(), "written");
}

#[test]
fn a_thousand_locks_are_renewed_in_few_pipelines() {
    let Some((_limit, server)) = server() else { return };
    let mut redis = server.connect().unwrap();
    let (clock, timer) = still();
    let (locks, losses) = locks(&server, &timer, LONG);
    let lock = |number| locks.try_lock(&format!("order {number}"), "ann").unwrap();
    let held: Vec<Lock> = (0..1_000).map(lock).collect();
    assert!(timer.pending() <= 1_001, "an alarm each, and the channel");
    for third in 0..3 {
        clock.advance(LONG / 3 - Duration::from_millis(1));
        assert_eq!(locks.renewals().0, third * 1_000, "none before its third");
        clock.advance(Duration::from_millis(1));
        wait_until(|| locks.renewals().0 == (third + 1) * 1_000);
    }
    assert!(held.iter().all(Lock::is_held) && losses.try_recv().is_err());
    assert!(held.into_iter().all(|lock| lock.unlock().unwrap()));
    clock.advance(LONG);
    let (renewals, pipelines) = locks.renewals();
    println!("{renewals} renewals in {pipelines} pipelines");
    assert!(pipelines * 4 < renewals);
    sleep(SECOND / 2);
    assert_eq!(calls(&mut redis, "pexpire"), 3_000, "Redis counts the same, and no more follow");
}

#[test]
fn locks_outlive_errors_lost_connections_and_a_restart() {
    let Some((_limit, mut server)) = server() else { return };
    let (clock, timer) = still();
    let (idle, _) = locks(&server, &timer, LONG);
    let (locks, losses) = locks(&server, &timer, LONG);
    assert!(idle.try_lock("key", "bob").unwrap().unlock().unwrap());
    let held = ["stock", "price"].map(|name| locks.try_lock(name, "ann").unwrap());
    let (third, soon) = (LONG / 3, LONG / 15);
    let fails = |delay| {
        let before = locks.renewals();
        clock.advance(delay);
        wait_until(|| before.1 < locks.renewals().1);
        assert_eq!(locks.renewals().0, before.0);
    };
    let renewed = |delay| {
        let before = locks.renewals().0;
        clock.advance(delay);
        wait_until(|| before + 2 == locks.renewals().0);
    };
    let mut redis = server.connect().unwrap();
    let mut config = |setting: &str, value: &str| {
        redis::cmd("CONFIG").arg("SET").arg(setting).arg(value).exec(&mut redis).unwrap();
    };
    config("min-replicas-to-write", "1"); // each renewal is an error
    [third, soon, soon].into_iter().for_each(fails);
    config("min-replicas-to-write", "0");
    renewed(soon);
    for _ in 0..5 {
        redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).exec(&mut redis).unwrap();
        renewed(third);
    }
    signal(&server, Signal::KILL);
    [third, soon, soon].into_iter().for_each(fails);
    server.restart(true).unwrap();
    assert!(idle.try_lock("key", "bob").unwrap().unlock().unwrap(), "at the first attempt");
    renewed(soon);
    assert!(held.iter().all(Lock::is_held) && losses.try_recv().is_err());
    assert!(is_taken(&locks.try_lock("stock", "bob")));

    server.restart(false).unwrap();
    clock.advance(third);
    let mut lost = [(); 2].map(|()| losses.recv_timeout(LONG).unwrap());
    lost.sort();
    let [stock, price] = held;
    assert_eq!(lost, [("price".to_owned(), price.fence()), ("stock".to_owned(), stock.fence())]);
    assert!(!stock.is_held() && !price.is_held());
    let again = ["stock", "price"].map(|name| locks.try_lock(name, "ann").unwrap());
    assert!(price.fence() < again[0].fence(), "though Redis has lost the last one");
    assert!(!stock.unlock().unwrap());
    renewed(third);
    assert!(again.iter().all(Lock::is_held), "what was lost takes nothing with it");
}

#[test]
fn what_another_holds_is_neither_renewed_nor_unlocked() {
    let Some((_limit, server)) = server() else { return };
    let mut redis = server.connect().unwrap();
    let (clock, timer) = still();
    let (locks, losses) = locks(&server, &timer, LONG);
    let [stock, price] = ["stock", "price"].map(|name| locks.try_lock(name, "ann").unwrap());
    for name in ["stock", "price"] {
        redis::cmd("SET")
            .arg(&[&format!("lock:{name}"), "another", "EX", "3600"])
            .exec(&mut redis)
            .unwrap();
    }
    assert!(!stock.unlock().unwrap());
    clock.advance(LONG / 3);
    assert_eq!(losses.recv_timeout(LONG), Ok(("price".to_owned(), price.fence())));
    assert!(!price.unlock().unwrap());
    for name in ["stock", "price"] {
        let left: u64 = redis::cmd("TTL").arg(format!("lock:{name}")).query(&mut redis).unwrap();
        assert!(3_000 < left, "its hour is as it was");
    }
}

#[test]
fn a_holder_is_told_though_redis_hangs() {
    let Some((_limit, server)) = server() else { return };
    let timer = Timer::new();
    let (locks, losses) = locks(&server, &timer, LEASE);
    let lock = locks.try_lock("stock", "ann").unwrap();
    signal(&server, Signal::STOP);
    let lost = losses.recv_timeout(LONG);
    let (is_held, fence, unlocked) = (lock.is_held(), lock.fence(), lock.unlock());
    signal(&server, Signal::CONT);
    assert_eq!(lost, Ok(("stock".to_owned(), fence)));
    assert!(!is_held && matches!(unlocked, Err(LockError::Redis(_))), "and waits for no answer");
}

#[test]
fn callers_that_wait_for_a_hanging_redis_wait_once() {
    let Some((_limit, server)) = server() else { return };
    let timer = Timer::new();
    let (locks, _losses) = locks(&server, &timer, LEASE);
    let held = (0..50).map(|number| locks.try_lock(&number.to_string(), "ann").unwrap());
    let held: Vec<Lock> = held.collect();
    signal(&server, Signal::STOP);
    let begun = Instant::now();
    let fails = |lock: Lock| matches!(lock.unlock(), Err(LockError::Redis(_)));
    let all_fail = scope(|threads| {
        let calls: Vec<_> =
            held.into_iter().map(|lock| threads.spawn(move || fails(lock))).collect();
        calls.into_iter().all(|call| call.join().unwrap())
    });
    let took = begun.elapsed();
    signal(&server, Signal::CONT);
    assert!(all_fail && took < 5 * LEASE, "{took:?}");
}

/// What becomes of Redis's answers on their way through a proxy.
#[derive(Clone, Copy, PartialEq)]
enum Answers {
    Pass,
    /// A byte in a fifth of the lease.
    Drip,
    Wait,
}

/// A proxy before a Redis.
struct Proxy {
    url: String,
    answers: Arc<Mutex<Answers>>,
    /// How many bytes have begun to wait.
    waiting: Arc<AtomicUsize>,
}

impl Proxy {
    fn new(server: &RedisServer) -> Self {
        let (listener, redis) = (TcpListener::bind("127.0.0.1:0").unwrap(), server.address());
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let answers = Arc::new(Mutex::new(Answers::Pass));
        let waiting = Arc::new(AtomicUsize::new(0));
        let proxy = Self { url, answers: Arc::clone(&answers), waiting: Arc::clone(&waiting) };
        spawn(move || {
            for client in listener.incoming().map(Result::unwrap) {
                let redis = TcpStream::connect(redis).unwrap();
                let (mut from, mut to) = (client.try_clone().unwrap(), redis.try_clone().unwrap());
                spawn(move || {
                    let _ = copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
                let (answers, waiting) = (Arc::clone(&answers), Arc::clone(&waiting));
                spawn(move || pass_on(redis, client, &answers, &waiting));
            }
        });
        proxy
    }

    fn set(&self, answers: Answers) {
        *self.answers.lock().unwrap() = answers;
    }

    /// Runs `call`, and `then` while its answer is on the way.
    fn meanwhile<T: Send>(&self, call: impl FnOnce() -> T + Send, then: impl FnOnce()) -> T {
        self.set(Answers::Wait);
        let before = self.waiting.load(SeqCst);
        scope(|threads| {
            let call = threads.spawn(call);
            wait_until(|| before < self.waiting.load(SeqCst));
            then();
            self.set(Answers::Pass);
            call.join().unwrap()
        })
    }
}

fn pass_on(mut redis: TcpStream, mut client: TcpStream, to: &Mutex<Answers>, waits: &AtomicUsize) {
    let mut byte = [0];
    while redis.read_exact(&mut byte).is_ok() {
        let is = || *to.lock().unwrap();
        waits.fetch_add(usize::from(is() == Answers::Wait), SeqCst);
        while is() == Answers::Wait {
            sleep(Duration::from_millis(1));
        }
        if is() == Answers::Drip {
            sleep(LEASE / 5);
        }
        if client.write_all(&byte).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

#[test]
fn a_redis_that_drips_its_answers_has_no_more_time_than_one_that_hangs() {
    let Some((_limit, server)) = server() else { return };
    let proxy = Proxy::new(&server);
    let (lost, losses) = mpsc::channel();
    let tell = move |name: &str, _| lost.send(name.to_owned()).unwrap_or_default();
    let locks = Locks::new(&proxy.url, &Timer::new(), LEASE, tell).unwrap();
    let lock = locks.try_lock("stock", "ann").unwrap();
    proxy.set(Answers::Drip);
    let dripped = locks.try_lock("price", "ann");
    assert!(matches!(dripped, Err(LockError::Redis(_))), "it would come after five leases");
    assert_eq!(losses.recv_timeout(LONG).as_deref(), Ok("stock"), "so do renewals");
    assert!(!lock.is_held());
}

#[test]
fn a_lease_counts_from_before_its_request() {
    let Some((_limit, server)) = server() else { return };
    let proxy = Proxy::new(&server);
    let (clock, timer) = still();
    let locks = Locks::new(&proxy.url, &timer, 60 * SECOND, |_, _| {}).unwrap();
    assert!(locks.try_lock("stock", "ann").unwrap().unlock().unwrap());
    let late = || clock.advance(5 * SECOND);
    let lock = proxy.meanwhile(|| locks.try_lock("price", "ann").unwrap(), late);
    proxy.set(Answers::Wait);
    let rest = 60 * SECOND - SECOND * 6 / 10 - 5 * SECOND;
    clock.advance(rest - Duration::from_millis(1));
    assert!(lock.is_held());
    clock.advance(Duration::from_millis(1));
    assert!(!lock.is_held());
    proxy.set(Answers::Pass);

    let lock = locks.try_lock("fence", "ann").unwrap();
    let before = locks.renewals().0;
    proxy.meanwhile(|| clock.advance(20 * SECOND), late);
    wait_until(|| before < locks.renewals().0);
    proxy.set(Answers::Wait);
    clock.advance(rest - Duration::from_millis(1));
    assert!(lock.is_held(), "it was renewed");
    clock.advance(Duration::from_millis(1));
    assert!(!lock.is_held());
    proxy.set(Answers::Pass);
}

#[test]
fn a_lease_that_is_over_when_the_answer_comes_is_no_lock() {
    let Some((_limit, server)) = server() else { return };
    let proxy = Proxy::new(&server);
    let (clock, timer) = still();
    let (lost, losses) = mpsc::channel();
    let tell = move |name: &str, _| lost.send(name.to_owned()).unwrap_or_default();
    let locks = Locks::new(&proxy.url, &timer, 60 * SECOND, tell).unwrap();
    let over = || clock.advance(60 * SECOND);
    let late = proxy.meanwhile(|| locks.try_lock("stock", "ann"), over);
    assert!(matches!(late, Err(LockError::System(_))));
    assert!(locks.try_lock("stock", "bob").unwrap().is_held(), "it was given back");
    assert!(losses.try_recv().is_err(), "what was never held is not lost");
}

#[test]
fn without_a_larger_fencing_number_nothing_is_locked() {
    let Some((_limit, server)) = server() else { return };
    let mut redis = server.connect().unwrap();
    let (locks, _losses) = locks(&server, &Timer::new(), LONG);
    for last in ["", "x", "nan", "inf", "1e300", "9007199254740992"] {
        redis::cmd("SET").arg(&["fence", last]).exec(&mut redis).unwrap();
        let refused = locks.try_lock("stock", "ann");
        assert!(matches!(refused, Err(LockError::Redis(_))), "{last}");
        assert_eq!(left(&mut redis), -2, "{last}");
    }
    redis::cmd("DEL").arg("fence").exec(&mut redis).unwrap();
    assert!(locks.try_lock("stock", "ann").unwrap().is_held());
}

/// Answers each connection with this, whatever it asks.
fn babbles(answer: &[u8]) -> String {
    let (listener, answer) = (TcpListener::bind("127.0.0.1:0").unwrap(), answer.to_vec());
    let url = format!("redis://{}", listener.local_addr().unwrap());
    spawn(move || {
        for mut client in listener.incoming().map(Result::unwrap) {
            let _ = client.write_all(&answer);
            let _ = copy(&mut client, &mut std::io::sink());
        }
    });
    url
}

#[test]
fn answers_that_make_no_sense_are_errors() {
    let _limit = within_minutes();
    let nested = b"*1\r\n".repeat(100_000);
    let long = b"$4294967295\r\nabc";
    let moved = b"-MOVED 1 127.0.0.1:1\r\n".repeat(9);
    let answers: [&[u8]; 7] = [
        &nested,
        long,
        &moved,
        b":1\r\n",
        b"*-7\r\n",
        b"HTTP/1.1 400 No\r\n\r\n",
        b"*4294967295\r\n",
    ];
    for answer in answers {
        let locks = Locks::new(&babbles(answer), &Timer::new(), SECOND, |_, _| {}).unwrap();
        for _ in 0..2 {
            assert!(locks.try_lock("stock", "ann").is_err());
        }
    }
}

#[test]
fn a_hook_that_panics_or_blocks_ends_no_renewal() {
    let Some((_limit, server)) = server() else { return };
    let mut redis = server.connect().unwrap();
    let (lost, losses) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let ends = Mutex::new(ends);
    let hook = move |name: &str, _| {
        lost.send(name.to_owned()).unwrap();
        if name == "blocks" {
            let _ = ends.lock().unwrap().recv();
        }
        panic!("the hook of {name}");
    };
    let timer = Timer::new();
    let locks = Locks::new(&server.url(), &timer, LEASE, hook).unwrap();
    let good = locks.try_lock("good", "ann").unwrap();
    let held = ["panics", "blocks", "looks"].map(|name| locks.try_lock(name, "ann").unwrap());
    for name in ["panics", "blocks"] {
        redis::cmd("DEL").arg(format!("lock:{name}")).exec(&mut redis).unwrap();
        assert_eq!(losses.recv_timeout(LONG).as_deref(), Ok(name));
        let before = locks.renewals().0;
        wait_until(|| before + 4 <= locks.renewals().0);
    }
    redis::cmd("DEL").arg("lock:looks").exec(&mut redis).unwrap();
    wait_until(|| !held[2].is_held());
    assert_eq!(losses.try_recv().as_deref(), Ok("looks"), "and the look did not panic");
    assert!(good.is_held());
    drop(end);
}

#[test]
fn dropping_locks_waits_for_no_redis_and_the_last_handle_waits_for_all() {
    let Some((_limit, server)) = server() else { return };
    let mut redis = server.connect().unwrap();
    let (held, other) = locks(&server, &Timer::new(), LONG);
    drop((0..40).map(|name| held.try_lock(&name.to_string(), "ann").unwrap()).collect::<Vec<_>>());
    drop((held, other));
    let left: Vec<String> = redis::cmd("KEYS").arg("lock:*").query(&mut redis).unwrap();
    assert_eq!(left, [""; 0], "all are released");

    let (held, _losses) = locks(&server, &Timer::new(), LEASE);
    let all: Vec<_> =
        (0..40).map(|name| held.try_lock(&name.to_string(), "ann").unwrap()).collect();
    signal(&server, Signal::STOP);
    let begun = Instant::now();
    drop((all, held));
    let took = begun.elapsed();
    signal(&server, Signal::CONT);
    println!("40 locks were dropped in {took:?}, with a lease of {LEASE:?}");
    assert!(took < 5 * LEASE, "{took:?}: a third of one, and the rest for a busy machine");
}

#[test]
fn nobody_who_knows_the_seed_of_a_generator_knows_a_token() {
    let Some((_limit, server)) = server() else { return };
    let mut redis = server.connect().unwrap();
    let (locks, _losses) = locks(&server, &Timer::new(), LONG);
    let tokens = ["stock", "price"].map(|name| {
        fastrand::seed(27);
        let _lock = locks.try_lock(name, "ann").unwrap();
        redis::cmd("GET").arg(format!("lock:{name}")).query::<String>(&mut redis).unwrap()
    });
    assert!(tokens[0] != tokens[1] && tokens.iter().all(|token| token.len() == 32), "{tokens:?}");
}

#[test]
fn no_renewal_outlives_unlock() {
    let Some((_limit, server)) = server() else { return };
    let mut redis = server.connect().unwrap();
    let mut monitor = TcpStream::connect(server.address()).unwrap();
    monitor.write_all(b"MONITOR\r\n").unwrap();
    let log = spawn(move || renewals_after_unlock(BufReader::new(monitor)));

    let (clock, timer) = still();
    let (locks, _losses) = locks(&server, &timer, LONG);
    let step = || clock.advance(Duration::from_millis(1));
    for round in 0..4 {
        // Their renewals are due one after the other.
        let lock = |number| {
            step();
            locks.try_lock(&format!("{round} {number}"), "ann").unwrap()
        };
        let mut held: Vec<Lock> = (0..500).map(lock).collect();
        let before = locks.renewals().0;
        clock.advance(LONG / 3 - Duration::from_millis(450));
        wait_until(|| before + 50 <= locks.renewals().0);
        fastrand::shuffle(&mut held);
        let half = held.split_off(250);
        scope(|threads| {
            for part in [held, half] {
                threads.spawn(|| {
                    for lock in part {
                        step();
                        assert!(lock.unlock().unwrap());
                    }
                });
            }
        });
    }
    sleep(SECOND / 2);
    redis::cmd("ECHO").arg("the end").exec(&mut redis).unwrap();
    let (unlocked, renewals, late) = log.join().unwrap();
    println!("{unlocked} unlocked, {renewals} renewals, {late} of them late");
    assert_eq!((unlocked, late), (2_000, 0));
    assert!(200 < renewals, "they race");
}

/// Reads what Redis runs, in its order, and returns how many locks it was asked to unlock, how many
/// to renew, and how many of these after the unlock.
fn renewals_after_unlock(log: impl BufRead) -> (usize, usize, usize) {
    let (mut unlocked, mut renewals, mut late) = (HashSet::new(), 0, 0);
    for line in log.lines().map(Result::unwrap) {
        let words: Vec<&str> = line.split('"').collect();
        match words[..] {
            [_, "EVAL", _, script, .., token, _, _lease, _] if script.contains("'DEL'") => {
                unlocked.insert(token.to_owned());
            }
            [_, "EVAL", _, script, .., token, _, _lease, _] if script.contains("'PEXPIRE'") => {
                renewals += 1;
                late += usize::from(unlocked.contains(token));
            }
            [_, "ECHO", _, "the end", _] => break,
            _ => {}
        }
    }
    (unlocked.len(), renewals, late)
}

const SECOND: Duration = Duration::from_secs(1);
/// In real time: two thirds of it are for a busy machine to hold up the process that renews.
const LEASE: Duration = Duration::from_secs(12);
/// Only what hangs takes as long. A lease by the clock of a test that is as long ends by that clock
/// and not in Redis.
const LONG: Duration = Duration::from_secs(300);
