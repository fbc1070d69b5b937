//! Do timers survive it when the primary of their database does not?
//!
//! ```sh
//! cargo bench -p tickwheel-durable --features postgres --bench failover -- kill 50
//! ```
//!
//! `kill`, `pause`, `cut` or `switch` says what becomes of the primary, the number how often, one
//! after another. The program starts a cluster by the script `cluster`, which tells what that
//! needs. Workers, their callers, and a caller by SQL go on all the while, and keep an account: what
//! was acknowledged, cancelled, handed out, and when.
//!
//! `nodes=2` takes two nodes instead of three, `mode=asynchronous` lets commits wait for no standby,
//! `lag=5` lets nothing to the standbys in the five seconds before, `off=10` sets the clock of all nodes but the first ahead by ten seconds, `cluster=2` tells runs
//! at the same time apart.

use std::collections::HashMap;
use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use postgres::{Client, NoTls};
use tickwheel_durable::{Cancelled, DurableTimer};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let [kind, times, settings @ ..] = &*words else {
        return Err(
            "failover kill|pause|cut|switch TIMES [nodes=2] [mode=asynchronous] [lag=5] [off=10]"
                .into(),
        );
    };
    let setting = |name: &str, default: &str| {
        let given = settings.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        given.unwrap_or(default).to_owned()
    };
    let is_synchronous = setting("mode", "synchronous") == "synchronous";
    let off: i64 = setting("off", "0").parse()?;
    let lag = setting("lag", "0").parse()?;
    let folder = tempfile::tempdir()?;
    let cluster = Cluster { folder: folder.path().join("cluster"), lag };
    cluster.start(
        &setting("nodes", "3"),
        &setting("mode", "synchronous"),
        off,
        &setting("cluster", "1"),
    )?;
    let (account, ended) = run(&cluster, kind, times.parse()?, off)?;
    let is_good = account.tell();
    ended?;
    if is_synchronous && !is_good { Err("a promise was broken".into()) } else { Ok(()) }
}

/// Returns the account, and whether all failovers took place.
fn run(cluster: &Cluster, kind: &str, times: u64, off: i64) -> Result<(Account, Result<()>)> {
    let url = cluster.url()?;
    let workers: Vec<DurableTimer> =
        (0..WORKERS).map(|_| DurableTimer::connect(&url)).collect::<std::result::Result<_, _>>()?;
    let account = Account::default();
    let (is_over, is_empty) = (AtomicBool::new(false), AtomicBool::new(false));
    account.primaries.lock().push((Instant::now(), offset(cluster.primary().unwrap_or(1), off)));
    let ended = thread::scope(|scope| {
        for (number, timer) in workers.iter().enumerate() {
            let (account, is_over, is_empty) = (&account, &is_over, &is_empty);
            scope.spawn(move || call(timer, number, account, is_over));
            scope.spawn(move || consume(timer, account, is_empty));
        }
        let (account_ref, is_over_ref, url) = (&account, &is_over, &url);
        scope.spawn(move || call_by_sql(url, account_ref, is_over_ref));
        let ended: Result<()> = (1..=times).try_for_each(|time| {
            let told = fail(cluster, kind, off, &account)?;
            println!("{time} of {times}: {told}");
            Ok(())
        });
        is_over.store(true, Ordering::Relaxed);
        let left = until(LAST + Duration::from_secs(120), || account.waiting() == 0);
        is_empty.store(true, Ordering::Relaxed);
        if !left {
            println!("{} did not come", account.waiting());
        }
        ended
    });
    for timer in workers {
        timer.close()?;
    }
    Ok((account, ended))
}

/// Takes the primary away, waits for another, and for all to be there again.
fn fail(cluster: &Cluster, kind: &str, off: i64, account: &Account) -> Result<String> {
    cluster.wait_until_ready()?;
    thread::sleep(Duration::from_millis(fastrand::u64(2_000..6_000)));
    let primary = cluster.primary().ok_or("no primary")?;
    let node = primary.to_string();
    if 0.0 < cluster.lag {
        cluster.act("hold", &node)?;
        thread::sleep(Duration::from_secs_f64(cluster.lag));
    }
    let began = Instant::now();
    account.latest.store(0, Ordering::Relaxed);
    // Until it is known which node is the next, either clock may be the one.
    account.primaries.lock().push((began, offset(primary, off).max(off * 1000).max(0)));
    cluster.act(kind, &node)?;
    let is_other = || cluster.primary().is_some_and(|other| other != primary);
    if !until(Duration::from_secs(120), is_other) {
        return Err("no other node has become the primary after two minutes".into());
    }
    if 0.0 < cluster.lag {
        cluster.act("release", &node)?;
    }
    let other = cluster.primary().ok_or("no primary")?;
    account.primaries.lock().push((Instant::now(), offset(other, off)));
    let failed_over = began.elapsed();
    let answered = || account.answered.lock().is_some_and(|at| began + failed_over < at);
    if !until(Duration::from_secs(120), answered) {
        return Err("no call is answered after two minutes".into());
    }
    let after = began.elapsed();
    thread::sleep(Duration::from_secs(fastrand::u64(1..15)));
    match kind {
        "kill" => cluster.act("up", &node)?,
        "pause" => cluster.act("continue", &node)?,
        "cut" => cluster.act("heal", &node)?,
        _ => {}
    }
    let latest = Duration::from_millis(account.latest.load(Ordering::Relaxed));
    let bound = after + LEASE + LEASE / 4 + LEASE / 3;
    let word = if latest <= bound { "" } else { ": OVER THE BOUND" };
    account.outages.lock().push(after);
    account.over.fetch_add(u64::from(bound < latest), Ordering::Relaxed);
    Ok(format!(
        "{other} for {primary} after {failed_over:.1?}, answered after {after:.1?}, late by {latest:.1?} at most{word}"
    ))
}

