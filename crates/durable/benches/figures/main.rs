//! What durable timers cost on this machine, and whether they meet their goals.
//!
//! ```sh
//! cargo bench -p tickwheel-durable --bench figures -- groups          # schedules by group size
//! cargo bench -p tickwheel-durable --bench figures -- pending 10000000 # or 10000000 ascending
//! cargo bench -p tickwheel-durable --bench figures -- mixed           # firing while scheduling
//! # Workers on a database; without a URL, on a server that the program starts.
//! cargo bench -p tickwheel-durable --features postgres --bench figures -- postgres URL
//! cargo bench -p tickwheel-durable --features postgres --bench figures -- backlog 1000000 URL
//! ```
//!
//! `postgres` runs `workers ROWS`, `backlog ROWS`, `dead ROWS`, `late PENDING`, `locked`, `moved`,
//! `silent` and `payload`, one after another. Each prints its goals, and whether it has met them.
//! `TICKWHEEL_DURABLE_BACKLOG` and `TICKWHEEL_DURABLE_DEAD` say how many rows `postgres` has.
//!
//! `scale ROWS` alone tells what a timeout costs where 1, 10 and 50 million are pending, up to
//! `ROWS`, and `fleets` where 1, 2 and 4 databases share the partitions. `long ROWS` tells what
//! indexes take where few timeouts are long.
//!
//! `busy LOOPS` before them runs them idle, and again beside so many loops that never rest.
//!
//! Without words the program runs the first three, with few rows. `TMPDIR` says on which disk.

#[cfg(feature = "postgres")]
mod database;
#[cfg(feature = "postgres")]
#[allow(dead_code)]
#[path = "../../tests/server/mod.rs"]
mod server;

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tickwheel_durable::{Commit, DurableTimer, Scheduled};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let words: Vec<String> =
        std::env::args().skip(1).filter(|word| word != "--bench" && word != "--quick").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    run(&words)?;
    #[cfg(feature = "postgres")]
    if database::IS_ONE_MISSED.load(Ordering::Relaxed) {
        return Err("a goal was missed".into());
    }
    Ok(())
}

fn run(words: &[&str]) -> Result<()> {
    match *words {
        ["busy", loops, ref figure @ ..] => {
            run(figure)?;
            println!("and beside {loops} loops that never rest:");
            let busy = Busy::start(loops.parse()?);
            let ran = run(figure);
            drop(busy);
            ran
        }
        [] => {
            groups(2_000)?;
            pending(20_000, "random")?;
            mixed(2_000, Duration::from_secs(2))
        }
        ["groups"] => groups(50_000),
        ["pending", rows] => pending(rows.parse()?, "random"),
        ["pending", rows, names] => pending(rows.parse()?, names),
        ["mixed"] => mixed(200_000, Duration::from_secs(10)),
        #[cfg(feature = "postgres")]
        [
            figure @ ("postgres" | "backlog" | "dead" | "workers" | "late" | "locked" | "moved"
            | "silent" | "payload" | "scale" | "fleets" | "long"),
            ref rest @ ..,
        ] => on_database(figure, rest),
        ["fill", file, rows, names] => fill(Path::new(file), rows.parse()?, names == "random"),
        ["drain", file, rows, _] => drain(Path::new(file), rows.parse()?),
        _ => Err("figures [busy LOOPS] [groups | pending ROWS | mixed | postgres [URL]]".into()),
    }
}

/// Prints figures of workers: `rest` is a number of rows, where there is one, and a URL.
#[cfg(feature = "postgres")]
fn on_database(figure: &str, rest: &[&str]) -> Result<()> {
    let server;
    let own;
    let (rows, url) = match rest {
        [rows, url] => (Some(*rows), *url),
        [url] if url.contains("://") => (None, *url),
        rows => {
            server = server::Server::start().ok_or("no PostgreSQL, and no URL")?;
            own = server.database();
            (rows.first().copied(), &*own)
        }
    };
    let number = |variable: &str, default: u64| -> Result<u64> {
        let given = rows.map(str::to_owned).or_else(|| std::env::var(variable).ok());
        Ok(given.map_or(Ok(default), |rows| rows.parse())?)
    };
    database::head();
    let is = |name: &str| figure == name || figure == "postgres";
    if is("workers") {
        database::workers(url, number("", 600_000)?)?;
    }
    if is("backlog") {
        database::backlog(url, number("TICKWHEEL_DURABLE_BACKLOG", 100_000)?)?;
    }
    if is("dead") {
        database::dead(url, number("TICKWHEEL_DURABLE_DEAD", 100_000)?)?;
    }
    if is("late") {
        database::late(url, number("TICKWHEEL_DURABLE_BACKLOG", 100_000)?)?;
    }
    if is("locked") {
        database::locked(url)?;
    }
    if is("moved") {
        database::moved(url)?;
    }
    if is("silent") {
        database::silent(url)?;
    }
    if is("payload") {
        database::payload(url)?;
    }
    if figure == "scale" {
        database::scale(url, number("", 1_000_000)?)?;
    }
    if figure == "fleets" {
        database::fleets(url, number("", 200_000)?)?;
    }
    if figure == "long" {
        database::long(url, number("", 3_000_000)?)?;
    }
    Ok(())
}

