//! Numbers as a person reads them.

use indicatif::HumanCount;
use std::time::Duration;

/// So many nanoseconds, to three digits, in the largest unit of which there is at least one.
pub fn duration(nanoseconds: f64) -> String {
    let rounded = |unit| three_digits(nanoseconds / unit);
    let unit = UNITS.into_iter().find(|&(_, unit)| 1.0 <= rounded(unit)).unwrap_or(("ns", 1.0));
    format!("{} {}", plain(rounded(unit.1)), unit.0)
}

/// From so many nanoseconds to so many, each as [`duration`] writes it, with the unit once if it is
/// the same.
pub fn range(from: f64, to: f64) -> String {
    let (from, to) = (duration(from), duration(to));
    match (from.split_once(' '), to.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number}-{to}"),
        _ => format!("{from}-{to}"),
    }
}

/// So many milliseconds, as [`duration`] writes them.
pub fn milliseconds(ms: u64) -> String {
    duration(ms as f64 * 1e6)
}

/// A limit of memory, in the unit in which a person gives it.
pub fn memory(bytes: u64) -> String {
    bytesize::ByteSize(bytes).display().iec().to_string()
}

/// A limit of time, as [`duration`] writes it.
pub fn time(time: Duration) -> String {
    duration(time.as_nanos() as f64)
}

/// A number with a comma before every three digits.
pub fn number(number: u64) -> String {
    HumanCount(number).to_string()
}

/// "1 timeout", "2 timeouts".
pub fn count(number: u64, name: &str) -> String {
    format!("{} {name}{}", self::number(number), if number == 1 { "" } else { "s" })
}

/// "1 timeout is", "2 timeouts are".
pub fn are(number: u64, name: &str) -> String {
    format!("{} {}", count(number, name), if number == 1 { "is" } else { "are" })
}

/// "1 timeout was", "2 timeouts were".
pub fn were(number: u64, name: &str) -> String {
    format!("{} {}", count(number, name), if number == 1 { "was" } else { "were" })
}

/// 100 us to 10^12 d, at numbers that are round for people, in nanoseconds.
pub fn marks() -> impl Iterator<Item = f64> {
    let short = [1e5, 1e6, 1e7, 1e8, 1e9, 1e10, MINUTE, 10.0 * MINUTE, HOUR, 6.0 * HOUR, DAY];
    short.into_iter().chain((1..=12).map(|power| DAY * 10f64.powi(power)))
}

pub fn three_digits(number: f64) -> f64 {
    if number < 1.0 {
        return (number * 100.0).round() / 100.0;
    }
    let scale = 10f64.powi(2 - number.log10().floor() as i32).min(100.0);
    (number * scale).round() / scale
}

/// The number without needless digits; from 100,000 on as a power of ten.
fn plain(number: f64) -> String {
    if number < 1e5 { format!("{number}") } else { format!("{number:e}") }
}

/// The units of time, each in nanoseconds.
pub const UNITS: [(&str, f64); 7] =
    [("d", DAY), ("h", HOUR), ("min", MINUTE), ("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0)];

const MINUTE: f64 = 60e9;
const HOUR: f64 = 60.0 * MINUTE;
const DAY: f64 = 24.0 * HOUR;