fn offset(node: u32, off: i64) -> i64 {
    if node == 1 { 0 } else { off * 1000 }
}

/// Schedules and cancels through a worker.
fn call(timer: &DurableTimer, number: usize, account: &Account, is_over: &AtomicBool) {
    let mut cancellable = Vec::new();
    for n in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let name = format!("{number}/{n}");
        let at = SystemTime::now() + LAST.mul_f64(fastrand::f64());
        account.ask(&name, at);
        let answer = timer.schedule(&name, at, b"payload").and_then(|scheduled| scheduled.wait());
        account.answer(&name, answer.is_ok());
        if answer.is_ok() && n % 4 == 0 {
            cancellable.push(name);
        }
        if 40 < cancellable.len() {
            let name = cancellable.swap_remove(fastrand::usize(..cancellable.len()));
            let answer = timer.cancel(&name).and_then(|cancelled| cancelled.wait());
            account.cancel(&name, answer.ok());
        }
        thread::sleep(Duration::from_millis(15));
    }
}

/// Schedules by SQL, as programs that run no worker do.
fn call_by_sql(url: &str, account: &Account, is_over: &AtomicBool) {
    let url = format!("{url}?target_session_attrs=read-write&connect_timeout=2&tcp_user_timeout=5");
    let mut client = None;
    for n in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let Some(connected) = &mut client else {
            client = Client::connect(&url, NoTls).ok();
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let name = format!("sql/{n}");
        let at = SystemTime::now() + LAST.mul_f64(fastrand::f64());
        account.ask(&name, at);
        let statement = "set statement_timeout = 5000; begin; set local synchronous_commit = on";
        let scheduled = connected.batch_execute(statement).and_then(|()| {
            connected.execute("select tickwheel_schedule($1, $2, 'payload')", &[&name, &at])?;
            connected.batch_execute("commit")
        });
        account.answer(&name, scheduled.is_ok());
        if scheduled.is_err() {
            client = None;
        }
        thread::sleep(Duration::from_millis(15));
    }
}

fn consume(timer: &DurableTimer, account: &Account, is_empty: &AtomicBool) {
    while !is_empty.load(Ordering::Relaxed) {
        let Ok(Some(due)) = timer.recv_timeout(Duration::from_millis(100)) else { continue };
        account.hand_out(due.name());
        due.ack();
    }
}

/// What was asked, answered and handed out.
#[derive(Default)]
struct Account {
    timeouts: Lock<HashMap<String, Timeout>>,
    /// Since when the clock of the primary was ahead by so many milliseconds.
    primaries: Lock<Vec<(Instant, i64)>>,
    /// When a call was last answered with success.
    answered: Lock<Option<Instant>>,
    /// How late the latest was since the last failover began, in milliseconds.
    latest: AtomicU64,
    outages: Lock<Vec<Duration>>,
    over: AtomicU64,
}

#[derive(Default)]
struct Timeout {
    /// Milliseconds since 1970.
    deadline: i64,
    is_acknowledged: bool,
    /// The answer of a cancel; `Some(None)` if it was an error.
    cancelled: Option<Option<Cancelled>>,
    handed_out: u32,
    early: i64,
    is_cancel_broken: bool,
}

impl Account {
    fn ask(&self, name: &str, at: SystemTime) {
        let timeout = Timeout { deadline: milliseconds(at), ..Timeout::default() };
        self.timeouts.lock().insert(name.to_owned(), timeout);
    }

    fn answer(&self, name: &str, is_acknowledged: bool) {
        if let Some(timeout) = self.timeouts.lock().get_mut(name) {
            timeout.is_acknowledged = is_acknowledged;
        }
        if is_acknowledged {
            *self.answered.lock() = Some(Instant::now());
        }
    }

    fn cancel(&self, name: &str, answer: Option<Cancelled>) {
        if let Some(timeout) = self.timeouts.lock().get_mut(name) {
            timeout.cancelled = Some(answer);
        }
    }

