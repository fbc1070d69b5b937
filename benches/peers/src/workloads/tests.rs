//! Subjects that are broken on purpose are marked so, in the workloads that can show it.

use super::{HISTORIES, WORKLOADS, Workload, burst, run, run_threaded};
use crate::case::{Case, Sample, caught};
use crate::log::{Fault, Faults, Log};
use crate::random::MINUTE;
use crate::subject::{Kind, Profile, Setup, Subject};
use crate::subjects;
use crate::subjects::collections::BTreeMap;
use crate::threaded::{FIRED, Task, Threaded};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// A sorted map with one fault, now and then.
struct Broken<const FAULT: u8>(BTreeMap);

/// Whether it is the turn of one of those that are treated badly.
fn is_victim(value: u64) -> bool {
    value.is_multiple_of(10)
}

impl<const FAULT: u8> Subject for Broken<FAULT> {
    type Key = (u64, u64);

    const IS_NEW: bool = FAULT == ONCE;

    fn new(setup: &Setup) -> Self {
        Self(BTreeMap::new(setup))
    }

    fn schedule(&mut self, deadline: u64, value: u64) -> Self::Key {
        let late = if FAULT == LATE { 2 } else { 0 };
        let early = if FAULT == EARLY { 1 } else { 0 };
        let key = self.0.schedule(deadline + late - early, value);
        let is_first_pass = key.1 <= SIZE as u64 && deadline <= MINUTE;
        assert!(FAULT != ONCE || is_first_pass, "of a second pass");
        if FAULT == LOSES && is_victim(value) {
            self.0.cancel(key, value);
        }
        key
    }

    fn cancel(&mut self, key: Self::Key, value: u64) -> bool {
        match FAULT {
            CANCELS_ANOTHER => self.0.map.pop_last().is_some_and(|(_, other)| other == value),
            IGNORES_CANCEL => true,
            _ => self.0.cancel(key, value),
        }
    }

    fn expire(&mut self, now: u64, log: &mut Log) {
        while self.expire_some(now, log) {}
        if FAULT == DISORDERS {
            log.values.reverse();
        }
    }

    fn expire_some(&mut self, now: u64, log: &mut Log) -> bool {
        let is_more = self.0.expire_some(now, log);
        if let Some(&last) = log.values.last().filter(|&&last| is_more && is_victim(last)) {
            assert_ne!(FAULT, PANICS, "a victim");
            if FAULT == DUPLICATES {
                log.values.push(last);
            }
        }
        is_more
    }

    fn next_wake(&mut self) -> Option<u64> {
        // In steps, so that several come out at once.
        let step = if FAULT == DISORDERS { 100 } else { 1 };
        Some(self.0.next_wake()?.next_multiple_of(step))
    }
}

fn case(workload: &str, subject: &str, size: usize) -> Case {
    Case { workload: workload.into(), subject: subject.into(), size, milliseconds: 20 }
}

fn ran<const FAULT: u8>(workload: &str) -> Sample {
    caught(|| run::<Broken<FAULT>>(&case(workload, "broken", SIZE)))
}

