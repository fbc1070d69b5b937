//! Every test that a table or design.md names exists.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// The files of Rust below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().expect("a folder").map(|entry| entry.expect("an entry").path());
    entries
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// The functions of a file, each as `module::function`.
fn functions(path: &Path) -> Vec<String> {
    let module = path.file_stem().expect("a name").to_string_lossy();
    let text = read_to_string(path).expect("text");
    let name = |line: &str| {
        let (before, after) = line.split_once("fn ")?;
        let is_first = before.trim().is_empty() || before.trim_start().starts_with("pub");
        let name = after.split(['(', '<']).next()?;
        is_first.then(|| format!("{module}::{name}"))
    };
    text.lines().filter_map(name).collect()
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

#[test]
fn every_test_that_is_named_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = [sources(&root.join("tests")), sources(&root.join("src"))].concat();
    let known: BTreeSet<String> = files.iter().flat_map(|path| functions(path)).collect();
    let modules: BTreeSet<&str> = known.iter().filter_map(|name| name.split("::").next()).collect();
    let exists = |name: &str| match name.strip_prefix("...") {
        Some(end) => known.iter().any(|known| known.ends_with(end)),
        None if name.contains("::") => known.contains(name),
        None => known.iter().any(|known| known.ends_with(&format!("::{name}"))),
    };

    let mut missing = Vec::new();
    let mut found = 0;
    let design = read_to_string(root.join("design.md")).expect("design.md");
    let tables = files.iter().filter(|path| path.ends_with("main.rs")).map(|path| {
        let text = read_to_string(path).expect("text");
        let is_table = |line: &&str| line.starts_with("//! |");
        text.lines().filter(is_table).map(|line| format!("{line}\n")).collect::<String>()
    });
    for text in [design].into_iter().chain(tables) {
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
