//! Numbers as the tables have them.

/// Three digits of it.
pub(crate) fn number(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return format!("{number}");
    }
    if number.abs() < 1e-4 {
        return format!("{number:.2e}");
    }
    let places = (2 - number.abs().log10().floor() as i32).max(0) as usize;
    let text = format!("{number:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}

/// So many nanoseconds, in the unit that suits them.
pub(crate) fn duration(nanoseconds: f64) -> String {
    let units = [("s", 1e9), ("ms", 1e6), ("us", 1e3)];
    let (unit, length) =
        units.into_iter().find(|(_, length)| *length <= nanoseconds).unwrap_or(("ns", 1.0));
    format!("{} {unit}", number(nanoseconds / length))
}

/// 1 k, 100 k, 1 M; as it is if it is not round.
pub(crate) fn count(count: usize) -> String {
    match count {
        0 => "0".into(),
        _ if count.is_multiple_of(1_000_000) => format!("{} M", count / 1_000_000),
        _ if count.is_multiple_of(1_000) => format!("{} k", count / 1_000),
        _ => count.to_string(),
    }
}
