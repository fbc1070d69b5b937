//! The command `tickwheel-durable`: looks into the file or the database of a durable timer, changes
//! it, and moves it.

mod failure;
#[cfg(feature = "postgres")]
mod fleet;
mod place;
mod serve;
mod show;

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use tickwheel_durable::move_all;
use tickwheel_durable::store::{Change, Limit, Position, RateLimit};

use failure::Failure;
use place::{Opened, PAGE, Place, change_each, each_dead, each_page};
use serve::Manner;

/// Looks into the file or the database of a durable timer, cancels, retries and mends there, and
/// moves it.
#[derive(Parser)]
#[command(name = "tickwheel-durable", version, after_help = HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists what is pending, by deadline.
    Ls {
        /// The timer's file, or the URL of its database.
        #[arg(value_name = "FILE-OR-URL")]
        place: Place,

        /// List only what is past its deadline.
        #[arg(long)]
        overdue: bool,

        /// List only names that begin like this. All are read for it.
        #[arg(long, default_value = "")]
        prefix: String,

        /// List only what comes after this deadline, in milliseconds since 1970, and this name: the
        /// last of the page before.
        #[arg(long, value_name = "DEADLINE_MS:NAME")]
        after: Option<After>,

        /// List so many at most.
        #[arg(long, value_name = "COUNT")]
        limit: Option<u64>,

        /// Print one JSON object per timeout, one per line.
        #[arg(long)]
        json: bool,
    },

    /// Shows the timeout of a name.
    Get {
        /// The timer's file, or the URL of its database.
        #[arg(value_name = "FILE-OR-URL")]
        place: Place,

        /// The name.
        name: String,

        /// Print the payload and nothing else, as it is.
        #[arg(long, conflicts_with = "json")]
        payload: bool,

        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },

    /// Cancels timeouts by name or by prefix, and tells what came of each.
    Cancel {
        /// The timer's file, or the URL of its database.
        #[arg(value_name = "FILE-OR-URL")]
        place: Place,

        /// The names.
        #[arg(required_unless_present = "prefix", value_name = "NAME")]
        names: Vec<String>,

        /// Cancel all names that begin like this. All are read for it, and those that are scheduled
        /// meanwhile may be left.
        #[arg(long, conflicts_with = "names")]
        prefix: Option<Prefix>,

        /// Print one JSON object per name, one per line.
        #[arg(long)]
        json: bool,
    },

    /// Lists, shows, retries or drops dead letters: what was handed out as often as it may be.
    #[command(subcommand)]
    Dead(DeadCommand),

    /// Shows, moves and balances what several databases share: each has some of 64 partitions of
    /// names.
    #[cfg(feature = "postgres")]
    #[command(subcommand)]
    Fleet(fleet::FleetCommand),

    /// Moves all timeouts and dead letters from one file or database into another.
    ///
    /// Wherever it is cut off, nothing is lost, and another run goes on from there. Stop the
    /// workers of both before, and let nobody schedule until it is done. It makes the file or the
    /// tables to move to if there are none, and leaves those to move from with nothing in them.
    /// Epochs begin anew.
    Move {
        /// The file, or the URL of the database, that has them.
        #[arg(value_name = "FROM")]
        from: Place,

        /// The file, or the URL of the database, that gets them.
        #[arg(value_name = "TO")]
        to: Place,

        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },

    /// Lets all timers there hand out nothing, until `resume`.
    ///
    /// Workers hear of it within a quarter of their lease. Scheduling goes on, and consumers settle
    /// what they hold.
    Pause {
        /// The timer's file, or the URL of its database.
        #[arg(value_name = "FILE-OR-URL")]
        place: Place,
    },

    /// Lets timers hand out again what is due.
    Resume {
        /// The timer's file, or the URL of its database.
        #[arg(value_name = "FILE-OR-URL")]
        place: Place,
    },

    /// Limits how many timeouts the consumers of all timers together get.
    ///
    /// Workers hear of it within a quarter of their lease. One that begins takes nothing for a lease
    /// and the span: by then the others know of it.
    Limit {
        /// The timer's file, or the URL of its database.
        #[arg(value_name = "FILE-OR-URL")]
        place: Place,

        /// At most so many in any span of `--per`.
        #[arg(long, requires = "per", required_unless_present = "none")]
        timeouts: Option<std::num::NonZeroUsize>,

        /// The span, as `500ms`, `1s` or `1h`.
        #[arg(long, requires = "timeouts", value_parser = span)]
        per: Option<Duration>,

        /// There is no limit from now on.
        #[arg(long, conflicts_with = "timeouts")]
        none: bool,
    },

    /// Shows how much is pending and overdue.
    Stats {
        /// The timer's file, or the URL of its database.
        #[arg(value_name = "FILE-OR-URL")]
        place: Place,

        /// Count only names that begin like this. All are read for it.
        #[arg(long)]
        prefix: Option<Prefix>,

        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },

    /// Serves a page that shows it live: what is pending, workers, dead letters.
    ///
    /// A file is shown only while no timer has it open. Rates are of a database, by its own
    /// statistics. Of several databases the page shows each, and all together; one that does not
    /// answer holds up no other.
    Serve {
        /// The timer's file, the URL of its database, or the URLs of all databases of a fleet.
        #[arg(required = true, value_name = "FILE-OR-URL")]
        places: Vec<Place>,

        /// Listen there. Port 0 is any that is free.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7878")]
        listen: SocketAddr,

        /// Let the page retry and drop dead letters.
        #[arg(long)]
        changes: bool,

        /// Ask callers for the token in this file, of 16 or more letters, digits, - and _. Needed
        /// where other machines can reach the address; it goes there as it is, so put TLS before it.
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
    },

    /// Reads all of it and tells what is damaged.
    Check {
        /// The timer's file, or the URL of its database.
        #[arg(value_name = "FILE-OR-URL")]
        place: Place,

        /// Mend a file: set damaged timeouts aside, and write the index of names anew.
        #[arg(long)]
        repair: bool,

        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Subcommand)]
