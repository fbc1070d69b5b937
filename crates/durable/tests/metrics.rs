//! What a recorder of the crate `metrics` hears.

use std::collections::{HashMap, HashSet};
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
        // The dashboard shows all of it, and nothing else.
        let words = DASHBOARD.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
        let shown: HashSet<&str> =
            words.filter(|word| word.starts_with("tickwheel_durable_")).collect();
        let is =
            |name: &str, value| heard.get(&format!("tickwheel_durable_{name}")) == Some(&value);
        // Unless a snapshot falls into the middle of it.
        if is("acked_total", DebugValue::Counter(1))
            && is("handed_out_total", DebugValue::Counter(1))
            && is("in_flight", DebugValue::Gauge(0.0.into()))
            && shown == heard.keys().map(String::as_str).collect()
        {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(600), "{heard:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(feature = "cli")]
#[test]
fn the_dashboard_is_json_in_which_each_panel_has_its_own_place() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut places = HashSet::new();
    for panel in panels {
        let [x, y, width, height] =
            ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(x + width <= 24, "{panel}");
        for place in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            assert!(places.insert(place), "{panel} is over another");
        }
    }
}

const DASHBOARD: &str = include_str!("../grafana.json");
