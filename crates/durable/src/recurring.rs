//! When a timeout comes again.

use std::time::{Duration, SystemTime};

#[cfg(feature = "cron")]
use jiff::{
    Timestamp, Zoned,
    tz::{AmbiguousOffset, TimeZone},
};
use tickwheel::MissedTick;

#[cfg(feature = "cron")]
use crate::Error;

/// When a timeout comes again: by a period, or, with the feature `cron`, by a cron expression.
///
/// It says when the next run is due, and [`Due::ack_and_schedule`](crate::Due::ack_and_schedule)
/// schedules it as the run before is acked. So there is one next run at each moment, whatever
/// crashes, and a change of the period is a change of the program, or of what it keeps in the
/// payload.
///
/// ```
/// # fn main() -> Result<(), tickwheel_durable::Error> {
/// use std::time::{Duration, SystemTime};
/// use tickwheel_durable::{DurableTimer, Recurring};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("timeouts.redb");
/// let timer = DurableTimer::open(path)?;
/// let hourly = Recurring::every(Duration::from_secs(3600));
/// if timer.get("report")?.is_none() {
///     timer.schedule("report", SystemTime::now(), b"")?.wait()?;
/// }
/// while let Some(due) = timer.recv()? {
///     println!("{} was due {:?}", due.name(), due.deadline());
///     match hourly.next(due.deadline(), SystemTime::now()) {
///         Some(next) => due.ack_and_schedule(next),
///         None => due.ack(),
///     }
/// #   break;
/// }
/// # assert!(timer.get("report")?.is_some());
/// timer.close()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Recurring {
    rule: Rule,
    missed: MissedTick,
}

#[derive(Clone, Debug)]
enum Rule {
    Every(Duration),
    #[cfg(feature = "cron")]
    Cron(Box<croner::Cron>, TimeZone),
}

impl Recurring {
    /// Comes again one `period` after it was due. It counts in whole milliseconds, rounded up, and
    /// as one at least.
    #[must_use]
    pub fn every(period: Duration) -> Self {
        let rule = Rule::Every(period.max(Duration::from_millis(1)));
        Self { rule, missed: MissedTick::Skip }
    }

    /// Comes again as a cron expression says, in a time zone by its name in the IANA's database:
    /// `0 9 * * mon-fri`, `@daily`, and `Europe/Berlin`. Five fields are minute, hour, day of the
    /// month, month and day of the week; six begin with a second. Two days that are both given are
    /// either of them. The expressions are those of the crate `croner`.
    ///
    /// Where clocks go forward, times of day that are left out are due once, when they have. Where
    /// they go back, one that comes twice is due the first time. What is due in all hours of the day
    /// is left out and comes twice as they do.
    ///
    /// # Errors
    ///
    /// [`Error::Cron`], which says what is wrong with the expression or the time zone. An expression
    /// that names no time from 1970 on is wrong.
    ///
    /// ```
    /// # fn main() -> Result<(), tickwheel_durable::Error> {
    /// use tickwheel_durable::Recurring;
    ///
    /// let workdays = Recurring::cron("0 9 * * mon-fri", "Europe/Berlin")?;
    /// let first = workdays.first(std::time::SystemTime::now());
    /// assert!(first.is_some());
    ///
    /// let error = Recurring::cron("0 25 * * *", "Europe/Berlin").unwrap_err();
    /// assert!(error.to_string().contains("0 25 * * *"));
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "cron")]
    pub fn cron(expression: &str, time_zone: &str) -> Result<Self, Error> {
        let wrong = |what: &str, why: String| Error::Cron { what: what.to_owned(), why };
        // The parser takes a list of nothing, and then looks for its time for minutes.
        let is_list = |field: &str| field.split(',').all(|item| !item.is_empty());
        if !expression.split_whitespace().all(is_list) {
            return Err(wrong(expression, "nothing stands before or after a comma".to_owned()));
        }
        let cron = expression.parse::<croner::Cron>();
        let cron = cron.map_err(|error| wrong(expression, error.to_string()))?;
        let zone = TimeZone::get(time_zone);
        let zone = zone.map_err(|error| wrong(time_zone, error.to_string()))?;
        let start = Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC);
        if cron.find_next_occurrence(&start, true).is_err() {
            return Err(wrong(expression, "it names no time from 1970 on".to_owned()));
        }
        Ok(Self { rule: Rule::Cron(Box::new(cron), zone), missed: MissedTick::Skip })
    }

    /// Says what comes of runs that were missed, because nobody was there or the run before took
    /// long. The default is [`MissedTick::Skip`]: they are left out. A cron expression has no period
    /// of its own, so [`MissedTick::Delay`] does the same there.
    #[must_use]
    pub fn missed(mut self, missed: MissedTick) -> Self {
        self.missed = missed;
        self
    }

    /// Returns when the first run is due: one period from `now`, or the first time of the expression
    /// after `now`.
    #[must_use]
    pub fn first(&self, now: SystemTime) -> Option<SystemTime> {
        self.next(now, now)
    }

    /// Returns when the next run is due after the one that was due at `due`, if it is `now`. Returns
    /// None if there is none: the years of the expression are over, or the end of the calendar is
    /// near.
    ///
    /// After a [`retry`](crate::Due::retry), `due` is the deadline of the retry. A program that
    /// wants the times of a period to stay as they were keeps the first in the payload.
    #[must_use]
    pub fn next(&self, due: SystemTime, now: SystemTime) -> Option<SystemTime> {
        match &self.rule {
            Rule::Every(period) => {
                let next = due.checked_add(*period)?;
                let Ok(behind) = now.duration_since(next) else { return Some(next) };
                match self.missed {
                    MissedTick::Burst => Some(next),
                    MissedTick::Delay => now.checked_add(*period),
                    MissedTick::Skip => {
                        let over = behind.as_nanos() % period.as_nanos();
                        let over = Duration::new((over / SECOND) as u64, (over % SECOND) as u32);
                        now.checked_add(*period - over)
                    }
                }
            }
            #[cfg(feature = "cron")]
            Rule::Cron(cron, zone) => {
                let from = if self.missed == MissedTick::Burst { due } else { due.max(now) };
                let from = Timestamp::try_from(from).ok()?.to_zoned(zone.clone());
                let is_hourly = cron.pattern.hours.values().len() == 24;
                let next = match is_hourly {
                    true => cron.find_next_occurrence(&from, false).ok()?.timestamp(),
                    false => next_time_of_day(cron, &from)?,
                };
                Some(next.into())
            }
        }
    }
}

