//! The databases of a fleet: which partitions each has, and moving them.

use std::cmp::Reverse;
use std::fmt;
use std::io::Write;
use std::str::FromStr;

use clap::Subcommand;
use serde_json::{Value, json};
use tickwheel_durable::store::{Counted, Store};
use tickwheel_durable::{
    Error, HomeState, Homes, MovedPartition, PostgresStore, abandon_move, join_fleet,
    move_partition,
};

use super::failure::Failure;
use super::place::{MOVE_LEASE, Place};
use super::{progress_bar, say};

#[derive(Subcommand)]
pub(super) enum FleetCommand {
    /// Shows which partitions each database has, and what is pending there.
    ///
    /// A partition that is on its way is no fault, also if nobody moves it any more: its timeouts come
    /// where it was until the other database has all of them. What is on its way counts in both.
    Status {
        /// The URLs of all databases of the fleet.
        #[arg(required = true, value_name = "URL")]
        databases: Vec<Database>,

        /// Print one JSON object per database, one per line.
        #[arg(long)]
        json: bool,
    },

    /// Lets a new, empty database share the partitions of a fleet, or of a single database.
    ///
    /// It has none until some are moved to it, as by `balance`. It makes the tables if there are
    /// none.
    Join {
        /// The URL of the new database.
        #[arg(value_name = "NEW-URL")]
        new: Database,

        /// The URL of a database of the fleet.
        #[arg(value_name = "MEMBER-URL")]
        member: Database,
    },

    /// Moves partitions from one database of a fleet to another, while workers and callers go on.
    ///
    /// Wherever it is cut off, nothing is lost, and another run goes on from there. A database gives
    /// one partition away at a time.
    Move {
        /// The URL of the database that has them.
        #[arg(value_name = "FROM-URL")]
        from: Database,

        /// The URL of the database that gets them.
        #[arg(value_name = "TO-URL")]
        to: Database,

        /// The partitions, as in 0-15,33.
        partitions: Partitions,

        /// Print one JSON object per partition, one per line.
        #[arg(long)]
        json: bool,
    },

    /// Gives up moves that have not taken place yet: the database keeps these partitions.
    Abandon {
        /// The URL of the database that has them.
        #[arg(value_name = "FROM-URL")]
        from: Database,

        /// The partitions, as in 0-15,33.
        partitions: Partitions,

        /// Print one JSON object per partition, one per line.
        #[arg(long)]
        json: bool,
    },

    /// Moves as few partitions as possible, so that no database has two more than another.
    ///
    /// Moves that were cut off are ended first. Wherever this is cut off, nothing is lost, and
    /// another run goes on from there.
    Balance {
        /// The URLs of all databases of the fleet.
        #[arg(required = true, value_name = "URL")]
        databases: Vec<Database>,

        /// Leave nothing in this database, which is one of those above: then it may leave the fleet.
        #[arg(long, value_name = "URL")]
        without: Option<Database>,

        /// Move nothing, and tell what would be moved.
        #[arg(long)]
        dry_run: bool,

        /// Print one JSON object per partition, one per line.
        #[arg(long)]
        json: bool,
    },
}

/// Does it, and writes what it finds to `output`.
pub(super) fn run(command: FleetCommand, output: &mut impl Write) -> Result<(), Failure> {
    match command {
        FleetCommand::Status { databases, json } => status(&databases, json, output),
        FleetCommand::Join { new, member } => {
            // First: nothing is made if it is not there.
            let mut opened = open(&member).map_err(at(&member))?;
            let mut made = PostgresStore::connect(&new.0).map_err(at(&new))?.lease(MOVE_LEASE);
            Ok(join_fleet(&mut made, &mut opened)?)
        }
        FleetCommand::Move { from, to, partitions: Partitions(partitions), json } => {
            let mut members = members(&[from, to])?;
            let steps = partitions.into_iter().map(|partition| Step { partition, from: 0, to: 1 });
            carry_out(&mut members, &Vec::from_iter(steps), json, output)
        }
        FleetCommand::Abandon { from, partitions, json } => {
            abandon(&from, &partitions, json, output)
        }
        FleetCommand::Balance { databases, without, dry_run, json } => {
            let mut members = members(&databases)?;
            let steps = balance(&mut members, without.as_ref())?;
            if !dry_run {
                clean(&mut members)?;
                return carry_out(&mut members, &steps, json, output);
            }
            for step in &steps {
                if json {
                    writeln!(output, "{}", step.json(&members))?;
                } else {
                    writeln!(output, "{}", step.words(&members))?;
                }
            }
            Ok(())
        }
    }
}

