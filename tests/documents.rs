//! The documents say what is there: tests, files, links and figures.

#[path = "documents/figures.rs"]
mod figures;

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

#[test]
fn every_test_that_is_named_exists() {
    let files = ["tests", "src", "crates/durable"].map(|folder| files(folder, "rs")).concat();
    let known: BTreeSet<String> = files.iter().flat_map(|path| functions(path)).collect();
    let modules: BTreeSet<&str> = known.iter().filter_map(|name| name.split("::").next()).collect();
    let exists = |name: &str| match name.strip_prefix("...") {
        Some(end) => known.iter().any(|known| known.ends_with(end)),
        None if name.contains("::") => known.contains(name),
        None => known.iter().any(|known| known.ends_with(&format!("::{name}"))),
    };

    let mut missing = Vec::new();
    let mut found = 0;
    let tables = files.iter().map(|path| {
        let is_table = |line: &&str| line.starts_with("//! |");
        text(path).lines().filter(is_table).map(|line| format!("{line}\n")).collect::<String>()
    });
    for text in ["docs/promises.md", "crates/durable/design.md"].map(text).into_iter().chain(tables)
    {
        let is_named = |name: &&str| match name.strip_prefix("...") {
            Some(end) => is_test_name(end),
            None => {
                // What is long enough to be a sentence is ours.
                let module = name.split_once("::").map(|(module, _)| module);
                let is_ours = module.is_some_and(|module| modules.contains(module));
                is_test_name(name) && (is_ours || 4 <= name.matches('_').count())
            }
        };
        for line in text.lines() {
            // The first column is of other projects' tests, if it is not a sentence.
            let columns = line.rsplit_once(" | ").map_or(line, |(_, last)| last);
            for name in quoted(columns).filter(is_named) {
                found += 1;
                if !exists(name) {
                    missing.push(name.to_string());
                }
            }
        }
    }
    assert!(missing.is_empty(), "named and not there: {missing:#?}");
    assert!(200 < found, "only {found} names were found");
}

#[test]
fn contributing_names_every_room_and_no_other() {
    let contributing = text("CONTRIBUTING.md");
    let rows = contributing.lines().filter(|line| line.starts_with("| `"));
    let named: BTreeSet<String> = rows
        .filter_map(|row| row[3..].split_once('`'))
        .filter(|(folder, _)| folder.ends_with('/'))
        .flat_map(|(folder, row)| {
            let folder = if folder == "src/" { "" } else { folder };
            let rooms = quoted(row).filter(|room| room.ends_with(".rs"));
            rooms.map(|room| format!("{folder}{room}")).collect::<Vec<_>>()
        })
        .collect();
    let rooms: BTreeSet<String> = files("src", "rs")
        .iter()
        .map(|path| path.strip_prefix(root().join("src")).expect("below src").display().to_string())
        .collect();
    let unnamed: Vec<_> = rooms.difference(&named).collect();
    let gone: Vec<_> = named.difference(&rooms).collect();
    assert!(unnamed.is_empty() && gone.is_empty(), "unnamed {unnamed:?}, gone {gone:?}");
}

#[test]
fn every_file_that_a_document_names_exists() {
    let folders = ["src", "tests", "benches", "examples", "docs", "crates"];
    let all = folders.map(|folder| files(folder, "rs")).concat();
    let mut missing = Vec::new();
    for document in documents() {
        for line in text(&document).lines() {
            let is_rust = |path: &&str| path.ends_with(".rs") && !path.contains([' ', '*']);
            let is_missing = |path: &&str| !all.iter().any(|file| file.ends_with(path));
            let paths = quoted(line).filter(is_rust).filter(is_missing);
            missing.extend(paths.map(|path| format!("{}: {path}", document.display())));
        }
    }
    assert!(missing.is_empty(), "named and not there: {missing:#?}");
}

