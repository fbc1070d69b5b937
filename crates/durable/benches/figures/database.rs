//! The figures of workers on a database.

use std::collections::{BTreeMap, HashSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use postgres::{Client, NoTls};
use tickwheel_durable::{Due, DurableTimer, Fleet, PostgresStore, join_fleet, move_partition};

use crate::{PAYLOAD, Result, memory, peak, quantile, quantiles};

/// A database of its own for each figure, on the server of a URL.
pub(crate) struct Place {
    server: String,
    name: &'static str,
    pub(crate) url: String,
}

impl Place {
    pub(crate) fn new(url: &str, name: &'static str) -> Result<Self> {
        let (address, _) = url.rsplit_once('/').ok_or("a URL ends in the name of a database")?;
        let place =
            Self { server: url.to_owned(), name, url: format!("{address}/tickwheel_{name}") };
        place.drop_database()?;
        Client::connect(url, NoTls)?.batch_execute(&format!("create database tickwheel_{name}"))?;
        drop(PostgresStore::connect(&place.url)?);
        Ok(place)
    }

    fn drop_database(&self) -> Result<()> {
        let drop = format!("drop database if exists tickwheel_{} with (force)", self.name);
        Ok(Client::connect(&self.server, NoTls)?.batch_execute(&drop)?)
    }

    pub(crate) fn client(&self) -> Result<Client> {
        Ok(Client::connect(&self.url, NoTls)?)
    }

    pub(crate) fn workers(&self, count: usize, lease: Duration) -> Result<Vec<DurableTimer>> {
        let open = |_| {
            let store = PostgresStore::connect(&self.url)?.lease(lease);
            DurableTimer::builder().open_store(store)
        };
        let workers: Vec<DurableTimer> =
            (0..count).map(open).collect::<std::result::Result<_, _>>()?;
        settle(&workers)?;
        Ok(workers)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.drop_database();
    }
}

/// Waits until the workers share all partitions.
fn settle(workers: &[DurableTimer]) -> Result<()> {
    // A worker on which nobody receives has no share.
    for worker in workers {
        assert!(worker.try_recv().is_ok_and(|due| due.is_none()), "nothing is due");
    }
    let share = 64_usize.div_ceil(workers.len());
    let shares = || workers.iter().map(|worker| worker.stats().partitions);
    until("the workers share all partitions", || {
        shares().sum::<usize>() == 64 && shares().all(|partitions| partitions <= share)
    })
}

/// Waits until this holds, for [`LONGEST`] at most.
fn until(what: &str, holds: impl Fn() -> bool) -> Result<()> {
    let began = Instant::now();
    while !holds() {
        if LONGEST < began.elapsed() {
            return Err(format!("not within {LONGEST:?}: {what}").into());
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// What the database did.
struct Work {
    client: Client,
    rows: i64,
    wal: i64,
    files: i64,
    cpu: Option<f64>,
}

impl Work {
    fn begin(place: &Place) -> Result<Self> {
        Self::begin_on(place.client()?)
    }

    /// Counts from now on: to connect may take long on a busy machine.
    fn begin_on(mut client: Client) -> Result<Self> {
        let (rows, wal, files) = counted(&mut client)?;
        let cpu = processor(&mut client);
        Ok(Self { client, rows, wal, files, cpu })
    }

    /// Returns what it did for so many timeouts.
    fn end(mut self, timeouts: u64) -> Result<Done> {
        let cpu = processor(&mut self.client).zip(self.cpu);
        let used = cpu.map(|(now, before)| (now - before) * 1e6 / timeouts as f64);
        let cpu = used.map_or_else(|| "?".to_owned(), |used| format!("{used:.0}"));
        // The server tells what it counted a second late.
        thread::sleep(Duration::from_millis(1_500));
        let (rows, wal, files) = counted(&mut self.client)?;
        let each = |count: i64| count as f64 / timeouts as f64;
        let line = format!(
            "{:.2} | {cpu} | {:.0} | {}",
            each(rows - self.rows),
            each(wal - self.wal),
            files - self.files
        );
        let reads_little = each(rows - self.rows) <= 2.0;
        Ok(Done { line, cpu: used, reads_little, has_no_files: files == self.files })
    }
}

struct Done {
    /// Of the table: rows read per timeout, milliseconds of the processor per 1,000 timeouts, bytes
    /// of WAL per timeout, temporary files.
    line: String,
    /// Those milliseconds.
    cpu: Option<f64>,
    reads_little: bool,
    has_no_files: bool,
}

impl Done {
    fn judge(&self) {
        goal("at most 2 rows read for each", self.reads_little);
        goal("no temporary files", self.has_no_files);
    }
}

fn counted(client: &mut Client) -> Result<(i64, i64, i64)> {
    let row = client.query_one(
        "select (t.idx_tup_fetch + t.seq_tup_read)::bigint,
           pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint, d.temp_files
         from pg_stat_user_tables t, pg_stat_database d
         where t.relname = 'tickwheel_due' and d.datname = current_database()",
        &[],
    )?;
    Ok((row.get(0), row.get(1), row.get(2)))
}

/// Returns the seconds of the processor that the server has used, if it is on this machine.
fn processor(client: &mut Client) -> Option<f64> {
    let row = client.query_one("select pg_read_file('postmaster.pid')", &[]).ok()?;
    let server = row.get::<_, String>(0).lines().next()?.to_owned();
    let mut ticks = 0;
    for process in std::fs::read_dir("/proc").ok()?.flatten() {
        let Ok(stat) = std::fs::read_to_string(process.path().join("stat")) else { continue };
        let Some((_, fields)) = stat.rsplit_once(')') else { continue };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |at: usize| fields[at].parse::<u64>().unwrap_or(0);
        let is_server = process.file_name().to_string_lossy() == server;
        if is_server || fields[1] == server {
            ticks += number(11) + number(12);
        }
        if is_server {
            // Of its processes that have ended.
            ticks += number(13) + number(14);
        }
    }
    Some(ticks as f64 / 100.0)
}

/// Returns those that this process has used.
fn own() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / 100.0)
}

/// Threads that take the due timeouts of all workers, and remember how late each was.
struct Consumers {
    threads: Vec<thread::JoinHandle<Vec<Duration>>>,
    came: Arc<AtomicU64>,
    /// The names of those that [`schedule`] has scheduled.
    live: Arc<Mutex<HashSet<String>>>,
    stop: Arc<AtomicBool>,
}

impl Consumers {
    fn start(workers: &[DurableTimer]) -> Self {
        let (came, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let live = Arc::default();
        let consume = |timer: &DurableTimer| {
            let (timer, came, stop) = (timer.clone(), Arc::clone(&came), Arc::clone(&stop));
            let live: Arc<Mutex<HashSet<String>>> = Arc::clone(&live);
            thread::spawn(move || {
                let mut late = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let Ok(due) = timer.recv_timeout(Duration::from_millis(100)) else { break };
                    let Some(due) = due else { continue };
                    let now = SystemTime::now();
                    late.push(now.duration_since(due.deadline()).unwrap_or_default());
                    if due.name().starts_with(LIVE) {
                        live.lock().expect("no panic").insert(due.name().to_owned());
                    }
                    came.fetch_add(1, Ordering::Relaxed);
                    due.ack();
                }
                late
            })
        };
        let threads = workers.iter().map(consume).collect();
        Self { threads, came, live, stop }
    }

    /// Waits for so many, and returns how late those were that came.
    fn end(self, count: u64) -> Vec<Duration> {
        let _ = until("all come", || count <= self.came.load(Ordering::Relaxed));
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    }
}

/// Schedules so many per second, each due in 200 ms, and returns how many the store took.
fn schedule(timer: &DurableTimer, rate: u64, time: Duration) -> Result<u64> {
    let began = Instant::now();
    let mut commits = Vec::new();
    while began.elapsed() < time {
        let wanted = (began.elapsed().as_secs_f64() * rate as f64) as usize;
        while commits.len() < wanted {
            let at = SystemTime::now() + Duration::from_millis(200);
            commits.push(timer.schedule(
                &format!("{LIVE}{rate}/{}/{}", time.as_secs(), commits.len()),
                at,
                &PAYLOAD,
            )?);
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(commits.into_iter().map(|commit| u64::from(commit.wait().is_ok())).sum())
}

/// Puts `count` rows by SQL. `deadline` is an expression in milliseconds since 1970; in it, `n` is
/// the number of the row.
fn fill(client: &mut Client, kind: &str, count: u64, deadline: &str, payload: &str) -> Result<()> {
    client.batch_execute(&format!(
        "insert into tickwheel_due (name, deadline, payload)
         select '{kind}/' || n, {deadline}, {payload} from generate_series(1, {count}) n;
         analyze tickwheel_due"
    ))?;
    Ok(())
}

/// The table of the first figures.
pub(crate) fn head() {
    println!("| | fired/s | rows read each | CPU ms per 1,000 | WAL bytes each | files |");
    println!("|---|---|---|---|---|---|");
}

/// `count` timeouts are overdue when the first worker connects. What is compared with that is the
/// same table where as many are pending and none is overdue. They take turns, and the median of the
/// turns is judged, because other work on the machine changes from minute to minute.
pub(crate) fn backlog(url: &str, count: u64) -> Result<()> {
    let mut parts = Vec::new();
    let turns = if count <= FEW { 3 } else { 1 };
    for _ in 0..turns {
        let (rate, cpu) = overdue(url, count)?;
        let (without, without_cpu) = capacity(url, count)?;
        let part = rate / without;
        let cpu = cpu.zip(without_cpu).map_or(f64::NAN, |(with, without)| with / without);
        println!("{part:.2} of the rate without a backlog, {cpu:.2} of the CPU");
        parts.push(part);
    }
    let part = median(&mut parts);
    goal(&format!("the rate above 0.8 of that without a backlog: {part:.2}"), 0.8 < part);
    Ok(())
}

/// Returns how many that are overdue fire per second, and the CPU of the database.
fn overdue(url: &str, count: u64) -> Result<(f64, Option<f64>)> {
    let place = Place::new(url, "backlog")?;
    let mut client = place.client()?;
    fill(&mut client, "overdue", count, "n", HUNDRED_BYTES)?;
    rest(&mut client)?;
    let work = Work::begin(&place)?;
    let began = Instant::now();
    let timer = DurableTimer::connect(&place.url)?;
    timer.recv_timeout(LONGEST)?.ok_or("the first never came")?.ack();
    let first = began.elapsed();
    let came = Consumers::start(std::slice::from_ref(&timer)).end(count - 1).len() as u64;
    let rate = count as f64 / began.elapsed().as_secs_f64();
    let calls = calls(&timer, (0, 0), count);
    timer.close()?;
    let done = work.end(count)?;
    println!(
        "| {count} overdue, the first after {:.2} s, {calls} | {rate:.0} | {} |",
        first.as_secs_f64(),
        done.line
    );
    goal("all come", came == count - 1);
    goal("the first within a second", first < Duration::from_secs(1));
    done.judge();
    Ok((rate, done.cpu))
}

/// Returns how many fire per second where `pending` more are far away, and the CPU of the database:
/// medians of some turns.
fn capacity(url: &str, pending: u64) -> Result<(f64, Option<f64>)> {
    let place = Place::new(url, "capacity")?;
    let mut client = place.client()?;
    let now = "extract(epoch from now())::bigint * 1000";
    fill(&mut client, "far", pending, &format!("{now} + 86400000 + n"), HUNDRED_BYTES)?;
    rest(&mut client)?;
    let timers = place.workers(1, LEASE)?;
    let (mut rates, mut cpus) = (Vec::new(), Vec::new());
    for turn in ["one", "two", "three"] {
        let stats = timers[0].stats();
        let rush = Rush::run(&place, &timers, turn, CAPACITY)?;
        println!(
            "| {CAPACITY} due within a second, {pending} pending, {} | {:.0} | {} |",
            calls(&timers[0], (stats.commits, stats.loads), CAPACITY),
            rush.rate,
            rush.done.line
        );
        goal("all come", rush.came == CAPACITY);
        rates.push(rush.rate);
        cpus.extend(rush.done.cpu);
    }
    let [timer] = timers.try_into().expect("there is one");
    timer.close()?;
    Ok((median(&mut rates), (!cpus.is_empty()).then(|| median(&mut cpus))))
}

fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Says how many calls the timer has made of each kind since it had made so many.
fn calls(timer: &DurableTimer, (commits, loads): (u64, u64), count: u64) -> String {
    let stats = timer.stats();
    let each = |calls: u64| calls as f64 * 1e3 / count as f64;
    format!(
        "{:.2} commits and {:.2} loads per 1,000",
        each(stats.commits - commits),
        each(stats.loads - loads)
    )
}

/// Leaves the table as it is if what is in it was put days ago.
fn rest(client: &mut Client) -> Result<()> {
    client.batch_execute("vacuum (analyze) tickwheel_due")?;
    Ok(client.batch_execute("checkpoint")?)
}

/// Prints a goal, and whether it is met.
fn goal(goal: &str, is_met: bool) {
    println!("{}: {goal}", if is_met { "met" } else { "MISSED" });
    IS_ONE_MISSED.fetch_or(!is_met, Ordering::Relaxed);
}

/// `count` timeouts are due within a second, for several numbers of workers. What fires per second
/// is what they can do where `count` is more than that: fewer all fire as they come due.
pub(crate) fn workers(url: &str, count: u64) -> Result<()> {
    let mut cpu = Vec::new();
    for workers in [1, 2, 4, 8] {
        cpu.push(rush(url, workers, count)?);
    }
    if let [Some(one), .., Some(eight)] = cpu[..] {
        goal("eight workers cost at most 1.5 times the CPU of one", eight <= one * 1.5);
    }
    Ok(())
}

/// `count` timeouts are due within a second. Returns the CPU of the database.
fn rush(url: &str, workers: usize, count: u64) -> Result<Option<f64>> {
    let place = Place::new(url, "workers")?;
    let timers = place.workers(workers, LEASE)?;
    let Rush { came, rate, done } = Rush::run(&place, &timers, "due", count)?;
    for timer in timers {
        timer.close()?;
    }
    println!("| {workers} workers, {count} due | {rate:.0} | {} |", done.line);
    goal("all come", came == count);
    done.judge();
    Ok(done.cpu)
}

/// What came of timeouts that are due within a second.
struct Rush {
    came: u64,
    /// How many fired per second, without those that were in memory when the first was due.
    rate: f64,
    done: Done,
}

impl Rush {
    fn run(place: &Place, timers: &[DurableTimer], kind: &str, count: u64) -> Result<Self> {
        let mut client = place.client()?;
        let acked = || timers.iter().map(|timer| timer.stats().acked).sum::<u64>();
        let before = acked();
        let consumers = Consumers::start(timers);
        let begin = SystemTime::now() + Duration::from_secs(12 + count / 20_000);
        let since = begin.duration_since(SystemTime::UNIX_EPOCH)?.as_millis();
        let deadline = format!("{since} + n * 1000 / {count}");
        fill(&mut client, kind, count, &deadline, HUNDRED_BYTES)?;
        client.batch_execute("checkpoint")?;
        thread::sleep(begin.duration_since(SystemTime::now()).unwrap_or_default());
        let work = Work::begin_on(client)?;
        let near: usize = timers.iter().map(|timer| timer.stats().near).sum();
        let came = consumers.end(count).len() as u64;
        let rate = came.saturating_sub(near as u64) as f64 / begin.elapsed()?.as_secs_f64();
        // Workers that close give their partitions to the others, and those read all of them.
        until("all are acked", || before + count <= acked())?;
        Ok(Self { came, rate, done: work.end(count)? })
    }
}

/// What a timeout costs from its put to its ack, where ever more are pending, up to `most`, in turns.
/// Their names are spread like those of UUIDs. Those of the measured ones are too, or follow each
/// other. The indexes of names are in the server's memory, if `shared_buffers` are as many.
///
/// Long after a checkpoint, and just after one, when each page that changes is written to the WAL as
/// a whole. A vacuum is shared by as many as end before it begins by itself.
pub(crate) fn scale(url: &str, most: u64) -> Result<()> {
    let mut places = Vec::new();
    for (pending, name) in SIZES.into_iter().filter(|&(pending, _)| pending <= most) {
        let place = Place::new(url, name)?;
        let mut client = place.client()?;
        let indexes = fill_far(&mut client, pending)?;
        places.push((pending, place, client, indexes));
    }
    let Some((_, _, client, _)) = places.first_mut() else {
        return Err(format!("expected {} or more", SIZES[0].0).into());
    };
    client.batch_execute("checkpoint")?;
    for (pending, _, client, indexes) in &mut places {
        client.batch_execute(indexes)?;
        client.batch_execute("vacuum (analyze) tickwheel_due")?;
        // As in a server that has long had so many.
        let read = "select name from tickwheel_due order by name offset $1";
        client.batch_execute("set enable_seqscan = off; set enable_bitmapscan = off")?;
        client.execute(read, &[&(*pending as i64)])?;
        let size = "select pg_total_relation_size('tickwheel_due') / $1::bigint";
        let size: i64 = client.query_one(size, &[&(*pending as i64)])?.get(0);
        println!("| {pending} pending, {size} bytes each | | | | | |");
    }
    // Until the server has counted this.
    thread::sleep(Duration::from_millis(1_500));

    let mut used = BTreeMap::<_, Vec<f64>>::new();
    for (round, since) in ["long", "long", "long", "just"].into_iter().enumerate() {
        if since == "just" {
            places[0].2.batch_execute("checkpoint")?;
        }
        for names in ["ascending", "random"] {
            for (pending, place, ..) in &places {
                let Done { line, cpu, .. } = lives(place, &round.to_string(), names)?;
                println!("| {pending}, {since} after a checkpoint, names {names} | | {line} |");
                if since == "long" {
                    used.entry((names, *pending)).or_default().push(cpu.unwrap_or(f64::NAN));
                }
            }
        }
        for (_, _, client, _) in &mut places {
            client.batch_execute("vacuum (index_cleanup on) tickwheel_due")?;
        }
    }
    for used in used.values_mut() {
        used.sort_by(f64::total_cmp);
    }
    for names in ["ascending", "random"] {
        let median = |place: usize| used[&(names, places[place].0)][1];
        let grows = median(places.len() - 1) / median(0);
        println!("names {names}: {grows:.2} of the CPU from the fewest to the most");
        goal("at most 1.2 of it", grows <= 1.2);
    }
    for (names, name) in [("ascending", "'dead/' || n"), ("random", "md5('dead' || n)")] {
        for (pending, place, client, _) in &mut places {
            // So many make it begin by itself.
            let dead = 2_000 + *pending / 50;
            client.batch_execute(&format!(
                "insert into tickwheel_due (name, deadline, payload)
                 select {name}, extract(epoch from now())::bigint * 1000 + 3600000 + n,
                   {HUNDRED_BYTES} from generate_series(1, {dead}) n;
                 delete from tickwheel_due
                 where deadline < extract(epoch from now())::bigint * 1000 + 43200000"
            ))?;
            let work = Work::begin(place)?;
            client.batch_execute("vacuum (index_cleanup on) tickwheel_due")?;
            println!("| {pending}, vacuum, names {names} | | {} |", work.end(dead)?.line);
        }
    }
    Ok(())
}

/// Fills the table without its indexes, and returns what makes them, as full as those that grew.
fn fill_far(client: &mut Client, pending: u64) -> Result<String> {
    client.batch_execute("alter table tickwheel_due set (autovacuum_enabled = off)")?;
    let full = "with (fillfactor = 70)";
    let mut statements = vec![
        "set maintenance_work_mem = '1GB'".to_owned(),
        format!("alter table tickwheel_due add primary key (name) {full}"),
    ];
    let indexes = client.query(
        "select pg_get_indexdef(indexrelid), indexrelid::regclass::text from pg_index
         where indrelid = 'tickwheel_due'::regclass and not indisprimary",
        &[],
    )?;
    client.batch_execute("alter table tickwheel_due drop constraint tickwheel_due_pkey")?;
    for index in indexes {
        let (made, name) = (index.get::<_, &str>(0), index.get::<_, &str>(1));
        // Without what this has said before.
        let made = made.split_once(" WITH ").map_or(made, |(made, _)| made);
        statements.push(format!("{made} {full}"));
        client.batch_execute(&format!("drop index {name}"))?;
    }
    for part in (0..pending).step_by(1_000_000) {
        client.execute(
            "insert into tickwheel_due (name, deadline, payload)
             select md5('far' || n), extract(epoch from now())::bigint * 1000 + 86400000
               + n * 7919 % 2592000000, convert_to(rpad(n::text, 100, 'x'), 'UTF8')
             from generate_series($1::bigint + 1, $1::bigint + 1000000) n",
            &[&(part as i64)],
        )?;
    }
    Ok(statements.join("; "))
}

/// Puts timeouts under names that ascend, and removes all but one in a hundred, which are long.
pub(crate) fn long(url: &str, count: u64) -> Result<()> {
    let place = Place::new(url, "long")?;
    let mut client = place.client()?;
    for part in (0..count).step_by(100_000) {
        client.execute(
            &format!(
                "insert into tickwheel_due (name, deadline, payload)
                 select 'order-' || lpad(n::text, 9, '0'), extract(epoch from now())::bigint * 1000
                   + n / 100 + case n % 100 when 0 then 2592000000 else 60000 end, {HUNDRED_BYTES}
                 from generate_series($1::bigint + 1, $1::bigint + 100000) n"
            ),
            &[&(part as i64)],
        )?;
        client.batch_execute(
            "delete from tickwheel_due
             where deadline < (extract(epoch from now()) + 86400)::bigint * 1000",
        )?;
        client.batch_execute("vacuum tickwheel_due")?;
    }
    let mut tell = |when: &str| -> Result<()> {
        let sizes = client.query(
            "select indexrelid::regclass::text, pg_relation_size(indexrelid) from pg_index
             where indrelid = 'tickwheel_due'::regclass order by 1",
            &[],
        )?;
        let sizes = sizes.iter().map(|row| {
            format!("{} {:.1} MB", row.get::<_, &str>(0), row.get::<_, i64>(1) as f64 / 1e6)
        });
        println!("| {when}: {} | | | | | |", sizes.collect::<Vec<_>>().join(", "));
        Ok(())
    };
    tell(&format!("{count} were put, one in a hundred is left"))?;
    place.client()?.batch_execute("reindex table concurrently tickwheel_due")?;
    tell("after `reindex table concurrently tickwheel_due`")
}

/// Puts, fires and acks timeouts by four workers.
fn lives(place: &Place, kind: &str, names: &str) -> Result<Done> {
    let timers = place.workers(4, LEASE)?;
    let consumers = Consumers::start(&timers);
    let work = Work::begin(place)?;
    let begin = SystemTime::now() + Duration::from_secs(15);
    let mut commits = Vec::new();
    for n in 0..LIVES {
        let name = match names {
            "random" => format!("{:032x}", fastrand::u128(..)),
            _ => format!("{kind}/{n:012}"),
        };
        let at = begin + Duration::from_micros(n * 50);
        commits.push(timers[n as usize % timers.len()].schedule(&name, at, &PAYLOAD)?);
    }
    for commit in commits {
        commit.wait()?;
    }
    let came = consumers.end(LIVES).len() as u64;
    let acked = || timers.iter().map(|timer| timer.stats().acked).sum::<u64>();
    until("all are acked", || LIVES <= acked())?;
    goal("all come", came == LIVES);
    let done = work.end(LIVES)?;
    for timer in timers {
        timer.close()?;
    }
    Ok(done)
}

/// What a timeout costs from its put to its ack, where a fleet of 1, 2 and 4 databases has them.
pub(crate) fn fleets(url: &str, count: u64) -> Result<()> {
    for databases in [1, 2, 4] {
        let places: Vec<Place> = ["fleet_1", "fleet_2", "fleet_3", "fleet_4"][..databases]
            .iter()
            .map(|name| Place::new(url, name))
            .collect::<Result<_>>()?;
        let stores = places.iter().map(|place| PostgresStore::connect(&place.url));
        let mut stores: Vec<PostgresStore> = stores.collect::<std::result::Result<_, _>>()?;
        let (first, others) = stores.split_first_mut().expect("there is one");
        for new in &mut *others {
            join_fleet(new, first)?;
        }
        for partition in 0..64 {
            if let Some(other) = (partition as usize % databases).checked_sub(1) {
                move_partition(first, &mut others[other], partition, |_| ())?;
            }
        }
        drop(stores);
        let urls: Vec<&str> = places.iter().map(|place| &*place.url).collect();
        let fleet = Fleet::connect(&urls)?;
        assert!(fleet.try_recv()?.is_none(), "nothing is due");
        let partitions = || fleet.stats().iter().map(|(_, stats)| stats.partitions).sum::<usize>();
        until("it has all partitions", || partitions() == 64)?;
        let mut client = places[0].client()?;
        let before = processor(&mut client).zip(own());
        let began = Instant::now();
        let begin = SystemTime::now() + Duration::from_secs(15);
        let mut commits = Vec::new();
        for n in 0..count {
            let name = format!("{:032x}", fastrand::u128(..));
            commits.push(fleet.schedule(&name, begin + Duration::from_micros(n * 50), &PAYLOAD)?);
        }
        for commit in commits {
            commit.wait()?;
        }
        let put = began.elapsed().as_secs_f64();
        for _ in 0..count {
            fleet.recv_timeout(LONGEST)?.ok_or("not all came")?.ack();
        }
        let acked = || fleet.stats().iter().map(|(_, stats)| stats.acked).sum::<u64>();
        until("all are acked", || count <= acked())?;
        let used = processor(&mut client).zip(own()).zip(before);
        let each = |now: f64, before: f64| (now - before) * 1e6 / count as f64;
        let used = used.map_or_else(
            || "?".to_owned(),
            |(now, before)| {
                format!("{:.0} and {:.0} here", each(now.0, before.0), each(now.1, before.1))
            },
        );
        println!("| {databases} databases, {:.0} puts/s | | | {used} | | |", count as f64 / put);
        fleet.close()?;
    }
    Ok(())
}

/// 10,000 timeouts are due per second for ten seconds, and `pending` more are far away.
pub(crate) fn late(url: &str, pending: u64) -> Result<()> {
    let place = Place::new(url, "late")?;
    let mut client = place.client()?;
    let now = "extract(epoch from now())::bigint * 1000";
    fill(&mut client, "far", pending, &format!("{now} + 3600000 + n"), HUNDRED_BYTES)?;
    rest(&mut client)?;
    let timers = place.workers(4, LEASE)?;
    let consumers = Consumers::start(&timers);
    let begin = SystemTime::now() + Duration::from_secs(30);
    let since = begin.duration_since(SystemTime::UNIX_EPOCH)?.as_millis();
    fill(&mut client, "due", 100_000, &format!("{since} + n / 10"), HUNDRED_BYTES)?;
    thread::sleep(begin.duration_since(SystemTime::now()).unwrap_or_default());
    let work = Work::begin_on(client)?;
    let mut late = consumers.end(100_000);
    let (came, p99) = (late.len(), quantile(&mut late, 0.99));
    let done = work.end(100_000)?;
    println!(
        "| 10,000/s, {pending} pending, {came} came, late {} | | {} |",
        quantiles(late),
        done.line
    );
    goal("all come, late by less than 50 ms (p99)", came == 100_000 && p99 < 50.0);
    done.judge();
    for timer in timers {
        timer.close()?;
    }
    Ok(())
}

/// A foreign snapshot keeps `count` dead rows.
pub(crate) fn dead(url: &str, count: u64) -> Result<()> {
    let place = Place::new(url, "dead")?;
    let (mut dump, mut client) = (place.client()?, place.client()?);
    let now = "extract(epoch from now())::bigint * 1000";
    fill(&mut client, "dead", count, &format!("{now} - n % 3600000"), HUNDRED_BYTES)?;
    let dump = dump.build_transaction().isolation_level(postgres::IsolationLevel::RepeatableRead);
    let mut dump = dump.start()?;
    dump.query_one("select count(*) from tickwheel_due", &[])?;
    client.batch_execute("delete from tickwheel_due")?;
    let began = Instant::now();
    let timers = [DurableTimer::connect(&place.url)?];
    let consumers = Consumers::start(&timers);
    // When some timeouts of each partition have come, all partitions have been read.
    let probes = schedule(&timers[0], 1_000, Duration::from_secs(1))?;
    consumers.end(probes);
    let first = began.elapsed();
    let consumers = Consumers::start(&timers);
    let work = Work::begin(&place)?;
    let count_live = schedule(&timers[0], 1_000, Duration::from_secs(90))?;
    let mut late = consumers.end(count_live);
    let (came, p99) = (late.len() as u64, quantile(&mut late, 0.99));
    let done = work.end(count_live)?;
    println!(
        "| {count} dead, all partitions read after {:.2} s, then 1,000/s for 90 s: \
         {came} of {count_live} came, late {}, {} errors | | {} |",
        first.as_secs_f64(),
        quantiles(late),
        timers[0].stats().errors,
        done.line
    );
    goal("all come, late by less than 100 ms (p99)", came == count_live && p99 < 100.0);
    done.judge();
    dump.rollback()?;
    let [timer] = timers;
    Ok(timer.close()?)
}

/// Somebody cancels a name that is due, and leaves the transaction open for ten seconds.
pub(crate) fn locked(url: &str) -> Result<()> {
    for workers in [1, 2] {
        let place = Place::new(url, "locked")?;
        let timers = place.workers(workers, LEASE)?;
        let soon = SystemTime::now() + Duration::from_secs(3);
        timers[0].schedule("locked", soon, &PAYLOAD)?.wait()?;
        let mut foreign = place.client()?;
        let mut lunch = foreign.transaction()?;
        lunch.query_one("select tickwheel_cancel('locked')", &[])?;
        let consumers = Consumers::start(&timers);
        let live = schedule(&timers[0], 200, Duration::from_secs(10))?;
        let mut late = consumers.end(live + 1);
        lunch.rollback()?;
        let fenced = timers.iter().map(|timer| timer.stats().fenced).sum::<u64>();
        let (came, longest) = (late.len() as u64, quantile(&mut late, 1.0));
        println!(
            "| a locked name, {workers} workers: {came} of {} came, late {}, {fenced} fenced |",
            live + 1,
            quantiles(late)
        );
        let is_met = came == live + 1 && longest < 1_000.0 && fenced == 0;
        goal("all late by less than a second, and no lease is lost", is_met);
        for timer in timers {
            timer.close()?;
        }
    }
    Ok(())
}

/// A name is moved again and again while a foreign snapshot keeps all its rows.
pub(crate) fn moved(url: &str) -> Result<()> {
    let place = Place::new(url, "moved")?;
    let (mut dump, mut client) = (place.client()?, place.client()?);
    let dump = dump.build_transaction().isolation_level(postgres::IsolationLevel::RepeatableRead);
    let mut dump = dump.start()?;
    dump.query_one("select count(*) from tickwheel_due", &[])?;
    let timers = place.workers(1, LEASE)?;
    let consumers = Consumers::start(&timers);
    let stop = Arc::clone(&consumers.stop);
    let timer = timers[0].clone();
    let others = thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            schedule(&timer, 200, Duration::from_secs(1)).expect("the timer is open");
        }
    });
    let far = SystemTime::now() + Duration::from_secs(86_400);
    let mut moves = 0;
    for most in [1_000, 3_000, 10_000] {
        client.batch_execute(&format!(
            "do $$ begin for n in {moves} + 1..{most} loop
               perform tickwheel_schedule('moved', now() + interval '1 day', '');
               commit;
             end loop; end $$"
        ))?;
        moves = most;
        let mut times = Vec::new();
        for _ in 0..20 {
            let began = Instant::now();
            timers[0].schedule("moved", far, &PAYLOAD)?.wait()?;
            times.push(began.elapsed());
        }
        println!("| a name moved {moves} times, each more {} | | | | |", quantiles(times));
    }
    let mut late = consumers.end(0);
    others.join().expect("no panic");
    let (came, longest) = (late.len(), quantile(&mut late, 1.0));
    println!("| meanwhile 200/s of others, {came} came, late {} | | | | |", quantiles(late));
    goal("all others are late by less than a second", 0 < came && longest < 1_000.0);
    dump.rollback()?;
    for timer in timers {
        timer.close()?;
    }
    Ok(())
}

/// One of two workers hears nothing more from a phase of a call on. Either its question no longer
/// reaches the database, as when its host vanishes, or the answer no longer reaches the worker.
pub(crate) fn silent(url: &str) -> Result<()> {
    let lease = Duration::from_secs(2);
    let (mut latest, mut reached, mut all_came) = (Duration::ZERO, 0, true);
    for phase in PHASES {
        for is_asked in [false, true] {
            let place = Place::new(url, "silent")?;
            let proxy = Proxy::start(&place.url)?;
            let direct = place.workers(1, lease)?.remove(0);
            let store = PostgresStore::connect(&proxy.url)?.lease(lease);
            let deaf = DurableTimer::builder().open_store(store)?;
            let timers = [direct, deaf];
            settle(&timers)?;
            let retried = one_of(&timers)?;
            let consumers = Consumers::start(&timers);
            let names = Arc::clone(&consumers.live);
            let mut foreign = place.client()?;
            let mut lock = foreign.transaction()?;
            if phase == AFTER_A_LOCK {
                let lunch = "select from tickwheel_due where name = $1 for update";
                lock.query_one(lunch, &[&retried.name()])?;
            }
            *proxy.at.lock().expect("no panic") = Some((phase, is_asked));
            retried.retry(Duration::from_secs(3_600));
            if AT_CONNECT.contains(&phase) {
                place.client()?.batch_execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity
                     where application_name = 'tickwheel-durable'",
                )?;
            }
            // So that there are commits of the other as well.
            let far = SystemTime::now() + Duration::from_secs(3_600);
            drop(timers[1].schedule("far", far, &PAYLOAD)?);
            let live = schedule(&timers[0], 100, Duration::from_secs(6))?;
            // What was taken and not acked comes again, so timeouts are counted by their names.
            let came = || names.lock().expect("no panic").len() as u64;
            let _ = until("all come", || live <= came());
            let late = consumers.end(0);
            latest = late.iter().copied().fold(latest, Duration::max);
            let came = came();
            all_came &= live <= came;
            println!(
                "| silent at `{phase}`, {}: {came} of {live} came, late {}, {} errors told |",
                if is_asked { "before the answer" } else { "before it is asked" },
                quantiles(late),
                timers[1].stats().errors
            );
            lock.rollback()?;
            reached += usize::from(proxy.is_silent.swap(true, Ordering::SeqCst));
            for timer in timers {
                let _ = timer.close();
            }
        }
    }
    goal("silent in each of these phases", reached == 2 * PHASES.len());
    goal("all come", all_came);
    goal("late by at most a lease and a quarter, 2.5 s", latest <= lease * 5 / 4);
    Ok(())
}