/// The URL of a database.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Database(String);

impl FromStr for Database {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(Place::Database(url)) => Ok(Self(url)),
            _ => Err("expected the URL of a database, as in postgresql://user@host/database"),
        }
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Place::Database(self.0.clone()).fmt(f)
    }
}

/// Partitions, in order and each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Partitions(Vec<u32>);

impl FromStr for Partitions {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "expected numbers from 0 to 63 and ranges of them, as in 0-15,33";
        let mut partitions = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse().map_err(|_| expected);
            let (first, last): (u32, u32) = (number(first)?, number(last)?);
            if last < first || PARTITIONS <= last {
                return Err(expected);
            }
            partitions.extend(first..=last);
        }
        partitions.sort_unstable();
        partitions.dedup();
        Ok(Self(partitions))
    }
}

impl Partitions {
    /// Those that a database has.
    pub(super) fn of(homes: &Homes) -> Self {
        let here = (0..).zip(&homes.partitions).filter(|(_, home)| home.state.is_here());
        Self(here.map(|(partition, _)| partition).collect())
    }
}

/// As they are read, with blanks.
impl fmt::Display for Partitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let ranges = self.0.chunk_by(|before, after| before + 1 == *after);
        let ranges = ranges.map(|range| match range {
            [first, .., last] => format!("{first}-{last}"),
            one => one.iter().map(u32::to_string).collect(),
        });
        f.write_str(&ranges.collect::<Vec<_>>().join(", "))
    }
}

/// A database of the fleet that answers.
struct Member {
    database: Database,
    store: PostgresStore,
    homes: Homes,
}

impl Member {
    fn open(database: &Database) -> Result<Self, Error> {
        let mut store = open(database)?;
        let homes = store.homes()?;
        Ok(Self { database: database.clone(), store, homes })
    }
}

fn open(database: &Database) -> Result<PostgresStore, Error> {
    // By the time of a lease that is not set yet: one that does not answer is told soon.
    Ok(PostgresStore::connect_existing(&database.0)?.lease(MOVE_LEASE))
}

/// Says in which database an error was met.
fn at(database: &Database) -> impl Fn(Error) -> Failure {
    move |error| Failure::Input(format!("{database}: {error}"))
}

/// Opens all.
fn members(databases: &[Database]) -> Result<Vec<Member>, Failure> {
    let open = |database| Member::open(database).map_err(at(database));
    let members: Vec<Member> = databases.iter().map(open).collect::<Result<_, _>>()?;
    refuse_twice(&told(&members))?;
    Ok(members)
}

/// What the databases are called, and what they say.
fn told(members: &[Member]) -> Vec<(String, &Homes)> {
    members.iter().map(|member| (member.database.to_string(), &member.homes)).collect()
}

/// Refuses a database that is there under two names.
pub(super) fn refuse_twice(databases: &[(String, &Homes)]) -> Result<(), Failure> {
    for (place, (two, homes)) in databases.iter().enumerate() {
        let is_other = |(_, other): &&(String, &Homes)| other.id == homes.id;
        if let Some((one, _)) = databases[..place].iter().find(is_other) {
            let message = format!("{one} and {two} are the same database: expected each once");
            return Err(Failure::Input(message));
        }
    }
    Ok(())
}

