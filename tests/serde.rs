//! What the feature `serde` writes and reads.
#![cfg(all(feature = "serde", not(loom)))]

use serde_json::{Value, from_str, to_string, to_value};
use std::time::Duration;
use tickwheel::{ManualClock, Mode, Timer};

#[test]
fn a_mode_is_its_text() {
    let modes = [Mode::hierarchical(), Mode::hashed(512).expect("in range")];
    for mode in modes {
        let text = to_string(&mode).expect("text");
        assert_eq!(text, format!("\"{mode}\""));
        assert_eq!(from_str::<Mode>(&text).expect("a mode"), mode);
    }
    assert_eq!(from_str::<Mode>(r#""hashed\u003a8""#).expect("a mode").to_string(), "hashed:8");
    let error = from_str::<Mode>("\"hashed\"").expect_err("no buckets").to_string();
    assert!(error.contains("`hashed:BUCKETS`"), "{error}");
}

#[test]
fn statistics_are_written_whole() {
    let clock = ManualClock::new();
    let timer = Timer::builder().clock(clock.clone()).shards(2).build().expect("in range");
    timer.schedule(Duration::from_millis(1), || {}).expect("it runs");
    clock.jump(Duration::from_millis(1_500));
    let stats: Value = to_value(timer.stats()).expect("json");
    assert_eq!((&stats["scheduled"], &stats["fired"]), (&Value::from(1), &Value::from(1)));
    let lateness = &stats["lateness"];
    assert_eq!((&lateness["count"], &lateness["max"]["secs"]), (&Value::from(1), &Value::from(1)));
    assert_eq!(lateness["buckets"].as_array().map(Vec::len), Some(14));
    assert_eq!(stats["shards"].as_array().map(Vec::len), Some(2));
    assert!(stats["shards"][0]["timeouts_per_level"].is_array());
}
