//! A process that is killed again and again, and what it had promised.
//!
//! The child writes a line for each promise, after it was made to it; the parent kills it at a
//! random moment, and compares.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tickwheel_durable::{Cancelled, DurableTimer, MissedTick, Recurring, Scheduled};

#[test]
fn no_kill_loses_a_timeout_or_makes_one_early_or_brings_back_a_cancelled_one() {
    let kills: u32 =
        std::env::var("TICKWHEEL_DURABLE_KILLS").map_or(12, |kills| kills.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timeouts.redb");
    let mut promises = Promises::default();
    for life in 0..kills {
        promises.read(life, &path, Some(fastrand::usize(1..400)));
    }
    // And once in peace, until all has come.
    promises.read(kills, &path, None);
    println!("{kills} kills: {}", promises.check());
}

/// One that kills its process each time, beside others.
#[test]
fn what_kills_its_process_comes_as_often_as_it_may_and_is_a_dead_letter_and_all_others_come() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timeouts.redb");
    let timer = DurableTimer::open(&path).unwrap();
    for n in 0..50 {
        let name = if n == 20 { "poison".to_owned() } else { format!("good {n}") };
        let at = UNIX_EPOCH + Duration::from_millis(n);
        timer.schedule(&name, at, b"").unwrap().wait().unwrap();
    }
    timer.close().unwrap();
    let mut came = Vec::new();
    for life in 1.. {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "poisoned_child", "--nocapture"])
            .env("TICKWHEEL_DURABLE_FILE", &path)
            .output()
            .unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        came.extend(
            lines.lines().filter_map(|line| line.strip_prefix("@fired ")).map(str::to_owned),
        );
        if output.status.success() {
            assert_eq!(life, MOST + 1, "it kills as often as it may");
            break;
        }
    }
    let times = |name: &str| came.iter().filter(|line| line.starts_with(name)).count();
    assert_eq!(times("poison "), MOST as usize, "{came:?}");
    (0..50).filter(|n| *n != 20).for_each(|n| assert_eq!(times(&format!("good {n} ")), 1));
    let timer = DurableTimer::open(&path).unwrap();
    let dead: Vec<_> = timer.dead_letters().map(Result::unwrap).collect();
    let dead: Vec<_> = dead.iter().map(|letter| (letter.name(), letter.attempts())).collect();
    assert_eq!(dead, [("poison", MOST)]);
    assert!(timer.is_empty().unwrap());
}

/// The child of the test above.
#[test]
fn poisoned_child() {
    let (Ok(path), Err(_)) =
        (std::env::var("TICKWHEEL_DURABLE_FILE"), std::env::var("TICKWHEEL_DURABLE_LIFE"))
    else {
        return;
    };
    let timer = DurableTimer::builder().max_attempts(MOST).open(path).unwrap();
    while !timer.is_empty().unwrap() {
        let Some(due) = timer.recv_timeout(Duration::from_millis(20)).unwrap() else { continue };
        tell(&format!("fired {} {}", due.name(), due.attempt()));
        if due.name() == "poison" {
            std::process::abort();
        }
        due.ack();
    }
    timer.close().unwrap();
}

#[test]
fn one_that_recurs_has_one_next_run_whatever_kills_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timeouts.redb");
    let timer = DurableTimer::open(&path).unwrap();
    timer.schedule("tick", UNIX_EPOCH, b"0").unwrap().wait().unwrap();
    timer.close().unwrap();
    let (mut runs, mut twice) = (0, 0);
    for _ in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "recurring_child", "--nocapture"])
            .env("TICKWHEEL_DURABLE_FILE", &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut left = fastrand::usize(1..200);
        for line in output.lines().map_while(Result::ok) {
            let Some(run) = line.strip_prefix("@run ") else { continue };
            let run: u64 = run.parse().unwrap();
            assert!(run == runs || run + 1 == runs, "{run} comes after {runs} runs");
            twice += u64::from(run < runs);
            runs = runs.max(run + 1);
            left -= 1;
            if left == 0 {
                thread::sleep(Duration::from_micros(fastrand::u64(0..5_000)));
                child.kill().unwrap();
                // What it has said by now counts as well.
                left = usize::MAX;
            }
        }
        let status = child.wait().unwrap();
        assert!(status.code().is_none(), "it ended by itself: {status}");
        let timer = DurableTimer::open(&path).unwrap();
        let next: Vec<_> = timer.iter().map(Result::unwrap).collect();
        let [next] = &next[..] else { panic!("{} are scheduled", next.len()) };
        let at = milliseconds(next.deadline()) as u64;
        assert!(at == runs || at + 1 == runs, "{at} is scheduled after {runs} runs");
        timer.close().unwrap();
    }
    println!("12 kills, {runs} runs, {twice} of them twice");
}

