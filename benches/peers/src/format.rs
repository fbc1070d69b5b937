//! Durations and counts as the tables have them.

use crate::report::number;

/// Nanoseconds, in the unit that suits them.
pub(crate) fn duration(nanoseconds: f64) -> String {
    let units = [("s", 1e9), ("ms", 1e6), ("us", 1e3)];
    let suits = units.into_iter().find(|(_, length)| *length <= nanoseconds);
    let (unit, length) = suits.unwrap_or(("ns", 1.0));
    format!("{} {unit}", number(nanoseconds / length))
}

/// 1 k, 100 k, 1 M; a count that is not round stays as it is.
pub(crate) fn count(count: usize) -> String {
    match count {
        0 => "0".into(),
        _ if count.is_multiple_of(1_000_000) => format!("{} M", count / 1_000_000),
        _ if count.is_multiple_of(1_000) => format!("{} k", count / 1_000),
        _ => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let numbers = [0.0, 0.00123, 1.0, 12.34, 1234.5, 99_999.0].map(number);
        assert_eq!(numbers, ["0", "0.00123", "1", "12.3", "1234", "99999"]);
        assert_eq!([1.5, 1500.0, 2.5e6].map(duration), ["1.5 ns", "1.5 us", "2.5 ms"]);
        assert_eq!([1_000, 1_000_000, 102_407].map(count), ["1 k", "1 M", "102407"]);
    }
}
