//! A process with too many timers is warned once. Alone in its file, because the count is that of
//! the process.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{ManualClock, Timer};
use zoo::clocks::OddClock;
use zoo::{caught, panics};

#[path = "zoo/mod.rs"]
mod zoo;

#[cfg(feature = "log")]
mod logged {
    use std::sync::Mutex;
    use std::time::Duration;

    pub(crate) static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

    pub(crate) struct Logger;

    impl log::Log for Logger {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &log::Record<'_>) {
            assert_eq!(record.level(), log::Level::Warn);
            // A logger may use the timer of the process, even if the message is about that timer.
            assert!(
                tickwheel::timer().schedule(Duration::from_secs(3_600), || {}).unwrap().cancel()
            );
            MESSAGES.lock().unwrap().push(record.args().to_string());
        }

        fn flush(&self) {}
    }
}

#[test]
fn more_than_64_alive_are_warned_about_once() {
    #[cfg(feature = "log")]
    {
        log::set_logger(&logged::Logger).expect("nobody else did");
        log::set_max_level(log::LevelFilter::Warn);
    }
    let timer = || Timer::builder().clock(ManualClock::new()).build().expect("in range");

    // Many timers one after the other are not too many. Nor are timers that could not be built, 64
    // timers, or clones.
    for _ in 0..200 {
        drop(timer());
        let clock = OddClock::new(Instant::now).following(|_| panics());
        assert!(caught(|| Timer::builder().clock(clock).build()).is_none());
    }
    let mut timers: Vec<_> = (0..64).map(|_| timer()).collect();
    let clones = timers.clone();
    #[cfg(feature = "log")]
    assert_eq!(logged::MESSAGES.lock().unwrap().len(), 0);

    // The 65th is the timer of the process, which the logger uses.
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(tickwheel::timer().is_stopped()).unwrap());
    let is_stopped = (0..600).find_map(|_| receiver.recv_timeout(Duration::from_millis(100)).ok());
    assert_eq!(is_stopped, Some(false), "the timer of the process hangs");

    timers.extend((0..64).map(|_| timer()));
    drop(clones);
    drop(timers);
    let _timers: Vec<_> = (0..128).map(|_| timer()).collect();
    #[cfg(feature = "log")]
    {
        let messages = logged::MESSAGES.lock().unwrap();
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(messages[0].starts_with("65 tickwheel timers"), "{messages:?}");
    }
}
