//! Moves that are killed at every step, while workers and callers go on.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use postgres::Client;
use tickwheel_durable::{Cancelled, DurableTimer, Error, Scheduled, cancel_in, schedule_in};

use super::command::{command, run};
use super::{KNOWS_FLEETS, LEASE, cut, fleet, names, names_of, of, store};
use crate::server::{Server, client};
use crate::{HOUR, LONG, now, until, worker};

/// What callers were told of a name, and what consumers got.
#[derive(Default)]
struct Told {
    /// It must not come before this.
    earliest: Option<SystemTime>,
    /// It comes, unless the answer to a call is not known.
    comes: bool,
    /// It is scheduled for a time after the test.
    is_far: bool,
    /// When it came, and with which attempt.
    came: Vec<(SystemTime, u32)>,
}

/// The account from outside.
struct Account {
    names: Vec<String>,
    next: AtomicUsize,
    told: Mutex<HashMap<String, Told>>,
    is_over: AtomicBool,
}

impl Account {
    fn next(&self) -> Option<&str> {
        if self.is_over.load(Ordering::Relaxed) {
            return None;
        }
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.names.get(next).map(String::as_str)
    }

    fn told(&self) -> MutexGuard<'_, HashMap<String, Told>> {
        self.told.lock().unwrap()
    }

    fn tell(&self, name: &str, tell: impl FnOnce(&mut Told)) {
        tell(self.told().entry(name.to_owned()).or_default());
    }

    /// Notes what it is to be before it is asked for: it may come before the answer.
    fn ask(&self, name: &str, at: SystemTime) {
        self.tell(name, |told| told.earliest = Some(at));
    }

    /// How many are still to come.
    fn waiting(&self) -> usize {
        self.told().values().filter(|told| told.comes && told.came.is_empty()).count()
    }
}

/// A caller at all databases, who remembers where the last was.
struct Caller<'a> {
    timers: &'a [DurableTimer],
    home: usize,
}

impl Caller<'_> {
    /// Asks until there is an answer, and returns it with whether an answer was lost before.
    fn ask<T>(
        &mut self,
        name: &str,
        mut ask: impl FnMut(&DurableTimer) -> Result<T, Error>,
    ) -> (T, bool) {
        let (began, mut is_lost) = (Instant::now(), false);
        loop {
            match ask(&self.timers[self.home]) {
                Ok(answer) => return (answer, is_lost),
                Err(Error::Elsewhere { .. }) => self.home = (self.home + 1) % self.timers.len(),
                // Its connection was cut.
                Err(_) => is_lost = true,
            }
            assert!(began.elapsed() < LONG, "{name} is nowhere");
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn schedule(&mut self, name: &str, at: SystemTime) -> (Scheduled, bool) {
        self.ask(name, |timer| timer.schedule(name, at, name.as_bytes())?.wait())
    }

    fn cancel(&mut self, name: &str) -> (Cancelled, bool) {
        self.ask(name, |timer| timer.cancel(name)?.wait())
    }
}

/// Between a second, before which nobody reads it, and some.
fn near() -> SystemTime {
    now() + Duration::from_millis(fastrand::u64(1_500..4_000))
}

fn call(timers: &[DurableTimer], account: &Account) {
    let mut caller = Caller { timers, home: 0 };
    while let Some(name) = account.next() {
        let far = now() + HOUR;
        let is_far = fastrand::bool();
        let at = if is_far { far } else { near() };
        account.ask(name, at);
        let (scheduled, is_lost) = caller.schedule(name, at);
        assert!(is_lost || scheduled == Scheduled::New, "{name}: {scheduled:?}");
        account.tell(name, |told| (told.comes, told.is_far) = (!is_far, is_far));
        match fastrand::u32(0..4) {
            0 => {
                let (cancelled, is_lost) = caller.cancel(name);
                account.tell(name, |told| {
                    if cancelled == Cancelled::Cancelled {
                        told.earliest = Some(now() + HOUR * 24);
                    }
                    // One that is near may be acked by now. Of one that is far somebody must know.
                    let is_known = cancelled == Cancelled::Cancelled || is_lost || !is_far;
                    assert!(is_known, "{name} was far, and is {cancelled:?}");
                    (told.comes, told.is_far) = (false, false);
                });
            }
            1 if is_far => {
                let at = near();
                account.ask(name, at);
                let (scheduled, is_lost) = caller.schedule(name, at);
                let is_known = is_lost || scheduled == Scheduled::Moved;
                assert!(is_known, "{name} was far, and is {scheduled:?}");
                account.tell(name, |told| (told.comes, told.is_far) = (true, false));
            }
            1 => {
                let (scheduled, _) = caller.schedule(name, far);
                account.tell(name, |told| {
                    if scheduled == Scheduled::Moved {
                        told.earliest = Some(far);
                    }
                    (told.comes, told.is_far) = (false, true);
                });
            }
            _ => {}
        }
    }
}

/// Calls in transactions, which stay open for a while.
fn call_in_transactions(urls: &[String], account: &Account) {
    let mut clients: Vec<Client> = urls.iter().map(|url| client(url)).collect();
    let mut home = 0;
    while let Some(name) = account.next() {
        let at = near() + Duration::from_secs(1);
        account.ask(name, at);
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < LONG, "{name} is nowhere");
            let mut transaction = clients[home].transaction().unwrap();
            match schedule_in(&mut transaction, name, at, name.as_bytes()) {
                Ok(()) => {}
                Err(Error::Elsewhere { .. }) => {
                    transaction.rollback().unwrap();
                    home = (home + 1) % urls.len();
                    continue;
                }
                Err(error) => panic!("{name}: {error}"),
            }
            let cancels = fastrand::u32(0..4) == 0;
            if cancels {
                assert!(cancel_in(&mut transaction, name).unwrap(), "{name} was just put");
            }
            thread::sleep(Duration::from_millis(fastrand::u64(0..300)));
            let commits = fastrand::u32(0..4) != 0;
            if commits {
                transaction.commit().unwrap()
            } else {
                transaction.rollback().unwrap()
            }
            account.tell(name, |told| {
                told.comes = commits && !cancels;
                if !told.comes {
                    told.earliest = Some(now() + HOUR * 24);
                }
            });
            break;
        }
    }
}