/// Returns when the next time of day of an expression comes. By itself, `croner` leaves out what is
/// skipped, and runs twice what comes twice, if there are several in a day.
#[cfg(feature = "cron")]
fn next_time_of_day(cron: &croner::Cron, after: &Zoned) -> Option<Timestamp> {
    let zone = after.time_zone();
    // Where nothing is skipped and nothing comes twice.
    let mut next = after.datetime().to_zoned(TimeZone::UTC).ok()?;
    loop {
        next = cron.find_next_occurrence(&next, false).ok()?;
        let times = zone.to_ambiguous_timestamp(next.datetime());
        let first = times.earlier().ok()?;
        let due = match times.offset() {
            // It is before the clocks go forward.
            AmbiguousOffset::Gap { .. } => zone.following(first).next()?.timestamp(),
            _ => first,
        };
        if after.timestamp() < due {
            return Some(due);
        }
    }
}

/// In nanoseconds.
const SECOND: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::Recurring;
    use std::time::{Duration, SystemTime};
    use tickwheel::MissedTick;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_period_goes_on_from_the_deadline_however_late_the_run_was() {
        for missed in [MissedTick::Burst, MissedTick::Delay, MissedTick::Skip] {
            let ten = Recurring::every(10 * SECOND).missed(missed);
            assert_eq!(ten.first(at(7)), Some(at(17)));
            for now in [90, 100, 105, 109] {
                assert_eq!(ten.next(at(100), at(now)), Some(at(110)), "{missed:?} at {now}");
            }
        }
    }

    #[test]
    fn runs_of_a_period_that_were_missed_come_as_their_policy_says() {
        let next =
            |missed, now| Recurring::every(10 * SECOND).missed(missed).next(at(100), at(now));
        for (now, burst, delay, skip) in
            [(110, 110, 120, 120), (111, 110, 121, 120), (137, 110, 147, 140), (140, 110, 150, 150)]
        {
            assert_eq!(next(MissedTick::Burst, now), Some(at(burst)));
            assert_eq!(next(MissedTick::Delay, now), Some(at(delay)));
            assert_eq!(next(MissedTick::Skip, now), Some(at(skip)));
        }
        assert_eq!(
            Recurring::every(Duration::ZERO).next(at(1), at(1)),
            Some(at(1) + Duration::from_millis(1)),
            "it does not stand still"
        );
        assert_eq!(Recurring::every(Duration::MAX).first(at(1)), None);
    }

    #[cfg(feature = "cron")]
    mod cron {
        use super::super::Recurring;
        use crate::Error;
        use jiff::Timestamp;
        use std::time::SystemTime;
        use tickwheel::MissedTick;

        fn time(text: &str) -> SystemTime {
            text.parse::<Timestamp>().expect("a time").into()
        }

        /// The runs after a time, if each is in time.
        fn runs(expression: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
            let recurring = Recurring::cron(expression, zone).expect("an expression");
            let mut at = Some(time(from));
            let next = || {
                at = recurring.first(at?);
                Some(Timestamp::try_from(at?).expect("in range").to_string())
            };
            std::iter::from_fn(next).take(count).collect()
        }

        #[test]
        fn a_time_of_day_that_summer_time_leaves_out_is_due_when_the_clocks_have_gone_forward() {
            assert_eq!(
                runs("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", 3),
                ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
            );
            assert_eq!(
                runs("30 2 * * *", "America/New_York", "2026-03-07T08:00:00Z", 2),
                ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]
            );
        }

        #[test]
        fn a_time_of_day_that_comes_twice_is_due_once_and_an_hour_that_does_is_due_twice() {
            assert_eq!(
                runs("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2),
                ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
            );
            assert_eq!(
                runs("30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", 2),
                ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"]
            );
            assert_eq!(
                runs("30 * * * *", "Europe/Berlin", "2026-10-24T23:40:00Z", 3),
                ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"]
            );
        }

        #[test]
        fn several_times_of_day_are_each_due_once_as_a_single_one_is() {
            assert_eq!(
                runs("0,30 2,14 * * *", "Europe/Berlin", "2026-03-28T13:00:00Z", 4),
                [
                    "2026-03-28T13:30:00Z",
                    "2026-03-29T01:00:00Z",
                    "2026-03-29T12:00:00Z",
                    "2026-03-29T12:30:00Z",
                ]
            );
            assert_eq!(
                runs("30 2,14 * * *", "Europe/Berlin", "2026-10-24T13:00:00Z", 3),
                ["2026-10-25T00:30:00Z", "2026-10-25T13:30:00Z", "2026-10-26T01:30:00Z"]
            );
            let second_time = runs("*/20 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", 1);
            assert_eq!(second_time, ["2026-10-26T01:00:00Z"]);
        }

        #[test]
        fn a_day_that_a_country_left_out_does_not_end_what_recurs() {
            assert_eq!(
                runs("0 9 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", 3),
                ["2011-12-29T19:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T19:00:00Z"]
            );
            assert_eq!(
                runs("0 * * * *", "Pacific/Apia", "2011-12-30T09:00:00Z", 2),
                ["2011-12-30T10:00:00Z", "2011-12-30T11:00:00Z"]
            );
        }

        #[test]
        fn a_leap_day_is_found_past_a_century_that_has_none() {
            assert_eq!(
                runs("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", 2),
                ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]
            );
            let later = runs("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", 1);
            assert_eq!(later, ["2104-02-29T00:00:00Z"]);
        }

        #[test]
        fn after_the_years_of_an_expression_and_at_the_end_of_the_calendar_there_is_no_next_run() {
            let last = runs("0 0 12 1 1 * 1970-2027", "UTC", "2026-01-01T00:00:00Z", 3);
            assert_eq!(last, ["2026-01-01T12:00:00Z", "2027-01-01T12:00:00Z"]);
            assert!(runs("0 0 1 1 *", "Asia/Kathmandu", "9999-06-01T00:00:00Z", 1).is_empty());
            let daily = Recurring::cron("@daily", "UTC").expect("an expression");
            let far = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1 << 50);
            assert_eq!(daily.first(far), None);
        }

        #[test]
        fn runs_that_were_missed_are_left_out_or_made_up_for() {
            let hourly = Recurring::cron("0 * * * *", "UTC").expect("an expression");
            let (due, now) = (time("2026-11-27T03:00:00Z"), time("2026-11-27T09:20:00Z"));
            for missed in [MissedTick::Skip, MissedTick::Delay] {
                let next = hourly.clone().missed(missed).next(due, now);
                assert_eq!(next, Some(time("2026-11-27T10:00:00Z")));
            }
            let next = hourly.missed(MissedTick::Burst).next(due, now);
            assert_eq!(next, Some(time("2026-11-27T04:00:00Z")));
        }

        #[test]
        fn what_is_wrong_with_an_expression_or_a_zone_is_told() {
            let wrong = ["", "* * *", "61 * * * *", "x * * * *", "*/0 * * * *", "5-1 * * * *"];
            let lists = ["*/7 , * * * *", ", * * * *", "0 1,,2 * * *", "0 0 * * 1,"];
            let never = ["0 0 30 2 *", "* * * * +", "* * * * L", "0 0 0 1 1 * 1969"];
            for expression in wrong.into_iter().chain(lists).chain(never) {
                let Err(Error::Cron { what, why }) = Recurring::cron(expression, "UTC") else {
                    panic!("{expression:?} is none")
                };
                assert!(what == expression && !why.is_empty());
            }
            let error =
                Recurring::cron("@daily", "Mars/Olympus").expect_err("there is no such zone");
            assert!(error.to_string().contains("Mars/Olympus"), "{error}");
        }
    }
}