enum DeadCommand {
    /// Lists dead letters by name.
    Ls {
        /// The timer's file, or the URL of its database.
        #[arg(value_name = "FILE-OR-URL")]
        place: Place,

        /// List only names that begin like this.
        #[arg(long, default_value = "")]
        prefix: String,

        /// List only names that come after this one.
        #[arg(long, value_name = "NAME", default_value = "")]
        after: String,

        /// List so many at most.
        #[arg(long, value_name = "COUNT")]
        limit: Option<u64>,

        /// Print one JSON object per dead letter, one per line.
        #[arg(long)]
        json: bool,
    },

    /// Shows the dead letter of a name.
    Get {
        /// The timer's file, or the URL of its database.
        #[arg(value_name = "FILE-OR-URL")]
        place: Place,

        /// The name.
        name: String,

        /// Print the payload and nothing else, as it is.
        #[arg(long, conflicts_with = "json")]
        payload: bool,

        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },

    /// Makes timeouts of dead letters, due now and never handed out.
    Retry {
        /// The timer's file, or the URL of its database.
        #[arg(value_name = "FILE-OR-URL")]
        place: Place,

        /// The names.
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,

        /// Print one JSON object per name, one per line.
        #[arg(long)]
        json: bool,
    },

    /// Drops dead letters.
    Drop {
        /// The timer's file, or the URL of its database.
        #[arg(value_name = "FILE-OR-URL")]
        place: Place,

        /// The names.
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,

        /// Print one JSON object per name, one per line.
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    let mut output = io::BufWriter::new(io::stdout().lock());
    let done = run(Arguments::parse().command, &mut output);
    // What was found before a failure is printed too.
    let done = output.flush().map_err(Failure::Output).and(done);
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Found) => ExitCode::from(1),
        Err(Failure::Input(message)) => fail(&message, 2),
        // A reader that has had enough is no failure.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(Failure::Output(error)) => fail(&format!("standard output: {error}"), 1),
    }
}

fn fail(message: &str, code: u8) -> ExitCode {
    say(message);
    ExitCode::from(code)
}

fn say(message: &str) {
    // There is nobody left to tell if this fails.
    let _ = writeln!(io::stderr(), "tickwheel-durable: {message}");
}

