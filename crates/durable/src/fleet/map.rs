//! Which database has a partition, by what each has answered.

use std::sync::Arc;
use std::time::Instant;

use md5::{Digest, Md5};

use crate::store::postgres::{DatabaseId, Home, HomeState, Homes};

/// What a database has answered, and between which moments it did.
pub(super) struct Reading {
    pub(super) homes: Arc<Homes>,
    pub(super) began: Instant,
    pub(super) ended: Instant,
}

/// Where a partition is. The databases are told apart by their places in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// This database has it.
    At(usize),
    /// It is on its way to this one.
    Coming(usize),
    /// One that has not answered has it, or had it last.
    Beyond(DatabaseId),
    /// Nothing is known of it.
    Unknown,
}

/// What is known of the partitions.
pub(super) struct Map {
    /// The last answer of each database.
    pub(super) readings: Vec<Option<Reading>>,
    routes: Vec<Route>,
}

impl Map {
    /// Makes the map of so many databases that have not answered.
    pub(super) fn new(databases: usize) -> Self {
        let readings = (0..databases).map(|_| None).collect();
        Self { readings, routes: vec![Route::Unknown; PARTITIONS] }
    }

    /// Puts an answer in the place of an older one.
    pub(super) fn put(&mut self, at: usize, reading: Reading) {
        let homes = Arc::clone(&reading.homes);
        let before = self.readings[at].replace(reading);
        let before = before.filter(|before| before.homes.id == homes.id);
        for (partition, route) in self.routes.iter_mut().enumerate() {
            // Nearly every answer says the same as the one before.
            let said = before.as_ref().map(|before| before.homes.partitions.get(partition));
            if said != Some(homes.partitions.get(partition)) {
                *route = find(&self.readings, partition);
            }
        }
    }

    /// Returns where the partition is.
    pub(super) fn route(&self, partition: usize) -> Route {
        self.routes[partition]
    }

    /// Returns the partitions that this database has.
    pub(super) fn partitions(&self, at: usize) -> Vec<u32> {
        let routes = (0..).zip(&self.routes).filter(|(_, route)| **route == Route::At(at));
        routes.map(|(partition, _)| partition).collect()
    }

    /// Returns whether all databases were asked after this moment, and answered.
    pub(super) fn is_newer(&self, than: Instant) -> bool {
        self.readings.iter().all(|reading| reading.as_ref().is_some_and(|it| than < it.began))
    }

    /// Returns what the database is called, if one of those that answered knows it.
    pub(super) fn place(&self, id: DatabaseId) -> Option<&str> {
        let mut known = self.readings.iter().flatten();
        known.find_map(|reading| reading.homes.places.get(&id).map(String::as_str))
    }

    /// Returns the partitions whose move to this database was cut off after its switch, and for
    /// each the answer of the database that it left.
    pub(super) fn cut_off(&self, at: usize) -> Vec<(u32, Arc<Homes>)> {
        let Some(Reading { homes, .. }) = &self.readings[at] else { return Vec::new() };
        let coming = (0..).zip(&homes.partitions);
        let coming = coming.filter(|(_, to)| to.state == HomeState::Coming);
        let cut_off = coming.filter_map(|(partition, to)| {
            let from = &self.readings[self.position(to.other?)?].as_ref()?.homes;
            let left = from.partitions.get(partition as usize)?;
            // An answer from before an earlier move there has no more moves than are known here.
            let is_over = left.state == HomeState::Gone
                && left.other == Some(homes.id)
                && to.moves < left.moves;
            is_over.then(|| (partition, Arc::clone(from)))
        });
        cut_off.collect()
    }

    fn position(&self, id: DatabaseId) -> Option<usize> {
        position(&self.readings, id)
    }
}

/// Returns where the partition is.
///
/// Each move has a number, greater than that of the move before, which both databases know: the one
/// that the partition left, and the one that it came to. So what has the greatest number is the
/// newest, whichever answer is older.
fn find(readings: &[Option<Reading>], partition: usize) -> Route {
    let homes = || {
        let homes = (0..readings.len()).map(|at| (at, home(readings, at, partition)));
        homes.filter_map(|(at, home)| home.map(|home| (at, home)))
    };
    let here = homes().filter(|(_, home)| home.state.is_here()).max_by_key(|(_, home)| home.moves);
    let gone = homes().filter_map(|(_, home)| gone(home)).max_by_key(|&(moves, _)| moves);
    let coming = homes().find(|(_, home)| home.state == HomeState::Coming);
    match (here, gone, coming) {
        (Some((at, here)), Some((moves, _)), _) if moves <= here.moves => Route::At(at),
        (_, Some((moves, to)), _) => follow(readings, partition, moves, to),
        (Some((at, _)), None, _) => Route::At(at),
        (None, None, Some((_, Home { other: Some(from), .. }))) => Route::Beyond(*from),
        (None, None, _) => Route::Unknown,
    }
}

