//! A reminder service: what is asked for comes, however often the program is stopped meanwhile.
//!
//! ```sh
//! cargo run --example reminder -- reminders.redb add "call mother" 20   # in 20 seconds
//! cargo run --example reminder -- reminders.redb                        # waits; kill it, start it
//! cargo run --example reminder -- reminders.redb list
//! cargo run --example reminder -- reminders.redb remove "call mother"
//! ```
//!
//! Without a file it shows all of that by itself: it asks for a reminder next month and for one in
//! a second, is killed, is started, and reminds.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use tickwheel_durable::DurableTimer;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [] => show(),
        [file] => remind(file, false),
        [file, "once"] => remind(file, true),
        [file, "add", what, seconds] => add(file, what, seconds.parse()?),
        [file, "add-and-die", what, seconds] => {
            add(file, what, seconds.parse()?)?;
            // No destructor runs.
            std::process::abort();
        }
        [file, "list"] => list(file),
        [file, "remove", what] => {
            println!("{:?}", DurableTimer::open(file)?.cancel(what)?.wait()?);
            Ok(())
        }
        _ => Err("reminder [FILE [add WHAT SECONDS | list | remove WHAT | once]]".into()),
    }
}

fn add(file: &str, what: &str, seconds: u64) -> Result<(), Box<dyn Error>> {
    let timer = DurableTimer::open(file)?;
    let at = SystemTime::now() + Duration::from_secs(seconds);
    let scheduled = timer.schedule(what, at, b"")?.wait()?;
    // What is asked for twice is one reminder, at the later time.
    println!("{what}: in {seconds} s ({scheduled:?})");
    Ok(())
}

fn remind(file: &str, once: bool) -> Result<(), Box<dyn Error>> {
    let timer = DurableTimer::open(file)?;
    while let Some(due) = timer.recv()? {
        let late = SystemTime::now().duration_since(due.deadline())?;
        println!("reminder: {} ({} ms late)", due.name(), late.as_millis());
        // If the program dies before this, the reminder comes again.
        due.ack();
        if once {
            break;
        }
    }
    Ok(timer.close()?)
}

fn list(file: &str) -> Result<(), Box<dyn Error>> {
    for pending in DurableTimer::open(file)?.iter() {
        let pending = pending?;
        let left = pending.deadline().duration_since(SystemTime::now()).unwrap_or_default();
        println!("{}: in {} s", pending.name(), left.as_secs());
    }
    Ok(())
}

fn show() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("reminder-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("reminders.redb");
    let month = (30 * 86_400).to_string();
    run(&file, &["add", "pay the rent", &month])?;
    println!("a process asks for another one, and dies:");
    run(&file, &["add-and-die", "call mother", "1"])?;
    println!("a new process waits for it:");
    run(&file, &["once"])?;
    println!("and what is left:");
    run(&file, &["list"])?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

fn run(file: &Path, words: &[&str]) -> Result<(), Box<dyn Error>> {
    Command::new(std::env::current_exe()?).arg(file).args(words).status()?;
    Ok(())
}