/// Threads that never rest, until it is dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn start(loops: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..loops {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(stop)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Random numbers, always the same.
struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((u128::from(self.0 ^ (self.0 >> 29)) * u128::from(below)) >> 64) as u64
    }

    fn in_a_month(&mut self) -> SystemTime {
        SystemTime::now() + Duration::from_millis(self.below(MONTH.as_millis() as u64))
    }
}

fn wait(commits: &mut Vec<Commit<Scheduled>>) -> Result<()> {
    for commit in commits.drain(..) {
        commit.wait()?;
    }
    Ok(())
}

/// Durable schedules per second, by how many are issued before the caller waits.
fn groups(rows: u64) -> Result<()> {
    println!("| a group | names | schedules/s | ms per group | commits per schedule | cancels/s |");
    println!("|---|---|---|---|---|---|");
    for (group, rows) in [(1, rows / 50), (64, rows / 4), (1024, rows)] {
        for names in ["ascending", "random"] {
            let folder = tempfile::tempdir()?;
            let timer = DurableTimer::open(folder.path().join("timeouts"))?;
            let mut random = Random(1);
            let name = |n: u64| {
                if names == "random" {
                    format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
                } else {
                    format!("{n:016}")
                }
            };
            let mut commits = Vec::new();
            // Some are there before.
            for n in 0..rows {
                commits.push(timer.schedule(&name(n), random.in_a_month(), &PAYLOAD)?);
            }
            wait(&mut commits)?;
            let before = timer.stats().commits;
            let began = Instant::now();
            for n in rows..rows * 2 {
                commits.push(timer.schedule(&name(n), random.in_a_month(), &PAYLOAD)?);
                if commits.len() == group {
                    wait(&mut commits)?;
                }
            }
            wait(&mut commits)?;
            let took = began.elapsed().as_secs_f64();
            let done = timer.stats().commits - before;
            let began = Instant::now();
            let mut cancels = Vec::new();
            for n in 0..rows {
                cancels.push(timer.cancel(&name(n))?);
                if cancels.len() == group || n == rows - 1 {
                    for cancel in cancels.drain(..) {
                        cancel.wait()?;
                    }
                }
            }
            println!(
                "| {group} | {names} | {:.0} | {:.2} | {:.3} | {:.0} |",
                rows as f64 / took,
                took * 1e3 / (rows as f64 / group as f64),
                done as f64 / rows as f64,
                rows as f64 / began.elapsed().as_secs_f64()
            );
            timer.close()?;
        }
    }
    Ok(())
}

/// Many pending: in a process that dies, and then in a new one.
fn pending(rows: u64, names: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("timeouts");
    for phase in ["fill", "drain"] {
        let status = Command::new(std::env::current_exe()?)
            .args([phase, &file.display().to_string(), &rows.to_string(), names])
            .status()?;
        if phase == "drain" && !status.success() {
            return Err(format!("{phase}: {status}").into());
        }
    }
    Ok(())
}

/// Names and deadlines at random, or both ascending, which is quick to fill.
fn fill(file: &Path, rows: u64, is_random: bool) -> Result<()> {
    // Larger groups than a service has, to be done in time.
    let timer = DurableTimer::builder().group(20_000).open(file)?;
    let mut random = Random(1);
    let mut commits = Vec::new();
    let (began, begin) = (Instant::now(), SystemTime::now());
    let due = rows / 10;
    for n in 0..rows {
        let name = match is_random {
            true => format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            false => format!("{n:016x}"),
        };
        // A tenth is overdue when the second process opens the file.
        let at = if n < due {
            SystemTime::now() + Duration::from_millis(random.below(1_000))
        } else if is_random {
            random.in_a_month() + Duration::from_secs(3_600)
        } else {
            begin + Duration::from_secs(3_600) + Duration::from_millis(n)
        };
        commits.push(timer.schedule(&name, at, &PAYLOAD)?);
        if commits.len() == 40_000 {
            wait(&mut commits)?;
        }
    }
    wait(&mut commits)?;
    let took = began.elapsed();
    println!(
        "{rows} scheduled in {:.0} s, groups of 20,000: {:.0}/s",
        took.as_secs_f64(),
        rows as f64 / took.as_secs_f64()
    );
    println!("file {:.0} bytes per timeout", std::fs::metadata(file)?.len() as f64 / rows as f64);
    println!("memory {}", memory());
    // No destructor runs.
    std::process::abort();
}

