//! What is said about several repetitions of one measurement.

/// The middle of several values, and how far they are apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// None if there are no values; those that are no numbers do not count.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<_> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (&least, &most) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => f64::midpoint(values[middle - 1], values[middle]),
            _ => values[middle],
        };
        Some(Self { median, least, most })
    }

    /// The median, and in brackets the ends; a dash if nothing was measured.
    pub(crate) fn cell(found: Option<Self>, write: fn(f64) -> String) -> String {
        let Some(found) = found else { return "-".into() };
        let [median, least, most] = [found.median, found.least, found.most].map(write);
        match least == most {
            true => least,
            false => format!("{median} ({least}-{most})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middle_ones() {
        assert_eq!(
            Spread::of([3.0, 1.0, 2.0]),
            Some(Spread { median: 2.0, least: 1.0, most: 3.0 })
        );
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).map(|spread| spread.median), Some(2.5));
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN, 1.0]).map(|spread| spread.most), Some(1.0));
    }
}