/// What the databases say of a partition, taken together. Databases are numbered: first those that
/// answered, then those that only the others know.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    At(usize),
    Moves {
        from: usize,
        to: usize,
    },
    /// None that answered has it. It went to one of these.
    Away(Vec<usize>),
    /// Several have it.
    Twice(Vec<usize>),
}

/// A partition as one database has it, with the other database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spot {
    Here,
    Leaving(usize),
    Gone(Option<usize>),
    Coming(usize),
}

/// Finds a partition by the spots of it in those that answered.
fn find(spots: &[Spot]) -> Found {
    let is_here = |spot: &Spot| matches!(spot, Spot::Here | Spot::Leaving(_));
    let holders = (0..spots.len()).filter(|&database| is_here(&spots[database]));
    match Vec::from_iter(holders)[..] {
        [from] => match spots[from] {
            Spot::Leaving(to) => Found::Moves { from, to },
            _ => Found::At(from),
        },
        [] => {
            let comes = |to: usize| match spots[to] {
                Spot::Coming(from) if spots.get(from) == Some(&Spot::Gone(Some(to))) => {
                    Some(Found::Moves { from, to })
                }
                _ => None,
            };
            (0..spots.len()).find_map(comes).unwrap_or_else(|| {
                let others = spots.iter().filter_map(|spot| match *spot {
                    Spot::Gone(other) => other,
                    Spot::Coming(other) => Some(other),
                    _ => None,
                });
                let mut away: Vec<usize> = others.filter(|&other| spots.len() <= other).collect();
                away.sort_unstable();
                away.dedup();
                Found::Away(away)
            })
        }
        ref several => Found::Twice(several.to_vec()),
    }
}

/// Where all partitions are, and what the databases are called by their numbers.
#[derive(PartialEq, Eq)]
pub(super) struct Map {
    names: Vec<String>,
    found: Vec<Found>,
}

impl Map {
    pub(super) fn new(databases: &[(String, &Homes)]) -> Self {
        let mut ids: Vec<_> = databases.iter().map(|(_, homes)| homes.id).collect();
        let mut names: Vec<_> = databases.iter().map(|(name, _)| name.clone()).collect();
        let mut spots = vec![Vec::new(); PARTITIONS as usize];
        for (_, homes) in databases {
            for (spots, home) in spots.iter_mut().zip(&homes.partitions) {
                let other = home.other.map(|other| {
                    let known = ids.iter().position(|id| *id == other);
                    known.unwrap_or_else(|| {
                        ids.push(other);
                        let name = homes.places.get(&other).cloned();
                        names.push(name.unwrap_or_else(|| format!("the database {other}")));
                        ids.len() - 1
                    })
                });
                spots.push(match (home.state, other) {
                    (HomeState::Coming, Some(from)) => Spot::Coming(from),
                    (HomeState::Moving, Some(to)) => Spot::Leaving(to),
                    (state, _) if state.is_here() => Spot::Here,
                    (_, to) => Spot::Gone(to),
                });
            }
        }
        Self { names, found: spots.iter().map(|spots| find(spots)).collect() }
    }

    /// Looks again if something is wrong: a partition may have been moved between the looks at two
    /// databases.
    fn look(members: &mut [Member]) -> Result<Self, Failure> {
        let mut map = Self::new(&told(members));
        for _ in 0..LOOKS {
            if map.faults().is_empty() {
                break;
            }
            for Member { database, store, homes } in &mut *members {
                *homes = store.homes().map_err(at(database))?;
            }
            map = Self::new(&told(members));
        }
        Ok(map)
    }

