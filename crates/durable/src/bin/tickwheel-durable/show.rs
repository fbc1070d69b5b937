//! Timeouts as lines for people and as JSON for scripts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use humantime::{format_duration, format_rfc3339_millis};
use serde_json::{Value, json};
use tickwheel_durable::Error;
use tickwheel_durable::store::{Act, Change, Changed, Damaged, Dead, RateLimit, Row};

pub(super) fn milliseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(LAST))
}

pub(super) fn time(deadline: u64) -> String {
    format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(deadline.min(LAST))).to_string()
}

pub(super) fn line(row: &Row, now: SystemTime) -> String {
    format!(
        "{:<25} {:<26} {:>7} {:>6}  {}{}",
        time(row.deadline),
        left(row, now),
        row.attempt.saturating_add(1),
        row.payload.len(),
        row.name.escape_debug(),
        metadata("  ", &row.metadata),
    )
}

/// After this, or nothing if there is none.
fn metadata(before: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{before}{}", text.escape_debug()) }
}

pub(super) fn block(row: &Row, now: SystemTime) -> String {
    format!(
        "name      {}\ndeadline  {} ({})\nattempt   {}\npayload   {}{}",
        row.name.escape_debug(),
        time(row.deadline),
        left(row, now),
        row.attempt.saturating_add(1),
        payload(&row.payload),
        metadata("\nmetadata  ", &row.metadata),
    )
}

fn payload(bytes: &[u8]) -> String {
    match str::from_utf8(bytes) {
        Ok(text) => text.escape_debug().to_string(),
        Err(_) => format!("{} (hexadecimal)", hexadecimal(bytes)),
    }
}

pub(super) fn dead_line(dead: &Dead) -> String {
    format!(
        "{:<25} {:<25} {:>8} {:>6}  {}{}",
        time(dead.died),
        time(dead.deadline),
        dead.attempt,
        dead.payload.len(),
        dead.name.escape_debug(),
        metadata("  ", &dead.metadata),
    )
}

pub(super) fn dead_block(dead: &Dead) -> String {
    format!(
        "name      {}\ndied      {}\ndeadline  {}\nattempts  {}\npayload   {}{}",
        dead.name.escape_debug(),
        time(dead.died),
        time(dead.deadline),
        dead.attempt,
        payload(&dead.payload),
        metadata("\nmetadata  ", &dead.metadata),
    )
}

/// What became of a dead letter that was to change: for scripts, and for people.
pub(super) fn dead_changed(
    change: &Change,
    changed: &Result<Changed, Error>,
) -> (&'static str, &'static str) {
    match changed {
        Ok(Changed { row: Some(_), .. }) => ("retried", "retried: it is due now"),
        Ok(Changed { was_dead: true, .. }) if matches!(change.act, Act::Revive { .. }) => {
            ("pending", "pending: it was scheduled anew, and the dead letter stays")
        }
        Ok(Changed { was_dead: true, .. }) => ("dropped", "dropped"),
        Ok(_) => ("unknown", "unknown: it is not dead"),
        Err(_) => ("failed", "failed: it is as it was"),
    }
}

pub(super) fn dead(dead: &Dead) -> Value {
    let value = json!({
        "name": &*dead.name,
        "died": time(dead.died),
        "died_ms": dead.died,
        "deadline": time(dead.deadline),
        "deadline_ms": dead.deadline,
        "attempts": dead.attempt,
    });
    with_content(value, &dead.payload, &dead.metadata)
}

pub(super) fn row(row: &Row, now: SystemTime) -> Value {
    let value = json!({
        "name": &*row.name,
        "deadline": time(row.deadline),
        "deadline_ms": row.deadline,
        "overdue": row.deadline <= milliseconds(now),
        "attempt": row.attempt.saturating_add(1),
    });
    with_content(value, &row.payload, &row.metadata)
}

fn with_content(mut value: Value, payload: &[u8], metadata: &str) -> Value {
    if !metadata.is_empty() {
        value["metadata"] = json!(metadata);
    }
    match str::from_utf8(payload) {
        Ok(text) => value["payload"] = json!(text),
        Err(_) => value["payload_hex"] = json!(hexadecimal(payload)),
    }
    value
}

pub(super) fn limit(RateLimit { timeouts, per }: RateLimit) -> String {
    format!("{timeouts} per {}", format_duration(per))
}

pub(super) fn damaged(damaged: &Damaged) -> String {
    let Damaged { deadline, name, reason } = damaged;
    format!("{}, due {}: {reason}", name.escape_debug(), time(*deadline))
}

/// The time until the deadline, to the second.
fn left(row: &Row, now: SystemTime) -> String {
    let now = milliseconds(now);
    let seconds = |milliseconds: u64| {
        let text = format_duration(Duration::from_secs(milliseconds / 1000)).to_string();
        // The two largest units say enough.
        text.split(' ').take(2).collect::<Vec<_>>().join(" ")
    };
    match row.deadline.checked_sub(now) {
        Some(left) => seconds(left),
        None => format!("{} overdue", seconds(now - row.deadline)),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) const HEADER: &str =
    "DEADLINE                  IN                         ATTEMPT  BYTES  NAME  METADATA";

pub(super) const DEAD_HEADER: &str =
    "DIED                      DEADLINE                  ATTEMPTS  BYTES  NAME  METADATA";

/// The last moment that can be written with a year of four digits.
const LAST: u64 = 253_402_300_799_999;