/// The child of the test above: its runs are a millisecond apart, long ago.
#[test]
fn recurring_child() {
    let (Ok(path), Err(_)) =
        (std::env::var("TICKWHEEL_DURABLE_FILE"), std::env::var("TICKWHEEL_DURABLE_LIFE"))
    else {
        return;
    };
    let every = Recurring::every(Duration::from_millis(1)).missed(MissedTick::Burst);
    let timer = DurableTimer::open(path).unwrap();
    while let Some(due) = timer.recv().unwrap() {
        tell(&format!("run {}", milliseconds(due.deadline())));
        let next = every.next(due.deadline(), SystemTime::now()).unwrap();
        due.ack_and_schedule(next);
    }
}

/// The child, when it is run by the test above.
#[test]
fn child() {
    let (Ok(path), Ok(life)) =
        (std::env::var("TICKWHEEL_DURABLE_FILE"), std::env::var("TICKWHEEL_DURABLE_LIFE"))
    else {
        return;
    };
    let timer = DurableTimer::open(path).unwrap();
    let last = std::env::var("TICKWHEEL_DURABLE_LAST").is_ok();
    let consumer = {
        let timer = timer.clone();
        thread::spawn(move || {
            while let Some(due) = timer.recv().unwrap() {
                let deadline = milliseconds(due.deadline());
                let payload = str::from_utf8(due.payload()).unwrap();
                let now = milliseconds(SystemTime::now());
                tell(&format!("fired {} {payload} {} {deadline} {now}", due.name(), due.attempt()));
                match fastrand::u32(0..20) {
                    0 => {
                        tell(&format!("retried {}", due.name()));
                        due.retry(Duration::from_millis(20));
                    }
                    1 if !last => std::mem::forget(due),
                    _ => due.ack(),
                }
            }
        })
    };
    if last {
        while !timer.is_empty().unwrap() {
            thread::sleep(Duration::from_millis(10));
        }
        timer.close().unwrap();
        consumer.join().unwrap();
        tell("over");
        return;
    }
    let producers: Vec<_> = (0..8)
        .map(|producer| {
            let timer = timer.clone();
            let life = life.clone();
            thread::spawn(move || {
                for n in 0.. {
                    produce(&timer, &format!("{life}/{producer}/{n}"));
                }
            })
        })
        .collect();
    for producer in producers {
        producer.join().unwrap();
    }
}

/// Schedules one, and then perhaps moves it or cancels it.
fn produce(timer: &DurableTimer, name: &str) {
    let soon = |most| SystemTime::now() + Duration::from_millis(fastrand::u64(0..most));
    timer.schedule(name, soon(1_500), b"1").unwrap().wait().unwrap();
    tell(&format!("scheduled {name} 1"));
    match fastrand::u32(0..4) {
        0 => {
            tell(&format!("cancelling {name}"));
            if timer.cancel(name).unwrap().wait().unwrap() == Cancelled::Cancelled {
                tell(&format!("cancelled {name}"));
            }
        }
        1 => {
            let scheduled = timer.schedule(name, soon(3_000), b"2").unwrap().wait().unwrap();
            if scheduled == Scheduled::Moved {
                tell(&format!("moved {name}"));
            }
            tell(&format!("scheduled {name} 2"));
        }
        _ => {}
    }
}

fn tell(line: &str) {
    // One write, so that a kill leaves whole lines but for the last.
    std::io::stdout().write_all(format!("\n@{line}\n").as_bytes()).unwrap();
}

fn milliseconds(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).unwrap().as_millis()
}

