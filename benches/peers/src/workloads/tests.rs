//! Subjects that are broken on purpose are marked so, in the workloads that can show it.

use super::{HISTORIES, WORKLOADS, Workload, run, run_threaded};
use crate::case::{Case, Failure, Sample, caught};
use crate::log::{Faults, Log};
use crate::subject::{Cancelled, Kind, Profile, Setup, Subject};
use crate::subjects::btree_map::BTreeMap;
use crate::threaded::{FIRED, Task, Threaded};
use crate::{subjects, workloads};
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

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

/// A sorted map with one fault, now and then.
struct Broken<const FAULT: u8>(BTreeMap);

/// Whether it is the turn of one of those that are treated badly.
fn is_victim(value: u64) -> bool {
    value.is_multiple_of(10)
}

impl<const FAULT: u8> Subject for Broken<FAULT> {
    type Key = (u64, u64);

    const PROFILE: Profile = Profile::new("broken", Kind::Peer);

    fn new(setup: &Setup) -> Self {
        Self(BTreeMap::new(setup))
    }

    fn schedule(&mut self, deadline: u64, value: u64) -> Self::Key {
        let late = if FAULT == LATE { 2 } else { 0 };
        let early = if FAULT == EARLY { 1 } else { 0 };
        let key = self.0.schedule(deadline + late - early, value);
        if FAULT == LOSES && is_victim(value) {
            self.0.cancel(key);
        }
        key
    }

    fn cancel(&mut self, key: Self::Key) -> Cancelled {
        match FAULT {
            CANCELS_ANOTHER => self.0.pop_last().into(),
            IGNORES_CANCEL => Cancelled::Done,
            _ => self.0.cancel(key),
        }
    }

    fn reschedule(&mut self, key: Self::Key, deadline: u64, value: u64) -> Self::Key {
        self.0.cancel(key);
        self.schedule(deadline, value)
    }

    fn expire(&mut self, now: u64, log: &mut Log) {
        while self.expire_some(now, log) {}
        if FAULT == DISORDERS {
            log.values().reverse();
        }
    }

    fn expire_some(&mut self, now: u64, log: &mut Log) -> bool {
        let is_more = self.0.expire_some(now, log);
        if let Some(&last) = log.values().last().filter(|&&last| is_more && is_victim(last)) {
            assert_ne!(FAULT, PANICS, "a victim");
            if FAULT == DUPLICATES {
                log.push(last);
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

const SIZE: usize = 1_000;

fn case(workload: &str, subject: &str) -> Case {
    Case { workload: workload.into(), subject: subject.into(), size: SIZE, milliseconds: 20 }
}

fn ran<S: Subject>(workload: &str) -> Sample {
    caught(|| run::<S>(&case(workload, "broken")))
}

fn faults<const FAULT: u8>(workload: &str) -> Faults {
    let sample = ran::<Broken<FAULT>>(workload);
    assert_eq!(sample.failure, None, "{workload}");
    sample.faults
}

/// Those in which all kinds of answers are given.
const TELLING: [&str; 4] = ["fire-dense", "requests", "idle", "mix"];

#[test]
fn one_that_is_sound_has_no_marks() {
    let profile = Broken::<SOUND>::PROFILE;
    for workload in WORKLOADS.iter().filter(|workload| workload.suits(&profile)) {
        assert!(!faults::<SOUND>(workload.name).any(), "{}", workload.name);
    }
}

#[test]
fn one_that_is_early_or_late_is_marked() {
    for workload in TELLING {
        let early = faults::<EARLY>(workload);
        assert!(0 < early.early && early.late == 0, "{workload}: {early}");
    }
    for workload in ["fire-dense", "mix"] {
        let late = faults::<LATE>(workload);
        assert!(0 < late.late && late.latest == 2 && late.early == 0, "{workload}: {late}");
    }
}

#[test]
fn one_that_loses_or_duplicates_is_marked() {
    for workload in TELLING {
        assert!(0 < faults::<LOSES>(workload).lost, "{workload}");
        assert!(0 < faults::<DUPLICATES>(workload).duplicated, "{workload}");
    }
}

#[test]
fn one_that_does_not_keep_the_order_is_marked() {
    for workload in ["fire-dense", "mix"] {
        assert!(0 < faults::<DISORDERS>(workload).disordered, "{workload}");
    }
}

#[test]
fn one_that_cancels_something_else_or_nothing_is_marked() {
    for workload in ["cancel", "requests", "mix"] {
        assert!(0 < faults::<CANCELS_ANOTHER>(workload).wrong, "{workload}");
        assert!(0 < faults::<IGNORES_CANCEL>(workload).duplicated, "{workload}");
    }
}

#[test]
fn one_that_panics_is_marked() {
    for workload in TELLING {
        let failure = ran::<Broken<PANICS>>(workload).failure;
        let told =
            matches!(&failure, Some(Failure::Panicked(message)) if message.contains("a victim"));
        assert!(told, "{workload}: {failure:?}");
    }
}

#[test]
fn every_subject_comes_to_the_end_of_the_workloads() {
    // Each on a thread of its own, as some leave traces on theirs.
    let quick = |workload: &&Workload| {
        workload.size == "timeouts" && !matches!(workload.name, "waiting" | "accuracy")
    };
    for workload in WORKLOADS.iter().filter(quick) {
        for profile in subjects::PROFILES.iter().filter(|profile| workload.suits(profile)) {
            let too_far = workload.name.starts_with("longest-call")
                || matches!(workload.name, "fire-sparse" | "log-uniform");
            if too_far && profile.name == "subms" {
                continue;
            }
            let case = case(workload.name, profile.name);
            let ran = thread::spawn(move || subjects::run(&case));
            let sample =
                ran.join().unwrap_or_else(|_| panic!("{} {}", workload.name, profile.name));
            let metrics = workload.metrics.iter();
            let missing = metrics.filter(|metric| sample.value(metric.0).is_none()).count();
            assert_eq!(missing, 0, "{} {}", workload.name, profile.name);
            if profile.kind != Kind::Peer {
                assert!(!sample.faults.any(), "{} {}", workload.name, profile.name);
            }
        }
    }
}

/// Calls each task a millisecond after it was told to, and some twice, or never.
struct BrokenTimer(Mutex<u64>);

impl Threaded for BrokenTimer {
    const PROFILE: Profile = Profile::threaded("broken", Kind::Peer);

    type Local<'a> = ();
    type Slot = ();

    fn new() -> Self {
        Self(Mutex::new(0))
    }

    fn enter(&self) {}

    fn replace((): &mut (), (): &mut (), _delay: Duration) {
        FIRED.fetch_add(1, Relaxed);
    }

    fn after(&self, _delay: Duration, task: Task) {
        let mut scheduled = self.0.lock().expect("nobody panics with it");
        *scheduled += 1;
        if !scheduled.is_multiple_of(10) {
            thread::spawn(task);
        }
    }
}

#[test]
fn a_broken_timer_is_marked() {
    let mut case = case("accuracy", "broken");
    case.size = 50;
    let faults = run_threaded::<BrokenTimer>(&case).faults;
    assert!(0 < faults.early && 0 < faults.lost, "{faults}");
}

#[test]
fn every_name_is_there_once() {
    let mut names: Vec<_> = subjects::PROFILES.iter().map(|profile| profile.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for workload in WORKLOADS {
        assert_eq!(workloads::by_name(workload.name).map(|one| one.name), Some(workload.name));
    }
    assert!(HISTORIES.iter().all(|(workload, _)| workloads::by_name(workload).is_some()));
}