    /// Partitions of which the same is found, together.
    fn groups(&self, is_of: impl Fn(&Found) -> bool) -> Vec<(Partitions, &Found)> {
        let mut groups: Vec<(Partitions, &Found)> = Vec::new();
        for (partition, found) in (0..).zip(&self.found).filter(|(_, found)| is_of(found)) {
            match groups.iter_mut().find(|group| group.1 == found) {
                Some((partitions, _)) => partitions.0.push(partition),
                None => groups.push((Partitions(vec![partition]), found)),
            }
        }
        groups
    }

    pub(super) fn faults(&self) -> Vec<String> {
        let names = |databases: &[usize], between: &str| {
            let names = databases.iter().map(|&database| &*self.names[database]);
            names.collect::<Vec<_>>().join(between)
        };
        let faults = self.groups(|found| matches!(found, Found::Away(_) | Found::Twice(_)));
        let fault = |(partitions, found): (Partitions, &Found)| match found {
            Found::Twice(databases) => {
                let places = names(databases, " and in ");
                format!("partitions {partitions}: in {places}; are these of one fleet?")
            }
            Found::Away(databases) if !databases.is_empty() => {
                let places = names(databases, " or to ");
                format!(
                    "partitions {partitions}: gone to {places}; expected its URL, and an answer"
                )
            }
            _ => format!("partitions {partitions}: in none of the databases"),
        };
        faults.into_iter().map(fault).collect()
    }

    /// Those on their way to or from a database, and the other one.
    pub(super) fn on_their_way(&self, is_from: bool, database: usize) -> Vec<Value> {
        let moves = (0..).zip(&self.found).filter_map(|(partition, found)| {
            let Found::Moves { from, to } = *found else { return None };
            let (one, other, word) = if is_from { (from, to, "to") } else { (to, from, "from") };
            (one == database).then(|| json!({ "partition": partition, word: self.names[other] }))
        });
        moves.collect()
    }
}

/// What is counted in a database.
struct Counts {
    workers: u64,
    timeouts: Counted,
}

impl Counts {
    fn of(store: &mut PostgresStore) -> Result<Self, Error> {
        let workers = store.workers()?.alive;
        let timeouts = store.count_until(&[u64::MAX], MOST)?.pop().unwrap_or_default();
        Ok(Self { workers, timeouts })
    }
}

fn status(databases: &[Database], json: bool, output: &mut impl Write) -> Result<(), Failure> {
    let (mut members, mut silent) = (Vec::new(), Vec::new());
    for database in databases {
        match Member::open(database) {
            Ok(member) => members.push(member),
            Err(error) => silent.push((database, error)),
        }
    }
    refuse_twice(&told(&members))?;
    let map = Map::look(&mut members)?;
    let width = databases.iter().map(|database| database.to_string().len()).max().unwrap_or(0);
    if !json {
        writeln!(output, "{:<width$}  WORKERS  TIMEOUTS  PARTITIONS", "DATABASE")?;
    }
    for (number, Member { database, store, homes }) in members.iter_mut().enumerate() {
        let Counts { workers, timeouts } = Counts::of(store).map_err(at(database))?;
        let here = Partitions::of(homes);
        if json {
            let object = json!({
                "database": database.to_string(),
                "error": null,
                "workers": workers,
                "timeouts": timeouts.rows,
                "is_all": timeouts.is_all,
                "partitions": here.0,
                "leaving": map.on_their_way(true, number),
                "coming": map.on_their_way(false, number),
            });
            writeln!(output, "{object}")?;
        } else {
            let more = if timeouts.is_all { "" } else { "+" };
            let timeouts = format!("{}{more}", timeouts.rows);
            let database = database.to_string();
            writeln!(output, "{database:<width$}  {workers:>7}  {timeouts:>8}  {here}")?;
        }
    }
    for (database, error) in &silent {
        let database = database.to_string();
        if json {
            let object = json!({ "database": database, "error": error.to_string() });
            writeln!(output, "{object}")?;
        } else {
            writeln!(output, "{database:<width$}  {error}")?;
        }
    }
    if !json {
        for (partitions, found) in map.groups(|found| matches!(found, Found::Moves { .. })) {
            let Found::Moves { from, to } = *found else { continue };
            let (from, to) = (&map.names[from], &map.names[to]);
            writeln!(
                output,
                "partitions {partitions}: on their way from {from} to {to}; if nobody moves them, \
                 `fleet balance` goes on"
            )?;
        }
    }
    let faults = map.faults();
    faults.iter().for_each(|fault| say(fault));
    if silent.is_empty() && faults.is_empty() { Ok(()) } else { Err(Failure::Found) }
}