/// What the children promised.
#[derive(Default)]
struct Promises {
    scheduled: HashMap<String, String>,
    /// Names whose cancel was asked for, and those where it was answered.
    cancelling: HashSet<String>,
    cancelled: HashSet<String>,
    moved: HashSet<String>,
    /// Names that came and were not done: they are pending again, and may be cancelled or moved.
    retried: HashSet<String>,
    /// Each time a timeout came: life, name, payload, attempt.
    fired: Vec<(u32, String, String, u32)>,
    early: u64,
}

impl Promises {
    /// Reads what one life promises, and kills it after so many promises.
    fn read(&mut self, life: u32, path: &Path, kill_after: Option<usize>) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "child", "--nocapture"])
            .env("TICKWHEEL_DURABLE_FILE", path)
            .env("TICKWHEEL_DURABLE_LIFE", life.to_string())
            .stdout(Stdio::piped());
        if kill_after.is_none() {
            command.env("TICKWHEEL_DURABLE_LAST", "1");
        }
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut lines: Vec<String> = Vec::new();
        for line in output.lines().map_while(Result::ok).filter(|line| line.starts_with('@')) {
            lines.push(line);
            if kill_after == Some(lines.len()) {
                // Not always at the moment when a promise was made.
                thread::sleep(Duration::from_micros(fastrand::u64(0..5_000)));
                child.kill().unwrap();
            }
        }
        let status = child.wait().unwrap();
        if kill_after.is_some() {
            assert!(status.code().is_none(), "it ended by itself: {status}");
        } else {
            assert!(status.success(), "{status}");
            assert!(lines.iter().any(|line| line == "@over"), "the last one ended well");
        }
        for line in lines.iter().filter_map(|line| line.strip_prefix('@')) {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["over"] => {}
                ["retried", name] => drop(self.retried.insert(name.to_owned())),
                ["scheduled", name, payload] => {
                    self.scheduled.insert(name.to_owned(), payload.to_owned());
                }
                ["cancelling", name] => drop(self.cancelling.insert(name.to_owned())),
                ["cancelled", name] => drop(self.cancelled.insert(name.to_owned())),
                ["moved", name] => drop(self.moved.insert(name.to_owned())),
                ["fired", name, payload, attempt, deadline, now] => {
                    let (deadline, now): (u128, u128) =
                        (deadline.parse().unwrap(), now.parse().unwrap());
                    self.early += u64::from(now < deadline);
                    let fired =
                        (life, name.to_owned(), payload.to_owned(), attempt.parse().unwrap());
                    self.fired.push(fired);
                }
                // Cut by the kill.
                _ => {}
            }
        }
    }

    fn check(&self) -> String {
        let came: HashSet<&str> = self.fired.iter().map(|(_, name, ..)| &name[..]).collect();
        let last_came: HashSet<(&str, &str)> =
            self.fired.iter().map(|(_, name, payload, _)| (&name[..], &payload[..])).collect();
        let lost = self
            .scheduled
            .iter()
            .filter(|(name, payload)| {
                // A kill may have come between a move and its answer.
                !self.cancelling.contains(*name)
                    && !last_came.contains(&(&name[..], &payload[..]))
                    && !last_came.contains(&(&name[..], "2"))
            })
            .count();
        let in_one_life: HashSet<_> = self.fired.iter().collect();
        let twice = self.fired.len() - in_one_life.len();
        let after_cancel = self
            .cancelled
            .difference(&self.retried)
            .filter(|name| came.contains(&name[..]))
            .count();
        let after_move = self
            .moved
            .difference(&self.retried)
            .filter(|name| last_came.contains(&(&name[..], "1")))
            .count();
        let again = self
            .fired
            .iter()
            .map(|(_, name, payload, attempt)| (name, payload, attempt))
            .collect::<HashSet<_>>()
            .len();
        assert!(came.len() > 100, "{} came", came.len());
        let told = format!(
            "{} scheduled, {} cancelled, {} moved, {} fired, {lost} lost, {} early, {twice} twice \
             without a crash, {} again after a crash, {after_cancel} after a cancel, \
             {after_move} after a move",
            self.scheduled.len(),
            self.cancelled.len(),
            self.moved.len(),
            self.fired.len(),
            self.early,
            in_one_life.len() - again,
        );
        assert_eq!((lost, self.early, twice, after_cancel, after_move), (0, 0, 0, 0, 0), "{told}");
        told
    }
}

/// How often a timeout is handed out at most, where some kill.
const MOST: u32 = 3;
