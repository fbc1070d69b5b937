//! Too many timers are said once. Alone in its file, as the count is that of the process.

use tickwheel::{ManualClock, Timer};

#[cfg(feature = "log")]
mod logged {
    use std::sync::Mutex;

    pub(crate) static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

    pub(crate) struct Logger;

    impl log::Log for Logger {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &log::Record<'_>) {
            assert_eq!(record.level(), log::Level::Warn);
            MESSAGES.lock().unwrap().push(record.args().to_string());
        }

        fn flush(&self) {}
    }
}

#[test]
fn more_than_64_alive_are_said_once() {
    #[cfg(feature = "log")]
    {
        log::set_logger(&logged::Logger).expect("nobody else did");
        log::set_max_level(log::LevelFilter::Warn);
    }
    let timer = || Timer::builder().clock(ManualClock::new()).build().expect("in range");

    // Many one after the other are none too many, nor are 64, nor clones.
    for _ in 0..200 {
        drop(timer());
    }
    let mut timers: Vec<_> = (0..64).map(|_| timer()).collect();
    let clones = timers.clone();
    #[cfg(feature = "log")]
    assert_eq!(logged::MESSAGES.lock().unwrap().len(), 0);

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
