//! A shutdown that saves what is pending, and a start that takes it up again.
//!
//! What survives a crash, too, is in the package `tickwheel-durable`.
//!
//! `cargo run --example shutdown`

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io, process};
use tickwheel::{DelayQueue, Timer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::temp_dir().join(format!("tickwheel-reminders-{}", process::id()));
    let timer = Timer::new();
    let mut reminders = DelayQueue::with_timer(&timer);
    reminders.insert("renew the certificate".to_owned(), 30 * DAY);
    reminders.insert("water the plants".to_owned(), Duration::from_millis(20));

    // No task starts any more. Then each value that is left is saved, with its time of day: an
    // instant means nothing to the next process.
    timer.stop()?;
    fs::write(&file, save(&mut reminders))?;

    // The next process.
    let timer = Timer::new();
    let mut reminders = load(&fs::read_to_string(&file)?, &timer)?;
    fs::remove_file(&file)?;
    assert_eq!(reminders.len(), 2);
    let due = reminders.recv().expect("two are left")?;
    println!("time to {}", due.value);
    assert_eq!(due.value, "water the plants");
    let left = reminders.next_deadline().expect("one is left") - timer.now();
    println!("{} days are left for the other one", left.as_secs().div_ceil(DAY.as_secs()));
    assert!(29 * DAY < left && left <= 30 * DAY);
    Ok(())
}

/// Takes all reminders out. A line has when one is due, in ms since 1970, and what it says.
fn save(reminders: &mut DelayQueue<String>) -> String {
    let (now, time) = (std::time::Instant::now(), since_1970());
    let mut lines = String::new();
    while let Some(key) = reminders.peek() {
        let deadline = reminders.deadline(key).unwrap_or(now);
        let text = reminders.remove(key).unwrap_or_default();
        let due = time + deadline.saturating_duration_since(now);
        // Rounded up, because a reminder must not be early.
        lines += &format!("{} {text}\n", due.as_nanos().div_ceil(1_000_000));
    }
    lines
}

/// What has come due meanwhile comes out at once.
fn load(lines: &str, timer: &Timer) -> io::Result<DelayQueue<String>> {
    let mut reminders = DelayQueue::with_timer(timer);
    let time = since_1970();
    for line in lines.lines() {
        let (due, text) = line.split_once(' ').ok_or(io::ErrorKind::InvalidData)?;
        let due = due.parse().map_err(|_| io::ErrorKind::InvalidData)?;
        reminders.insert(text.to_owned(), Duration::from_millis(due).saturating_sub(time));
    }
    Ok(reminders)
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

const DAY: Duration = Duration::from_secs(86_400);