/// Does it, and writes what it finds to `output`.
fn run(command: Command, output: &mut impl Write) -> Result<(), Failure> {
    match command {
        Command::Ls { place, overdue, prefix, after, limit, json } => {
            let which = Which { overdue, prefix, after, limit };
            list(&mut place.open()?, which, json, output)
        }
        Command::Get { place, name, payload, json } => {
            get(&mut place.open()?, &name, payload, json, output)
        }
        Command::Cancel { place, prefix: Some(Prefix(prefix)), json, .. } => {
            cancel_prefix(&mut place.open()?, &prefix, json, output)
        }
        Command::Cancel { place, names, json, .. } => {
            match cancel(&mut place.open()?, &names, json, output)? {
                true => Ok(()),
                false => Err(Failure::Found),
            }
        }
        Command::Dead(command) => match command {
            DeadCommand::Ls { place, prefix, after, limit, json } => {
                list_dead(&mut place.open()?, &prefix, &after, limit, json, output)
            }
            DeadCommand::Get { place, name, payload, json } => {
                get_dead(&mut place.open()?, &name, payload, json, output)
            }
            DeadCommand::Retry { place, names, json } => {
                let mut opened = place.open()?;
                let now = show::milliseconds(opened.now()?);
                let changes = names.iter().map(|name| Change::revive(name, now)).collect();
                change_dead(&mut opened, changes, json, output)
            }
            DeadCommand::Drop { place, names, json } => {
                let changes = names.iter().map(|name| Change::drop_dead(name)).collect();
                change_dead(&mut place.open()?, changes, json, output)
            }
        },
        #[cfg(feature = "postgres")]
        Command::Fleet(command) => fleet::run(command, output),
        Command::Move { from, to, json } => move_to(&from, &to, json, output),
        Command::Pause { place } => Ok(place.open()?.store().pause(true)?),
        Command::Resume { place } => Ok(place.open()?.store().pause(false)?),
        Command::Limit { place, timeouts, per, none: _ } => {
            let limit = timeouts.zip(per);
            let limit = limit.map(|(timeouts, per)| RateLimit { timeouts: timeouts.get(), per });
            Ok(place.open()?.store().limit_rate(limit)?)
        }
        Command::Stats { place, prefix: Some(Prefix(prefix)), json } => {
            stats_of(&mut place.open()?, &prefix, json, output)
        }
        Command::Stats { place, prefix: None, json } => stats(&mut place.open()?, json, output),
        Command::Serve { places, listen, changes, token_file } => {
            serve::serve(&places, &Manner { listen, changes, token_file }, output)
        }
        Command::Check { place, repair, json } => check(&mut place.open()?, repair, json, output),
    }
}

/// Reads a span of a millisecond or more.
fn span(text: &str) -> Result<Duration, String> {
    let span = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match Duration::from_millis(1) <= span {
        true => Ok(span),
        false => Err("expected 1ms or more".to_owned()),
    }
}

/// A prefix of names, which is not empty: all names begin like that.
#[derive(Clone)]
struct Prefix(String);

impl FromStr for Prefix {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() { Err("expected a character or more") } else { Ok(Self(text.into())) }
    }
}

/// A place in a list.
#[derive(Clone)]
struct After(Position);

impl FromStr for After {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "expected milliseconds, a colon and a name, as in 1800000000000:order-17";
        let (deadline, name) = text.split_once(':').ok_or(expected)?;
        let deadline = deadline.parse().map_err(|_| expected)?;
        Ok(Self(Position { deadline, name: name.into() }))
    }
}

/// What is listed.
struct Which {
    overdue: bool,
    prefix: String,
    after: Option<After>,
    limit: Option<u64>,
}