fn consume(timer: &DurableTimer, account: &Account, is_empty: &AtomicBool) {
    while !is_empty.load(Ordering::Relaxed) {
        let Some(due) = timer.recv_timeout(Duration::from_millis(20)).unwrap() else { continue };
        let at = now();
        assert_eq!(due.payload(), due.name().as_bytes());
        account.tell(due.name(), |told| told.came.push((at, due.attempt())));
        match fastrand::u32(0..8) {
            0 if due.attempt() == 1 => due.retry(Duration::from_millis(fastrand::u64(0..200))),
            _ => due.ack(),
        }
    }
}

/// What both databases say of each partition that is being moved.
fn states(urls: [&str; 2]) -> impl Iterator<Item = String> {
    let homes = urls.map(|url| store(url).homes().unwrap());
    MOVED.into_iter().map(move |partition| {
        let [from, to] = homes.each_ref().map(|homes| homes.partitions[partition as usize].state);
        format!("{from:?}/{to:?}")
    })
}

fn mover(from: &str, to: &str, partitions: &[i32]) -> Child {
    let partitions: Vec<String> = partitions.iter().map(i32::to_string).collect();
    let [from, to] = [from, to].map(|url| format!("{url}?application_name=mover"));
    command(&["move", &from, &to, &partitions.join(",")])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Lets partitions go to and fro, and returns whether they came to the end of their way. Nobody
/// knows where it is then.
fn disturb(urls: &[String], from: usize, seen: &mut BTreeSet<String>) -> bool {
    let [from, to] = [from, 1 - from].map(|place| &*urls[place]);
    let mut child = mover(from, to, &MOVED);
    // Another, which may be in its way.
    let mut other = (fastrand::u32(0..4) == 0).then(|| mover(from, to, &MOVED));
    thread::sleep(Duration::from_millis(fastrand::u64(0..1 << fastrand::u32(1..13))));
    let cuts = match fastrand::u32(0..6) {
        0 => Some("mover"),
        1 => Some("tickwheel-durable"),
        _ => None,
    };
    if let Some(application) = cuts {
        for url in urls {
            cut(&mut client(url), application);
        }
        thread::sleep(Duration::from_millis(fastrand::u64(0..200)));
    }
    let mut is_done = false;
    for child in [Some(&mut child), other.as_mut()].into_iter().flatten() {
        child.kill().unwrap();
        is_done |= child.wait().unwrap().success();
    }
    // So long as nobody moves them.
    seen.extend(states([from, to]));
    let output = child.wait_with_output().unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    let may_fail = cuts.is_some() || other.is_some();
    assert!(may_fail || is_done || output.status.code().is_none(), "{words}");
    is_done
}

#[test]
fn moves_that_are_killed_again_and_again_lose_nothing_and_break_no_promise() {
    let Some(server) = Server::start() else { return };
    let rounds: u32 =
        std::env::var("TICKWHEEL_DURABLE_MOVES").map_or(12, |rounds| rounds.parse().unwrap());
    let urls = fleet::<2>(&server);
    let mut sql = client(&urls[0]);
    let mut all = names_of(&mut sql, &MOVED, NAMES);
    fastrand::shuffle(&mut all);
    let account = Account {
        names: all,
        next: AtomicUsize::new(0),
        told: Mutex::default(),
        is_over: AtomicBool::new(false),
    };
    let timers: Vec<DurableTimer> =
        urls.iter().flat_map(|url| [(); 2].map(|()| worker(url, LEASE / 2))).collect();
    // One at each.
    let callers = [timers[0].clone(), timers[2].clone()];
    let is_empty = AtomicBool::new(false);
    let mut seen = BTreeSet::new();
    let (mut from, mut ended) = (0, 0);
    thread::scope(|scope| {
        let (account, callers, urls, is_empty) = (&account, &callers, &urls, &is_empty);
        for timer in &timers {
            scope.spawn(move || consume(timer, account, is_empty));
        }
        let calling: Vec<_> = (0..4)
            .map(|n| {
                scope.spawn(move || match n % 2 {
                    0 => call(callers, account),
                    _ => call_in_transactions(urls, account),
                })
            })
            .collect();
        // A test that fails ends its threads too.
        let over = Over(account, is_empty);
        for _ in 0..rounds {
            if disturb(urls, from, &mut seen) {
                (from, ended) = (1 - from, ended + 1);
            }
        }
        let mut child = mover(&urls[from], &urls[1 - from], &MOVED);
        let status = child.wait().unwrap();
        assert!(status.success(), "{:?}", child.wait_with_output().unwrap());
        account.is_over.store(true, Ordering::Relaxed);
        calling.into_iter().for_each(|caller| caller.join().unwrap());
        until("all come", || account.waiting() == 0);
        drop(over);
    });
    let (code, output, errors) = run(&["status", &urls[0], &urls[1]]);
    assert!(code == 0 && errors.is_empty(), "{output}{errors}");
    let ways = output.lines().skip(3).count();
    assert_eq!(ways, 0, "nothing is on its way: {output}");

    for timer in timers.iter().cloned() {
        drop(timer.close());
    }
    let fenced: u64 = timers.iter().map(|timer| timer.stats().fenced).sum();
    let left: Vec<HashSet<String>> = urls
        .iter()
        .map(|url| {
            let rows = client(url).query("select name from tickwheel_due", &[]).unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        })
        .collect();
    assert!(left[0].is_disjoint(&left[1]), "each is in one");
    assert!(left[from].is_empty(), "what was moved is removed");
    let told = account.told();
    let broken = |of: &dyn Fn(&str, &Told) -> bool| -> Vec<&String> {
        told.iter().filter(|(name, told)| of(name, told)).map(|(name, _)| name).collect()
    };
    let lost = broken(&|_, told| told.comes && told.came.is_empty());
    let is_left = |name: &str| left.iter().any(|left| left.contains(name));
    let far_lost = broken(&|name, told| told.is_far && told.came.is_empty() && !is_left(name));
    let early = broken(&|_, told| {
        told.came.iter().any(|(at, _)| told.earliest.is_none_or(|earliest| *at < earliest))
    });
    let twice: usize = told
        .values()
        .map(|told| {
            let attempts: HashSet<u32> = told.came.iter().map(|(_, attempt)| *attempt).collect();
            told.came.len() - attempts.len()
        })
        .sum();
    println!(
        "{rounds} kills, {ended} moves ended, {} names, {twice} twice, {fenced} fenced; seen {seen:?}",
        told.len()
    );
    assert!(lost.is_empty(), "lost: {lost:?}");
    assert!(far_lost.is_empty(), "lost before they were due: {far_lost:?}");
    assert!(early.is_empty(), "early, or after they were cancelled or put off: {early:?}");
    // Only what another owner handed out too, because a lease was over.
    assert!(twice as u64 <= fenced, "{twice} came twice, and {fenced} were fenced");
}

/// How a move ends at a step.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The mover is killed before the step is committed.
    Before,
    /// The mover is killed in the commit, which takes place.
    After,
    /// The server ends the connection.
    Cut,
}