fn drain(file: &Path, rows: u64) -> Result<()> {
    let began = Instant::now();
    let timer = DurableTimer::builder().in_flight(10_000).near(100_000, 64 << 20).open(file)?;
    println!("after a kill: open {:.2} s", began.elapsed().as_secs_f64());
    let due = timer.recv()?.ok_or("closed")?;
    println!("first handed out after {:.2} s", began.elapsed().as_secs_f64());
    due.ack();
    let began = Instant::now();
    let due = rows / 10;
    for _ in 1..due {
        timer.recv()?.ok_or("closed")?.ack();
    }
    println!("{due} fired in {:.1} s", began.elapsed().as_secs_f64());
    while timer.stats().acked < due {
        thread::sleep(Duration::from_millis(1));
    }
    let took = began.elapsed().as_secs_f64();
    println!("and acked durably in {took:.1} s: {:.0}/s", due as f64 / took);
    println!("memory {}, {:?}", memory(), timer.stats());
    timer.close()?;
    let began = Instant::now();
    let timer = DurableTimer::open(file)?;
    println!("after a close: open {:.2} s, {} left", began.elapsed().as_secs_f64(), timer.len()?);
    println!("file {:.0} bytes per timeout", std::fs::metadata(file)?.len() as f64 / rows as f64);
    Ok(timer.close()?)
}

/// 5,000 due a second while 64 threads schedule.
fn mixed(far: u64, time: Duration) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let timer = DurableTimer::builder()
        .horizon(Duration::from_secs(2))
        .near(50_000, 64 << 20)
        .open(folder.path().join("timeouts"))?;
    let mut random = Random(1);
    let mut commits = Vec::new();
    for n in 0..far {
        let at = random.in_a_month() + Duration::from_secs(600);
        commits.push(timer.schedule(&format!("far/{n}"), at, &PAYLOAD)?);
    }
    wait(&mut commits)?;
    let due = 5_000 * time.as_secs();
    let begin = SystemTime::now() + Duration::from_secs(3);
    for n in 0..due {
        let at = begin + Duration::from_millis(random.below(time.as_millis() as u64));
        commits.push(timer.schedule(&format!("near/{n}"), at, &PAYLOAD)?);
    }
    wait(&mut commits)?;
    thread::sleep(begin.duration_since(SystemTime::now()).unwrap_or_default());
    let before = timer.stats();
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..64)
        .map(|caller| {
            let (timer, stop) = (timer.clone(), Arc::clone(&stop));
            thread::spawn(move || {
                let mut random = Random(caller);
                let mut waits = Vec::new();
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let began = Instant::now();
                    timer
                        .schedule(&format!("{caller}/{n}"), random.in_a_month(), &PAYLOAD)
                        .and_then(Commit::wait)
                        .expect("the disk has room");
                    waits.push(began.elapsed());
                }
                waits
            })
        })
        .collect();
    let began = Instant::now();
    let mut late = Vec::new();
    for _ in 0..due {
        let due = timer.recv()?.ok_or("closed")?;
        late.push(SystemTime::now().duration_since(due.deadline())?);
        due.ack();
    }
    let took = began.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    let mut waits = Vec::new();
    for caller in callers {
        waits.extend(caller.join().expect("no panic"));
    }
    let stats = timer.stats();
    println!("{due} fired in {took:.1} s, late {}", quantiles(late));
    println!(
        "meanwhile {:.0} durable schedules/s by 64 callers, each waits {}",
        waits.len() as f64 / took,
        quantiles(waits)
    );
    let commits = stats.commits - before.commits;
    println!(
        "{:.0} commits/s of {:.0} changes, {:.2} ms each; memory {}",
        commits as f64 / took,
        (stats.changes - before.changes) as f64 / commits as f64,
        (stats.commit_time - before.commit_time).as_secs_f64() * 1e3 / commits as f64,
        memory()
    );
    Ok(timer.close()?)
}

fn quantiles(mut times: Vec<Duration>) -> String {
    let mut at = |q| quantile(&mut times, q);
    format!("{:.1} / {:.1} / {:.1} ms (p50 / p99 / max)", at(0.5), at(0.99), at(1.0))
}

/// Returns a quantile in milliseconds.
fn quantile(times: &mut [Duration], q: f64) -> f64 {
    times.sort();
    let index = ((times.len() as f64 * q) as usize).min(times.len().saturating_sub(1));
    times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

/// The memory that is not file, now and at most.
fn memory() -> String {
    format!("{:.0} MB anonymous now, {:.0} MB resident at most", megabytes("RssAnon:"), peak())
}

/// The most megabytes that were resident.
fn peak() -> f64 {
    megabytes("VmHWM:")
}

/// Returns a line of the status of this process. Where there is none, it is not a number.
fn megabytes(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.map_or(f64::NAN, |kilobytes| kilobytes / 1024.0)
}

const MONTH: Duration = Duration::from_secs(30 * 86_400);
const PAYLOAD: [u8; 100] = [7; 100];
