//! A shutdown that saves what is pending, and a start that takes it up again.
//!
//! What survives a crash, too, is in the package `tickwheel-durable`.
//!
//! `cargo run --example shutdown`

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, process, thread};
use tickwheel::{DelayReceiver, DelaySender, Timer, delay_channel};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::temp_dir().join(format!("tickwheel-reminders-{}", process::id()));
    let timer = Timer::new();
    let (sender, mut receiver) = delay_channel(&timer);
    let other = sender.clone();
    let renewing =
        thread::spawn(move || other.insert("renew the certificate".to_owned(), 30 * DAY));
    sender.insert("water the plants".to_owned(), Duration::from_millis(20))?;
    renewing.join().expect("no panic")?;

    // A thread or a task that waits for reminders is told by an error. Then each that is left is
    // saved.
    timer.stop()?;
    fs::write(&file, save(&mut receiver, &timer)?)?;

    // The next process.
    let timer = Timer::new();
    let (sender, mut receiver) = delay_channel(&timer);
    load(&fs::read_to_string(&file)?, &sender)?;
    fs::remove_file(&file)?;
    assert_eq!(receiver.len(), 2);
    let due = receiver.recv().expect("two are left")?;
    println!("time to {}", due.value);
    assert_eq!(due.value, "water the plants");
    let (_, deadline, value) = receiver.drain().next().expect("one is left");
    let left = deadline.expect("it would come out") - timer.now();
    println!("{} days are left to {value}", left.as_secs().div_ceil(DAY.as_secs()));
    assert!(29 * DAY < left && left <= 30 * DAY);
    Ok(())
}

/// Takes all reminders out, each with its time of day, because an instant means nothing to the next
/// process. Values of a type of your own derive `Serialize` and `Deserialize`.
fn save(receiver: &mut DelayReceiver<String>, timer: &Timer) -> serde_json::Result<String> {
    let (now, time) = (timer.now(), since_1970());
    let saved = receiver.drain().filter_map(|(_, deadline, text)| {
        let due = time + deadline?.saturating_duration_since(now);
        Some((due, text))
    });
    serde_json::to_string_pretty(&saved.collect::<Vec<_>>())
}

/// What has come due meanwhile comes out at once.
fn load(saved: &str, sender: &DelaySender<String>) -> Result<(), Box<dyn std::error::Error>> {
    let time = since_1970();
    for (due, text) in serde_json::from_str::<Vec<(Duration, String)>>(saved)? {
        sender.insert(text, due.saturating_sub(time))?;
    }
    Ok(())
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

const DAY: Duration = Duration::from_secs(86_400);