#[test]
fn a_move_that_ends_at_any_step_goes_on_from_there() {
    let Some(server) = Server::start() else { return };
    let mut urls = fleet::<2>(&server);
    let mut sql = client(&urls[0]);
    sql.batch_execute(KNOWS_FLEETS).unwrap();
    let mut fresh = names(&mut sql, MOVED[0], 1_600);
    let pending = fresh.split_off(fresh.len() - 1_500);
    let fill = "with put as (
           insert into tickwheel_due (name, deadline, attempt, payload, metadata)
           select name, 4000000000000 + n, n % 4, convert_to(name, 'UTF8'), 'of ' || name
           from unnest($1::text[]) with ordinality u(name, n) returning *)
         insert into tickwheel_dead select name, deadline, 7, 3, payload, metadata
         from put where attempt = 3";
    sql.execute(fill, &[&pending]).unwrap();
    let mut seen = BTreeSet::new();
    for (is_new, event, when) in STEPS {
        for end in [End::Before, End::After, End::Cut] {
            let [from, to] = &urls;
            let mut held = client(if is_new { to } else { from });
            let trigger = match end {
                End::After => format!(
                    "create constraint trigger hold after {event} deferrable initially deferred
                     for each row {when} execute function hold()"
                ),
                _ => format!(
                    "create trigger hold before {event} for each row {when} execute function hold()"
                ),
            };
            held.batch_execute(&format!("{HOLD}; {trigger}; select pg_advisory_lock(99)")).unwrap();
            let mut child = mover(from, to, &MOVED[..1]);
            let step = format!("{end:?}: {event} {when}");
            until(&step, || !held.query(WAITS, &[]).unwrap().is_empty());
            if let End::Cut = end {
                cut(&mut held, "mover");
                assert_eq!(child.wait().unwrap().code(), Some(2), "{step}");
            } else {
                child.kill().unwrap();
                child.wait().unwrap();
            }
            held.batch_execute("select pg_advisory_unlock(99)").unwrap();
            for url in &urls {
                let mut sql = client(url);
                until("the mover is gone", || {
                    let movers = "select from pg_stat_activity where application_name = 'mover'";
                    sql.query(movers, &[]).unwrap().is_empty()
                });
            }
            held.batch_execute("drop function hold cascade").unwrap();

            // Each is at the one place where callers are served, or on its way there.
            let state = states([from, to]).next().unwrap();
            let states = ["Here/Gone", "Moving/Gone", "Moving/Coming", "Gone/Coming", "Gone/Here"];
            assert!(states.contains(&&*state), "{step}: {state}");
            let mut home = client(if state.starts_with("Gone") { to } else { from });
            let mut expected = of(&mut home, MOVED[0]);
            if state != "Gone/Coming" {
                let put = "select tickwheel_schedule($1, to_timestamp(4000000000), 'new')";
                let new = fresh.pop().unwrap();
                home.execute(put, &[&new]).unwrap();
                expected.0.insert(new, (4_000_000_000_000, 0, b"new".to_vec(), String::new()));
                let (gone, _) = expected.0.pop_first().unwrap();
                home.execute("select tickwheel_cancel($1)", &[&gone]).unwrap();
            }
            assert_eq!((expected.0.len(), expected.1.len()), (1_500, 375), "{step}");
            seen.insert(state);
            let (code, output, errors) = run(&["move", from, to, &MOVED[0].to_string()]);
            assert_eq!(code, 0, "{step}: {output}{errors}");
            assert!(of(&mut client(to), MOVED[0]) == expected, "{step}: all is there");
            assert_eq!(of(&mut client(from), MOVED[0]), Default::default(), "{step}");
            urls.reverse();
        }
    }
    println!("seen {seen:?}");
    assert_eq!(seen.len(), 5, "{seen:?}");
}

