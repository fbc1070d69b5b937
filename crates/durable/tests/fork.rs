//! A child process made by `fork` has no timer's thread, and its file belongs to the parent. Alone
//! in its file, because a process that forks should have few threads.
#![cfg(unix)]

use std::process::exit;
use std::thread;
use std::time::{Duration, SystemTime};

use fork::{Fork, fork, waitpid};
use tickwheel_durable::{DurableTimer, Error};

/// Runs `check` in a child, and returns whether it returned true there, within a minute.
fn in_a_child(check: impl FnOnce() -> bool) -> bool {
    match fork().expect("there is memory") {
        Fork::Child => {
            // A child that hangs ends itself.
            thread::spawn(|| {
                (0..600).for_each(|_| thread::sleep(Duration::from_millis(100)));
                exit(1)
            });
            exit(i32::from(!check()))
        }
        Fork::Parent(child) => waitpid(child).expect("it is a child") == 0,
    }
}

#[test]
fn in_a_child_all_calls_say_that_it_was_forked_and_the_parent_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("timeouts.redb");
    let timer = DurableTimer::open(&file).unwrap();
    let now = SystemTime::now();
    timer.schedule("a", now, b"").unwrap().wait().unwrap();
    let due = timer.recv().unwrap().unwrap();

    assert!(in_a_child(|| matches!(timer.schedule("b", now, b""), Err(Error::Forked))));
    assert!(in_a_child(|| matches!(timer.cancel("a"), Err(Error::Forked))));
    assert!(in_a_child(|| matches!(timer.recv(), Err(Error::Forked))));
    assert!(in_a_child(|| matches!(timer.try_recv(), Err(Error::Forked))));
    assert!(in_a_child(|| matches!(timer.get("a"), Err(Error::Forked))));
    assert!(in_a_child(|| matches!(timer.clone().close(), Err(Error::Forked))));
    assert!(in_a_child(|| {
        let error = timer.len().unwrap_err().to_string();
        error.contains("open the timer after the fork")
    }));
    // The lock is the parent's, and the error says that this may be.
    assert!(in_a_child(|| match DurableTimer::open(&file) {
        Err(error @ Error::Locked { .. }) => error.to_string().contains("forked"),
        _ => false,
    }));
    // What a child drops is the parent's to settle.
    assert!(in_a_child(|| {
        drop(timer.clone());
        true
    }));

    due.ack();
    timer.schedule("c", now, b"").unwrap().wait().unwrap();
    let due = timer.recv().unwrap().unwrap();
    assert_eq!(due.name(), "c");
    due.ack();
    timer.close().unwrap();
    let timer = DurableTimer::open(&file).unwrap();
    assert!(timer.is_empty().unwrap(), "the children changed nothing");
}