#[test]
fn the_constants_of_a_file_stand_at_its_end() {
    // Without `pub`, `pub(crate)` and their like.
    fn bare(line: &str) -> &str {
        let public = line.strip_prefix("pub").and_then(|line| line.split_once(' '));
        public.map_or(line, |(_, line)| line)
    }
    let is_constant = |line: &&str| bare(line).starts_with("const ") && !line.contains("const fn");
    let is_item = |line: &&str| {
        let items =
            ["async fn ", "const fn ", "enum ", "fn ", "impl", "struct ", "trait ", "type "];
        items.iter().any(|item| bare(line).starts_with(item))
    };
    let folders = ["src", "tests", "benches", "examples", "docs", "crates"];
    let mut early = Vec::new();
    for path in folders.into_iter().flat_map(|folder| files(folder, "rs")) {
        let text = text(&path);
        let text = text.split("\nmod tests {").next().expect("a first part");
        let lines: Vec<&str> = text.lines().collect();
        let Some(first) = lines.iter().position(is_constant) else { continue };
        let last = lines.iter().rposition(is_item).unwrap_or_default();
        if first < last {
            early.push(path.display().to_string());
        }
    }
    assert!(early.is_empty(), "constants before other items: {early:#?}");
}

#[test]
fn every_link_leads_to_a_file_and_to_a_heading() {
    let mut broken = Vec::new();
    for document in documents() {
        let links = text(&document);
        let links = links.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://")) {
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => document.clone(),
                path => document.parent().expect("a folder").join(path),
            };
            let has_heading = |heading: &str| {
                let text = text(&target);
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                headings.any(|line| anchor(line.trim_start_matches('#')) == heading)
            };
            if !target.exists() || !heading.is_empty() && !has_heading(heading) {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// "bytes a timeout" reads as a slip, above all in a table.
#[test]
fn a_rate_is_per_something() {
    let folders = ["src", "benches", "crates"];
    let sources = folders.into_iter().flat_map(|folder| files(folder, "rs"));
    let mut slips = Vec::new();
    for path in documents().into_iter().chain(sources) {
        let text = text(&path);
        let words: Vec<&str> = text.split_whitespace().collect();
        for rate in words.windows(3) {
            let what = rate[2].trim_end_matches(|c: char| !c.is_alphanumeric());
            if UNITS.contains(&rate[0]) && ["a", "an"].contains(&rate[1]) && COUNTED.contains(&what)
            {
                slips.push(format!("{}: {}", path.display(), rate.join(" ")));
            }
        }
    }
    assert!(slips.is_empty(), "{slips:#?}");
}

/// The documents of all packages.
fn documents() -> Vec<PathBuf> {
    let below = |folder| files(folder, "md").into_iter();
    let top = root().read_dir().expect("a folder").map(|entry| entry.expect("an entry").path());
    top.filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .chain(["docs", "crates", "data"].into_iter().flat_map(below))
        .filter(|path| !path.components().any(|part| part.as_os_str() == "node_modules"))
        .collect()
}

/// The files below a folder of the workspace with such an extension.
fn files(folder: impl AsRef<Path>, extension: &str) -> Vec<PathBuf> {
    let folder = root().join(folder);
    let entries = folder.read_dir().expect("a folder").map(|entry| entry.expect("an entry").path());
    entries
        .flat_map(|path| if path.is_dir() { files(&path, extension) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|its| its == extension))
        .collect()
}

/// The functions of a file, each as `module::function`.
fn functions(path: &Path) -> Vec<String> {
    let module = path.file_stem().expect("a name").to_string_lossy();
    let name = |line: &str| {
        // A situation as text.
        let situation = line.trim().split_once(':').filter(|(name, text)| {
            is_test_name(name) && (text.is_empty() || text.starts_with(" \""))
        });
        if let Some((name, _)) = situation {
            return Some(format!("{module}::{name}"));
        }
        let (before, after) = line.split_once("fn ")?;
        let is_first = before.trim().is_empty() || before.trim_start().starts_with("pub");
        let name = after.split(['(', '<']).next()?;
        is_first.then(|| format!("{module}::{name}"))
    };
    text(path).lines().filter_map(name).collect()
}

fn text(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What stands between backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether it can be the name of a test of ours, alone or behind its module.
fn is_test_name(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let mut parts = name.split("::");
    parts.clone().count() <= 2 && parts.all(|part| !part.is_empty() && part.bytes().all(is_word))
}

/// The anchor of a heading, as the hosts of repositories make it.
fn anchor(heading: &str) -> String {
    let heading = heading.trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

const UNITS: [&str; 9] =
    ["ns", "us", "ms", "nanoseconds", "bytes", "buckets", "instructions", "ticks", "wake-ups"];

const COUNTED: [&str; 12] = [
    "bucket",
    "call",
    "connection",
    "entry",
    "level",
    "name",
    "object",
    "operation",
    "request",
    "timeout",
    "value",
    "wake-up",
];
