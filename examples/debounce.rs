//! A file is saved when its user has not typed for a while, and not at each key: each key moves one
//! timeout, in place.
//!
//! `cargo run --example debounce`

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tickwheel::{ManualClock, ScheduleErrorKind, Timeout, Timer};

struct Editor {
    timer: Timer,
    text: Arc<Mutex<String>>,
    saved: Sender<String>,
    save: Option<Timeout>,
}

impl Editor {
    fn press(&mut self, key: char) -> Result<(), ScheduleErrorKind> {
        self.text.lock().unwrap().push(key);
        if self.save.as_ref().is_some_and(|save| save.reschedule(QUIET)) {
            return Ok(());
        }
        // The first key, or the first one after the file was saved.
        let (text, saved) = (Arc::clone(&self.text), self.saved.clone());
        let save = move || drop(saved.send(text.lock().unwrap().clone()));
        let scheduled = self.timer.schedule(QUIET, save);
        self.save = Some(scheduled.map_err(|error| error.kind())?);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = ManualClock::new(); // so that nobody has to type
    let timer = Timer::builder().clock(clock.clone()).build()?;
    let (saved, saves) = channel();
    let mut editor = Editor { timer, text: Arc::default(), saved, save: None };
    for key in "wheel".chars() {
        editor.press(key)?;
        clock.advance(QUIET / 3);
    }
    assert!(saves.try_recv().is_err(), "no pause was long enough");

    clock.advance(QUIET);
    editor.press('s')?;
    clock.advance(QUIET);
    let saves: Vec<_> = saves.try_iter().collect();
    println!("saved {saves:?}");
    assert_eq!(saves, ["wheel", "wheels"]);
    Ok(())
}

const QUIET: Duration = Duration::from_millis(300);
