//! What a recorder of the crate `metrics` hears.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tickwheel_durable::{DurableTimer, MemoryStore};

#[test]
fn a_recorder_hears_what_the_timer_did() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().unwrap();
    let timer = DurableTimer::builder().open_store(MemoryStore::new()).unwrap();
    timer.schedule("a", SystemTime::now(), b"").unwrap().wait().unwrap();
    timer.recv().unwrap().unwrap().ack();
    let began = Instant::now();
    loop {
        let heard: HashMap<String, DebugValue> = snapshotter
            .snapshot()
            .into_vec()
            .into_iter()
            .map(|(key, _, _, value)| (key.key().name().to_owned(), value))
            .collect();
        if heard.get("tickwheel_durable_acked_total") == Some(&DebugValue::Counter(1)) {
            assert_eq!(heard["tickwheel_durable_handed_out_total"], DebugValue::Counter(1));
            assert_eq!(heard["tickwheel_durable_in_flight"], DebugValue::Gauge(0.0.into()));
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{heard:?}");
        thread::sleep(Duration::from_millis(50));
    }
}