/// Takes a timeout of the second of two workers, and acks others.
fn one_of(timers: &[DurableTimer; 2]) -> Result<Due> {
    for n in 0.. {
        timers[0].schedule(&format!("held/{n}"), SystemTime::now(), &PAYLOAD)?.wait()?;
        loop {
            if let Some(due) = timers[0].recv_timeout(Duration::from_millis(10))? {
                due.ack();
                break;
            }
            if let Some(due) = timers[1].recv_timeout(Duration::from_millis(10))? {
                return Ok(due);
            }
        }
    }
    unreachable!("there are more names")
}

/// A proxy that passes on all bytes until it sees the words of a phase, and none after that.
struct Proxy {
    url: String,
    at: Arc<Mutex<Option<(&'static str, bool)>>>,
    is_silent: Arc<AtomicBool>,
}

impl Proxy {
    fn start(url: &str) -> Result<Self> {
        let (head, database) = url.rsplit_once('/').ok_or("no database")?;
        let (user, address) = head.rsplit_once('@').ok_or("no user")?;
        let address = address.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("{user}@{}/{database}", listener.local_addr()?);
        let proxy = Self { url, at: Arc::default(), is_silent: Arc::default() };
        let (at, silent) = (Arc::clone(&proxy.at), Arc::clone(&proxy.is_silent));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&address) else { continue };
                for (from, to, asks) in [(&stream, &server, true), (&server, &stream, false)] {
                    let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
                    let (at, silent) = (Arc::clone(&at), Arc::clone(&silent));
                    thread::spawn(move || pass(from, to, asks, &at, &silent));
                }
            }
        });
        Ok(proxy)
    }
}

fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    asks: bool,
    at: &Mutex<Option<(&'static str, bool)>>,
    silent: &AtomicBool,
) {
    let mut bytes = [0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let mut passes = !silent.load(Ordering::SeqCst);
        if let Some((phase, is_asked)) = at.lock().expect("no panic").filter(|_| asks && passes)
            && bytes[..count].windows(phase.len()).any(|words| words == phase.as_bytes())
        {
            silent.store(true, Ordering::SeqCst);
            passes = is_asked;
        }
        if passes && to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
}

/// 20,000 timeouts of 60 KB are overdue, and a consumer takes each.
pub(crate) fn payload(url: &str) -> Result<()> {
    let place = Place::new(url, "payload")?;
    fill(&mut place.client()?, "large", 20_000, "n", "convert_to(repeat('x', 60000), 'UTF8')")?;
    // The most that was resident counts from here.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let before = memory();
    let began = Instant::now();
    let timers = [DurableTimer::connect(&place.url)?];
    let came = Consumers::start(&timers).end(20_000).len();
    println!(
        "| 20,000 of 60 KB: {came} came in {:.1} s; memory before {before}, after {} |",
        began.elapsed().as_secs_f64(),
        memory()
    );
    goal("all come, and less than 256 MB are ever resident", came == 20_000 && peak() < 256.0);
    let [timer] = timers;
    Ok(timer.close()?)
}

/// How the names begin of what [`schedule`] schedules.
const LIVE: &str = "live/";
const LONGEST: Duration = Duration::from_secs(300);
const LEASE: Duration = Duration::from_secs(10);
/// To put more than so many takes minutes.
const FEW: u64 = 3_000_000;
/// More than one worker takes in the second within which they are due.
const CAPACITY: u64 = 300_000;

/// How many are measured where many are pending, in databases of these names.
const LIVES: u64 = 100_000;
const SIZES: [(u64, &str); 3] =
    [(1_000_000, "scale_1"), (10_000_000, "scale_10"), (50_000_000, "scale_50")];

const HUNDRED_BYTES: &str = "convert_to(rpad(n::text, 100, 'x'), 'UTF8')";

/// Words of the statement of each phase.
const PHASES: [&str; 13] = [
    AT_CONNECT[0],
    AT_CONNECT[1],
    "insert into tickwheel_worker",
    "for no key update",
    "begin isolation",
    "pg_snapshot_xip",
    "sum(octet_length(due.payload)",
    "tickwheel_put(",
    "for key share",
    "delete from tickwheel_due due",
    "set deadline = u.deadline",
    "set constraints all immediate; commit",
    AFTER_A_LOCK,
];

/// Those of a commit that is made again without what somebody has locked.
const AFTER_A_LOCK: &str = "savepoint part";

/// Those of a connection that is made: what it begins with, and what it looks for first.
const AT_CONNECT: [&str; 2] = ["application_name", "to_regclass("];

/// Whether a goal was missed.
pub(crate) static IS_ONE_MISSED: AtomicBool = AtomicBool::new(false);
