//! Reminders that several threads set, move and take back, and that one thread sends.
//!
//!     cargo run --example reminders

use std::error::Error;
use std::thread;
use std::time::Duration;
use tickwheel::{SendError, Timer, delay_channel};

fn main() -> Result<(), Box<dyn Error>> {
    let timer = Timer::new();
    let (sender, mut receiver) = delay_channel(&timer);
    for user in ["ann", "bob", "eve"] {
        let sender = sender.clone();
        thread::spawn(move || -> Result<(), SendError<String>> {
            sender.insert(format!("{user}: drink water"), Duration::from_millis(10))?;
            let meeting = sender.insert(format!("{user}: meeting"), Duration::from_secs(3_600))?;
            assert!(sender.reset(meeting, Duration::from_millis(20)), "it begins earlier");
            let lunch = sender.insert(format!("{user}: lunch"), Duration::from_secs(60))?;
            assert!(sender.remove(lunch).is_some(), "no lunch today");
            Ok(())
        });
    }
    drop(sender);

    // Ends when all threads are done and all reminders are sent.
    let (mut batch, mut sent) = (Vec::new(), 0);
    while receiver.recv_batch(&mut batch, 100)? > 0 {
        for due in batch.drain(..) {
            println!("{}", due.value);
            sent += 1;
        }
    }
    assert_eq!(sent, 6);
    Ok(())
}