fn abandon(
    from: &Database,
    partitions: &Partitions,
    json: bool,
    output: &mut impl Write,
) -> Result<(), Failure> {
    let mut store = open(from).map_err(at(from))?;
    let mut is_done = true;
    for &partition in &partitions.0 {
        let stays = abandon_move(&mut store, partition).map_err(at(from))?;
        is_done &= stays;
        if json {
            writeln!(output, "{}", json!({ "partition": partition, "abandoned": stays }))?;
        } else {
            let text = match stays {
                true => "abandoned: it stays",
                false => "unknown: no move of it from there can be given up",
            };
            writeln!(output, "partition {partition}: {text}")?;
        }
    }
    if is_done { Ok(()) } else { Err(Failure::Found) }
}

/// Returns what is to be moved.
fn balance(members: &mut [Member], without: Option<&Database>) -> Result<Vec<Step>, Failure> {
    let without = without
        .map(|without| {
            let place = members.iter().position(|member| member.database == *without);
            let right = "`--without` must be one of the URLs, as it stands there";
            place.ok_or_else(|| Failure::Input(right.into()))
        })
        .transpose()?;
    if without.is_some() && members.len() < 2 {
        let right = "`--without` needs another database to move the partitions to";
        return Err(Failure::Input(right.into()));
    }
    let map = Map::look(members)?;
    let ways = map.found.iter().map(|found| match *found {
        Found::At(database) => Some((database, database)),
        Found::Moves { from, to } if to < members.len() => Some((from, to)),
        _ => None,
    });
    let ways: Vec<_> = ways.collect();
    if ways.iter().all(Option::is_some) {
        return Ok(plan(&Vec::from_iter(ways.into_iter().flatten()), members.len(), without));
    }
    let mut faults = map.faults();
    for (partitions, found) in map.groups(|found| matches!(found, Found::Moves { .. })) {
        if let Found::Moves { to, .. } = *found
            && members.len() <= to
        {
            let to = &map.names[to];
            let right = "expected its URL among the others";
            faults.push(format!("partitions {partitions}: on their way to {to}; {right}"));
        }
    }
    Err(Failure::Input(faults.join("; ")))
}

/// A partition that is to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    partition: u32,
    from: usize,
    to: usize,
}

impl Step {
    fn carry_out(
        &self,
        members: &mut [Member],
        progress: impl FnMut(u64),
    ) -> Result<MovedPartition, Failure> {
        let pair = members.get_disjoint_mut([self.from, self.to]);
        let [from, to] = pair.expect("a step is between two");
        let moved = move_partition(&mut from.store, &mut to.store, self.partition, progress);
        Ok(moved?)
    }

    fn words(&self, members: &[Member]) -> String {
        let [from, to] = [self.from, self.to].map(|place| &members[place].database);
        format!("partition {}: from {from} to {to}", self.partition)
    }

    fn json(&self, members: &[Member]) -> Value {
        let [from, to] = [self.from, self.to].map(|place| members[place].database.to_string());
        json!({ "partition": self.partition, "from": from, "to": to })
    }
}

