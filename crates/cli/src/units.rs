//! Numbers as a person reads them.

use indicatif::HumanCount;
use std::time::Duration;

/// So many nanoseconds, to three digits, in the largest unit of which there is at least one.
pub(crate) fn duration(nanoseconds: f64) -> String {
    const UNITS: [(&str, f64); 7] = [
        ("d", DAY),
        ("h", HOUR),
        ("min", MINUTE),
        ("s", 1e9),
        ("ms", 1e6),
        ("us", 1e3),
        ("ns", 1.0),
    ];
    let rounded = |unit| three_digits(nanoseconds / unit);
    let unit = UNITS.into_iter().find(|&(_, unit)| 1.0 <= rounded(unit)).unwrap_or(("ns", 1.0));
    format!("{} {}", plain(rounded(unit.1)), unit.0)
}

/// From so many nanoseconds to so many, each as [`duration`] writes it, with the unit once if it is
/// the same.
pub(crate) fn range(from: f64, to: f64) -> String {
    let (from, to) = (duration(from), duration(to));
    match (from.split_once(' '), to.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number}-{to}"),
        _ => format!("{from}-{to}"),
    }
}

/// So many milliseconds, as [`duration`] writes them.
pub(crate) fn milliseconds(ms: u64) -> String {
    duration(ms as f64 * 1e6)
}

/// A limit of memory, in the unit in which a person gives it.
pub(crate) fn memory(bytes: u64) -> String {
    bytesize::ByteSize(bytes).display().iec().to_string()
}

/// A limit of time, as [`duration`] writes it.
pub(crate) fn time(time: Duration) -> String {
    duration(time.as_nanos() as f64)
}

/// So many operations.
pub(crate) fn operations(number: u64) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} operation{plural}", HumanCount(number))
}

/// 100 us to 10^12 d, at numbers that are round for people, in ms.
pub(crate) fn marks() -> impl Iterator<Item = f64> {
    const SECOND: f64 = 1e3;
    const MINUTE: f64 = 60.0 * SECOND;
    const HOUR: f64 = 60.0 * MINUTE;
    const DAY: f64 = 24.0 * HOUR;
    let short = [0.1, 1.0, 10.0, 100.0, SECOND, 10.0 * SECOND, MINUTE, 10.0 * MINUTE, HOUR];
    let long = [6.0 * HOUR, DAY];
    let days = (1..=12).map(|power| DAY * 10f64.powi(power));
    short.into_iter().chain(long).chain(days)
}

pub(crate) fn three_digits(number: f64) -> f64 {
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

const MINUTE: f64 = 60e9;
const HOUR: f64 = 60.0 * MINUTE;
const DAY: f64 = 24.0 * HOUR;