fn list(
    opened: &mut Opened,
    which: Which,
    json: bool,
    output: &mut impl Write,
) -> Result<(), Failure> {
    let now = opened.now()?;
    let until = if which.overdue { show::milliseconds(now) } else { u64::MAX };
    let mut left = which.limit.unwrap_or(u64::MAX);
    if !json {
        writeln!(output, "{}", show::HEADER)?;
    }
    let mut damaged = 0;
    let after = which.after.map_or_else(Position::start, |After(after)| after);
    each_page(opened.store(), after, until, |page| {
        damaged += page.damaged.len();
        for row in page.rows.iter().filter(|row| row.name.starts_with(&which.prefix)) {
            if left == 0 {
                return Ok(false);
            }
            left -= 1;
            let line = if json { show::row(row, now).to_string() } else { show::line(row, now) };
            writeln!(output, "{line}")?;
        }
        Ok(0 < left)
    })?;
    if 0 < damaged {
        return Err(Failure::Input(format!(
            "{damaged} timeouts are damaged and were set aside; `check` tells which"
        )));
    }
    Ok(())
}

fn get(
    opened: &mut Opened,
    name: &str,
    payload: bool,
    json: bool,
    output: &mut impl Write,
) -> Result<(), Failure> {
    let now = opened.now()?;
    let Some(row) = opened.store().get(name)? else {
        if json {
            writeln!(output, "null")?;
        } else if !payload {
            writeln!(output, "{name:?} is unknown: never scheduled, acked or cancelled")?;
        }
        return Err(Failure::Found);
    };
    if payload {
        output.write_all(&row.payload)?;
    } else if json {
        writeln!(output, "{}", show::row(&row, now))?;
    } else {
        writeln!(output, "{}", show::block(&row, now))?;
    }
    Ok(())
}

fn cancel_prefix(
    opened: &mut Opened,
    prefix: &str,
    json: bool,
    output: &mut impl Write,
) -> Result<(), Failure> {
    let (mut found, mut is_done) = (0, true);
    let mut next = Some(Position::start());
    while let Some(after) = next {
        let page = opened.store().list(&after, u64::MAX, PAGE)?;
        let names = page.rows.iter().map(|row| &row.name);
        let names: Vec<_> = names.filter(|name| name.starts_with(prefix)).collect();
        found += names.len();
        is_done &= cancel(opened, &names, json, output)?;
        next = page.end;
    }
    if found == 0 {
        say("no timeout has a name that begins like this");
    }
    if 0 < found && is_done { Ok(()) } else { Err(Failure::Found) }
}

/// Cancels, and returns whether all were there.
fn cancel(
    opened: &mut Opened,
    names: &[impl AsRef<str>],
    json: bool,
    output: &mut impl Write,
) -> Result<bool, Failure> {
    let changes: Vec<Change> = names.iter().map(|name| Change::cancel(name.as_ref())).collect();
    let mut left = &changes[..];
    let mut is_done = true;
    while !left.is_empty() {
        // The last of many may be missing: they are asked for again.
        let done = opened.store().commit(&[], left)?;
        // Read after the commit: until then a worker may have read what it removed. If it cannot
        // be read, any may have been.
        let due = opened.now().map_or(u64::MAX, |now| show::milliseconds(now + MARGIN));
        let (answered, rest) = left.split_at(done.changed.len());
        left = rest;
        for (Change { name, .. }, changed) in answered.iter().zip(done.changed) {
            let replaced = changed.map(|changed| changed.replaced);
            is_done &= matches!(replaced, Ok(Some(_)));
            let (answer, text) = match replaced {
                Ok(Some(old)) if opened.has_workers() && old.deadline <= due => {
                    ("firing", "was due: a consumer may have it, and it does not come again")
                }
                Ok(Some(_)) => ("cancelled", "cancelled: it will not come"),
                Ok(None) => ("unknown", "unknown: never scheduled, acked or cancelled before"),
                Err(error) => {
                    say(&error.to_string());
                    ("failed", "failed: it is as it was")
                }
            };
            if json {
                writeln!(output, "{}", json!({ "name": **name, "cancel": answer }))?;
            } else {
                writeln!(output, "{}: {text}", name.escape_debug())?;
            }
        }
    }
    Ok(is_done)
}

fn list_dead(
    opened: &mut Opened,
    prefix: &str,
    after: &str,
    limit: Option<u64>,
    json: bool,
    output: &mut impl Write,
) -> Result<(), Failure> {
    let mut left = limit.unwrap_or(u64::MAX);
    if !json {
        writeln!(output, "{}", show::DEAD_HEADER)?;
    }
    let mut damaged = 0;
    each_dead(opened.store(), prefix, after, PAGE, |page| {
        damaged += page.damaged.len();
        for dead in page.letters.iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
            left -= 1;
            let line = if json { show::dead(dead).to_string() } else { show::dead_line(dead) };
            writeln!(output, "{line}")?;
        }
        Ok(0 < left)
    })?;
    if 0 < damaged {
        return Err(Failure::Input(format!("{damaged} dead letters are damaged; see `check`")));
    }
    Ok(())
}