/// Follows a partition that went to `next` with the last move that is known.
fn follow(
    readings: &[Option<Reading>],
    partition: usize,
    moves: u64,
    mut next: DatabaseId,
) -> Route {
    for _ in readings {
        let Some(at) = position(readings, next) else { return Route::Beyond(next) };
        match home(readings, at, partition) {
            Some(Home { state: HomeState::Coming, .. }) => return Route::Coming(at),
            Some(home) => match gone(home) {
                // One that has joined, and was told where the partition was.
                Some((same, to)) if moves <= same => next = to,
                // It has answered before the move.
                _ => return Route::At(at),
            },
            None => return Route::Unknown,
        }
    }
    Route::Unknown
}

fn home(readings: &[Option<Reading>], at: usize, partition: usize) -> Option<&Home> {
    readings[at].as_ref()?.homes.partitions.get(partition)
}

/// Returns the number of the move by which the partition went, and where.
fn gone(home: &Home) -> Option<(u64, DatabaseId)> {
    let to = home.other.filter(|_| home.state == HomeState::Gone)?;
    Some((home.moves, to))
}

fn position(readings: &[Option<Reading>], id: DatabaseId) -> Option<usize> {
    readings.iter().position(|reading| reading.as_ref().is_some_and(|it| it.homes.id == id))
}

/// Returns the partitions that a database has, by its answer.
pub(super) fn here(reading: &Reading) -> Vec<usize> {
    let homes = reading.homes.partitions.iter().enumerate();
    homes.filter(|(_, home)| home.state.is_here()).map(|(partition, _)| partition).collect()
}

/// Returns one of these partitions, which the first database has, if the second one has it too,
/// though no move can have been between their answers: they are not of one fleet.
pub(super) fn contradiction(here: &[usize], a: &Reading, b: &Reading) -> Option<usize> {
    here.iter().copied().find(|&partition| {
        let of_a = &a.homes.partitions[partition];
        let of_b = b.homes.partitions.get(partition).filter(|home| home.state.is_here());
        of_b.is_some_and(|of_b| {
            let (fewer, more) = match of_a.moves < of_b.moves {
                true => (a, b),
                false => (b, a),
            };
            // Who answers later, and has it, knows of more moves.
            of_a.moves == of_b.moves || more.ended < fewer.began
        })
    })
}

/// Returns the partition of a name, as the databases have it.
pub(super) fn partition(name: &str) -> usize {
    usize::from(Md5::digest(name.as_bytes())[3]) % PARTITIONS
}

pub(super) const PARTITIONS: usize = 64;