/// The faults that are found in each of the workloads.
fn faults<const FAULT: u8>(workloads: &[&'static str]) -> Vec<Faults> {
    let faults = |workload: &&str| {
        let sample = ran::<FAULT>(workload);
        assert_eq!(sample.failure, None, "{workload}");
        sample.faults
    };
    workloads.iter().map(faults).collect()
}

#[track_caller]
fn assert_found<const FAULT: u8>(expected: Fault, workloads: &[&'static str]) {
    for (faults, workload) in faults::<FAULT>(workloads).iter().zip(workloads) {
        assert!(0 < faults.count(expected), "{workload}: {faults}");
    }
}

#[test]
fn one_that_is_sound_has_no_marks() {
    let suits = |workload: &&Workload| (workload.suits)(&Profile::new(Kind::Peer, "broken"));
    let workloads: Vec<_> = WORKLOADS.iter().filter(suits).map(|one| one.name).collect();
    for (faults, workload) in faults::<SOUND>(&workloads).iter().zip(&workloads) {
        assert!(!faults.any(), "{workload}: {faults}");
    }
}

/// As those of few timeouts take turns.
#[test]
fn of_few_timeouts_a_queue_of_a_runtime_is_never_late() {
    for workload in ["fire-dense", "cancel", "requests", "mix"] {
        let sample = caught(|| subjects::run(&case(workload, "delay-queue", 10)));
        assert_eq!(sample.failure, None, "{workload}");
        assert_eq!(sample.faults.count(Fault::Late), 0, "{workload}");
    }
}

#[test]
fn one_that_is_early_or_late_is_marked() {
    for faults in faults::<EARLY>(TELLING) {
        assert!(0 < faults.count(Fault::Early) && faults.count(Fault::Late) == 0, "{faults}");
    }
    for faults in faults::<LATE>(&["fire-dense", "mix"]) {
        let marks = faults.to_string();
        assert!(marks.contains("late (by up to 2)") && !marks.contains("early"), "{marks}");
    }
}

#[test]
fn one_that_answers_wrongly_is_marked() {
    assert_found::<LOSES>(Fault::Lost, TELLING);
    assert_found::<DUPLICATES>(Fault::Duplicated, TELLING);
    assert_found::<DISORDERS>(Fault::Disordered, &["fire-dense", "mix"]);
    assert_found::<CANCELS_ANOTHER>(Fault::Wrong, &["cancel", "requests", "mix"]);
    assert_found::<IGNORES_CANCEL>(Fault::Duplicated, &["cancel", "requests", "mix"]);
}

#[test]
fn one_that_panics_is_marked() {
    for workload in TELLING {
        let failure = ran::<PANICS>(workload).failure.expect("a failure");
        assert!(failure.contains("PANICKED") && failure.contains("a victim"), "{failure}");
    }
}

#[test]
fn one_that_is_to_be_new_is_new_in_each_pass() {
    for faults in faults::<ONCE>(&["fire-dense", "one-bucket"]) {
        assert!(!faults.any(), "{faults}");
    }
}

#[test]
fn every_subject_comes_to_the_end_of_the_workloads() {
    // Each on a thread of its own, as some leave traces on theirs.
    let quick = |workload: &&Workload| {
        workload.size == "timeouts" && !matches!(workload.name, "waiting" | "accuracy")
    };
    for workload in WORKLOADS.iter().filter(quick) {
        let is_far = workload.name.starts_with("longest-call")
            || matches!(workload.name, "fire-sparse" | "log-uniform");
        for profile in subjects::PROFILES.iter().filter(|profile| (workload.suits)(profile)) {
            if is_far && profile.name == "subms" || profile.name == subjects::NETTY.name {
                continue;
            }
            let both = format!("{} {}", workload.name, profile.name);
            let case = case(workload.name, profile.name, 1_000);
            // A busy machine may leave no time to schedule them all before they are due.
            let sample = (0..ATTEMPTS)
                .map(|_| {
                    let case = case.clone();
                    thread::spawn(move || subjects::run(&case)).join().expect(&both)
                })
                .find(|it| workload.metrics.iter().all(|(name, _)| it.values.contains_key(*name)))
                .unwrap_or_else(|| panic!("{both}: no sample with all metrics"));
            assert!(profile.kind == Kind::Peer || !sample.faults.any(), "{both}");
        }
    }
}

/// Calls each task at once, and some never.
struct BrokenTimer(AtomicUsize);

impl Threaded for BrokenTimer {
    type Slot = ();

    fn new() -> Self {
        Self(AtomicUsize::new(1))
    }

    fn replacer(&self) -> impl FnMut(&mut (), Duration) {
        |(), _| _ = FIRED.fetch_add(1, Relaxed)
    }

    fn after(&self, _delay: Duration, task: Task) {
        if !self.0.fetch_add(1, Relaxed).is_multiple_of(10) {
            thread::spawn(task);
        }
    }
}

#[test]
fn a_broken_timer_is_marked() {
    let faults = run_threaded::<BrokenTimer>(&case("accuracy", "broken", 50)).faults;
    assert!(0 < faults.count(Fault::Early) && faults.count(Fault::Lost) == 5, "{faults}");
}

#[test]
fn a_timer_that_loses_is_found_in_a_burst() {
    let (_, lost) = burst::until_all_ran(&BrokenTimer::new(), 50, |_| ());
    assert_eq!(lost, 5);
}

#[test]
fn every_name_is_there_once() {
    let names = subjects::PROFILES.iter().map(|profile| profile.name);
    assert_eq!(names.collect::<HashSet<_>>().len(), subjects::PROFILES.len());
    let names = WORKLOADS.iter().map(|workload| workload.name);
    assert_eq!(names.collect::<HashSet<_>>().len(), WORKLOADS.len());
    assert!(HISTORIES.iter().all(|one| WORKLOADS.iter().any(|workload| workload.name == one.0)));
}

/// What is wrong with a subject.
const SOUND: u8 = 0;
const EARLY: u8 = 1;
const LATE: u8 = 2;
const LOSES: u8 = 3;
const DUPLICATES: u8 = 4;
const DISORDERS: u8 = 5;
const CANCELS_ANOTHER: u8 = 6;
const IGNORES_CANCEL: u8 = 7;
const PANICS: u8 = 8;
/// Cannot be used for a second pass, and says so.
const ONCE: u8 = 9;

const SIZE: usize = 1_000;

const ATTEMPTS: usize = 50;

/// Those in which all kinds of answers are given.
const TELLING: &[&str] = &["fire-dense", "requests", "idle", "mix"];