fn get_dead(
    opened: &mut Opened,
    name: &str,
    payload: bool,
    json: bool,
    output: &mut impl Write,
) -> Result<(), Failure> {
    let Some(dead) = opened.store().get_dead(name)? else {
        if json {
            writeln!(output, "null")?;
        } else if !payload {
            writeln!(output, "{name:?} is not dead")?;
        }
        return Err(Failure::Found);
    };
    if payload {
        output.write_all(&dead.payload)?;
    } else if json {
        writeln!(output, "{}", show::dead(&dead))?;
    } else {
        writeln!(output, "{}", show::dead_block(&dead))?;
    }
    Ok(())
}

/// Retries or drops.
fn change_dead(
    opened: &mut Opened,
    changes: Vec<Change>,
    json: bool,
    output: &mut impl Write,
) -> Result<(), Failure> {
    let mut is_done = true;
    change_each(opened.store(), &changes, |change, changed| {
        let (answer, text) = show::dead_changed(change, &changed);
        if let Err(error) = changed {
            say(&error.to_string());
        }
        is_done &= matches!(answer, "retried" | "dropped");
        let name = &*change.name;
        if json {
            writeln!(output, "{}", json!({ "name": name, "dead": answer }))?;
        } else {
            writeln!(output, "{}: {text}", name.escape_debug())?;
        }
        Ok(())
    })?;
    if is_done { Ok(()) } else { Err(Failure::Found) }
}

fn move_to(from: &Place, to: &Place, json: bool, output: &mut impl Write) -> Result<(), Failure> {
    if from == to {
        return Err(Failure::Input("both are the same: expected two places".into()));
    }
    let mut from = from.open()?.for_move()?;
    let mut to = to.make()?.for_move()?;
    let progress = progress_bar(TIMEOUTS);
    let moved = move_all(from.store(), to.store(), |done, all| {
        progress.set_length(all);
        progress.set_position(done);
    });
    progress.finish_and_clear();
    let moved = moved?;
    let mut facts = vec![
        ("timeouts", json!(moved.timeouts)),
        ("dead", json!(moved.dead)),
        ("stayed", json!(moved.stayed.len())),
        ("damaged", json!(moved.damaged.len())),
    ];
    for (name, place) in [("pending_from", &mut from), ("pending_to", &mut to)] {
        // All is moved, though it may take too long to count.
        facts.extend(place.store().count().ok().map(|count| (name, json!(count))));
    }
    print_facts(&facts, json, output)?;
    for name in &moved.stayed {
        say(&format!("{}: stayed: TO has something else of this name", name.escape_debug()));
    }
    for damaged in &moved.damaged {
        say(&format!("damaged: {}", show::damaged(damaged)));
    }
    if moved.stayed.is_empty() && moved.damaged.is_empty() { Ok(()) } else { Err(Failure::Found) }
}

fn stats(opened: &mut Opened, json: bool, output: &mut impl Write) -> Result<(), Failure> {
    let now = opened.now()?;
    let pending = opened.store().count()?;
    let mut overdue = 0;
    each_page(opened.store(), Position::start(), show::milliseconds(now), |page| {
        overdue += page.rows.len() as u64;
        Ok(true)
    })?;
    let mut dead = 0;
    each_dead(opened.store(), "", "", PAGE, |page| {
        dead += page.letters.len();
        Ok(true)
    })?;
    let one = Limit { rows: 1, bytes: usize::MAX };
    let first = opened.store().list(&Position::start(), u64::MAX, one)?;
    let earliest = first.rows.first().map(|row| show::time(row.deadline));
    let limit = opened.store().rate_limit()?.map(show::limit);
    let mut facts = vec![
        ("pending", json!(pending)),
        ("overdue", json!(overdue)),
        ("dead", json!(dead)),
        ("earliest", json!(earliest)),
        ("paused", json!(opened.store().is_paused()?)),
        ("limit", json!(limit)),
    ];
    facts.extend(opened.facts()?);
    print_facts(&facts, json, output)
}