#[cfg(test)]
pub(super) mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use HomeState::{Coming, Gone, Here, Moving};

    use super::*;

    /// What a database answers of each partition.
    pub(crate) fn homes(id: u128, home: impl Fn(usize) -> (HomeState, Option<u128>, u64)) -> Homes {
        let home = |partition| {
            let (state, other, moves) = home(partition);
            Home { state, other: other.map(DatabaseId), moves, epoch: moves }
        };
        let place = |id: u128| (DatabaseId(id), format!("host-{id}:5432/timers"));
        Homes {
            id: DatabaseId(id),
            places: HashMap::from([1, 2, 3, 4].map(place)),
            partitions: (0..PARTITIONS).map(home).collect(),
        }
    }

    fn read(homes: Homes, began: Instant) -> Reading {
        Reading { homes: Arc::new(homes), began, ended: began + Duration::from_millis(1) }
    }

    /// Routes a partition by what the databases 1, 2 and so on say of it, if they do.
    fn routed(said: &[Option<(HomeState, Option<u128>, u64)>]) -> Route {
        let mut map = Map::new(said.len());
        for (at, said) in said.iter().enumerate() {
            if let Some(said) = *said {
                map.put(at, read(homes(at as u128 + 1, |_| said), Instant::now()));
            }
        }
        let all: Vec<Route> = (0..PARTITIONS).map(|partition| map.route(partition)).collect();
        assert_eq!(all, vec![all[0]; PARTITIONS]);
        all[0]
    }

    #[test]
    fn the_database_that_has_a_partition_has_it_while_it_is_copied_or_to_be_given_back() {
        for state in [Here, Moving] {
            let other = (state != Here).then_some(1);
            let here = Some((state, other, 3));
            assert_eq!(routed(&[Some((Gone, Some(2), 3)), here]), Route::At(1));
            assert_eq!(routed(&[Some((Coming, Some(2), 2)), here]), Route::At(1), "{state:?}");
            assert_eq!(routed(&[None, here]), Route::At(1));
        }
    }

    #[test]
    fn an_answer_from_before_a_move_does_not_win_over_a_newer_one() {
        // It went from 1 to 2, and 1 has answered before.
        assert_eq!(routed(&[Some((Here, None, 0)), Some((Here, None, 1))]), Route::At(1));
        assert_eq!(routed(&[Some((Moving, Some(2), 0)), Some((Here, None, 1))]), Route::At(1));
        // 2 has answered before.
        assert_eq!(routed(&[Some((Gone, Some(2), 1)), Some((Gone, Some(1), 0))]), Route::At(1));
        // It went to 2 and came back. 2 has answered between.
        assert_eq!(routed(&[Some((Here, None, 2)), Some((Here, None, 1))]), Route::At(0));
        // It went to 2, came back, and went to 2 again. Each has answered at another time.
        assert_eq!(routed(&[Some((Gone, Some(2), 3)), Some((Here, None, 1))]), Route::At(1));
        assert_eq!(routed(&[Some((Gone, Some(2), 1)), Some((Gone, Some(1), 2))]), Route::At(0));
        // It went on from 2 to 3.
        let gone = [(Gone, Some(2), 1), (Gone, Some(3), 2)].map(Some);
        assert_eq!(routed(&[gone[0], gone[1], Some((Here, None, 2))]), Route::At(2));
        assert_eq!(routed(&[gone[0], Some((Here, None, 1)), Some((Here, None, 2))]), Route::At(2));
        assert_eq!(routed(&[gone[0], gone[1], Some((Gone, Some(1), 0))]), Route::At(2));
    }

    #[test]
    fn on_its_way_it_is_where_it_goes() {
        assert_eq!(
            routed(&[Some((Gone, Some(2), 1)), Some((Coming, Some(1), 0))]),
            Route::Coming(1)
        );
        // It is copied, and both say so.
        assert_eq!(routed(&[Some((Moving, Some(2), 0)), Some((Coming, Some(1), 0))]), Route::At(0));
        // It went to 2, and comes back.
        assert_eq!(
            routed(&[Some((Coming, Some(2), 1)), Some((Gone, Some(1), 2))]),
            Route::Coming(0)
        );
    }

    #[test]
    fn with_some_silent_the_others_tell_who_has_it() {
        let silent = None;
        assert_eq!(routed(&[silent, Some((Gone, Some(1), 0))]), Route::Beyond(DatabaseId(1)));
        assert_eq!(routed(&[silent, Some((Coming, Some(1), 0))]), Route::Beyond(DatabaseId(1)));
        // From 1 to 2, and from 2 to 4, which nobody has named.
        let gone = [(Gone, Some(2), 1), (Gone, Some(4), 2)].map(Some);
        assert_eq!(routed(&[gone[0], gone[1], silent]), Route::Beyond(DatabaseId(4)));
        assert_eq!(routed(&[gone[0], silent, silent]), Route::Beyond(DatabaseId(2)));
        assert_eq!(routed(&[silent, silent]), Route::Unknown);
        assert_eq!(routed(&[Some((Gone, None, 1)), silent]), Route::Unknown);
    }

    #[test]
    fn what_one_that_joined_was_told_leads_to_where_it_is() {
        let joined = Some((Gone, Some(1), 1));
        assert_eq!(routed(&[Some((Here, None, 1)), joined]), Route::At(0));
        // 1 had it, and it went on.
        let gone = Some((Gone, Some(3), 1));
        assert_eq!(routed(&[gone, joined, Some((Here, None, 1))]), Route::At(2));
        assert_eq!(routed(&[gone, joined, Some((Here, None, 0))]), Route::At(2));
        assert_eq!(routed(&[gone, joined, None]), Route::Beyond(DatabaseId(3)));
        // No two of a fleet answer so.
        assert_eq!(routed(&[Some((Gone, Some(2), 1)), Some((Gone, Some(1), 1))]), Route::Unknown);
    }

    #[test]
    fn one_that_tells_of_no_partitions_has_none() {
        let mut none = homes(1, |_| (Here, None, 0));
        none.partitions.clear();
        let mut map = Map::new(2);
        map.put(0, read(none, Instant::now()));
        assert_eq!(map.route(63), Route::Unknown);
        map.put(1, read(homes(2, |_| (Gone, Some(1), 1)), Instant::now()));
        assert_eq!((map.route(63), map.cut_off(0).len()), (Route::Unknown, 0));
    }

    #[test]
    fn an_answer_takes_the_place_of_the_one_before_whatever_differs() {
        let mut map = Map::new(3);
        let mut answer = |at: usize, id, said| {
            map.put(at, read(homes(id, |_| said), Instant::now()));
            map.route(5)
        };
        answer(0, 1, (Here, None, 0));
        assert_eq!(answer(1, 2, (Gone, Some(1), 0)), Route::At(0));
        assert_eq!(answer(1, 2, (Gone, Some(1), 0)), Route::At(0));
        // By its state, by where it went, by the number of the move.
        assert_eq!(answer(0, 1, (Gone, Some(2), 1)), Route::At(1));
        assert_eq!(answer(0, 1, (Gone, Some(3), 1)), Route::Beyond(DatabaseId(3)));
        assert_eq!(answer(1, 2, (Gone, Some(4), 2)), Route::Beyond(DatabaseId(4)));
        assert_eq!(answer(0, 1, (Gone, Some(3), 3)), Route::Beyond(DatabaseId(3)));
        // Another database says the same.
        assert_eq!(answer(1, 3, (Gone, Some(4), 2)), Route::At(1));
    }

    #[test]
    fn each_partition_is_routed_by_itself() {
        let mut map = Map::new(2);
        let half = |mine: usize, other: u128| {
            move |partition| match partition % 2 == mine {
                true => (Here, None, 1),
                false => (Gone, Some(other), 1),
            }
        };
        map.put(0, read(homes(1, half(0, 2)), Instant::now()));
        map.put(1, read(homes(2, half(1, 1)), Instant::now()));
        assert_eq!((map.route(8), map.route(9)), (Route::At(0), Route::At(1)));
        let even: Vec<u32> = (0..64).filter(|partition| partition % 2 == 0).collect();
        assert_eq!(map.partitions(0), even);
    }

    #[test]
    fn a_move_is_ended_only_if_it_is_the_one_that_was_switched() {
        let cut_off = |from: (HomeState, Option<u128>, u64), to: (HomeState, Option<u128>, u64)| {
            let mut map = Map::new(2);
            map.put(0, read(homes(1, |_| from), Instant::now()));
            map.put(1, read(homes(2, |_| to), Instant::now()));
            assert!(map.cut_off(0).is_empty());
            map.cut_off(1).len()
        };
        assert_eq!(cut_off((Gone, Some(2), 1), (Coming, Some(1), 0)), 64);
        assert_eq!(cut_off((Gone, Some(2), 3), (Coming, Some(1), 2)), 64);
        // It is copied once more, and what 1 says is of the first time.
        assert_eq!(cut_off((Gone, Some(2), 1), (Coming, Some(1), 2)), 0);
        assert_eq!(cut_off((Moving, Some(2), 2), (Coming, Some(1), 2)), 0);
        assert_eq!(cut_off((Gone, Some(3), 3), (Coming, Some(1), 2)), 0);
        assert_eq!(cut_off((Gone, Some(2), 3), (Here, Some(1), 2)), 0);
    }

    #[test]
    fn two_that_have_one_partition_are_of_no_fleet() {
        let first = Instant::now();
        let [second, at_once] = [first + Duration::from_secs(1), first];
        let here = |id, moves, began| read(homes(id, |_| (Here, None, moves)), began);
        let contradiction = |a: &Reading, b: &Reading| {
            let found = contradiction(&super::here(a), a, b);
            assert_eq!(found.is_some(), contradiction(&super::here(b), b, a).is_some());
            found
        };
        assert_eq!(contradiction(&here(1, 0, first), &here(2, 0, second)), Some(0));
        assert_eq!(contradiction(&here(1, 0, second), &here(2, 1, first)), Some(0));
        assert_eq!(contradiction(&here(2, 1, first), &here(1, 0, second)), Some(0));
        // It may have been moved between the answers.
        assert_eq!(contradiction(&here(1, 0, first), &here(2, 1, second)), None);
        assert_eq!(contradiction(&here(2, 1, second), &here(1, 0, first)), None);
        assert_eq!(contradiction(&here(1, 0, at_once), &here(2, 1, first)), None);
        let gone = read(homes(2, |_| (Gone, Some(1), 0)), first);
        assert_eq!(contradiction(&here(1, 0, first), &gone), None);
        let last = |partition| match partition {
            63 => (Moving, Some(1), 0),
            _ => (Gone, Some(1), 0),
        };
        assert_eq!(contradiction(&here(1, 0, first), &read(homes(2, last), first)), Some(63));
    }

    #[test]
    fn names_are_in_the_partitions_that_the_databases_say() {
        // select ('x' || left(md5(name), 8))::bit(32)::int & 63
        let known = [("a", 57), ("order-17", 13), ("order-17/payment", 20), ("\u{e9}", 23)];
        for (name, expected) in known {
            assert_eq!(partition(name), expected, "{name}");
        }
    }
}
