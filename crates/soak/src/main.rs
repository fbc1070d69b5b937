//! Library, systems and durable timers together, for as long as asked, in trouble all the time.
//!
//! ```sh
//! cargo run --release -p soak -- --minutes 120
//! ```
//!
//! Each part is a process. Meanwhile processes and single threads are stopped, durable parts are
//! killed, memory gets short, clocks are set, the database hangs. At the end each part lets all that
//! it began come to its end. It fails if an account does not balance, if something was early, or if
//! a part's memory, threads or files grew from the second third of the time to the last.

mod account;
mod child;
mod parts;
#[allow(dead_code)]
#[path = "../../durable/tests/server/mod.rs"]
mod server;
mod trouble;
#[path = "../../../tests/zoo/mod.rs"]
mod zoo;

use child::{Child, Place, Usage};
use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parts::Part;
use server::Server;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use trouble::{Group, Trouble, a_while, keep_busy, stop_thread};

/// Soaks library, systems and durable timers.
#[derive(Debug, Parser)]
struct Arguments {
    /// For how long
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,
    /// About so many seconds from one trouble to the next
    #[arg(long, default_value_t = 10.0)]
    every: f64,
    /// Writes a line of each part each ten seconds: seconds, part, kilobytes, threads, files,
    /// pending, done
    #[arg(long)]
    csv: Option<std::path::PathBuf>,
    #[command(subcommand)]
    part: Option<Part>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    if let Some(part) = arguments.part {
        part.run()?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut soak = Soak::start()?;
    soak.run(&arguments)?;
    Ok(soak.end())
}

struct Soak {
    parts: Vec<Running>,
    file: Arc<Place>,
    shared: Arc<Place>,
    lives: u64,
    troubles: BTreeMap<Trouble, u64>,
    faults: Vec<String>,
    group: Option<Group>,
    /// And the URL of its database.
    server: Option<(Server, String)>,
    /// After the server, which it does not outlive.
    folder: TempDir,
}

struct Running {
    name: &'static str,
    /// What starts it, without its life.
    words: Vec<String>,
    place: Option<Arc<Place>>,
    child: Child,
    /// Of each ten seconds.
    usages: Vec<Usage>,
    /// Of those that were killed.
    done: u64,
}

impl Soak {
    fn start() -> Result<Self, Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        let server = Server::start().map(|server| {
            let url = server.tables();
            (server, url)
        });
        let group = Group::new();
        if group.is_none() {
            eprintln!("skipped: memory cannot be limited (cgroups, as root)");
        }
        let mut soak = Self {
            parts: Vec::new(),
            file: Place::new(false),
            shared: Place::new(true),
            lives: 0,
            troubles: BTreeMap::new(),
            faults: Vec::new(),
            group,
            server,
            folder,
        };
        soak.add("library", &["library"], None)?;
        soak.add("systems", &["systems"], None)?;
        let file = soak.folder.path().join("timeouts.redb").display().to_string();
        soak.add("file", &["durable", &file], Some(Arc::clone(&soak.file)))?;
        if let Some((_, url)) = &soak.server {
            let url = url.clone();
            for name in ["worker 1", "worker 2"] {
                soak.add(name, &["durable", &url], Some(Arc::clone(&soak.shared)))?;
            }
        }
        Ok(soak)
    }

    fn add(
        &mut self,
        name: &'static str,
        words: &[&str],
        place: Option<Arc<Place>>,
    ) -> Result<(), Box<dyn Error>> {
        let words: Vec<_> = words.iter().map(|&word| word.to_owned()).collect();
        let child = self.child(&words, place.as_ref())?;
        self.parts.push(Running { name, words, place, child, usages: Vec::new(), done: 0 });
        Ok(())
    }

    fn child(
        &mut self,
        words: &[String],
        place: Option<&Arc<Place>>,
    ) -> Result<Child, Box<dyn Error>> {
        self.lives += 1;
        let life = self.lives.to_string();
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        words.extend(place.map(|_| &*life));
        let child = Child::start(&words, place.cloned())?;
        if let Some(group) = &self.group {
            group.add(child.pid());
        }
        Ok(child)
    }