    fn hand_out(&self, name: &str) {
        let now = milliseconds(SystemTime::now());
        let ahead = self.ahead();
        let mut timeouts = self.timeouts.lock();
        let Some(timeout) = timeouts.get_mut(name) else { return };
        timeout.handed_out += 1;
        timeout.early = timeout.early.max(timeout.deadline - now - ahead);
        timeout.is_cancel_broken |= timeout.cancelled == Some(Some(Cancelled::Cancelled));
        if timeout.handed_out == 1 {
            let late = u64::try_from(now - timeout.deadline).unwrap_or_default();
            self.latest.fetch_max(late, Ordering::Relaxed);
        }
    }

    /// By how much the clock of the primary is ahead: of two within three seconds, of the later.
    fn ahead(&self) -> i64 {
        let primaries = self.primaries.lock();
        let since = Instant::now().checked_sub(Duration::from_secs(3));
        let before = primaries.iter().rposition(|&(at, _)| since.is_none_or(|since| at < since));
        let last = &primaries[before.unwrap_or_default()..];
        last.iter().map(|&(_, ahead)| ahead).max().unwrap_or_default()
    }

    /// How many are to come.
    fn waiting(&self) -> usize {
        self.timeouts.lock().values().filter(|timeout| timeout.is_lost()).count()
    }

    /// Prints all, and returns whether no promise was broken.
    fn tell(&self) -> bool {
        let timeouts = self.timeouts.lock();
        let count = |is: &dyn Fn(&Timeout) -> bool| timeouts.values().filter(|one| is(one)).count();
        let lost = count(&Timeout::is_lost);
        let early = count(&|one| 0 < one.early);
        let broken = count(&|one| one.is_cancel_broken);
        let mut outages = self.outages.lock();
        outages.sort();
        let (median, longest) = (outages.get(outages.len() / 2), outages.last());
        println!(
            "{} failovers; calls answered after {:.1?} in the median and {:.1?} at most",
            outages.len(),
            median.copied().unwrap_or_default(),
            longest.copied().unwrap_or_default()
        );
        println!(
            "{} asked, {} acknowledged, {} cancelled, {} came, {} of them more than once",
            timeouts.len(),
            count(&|one| one.is_acknowledged),
            count(&|one| one.cancelled == Some(Some(Cancelled::Cancelled))),
            count(&|one| 0 < one.handed_out),
            count(&|one| 1 < one.handed_out),
        );
        let most = timeouts.values().map(|one| one.early).max().unwrap_or_default();
        let over = self.over.load(Ordering::Relaxed);
        println!(
            "{lost} acknowledged and lost, {early} early (by {most} ms at most), {broken} cancelled \
             and came, {over} times later than a failover, a lease, a quarter and a call"
        );
        lost + early + broken == 0 && over == 0
    }
}

impl Timeout {
    fn is_lost(&self) -> bool {
        self.is_acknowledged && self.cancelled.is_none() && self.handed_out == 0
    }
}

/// The cluster of the script.
struct Cluster {
    folder: PathBuf,
    /// By how many seconds standbys are behind a primary when it is taken away.
    lag: f64,
}

impl Cluster {
    fn start(&self, nodes: &str, mode: &str, off: i64, number: &str) -> Result<()> {
        let mut command = self.command("start", &[nodes]);
        command.env("MODE", mode).env("OFF", off.to_string()).env("CLUSTER", number);
        if !command.status()?.success() {
            return Err("no cluster".into());
        }
        self.wait_until_ready()
    }

    /// Waits until all nodes are there. One that cannot follow the primary is copied anew, as an
    /// operator would.
    fn wait_until_ready(&self) -> Result<()> {
        for _ in 0..3 {
            if until(Duration::from_secs(60), || self.is_ready()) {
                return Ok(());
            }
            let _ = self.command("mend", &[]).status()?;
        }
        Err("the cluster is not ready after three minutes".into())
    }

    fn command(&self, action: &str, words: &[&str]) -> Command {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/failover/cluster");
        let mut command = Command::new(script);
        command.arg(action).arg(&self.folder).args(words).stdin(Stdio::null());
        command
    }

    fn act(&self, action: &str, node: &str) -> Result<()> {
        let status = self.command(action, &[node]).status()?;
        if status.success() { Ok(()) } else { Err(format!("cluster {action}: {status}").into()) }
    }

    fn url(&self) -> Result<String> {
        let output = self.command("url", &[]).output()?;
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    fn primary(&self) -> Option<u32> {
        let output = self.command("primary", &[]).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    }

    fn is_ready(&self) -> bool {
        self.command("ready", &[]).status().is_ok_and(|status| status.success())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.command("stop", &[]).status();
    }
}

/// A mutex of which it does not matter whether a thread panicked.
#[derive(Default)]
struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn milliseconds(at: SystemTime) -> i64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as i64
}

/// Waits until something holds, for so long at most. Returns whether it does.
fn until(limit: Duration, holds: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !holds() {
        if limit < began.elapsed() {
            return false;
        }
        thread::sleep(Duration::from_millis(200));
    }
    true
}

const WORKERS: usize = 3;

/// The default of the store.
const LEASE: Duration = Duration::from_secs(10);

/// No deadline is further away.
const LAST: Duration = Duration::from_secs(20);