/// Ends the threads of a test.
struct Over<'a>(&'a Account, &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
        self.1.store(true, Ordering::Relaxed);
    }
}

/// The steps of a move: whether at the new database, and the change that makes it.
const STEPS: [(bool, &str, &str); 9] = [
    (false, PARTITION, "when (old.state = 'here' and new.state = 'moving')"),
    (true, PARTITION, "when (old.state = 'gone' and new.state = 'coming')"),
    (true, PARTITION, "when (new.state = 'coming' and old.epoch < new.epoch)"),
    (true, "insert on tickwheel_due", ""),
    (true, "insert on tickwheel_dead", ""),
    (false, PARTITION, "when (new.yields is not null)"),
    (false, PARTITION, "when (old.state = 'moving' and new.state = 'gone')"),
    (true, PARTITION, "when (old.state = 'coming' and new.state = 'here')"),
    (false, "delete on tickwheel_due", ""),
];
const PARTITION: &str = "update on tickwheel_partition";

/// Waits for the test.
const HOLD: &str = "create function hold() returns trigger language plpgsql as $$ begin
       perform pg_advisory_xact_lock(99);
       if tg_op = 'DELETE' then return old; end if;
       return new; end $$";
const WAITS: &str = "select from pg_locks join pg_stat_activity using (pid)
     where not granted and locktype = 'advisory' and objid = 99 and application_name = 'mover'";

/// The partitions that are moved, and how many names of them there are at most.
const MOVED: [i32; 4] = [3, 17, 40, 63];
const NAMES: i64 = 80_000;