/// Returns the fewest moves after which no database has two partitions more than another, and
/// `without` has none. `ways` are where each partition is and where it goes, which is the same if
/// nobody moves it; moves that were begun are ended first.
fn plan(ways: &[(usize, usize)], databases: usize, without: Option<usize>) -> Vec<Step> {
    let begun = (0..).zip(ways).map(|(partition, &(from, to))| Step { partition, from, to });
    let mut steps: Vec<Step> = begun.filter(|step| step.from != step.to).collect();
    let mut owned = vec![Vec::new(); databases];
    for (partition, &(_, database)) in (0..).zip(ways) {
        owned[database].push(partition);
    }
    let mut takers: Vec<usize> = (0..databases).filter(|taker| Some(*taker) != without).collect();
    // Those with the most keep one more.
    takers.sort_by_key(|&taker| Reverse(owned[taker].len()));
    let (each, more) = (ways.len() / takers.len(), ways.len() % takers.len());
    let mut shares = vec![0; databases];
    for (rank, &taker) in takers.iter().enumerate() {
        shares[taker] = each + usize::from(rank < more);
    }
    let mut surplus = Vec::new();
    for (from, (owned, share)) in owned.iter_mut().zip(&shares).enumerate() {
        surplus.extend(owned.drain(owned.len().min(*share)..).map(|partition| (partition, from)));
    }
    let mut surplus = surplus.into_iter();
    for (to, (owned, share)) in owned.iter().zip(&shares).enumerate() {
        let lacks = surplus.by_ref().take(share - owned.len());
        steps.extend(lacks.map(|(partition, from)| Step { partition, from, to }));
    }
    steps
}

/// Removes what is left of moves that were cut off after they took place.
fn clean(members: &mut [Member]) -> Result<(), Failure> {
    for from in 0..members.len() {
        for partition in 0..PARTITIONS {
            let Some(home) = members[from].homes.partitions.get(partition as usize) else {
                continue;
            };
            let (is_gone, other) = (home.state == HomeState::Gone, home.other);
            let has_it = |to: &Member| {
                let there = to.homes.partitions.get(partition as usize);
                Some(to.homes.id) == other && there.is_some_and(|there| there.state.is_here())
            };
            if is_gone && let Some(to) = members.iter().position(has_it) {
                Step { partition, from, to }.carry_out(members, |_| ())?;
            }
        }
    }
    Ok(())
}

/// Moves, and writes what was moved.
fn carry_out(
    members: &mut [Member],
    steps: &[Step],
    json: bool,
    output: &mut impl Write,
) -> Result<(), Failure> {
    let progress = progress_bar("{bar:40} {human_pos} of {human_len} partitions; {msg}");
    progress.set_length(steps.len() as u64);
    for step in steps {
        let moved = step.carry_out(members, |timeouts| {
            progress.set_message(format!("{timeouts} timeouts of partition {}", step.partition));
        });
        let moved = moved.inspect_err(|_| progress.finish_and_clear())?;
        progress.inc(1);
        let (timeouts, dead) = (moved.timeouts, moved.dead);
        if json {
            let mut object = step.json(members);
            (object["timeouts"], object["dead"]) = (json!(timeouts), json!(dead));
            writeln!(output, "{object}")?;
        } else {
            let step = step.words(members);
            writeln!(output, "{step}: {timeouts} timeouts, {dead} dead letters")?;
        }
    }
    progress.finish_and_clear();
    Ok(())
}

const PARTITIONS: u32 = 64;

/// So many timeouts of each partition are counted.
const MOST: u64 = 10_000;