fn stats_of(
    opened: &mut Opened,
    prefix: &str,
    json: bool,
    output: &mut impl Write,
) -> Result<(), Failure> {
    let now = show::milliseconds(opened.now()?);
    let (mut pending, mut overdue, mut dead, mut earliest) = (0_u64, 0_u64, 0, None);
    each_page(opened.store(), Position::start(), u64::MAX, |page| {
        for row in page.rows.iter().filter(|row| row.name.starts_with(prefix)) {
            pending += 1;
            overdue += u64::from(row.deadline <= now);
            earliest.get_or_insert_with(|| show::time(row.deadline));
        }
        Ok(true)
    })?;
    each_dead(opened.store(), prefix, "", PAGE, |page| {
        dead += page.letters.len();
        Ok(true)
    })?;
    let facts = [
        ("pending", json!(pending)),
        ("overdue", json!(overdue)),
        ("dead", json!(dead)),
        ("earliest", json!(earliest)),
    ];
    print_facts(&facts, json, output)
}

fn print_facts(
    facts: &[(&'static str, serde_json::Value)],
    json: bool,
    output: &mut impl Write,
) -> Result<(), Failure> {
    if json {
        let object: serde_json::Map<String, serde_json::Value> =
            facts.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        writeln!(output, "{}", serde_json::Value::from(object))?;
        return Ok(());
    }
    for (name, value) in facts {
        let value = match value {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Null => "none".to_owned(),
            value => value.to_string(),
        };
        writeln!(output, "{:<16} {value}", name.replace('_', " "))?;
    }
    Ok(())
}

fn check(
    opened: &mut Opened,
    repair: bool,
    json: bool,
    output: &mut impl Write,
) -> Result<(), Failure> {
    let progress = progress_bar(TIMEOUTS);
    let checked = opened.check(repair, |done, all| {
        progress.set_length(all);
        progress.set_position(done);
    });
    progress.finish_and_clear();
    let checked = checked?;
    print_facts(&checked.facts, json, output)?;
    if !json {
        for line in &checked.damaged {
            writeln!(output, "damaged: {line}")?;
        }
        writeln!(output, "{}", checked.verdict)?;
    }
    match checked.unread {
        Some(message) => Err(Failure::Input(message)),
        None if checked.is_whole => Ok(()),
        None => Err(Failure::Found),
    }
}

/// A bar on a terminal, and nothing elsewhere.
fn progress_bar(template: &str) -> ProgressBar {
    let progress = ProgressBar::hidden();
    if io::stderr().is_terminal() {
        progress.set_style(ProgressStyle::with_template(template).expect("the template is sound"));
        progress.set_draw_target(ProgressDrawTarget::stderr());
    }
    progress
}

const TIMEOUTS: &str = "{bar:40} {human_pos} of {human_len} timeouts ({eta})";

/// How near to its deadline a timeout may be on its way to a consumer, if workers run.
const MARGIN: Duration = Duration::from_secs(1);

const HELP: &str = "\
Examples:
  tickwheel-durable stats timeouts.redb
  tickwheel-durable ls postgresql://user@host/database --overdue --json
  tickwheel-durable get timeouts.redb order-17/payment
  tickwheel-durable cancel timeouts.redb order-17/payment
  tickwheel-durable dead ls timeouts.redb
  tickwheel-durable dead retry timeouts.redb order-17/payment
  tickwheel-durable check timeouts.redb --repair
  tickwheel-durable move timeouts.redb postgresql://user@host/database
  tickwheel-durable fleet balance postgresql://user@one/database postgresql://user@two/database

A file belongs to one process: stop the program that has it first. A database can be looked into
while its workers run; the command takes no share of their work. Only `move` and `fleet join` make
one.

Exit code: 0 when done, 1 if a name is unknown or cannot be cancelled, if the check or `fleet status`
found something, if something was not moved, or if a result cannot be written, 2 for arguments that
are wrong, or a file or a database that cannot be read.";
