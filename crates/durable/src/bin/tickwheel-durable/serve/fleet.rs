//! Several places as one: what they have together, and what is wrong between them.

use std::collections::HashMap;
use std::time::Instant;

use serde_json::{Value, json};

use super::look::{Part, SOME, Sight};
use super::shown::Seen;
#[cfg(feature = "postgres")]
use crate::fleet::{Map, Partitions};
use crate::show;

/// What was wrong with the partitions at the last look, and since when.
///
/// The databases are not read at one moment: a partition that has moved meanwhile seems to be in
/// both, or in none.
#[derive(Default)]
pub(super) struct Suspects(HashMap<String, Instant>);

impl Suspects {
    /// Returns those that were there before all of this was read.
    fn confirm(&mut self, faults: Vec<String>, read: Instant) -> Vec<String> {
        let now = Instant::now();
        self.0.retain(|fault, _| faults.contains(fault));
        let is_sure = |fault: &String| *self.0.entry(fault.clone()).or_insert(now) < read;
        faults.into_iter().filter(is_sure).collect()
    }
}

/// Returns what the databases have together, and what each has.
pub(super) fn state(seen: &[Seen], suspects: &mut Suspects) -> Value {
    let answers = seen.iter().filter(|seen| seen.error.is_none());
    let answers = answers.filter_map(|seen| Some((&*seen.name, seen.sight.as_ref()?)));
    let sum = Sight::sum(answers.clone()).map(|mut sum| {
        // That is of one, also where no other answers.
        sum.limit = None;
        sum
    });
    let mut state = sum.as_ref().map_or_else(|| json!({}), Sight::json);
    let mut databases: Vec<Value> = seen.iter().map(database).collect();
    if let Some(sum) = &sum {
        let answering = databases.iter_mut().filter(|database| database["error"].is_null());
        let faults = partitions(answers, answering);
        state["faults"] = json!(suspects.confirm(faults, sum.at));
    }
    state["place"] = json!(format!("{} databases", seen.len()));
    state["databases"] = json!(databases);
    state
}

/// Adds to what is told of each which partitions are on their way, and returns what is wrong.
#[cfg(feature = "postgres")]
fn partitions<'a>(
    answers: impl Iterator<Item = (&'a str, &'a Sight)>,
    databases: impl Iterator<Item = &'a mut Value>,
) -> Vec<String> {
    let homes = answers.filter_map(|(name, sight)| Some((name.to_owned(), sight.homes.as_ref()?)));
    let map = Map::new(&homes.collect::<Vec<_>>());
    for (number, database) in databases.enumerate() {
        database["leaving"] = json!(map.on_their_way(true, number));
        database["coming"] = json!(map.on_their_way(false, number));
    }
    map.faults()
}

/// Without databases there are none.
#[cfg(not(feature = "postgres"))]
fn partitions<'a>(
    _: impl Iterator<Item = (&'a str, &'a Sight)>,
    _: impl Iterator<Item = &'a mut Value>,
) -> Vec<String> {
    Vec::new()
}

/// Returns what was seen of one last.
fn database(seen: &Seen) -> Value {
    let mut value = json!({ "place": seen.name, "error": seen.error });
    let Some(sight) = &seen.sight else { return value };
    let (pending, overdue) = (sight.pending(), sight.overdue());
    let facts = [
        ("age_ms", json!(seen.age.as_millis() as u64)),
        ("pending", json!(pending.rows)),
        ("is_all", json!(pending.is_all)),
        ("overdue", json!(overdue.rows)),
        ("is_all_overdue", json!(overdue.is_all)),
        ("late_ms", json!(sight.late())),
        ("is_paused", json!(sight.is_paused)),
        ("limit", json!(sight.limit.map(show::limit))),
        ("workers", json!(sight.workers.as_ref().map(|(workers, _)| workers.len()))),
        #[cfg(feature = "postgres")]
        ("partitions", json!(sight.homes.as_ref().map(|homes| Partitions::of(homes).to_string()))),
    ];
    for (name, fact) in facts {
        value[name] = fact;
    }
    value
}

/// Returns one list of several, each in order.
pub(super) fn merge<P: Ord + Clone>(parts: Vec<Part<P>>) -> Part<P> {
    let mut end = parts.iter().filter_map(|part| part.end.clone()).min();
    let mut rows: Vec<_> = parts.into_iter().flat_map(|part| part.rows).collect();
    rows.sort_by(|one, other| one.0.cmp(&other.0));
    // Past the first end there may be rows that were not read.
    rows.retain(|row| end.as_ref().is_none_or(|end| row.0 <= *end));
    if SOME.rows < rows.len() {
        rows.truncate(SOME.rows);
        end = rows.last().map(|row| row.0.clone());
    }
    Part { rows, end }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_list_of_several_has_no_row_past_one_that_was_not_read() {
        let merged = |parts: &[(&[usize], Option<usize>)]| {
            let part = |&(rows, end): &(&[usize], _)| {
                let rows = rows.iter().map(|&row| (row, json!(row))).collect();
                Part { rows, end }
            };
            let Part { rows, end } = merge(parts.iter().map(part).collect());
            (rows.into_iter().map(|row| row.0).collect::<Vec<_>>(), end)
        };
        assert_eq!(merged(&[(&[1, 4], Some(5)), (&[2, 6], None)]), (vec![1, 2, 4], Some(5)));
        assert_eq!(merged(&[(&[], Some(3)), (&[2, 6], Some(6))]), (vec![2], Some(3)));
        assert_eq!(merged(&[(&[4], None), (&[], None)]), (vec![4], None));
        let many: Vec<usize> = (0..SOME.rows).collect();
        let all = merged(&[(&many, None), (&[50, 200], None)]);
        assert_eq!((all.0.len(), all.0.last(), all.1), (SOME.rows, Some(&98), Some(98)));
    }

    #[test]
    fn a_fault_is_told_when_all_was_read_once_more() {
        let mut suspects = Suspects::default();
        let fault = || vec!["partitions 7: in none of the databases".to_owned()];
        let before = Instant::now();
        assert!(suspects.confirm(fault(), before).is_empty());
        assert!(suspects.confirm(fault(), before).is_empty(), "one was not read since");
        let later = Instant::now() + Duration::from_secs(1);
        assert_eq!(suspects.confirm(fault(), later), fault());
        assert!(suspects.confirm(Vec::new(), later).is_empty());
        assert!(suspects.confirm(fault(), before).is_empty(), "it is another one");
    }
}