    fn run(&mut self, arguments: &Arguments) -> Result<(), Box<dyn Error>> {
        let (begun, minutes) = (Instant::now(), Duration::from_secs_f64(60.0 * arguments.minutes));
        let mut lines = String::from("seconds,part,kilobytes,threads,files,pending,done\n");
        // Draws nothing in a pipe.
        let bar = ProgressBar::new(minutes.as_secs());
        bar.set_style(ProgressStyle::with_template("{elapsed_precise} {wide_bar} {msg}")?);
        let mut looks = 1;
        while begun.elapsed() < minutes && self.faults.is_empty() {
            let until = begun + LOOK * looks;
            looks += 1;
            while Instant::now() < until {
                let pause = Duration::from_secs_f64(arguments.every * 2.0 * fastrand::f64());
                thread::sleep(pause.min(until.saturating_duration_since(Instant::now())));
                if Instant::now() < until {
                    let trouble = Trouble::ALL[fastrand::usize(..Trouble::ALL.len())];
                    bar.set_message(format!("{trouble:?}"));
                    self.make(trouble)?;
                }
                bar.set_position(begun.elapsed().as_secs());
            }
            for part in &mut self.parts {
                let (usage, figures) = (part.child.usage(), part.child.figures());
                part.usages.push(usage);
                lines += &format!(
                    "{},{},{},{},{},{},{}\n",
                    begun.elapsed().as_secs(),
                    part.name,
                    usage.kilobytes,
                    usage.threads,
                    usage.files,
                    figures.pending,
                    part.done + figures.done
                );
                if let Some(end) = part.child.ended() {
                    self.faults.push(format!("{} ended: {end}", part.name));
                }
            }
            if let Some(file) = &arguments.csv {
                fs::write(file, &lines)?;
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn make(&mut self, trouble: Trouble) -> Result<(), Box<dyn Error>> {
        let any = fastrand::usize(..self.parts.len());
        let durable: Vec<usize> =
            (0..self.parts.len()).filter(|&part| self.parts[part].place.is_some()).collect();
        match trouble {
            Trouble::Stop => {
                let part = &self.parts[any];
                part.note_stop();
                part.child.signal(Signal::SIGSTOP);
                thread::sleep(a_while());
                part.child.signal(Signal::SIGCONT);
                part.note_stop();
            }
            Trouble::StopThread => {
                let part = &self.parts[any];
                part.note_stop();
                let threads = part.child.threads();
                if let Some(&thread) = threads.get(fastrand::usize(..threads.len().max(1))) {
                    stop_thread(thread);
                }
                part.note_stop();
            }
            Trouble::Memory => match &self.group {
                Some(group) => group.press(),
                None => return Ok(()),
            },
            Trouble::Busy => keep_busy(),
            Trouble::Burst => self.parts[0].child.tell(&format!("burst {BURST}")),
            Trouble::Kill => {
                let at = durable[fastrand::usize(..durable.len())];
                self.parts[at].note_stop();
                self.parts[at].child.kill();
                let (words, place) = (self.parts[at].words.clone(), self.parts[at].place.clone());
                self.parts[at].done += self.parts[at].child.figures().done;
                self.parts[at].child = self.child(&words, place.as_ref())?;
            }
            Trouble::Clock => {
                let millis = fastrand::i64(-30_000..30_000);
                self.parts[durable[0]].child.tell(&format!("clock {millis}"));
            }
            Trouble::StopDatabase | Trouble::Disconnect => {
                let Some((server, url)) = &self.server else { return Ok(()) };
                self.parts.iter().for_each(Running::note_stop);
                match trouble {
                    Trouble::Disconnect => disconnect(url),
                    _ => stand_still(server),
                }
                self.parts.iter().for_each(Running::note_stop);
            }
        }
        *self.troubles.entry(trouble).or_default() += 1;
        Ok(())
    }

    /// Lets all come to its end, prints what was, and returns whether all held.
    fn end(mut self) -> ExitCode {
        // Durable parts end together, because each waits for what is near in its place.
        self.parts.iter_mut().for_each(|part| part.child.tell("end"));
        for part in &mut self.parts {
            if let Err(fault) = part.child.end() {
                self.faults.push(format!("{} {fault}", part.name));
            }
            part.done += part.child.figures().done;
            self.faults.extend(part.growth());
        }
        let mut table = Table::new();
        let heads = ["", "done", "late, us", "99 %", "most", "KB", "", "threads", "", "files", ""];
        table.load_preset(presets::ASCII_MARKDOWN).set_header(heads);
        table
            .column_iter_mut()
            .skip(1)
            .for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        for part in &self.parts {
            let mut cells = vec![part.name.to_owned(), part.done.to_string()];
            cells.extend(part.child.figures().late.map(|late| late.to_string()));
            for [before, after] in part.thirds() {
                cells.extend([before, after].map(|figure| figure.to_string()));
            }
            table.add_row(cells);
        }
        println!("{table}");
        println!("KB, threads, files: medians of the second third of the time, and of the last");
        for (name, place) in [("file", &self.file), ("PostgreSQL", &self.shared)] {
            let mut account = place.account.lock().expect("no thread panics with it");
            account.balance();
            println!(
                "{name}: {} scheduled, {} fired, {} of them again, {} cancelled, {} errors",
                account.scheduled, account.fired, account.twice, account.cancelled, account.errors
            );
            let broken = account.broken.iter().map(|broken| format!("{name}: {broken}"));
            self.faults.extend(broken);
        }
        let troubles = self.troubles.iter().map(|(trouble, times)| format!("{times} {trouble:?}"));
        println!("troubles: {}", troubles.collect::<Vec<_>>().join(", "));
        self.faults.iter().for_each(|fault| eprintln!("FAULT: {fault}"));
        if self.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

impl Running {
    /// Notes that it is, or was, stopped.
    fn note_stop(&self) {
        if let Some(place) = &self.place {
            *place.stopped.lock().expect("no thread panics with it") = Some(Instant::now());
        }
    }

    /// The medians of kilobytes, threads and files, in the second third of the time and in the last.
    fn thirds(&self) -> [[u64; 2]; 3] {
        let third = self.usages.len() / 3;
        let median = |from: usize, figure: fn(&Usage) -> u64| {
            let mut figures: Vec<_> = self.usages[from..].iter().take(third).map(figure).collect();
            figures.sort_unstable();
            figures.get(figures.len() / 2).copied().unwrap_or(0)
        };
        let figures: [fn(&Usage) -> u64; 3] =
            [|usage| usage.kilobytes, |usage| usage.threads, |usage| usage.files];
        figures.map(|figure| [median(third, figure), median(self.usages.len() - third, figure)])
    }

    /// What grew, if it has run for so long that this says something.
    fn growth(&self) -> Vec<String> {
        if self.usages.len() < FEWEST_LOOKS {
            return Vec::new();
        }
        let names = ["kilobytes", "threads", "files"];
        let allowed = [MEGABYTES << 10, 2, 8];
        let mut grew = Vec::new();
        for ((name, more), [before, after]) in names.into_iter().zip(allowed).zip(self.thirds()) {
            if before + before / 10 + more < after {
                grew.push(format!("{}: {before} {name} became {after}", self.name));
            }
        }
        grew
    }
}

/// Stops all processes of the database for a while.
fn stand_still(server: &Server) {
    let first = fs::read_to_string(server.data().join("postmaster.pid")).unwrap_or_default();
    let Some(first) = first.lines().next().and_then(|line| line.parse::<i32>().ok()) else {
        return;
    };
    let children = fs::read_to_string(format!("/proc/{first}/task/{first}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    let pids: Vec<_> = [first].into_iter().chain(children).map(Pid::from_raw).collect();
    // One of them may have ended.
    let signal = |signal| pids.iter().for_each(|&pid| _ = kill(pid, signal));
    signal(Signal::SIGSTOP);
    thread::sleep(a_while());
    signal(Signal::SIGCONT);
}

/// Closes all connections of workers.
fn disconnect(url: &str) {
    let close = "select pg_terminate_backend(pid) from pg_stat_activity
                 where pid <> pg_backend_pid() and backend_type = 'client backend'";
    server::client(url).batch_execute(close).expect("nobody closes this one");
}

const LOOK: Duration = Duration::from_secs(10);
const BURST: u64 = 100_000;
/// Less than ten minutes say nothing about growth.
const FEWEST_LOOKS: usize = 60;
/// May come and go, beside a tenth.
const MEGABYTES: u64 = 4;
