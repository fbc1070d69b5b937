//! Disks that are full or cannot be written, by a small file system in memory. Where the user may
//! not mount one, the tests say that they are skipped.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tempfile::TempDir;
use tickwheel_durable::DurableTimer;

/// A file system of its own.
struct Mount(TempDir);

impl Mount {
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        if mount(&["-t", "tmpfs", "-o", "size=8m", "tmpfs"], folder.path()) {
            return Some(Self(folder));
        }
        println!("skipped: this user may not mount a tmpfs");
        None
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn mount(words: &[&str], folder: &Path) -> bool {
    Command::new("mount")
        .args(words)
        .arg(folder)
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[test]
fn a_full_disk_is_told_to_callers_while_what_is_due_goes_on_and_it_recovers() {
    let Some(disk) = Mount::new() else { return };
    let timer = DurableTimer::open(disk.0.path().join("timeouts")).unwrap();
    let soon = SystemTime::now() + Duration::from_millis(1_500);
    for n in 0..100 {
        timer.schedule(&format!("due {n}"), soon, b"").unwrap().wait().unwrap();
    }
    let ballast = disk.0.path().join("ballast");
    let mut file = File::create(&ballast).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    let far = SystemTime::now() + LONG * 60;
    let mut told = None;
    for n in 0..1_000 {
        let scheduled = timer.schedule(&format!("far {n}"), far, &[1; 60_000]).unwrap().wait();
        if let Err(error) = scheduled {
            told = Some(error.to_string());
            break;
        }
    }
    let told = told.expect("the disk is full");
    assert!(told.contains("No space left") || told.contains("os error 28"), "{told}");
    for _ in 0..100 {
        timer.recv_timeout(LONG).unwrap().expect("what is due goes on").ack();
    }
    std::fs::remove_file(ballast).unwrap();
    let began = Instant::now();
    while timer.schedule("again", SystemTime::now(), b"").unwrap().wait().is_err() {
        assert!(began.elapsed() < LONG * 2, "it recovers by itself");
        thread::sleep(Duration::from_millis(20));
    }
    let due = timer.recv_timeout(LONG).unwrap().expect("it goes on");
    assert_eq!(due.name(), "again");
    due.ack();
    timer.close().unwrap();
}

#[test]
fn a_backup_for_which_there_is_no_room_is_told_and_leaves_nothing() {
    let Some(disk) = Mount::new() else { return };
    let folder = TempDir::new().unwrap();
    let timer = DurableTimer::open(folder.path().join("timeouts")).unwrap();
    let far = SystemTime::now() + LONG * 60;
    let put = |n| timer.schedule(&format!("far {n}"), far, &[1; 60_000]).unwrap();
    for commit in (0..200).map(put).collect::<Vec<_>>() {
        commit.wait().unwrap();
    }
    let copy = disk.0.path().join("copy");
    let told = timer.backup(&copy).unwrap_err().to_string();
    assert!(told.contains("No space left") || told.contains("os error 28"), "{told}");
    assert_eq!(std::fs::read_dir(disk.0.path()).unwrap().count(), 0);
    // The timer goes on, and a backup where there is room is whole.
    timer.schedule("now", SystemTime::now(), b"").unwrap().wait().unwrap();
    timer.recv_timeout(LONG).unwrap().expect("it is due").ack();
    assert!(200 <= timer.backup(folder.path().join("copy")).unwrap().timeouts);
    timer.close().unwrap();
}

#[test]
fn a_file_for_which_there_is_no_room_is_not_made_in_part() {
    let Some(disk) = Mount::new() else { return };
    let ballast = disk.0.path().join("ballast");
    let mut file = File::create(&ballast).unwrap();
    let mut room = 8 << 20;
    while file.write_all(&[0; 4096]).is_ok() {
        room -= 4096;
    }
    let path = disk.0.path().join("timeouts");
    // All sizes of what is there of it when the disk is full.
    while room < 4 << 20 {
        file.set_len((8 << 20) - room).unwrap();
        match DurableTimer::open(&path) {
            Ok(timer) => {
                timer.close().unwrap();
                std::fs::remove_file(&path).unwrap();
            }
            Err(_) => assert!(!path.exists(), "with room for {room} bytes"),
        }
        room += 64 << 10;
    }
    drop(file);
    std::fs::remove_file(ballast).unwrap();
    let timer = DurableTimer::open(&path).unwrap();
    timer.schedule("a", SystemTime::now(), b"").unwrap().wait().unwrap();
    timer.recv_timeout(LONG).unwrap().expect("it is due").ack();
    timer.close().unwrap();
}

#[test]
fn a_folder_that_cannot_be_written_is_told_with_what_would_be_right() {
    let Some(disk) = Mount::new() else { return };
    assert!(mount(&["-o", "remount,ro"], disk.0.path()));
    let error = DurableTimer::open(disk.0.path().join("timeouts")).map(drop).unwrap_err();
    assert!(error.to_string().contains("must be writable"), "{error}");
}

const LONG: Duration = Duration::from_secs(600);