/// How often it is looked again.
const LOOKS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_read_as_they_are_written_and_others_are_refused() {
        for (text, written) in [("33,0-15", "0-15, 33"), ("7, 5,6-6,5", "5-7"), ("0-63", "0-63")] {
            assert_eq!(text.parse::<Partitions>().unwrap().to_string(), written);
        }
        for text in ["", "64", "5-3", "0-", "-1", "1,,2", "a", "0-4294967296"] {
            assert!(text.parse::<Partitions>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_partition_is_found_whatever_else_is_known_of_it() {
        use Spot::{Coming, Gone, Here, Leaving};

        for (spots, found) in [
            (&[Gone(Some(1)), Here, Gone(None)][..], Found::At(1)),
            // Left behind by a move that was given up.
            (&[Here, Coming(0)], Found::At(0)),
            (&[Leaving(1), Gone(Some(0))], Found::Moves { from: 0, to: 1 }),
            (&[Leaving(1), Coming(0)], Found::Moves { from: 0, to: 1 }),
            (&[Leaving(7), Gone(Some(0))], Found::Moves { from: 0, to: 7 }),
            // After the switch.
            (&[Gone(Some(1)), Coming(0)], Found::Moves { from: 0, to: 1 }),
            (&[Gone(Some(2)), Coming(0), Gone(Some(0))], Found::Away(vec![])),
            (&[Gone(Some(1)), Gone(Some(7)), Coming(7)], Found::Away(vec![7])),
            (&[Gone(Some(1)), Gone(Some(0))], Found::Away(vec![])),
            (&[], Found::Away(vec![])),
            (&[Here, Gone(None), Leaving(0)], Found::Twice(vec![0, 2])),
        ] {
            assert_eq!(find(spots), found, "{spots:?}");
        }
    }

    /// Where each partition is after a plan, and how many moves of it were not begun before.
    fn after(
        ways: &[(usize, usize)],
        databases: usize,
        without: Option<usize>,
    ) -> (Vec<usize>, usize) {
        let steps = plan(ways, databases, without);
        assert_eq!(steps, plan(ways, databases, without));
        let mut at: Vec<usize> = ways.iter().map(|way| way.0).collect();
        for step in &steps {
            assert_eq!(at[step.partition as usize], step.from, "{steps:?}");
            at[step.partition as usize] = step.to;
        }
        let begun = ways.iter().filter(|(from, to)| from != to).count();
        let of = |n: usize| at.iter().filter(|database| **database == n).count();
        ((0..databases).map(of).collect(), steps.len() - begun)
    }

    #[test]
    fn a_plan_shares_all_with_the_fewest_moves() {
        let mut random = fastrand::Rng::with_seed(7);
        for databases in 1..=PARTITIONS as usize {
            for _ in 0..20 {
                // Some have much more than others.
                let mut any = || random.usize(0..databases).min(random.usize(0..databases));
                let way = |_| match any() {
                    from if from % 3 == 0 => (from, any()),
                    from => (from, from),
                };
                let ways: Vec<_> = (0..PARTITIONS).map(way).collect();
                let without = (1 < databases).then(any).filter(|without| without % 2 == 0);
                let (counts, moves) = after(&ways, databases, without);
                let takers = databases - usize::from(without.is_some());
                let (each, more) = (64 / takers, 64 % takers);
                let mut before: Vec<usize> =
                    (0..databases).map(|n| ways.iter().filter(|way| way.1 == n).count()).collect();
                for (n, count) in counts.iter().enumerate() {
                    let is_fair = match without == Some(n) {
                        true => *count == 0,
                        false => [each, each + usize::from(0 < more)].contains(count),
                    };
                    assert!(is_fair, "{counts:?}");
                }
                // Nobody can do with fewer: what is over a share has to go.
                let left = without.map_or(0, |without| before.remove(without));
                before.sort_unstable_by_key(|count| Reverse(*count));
                let over = before
                    .iter()
                    .enumerate()
                    .map(|(rank, count)| count.saturating_sub(each + usize::from(rank < more)));
                assert_eq!(moves, left + over.sum::<usize>());
            }
        }
    }

    #[test]
    fn a_move_that_was_begun_is_ended_before_its_partition_goes_on() {
        let mut ways = vec![(0, 0); 64];
        ways[5] = (0, 1);
        let steps = plan(&ways, 2, Some(1));
        let step = |from, to| Step { partition: 5, from, to };
        assert_eq!(steps, [step(0, 1), step(1, 0)]);
    }
}
