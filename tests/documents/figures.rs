//! Every figure in a document has a source, and agrees with it.
//!
//! A figure is a number in digits in the prose of a document or of the public docs: not in code, in
//! a link or in the number of a list. A number below ten counts only with a unit. A share in words
//! ("a third of") and a ratio in words ("three times as") count too. What a program writes is left
//! out: `docs/figures.md`, `docs/benchmarks.md` and `docs/classical.md`. So is the worked example
//! of design.md, because the code in it is run as a test.
//!
//! `figures.txt` has a line for each: where it is, the figure, and its source.
//!
//! - `= FILE NAME`: the constant NAME in a file whose path ends with FILE.
//! - `= FILE: CODE`: this code is in the file, and the number at its end is the figure. Behind NAME
//!   and CODE may stand ` in ms`, if the number is one of milliseconds, ` less 1`, if a ratio is
//!   told as what it is more than one, and ` from 1`, if it is told as what is left of one.
//! - `in FILE`: the same number is in a file that a program writes or that cargo reads.
//! - `by TEST`: the test of this name fails if it is wrong.
//! - `run COMMAND`: this command shows it, and shows another one on another machine.
//! - `given`: no claim about the program. It is a size or a delay that somebody may have, a result
//!   of arithmetic, or the name of a thing.

use super::{documents, files, functions, root, text};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

#[test]
fn every_figure_has_a_source_and_agrees_with_it() {
    let lists = text(LIST);
    let sources: BTreeMap<(&str, &str), &str> = lists
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let mut parts = line.splitn(3, " | ").map(str::trim);
            let mut part = || parts.next().unwrap_or_else(|| panic!("three parts: {line}"));
            ((part(), part()), part())
        })
        .collect();
    let found: BTreeSet<(String, String)> = places()
        .into_iter()
        .flat_map(|(place, path)| {
            figures(&prose(&path)).into_iter().map(move |figure| (place.clone(), figure))
        })
        .collect();

    let mut wrong = Vec::new();
    for (place, figure) in &found {
        match sources.get(&(place.as_str(), figure.as_str())) {
            None => wrong.push(format!("{place} | {figure} | has no source")),
            Some(source) => {
                if let Err(why) = agrees(figure, source) {
                    wrong.push(format!("{place} | {figure} | {why}"));
                }
            }
        }
    }
    for (place, figure) in sources.keys() {
        if !found.contains(&(place.to_string(), figure.to_string())) {
            wrong.push(format!("{place} | {figure} | is in {LIST} and not in the document"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_figure_is_found() {
    let found = figures(&without_code(
        "It takes 1.3 times as long, and two thirds of `7` (see [it](5)).\n1. It is\n".lines(),
    ));
    assert_eq!(found, ["1.3", "two thirds"]);
    assert_eq!(agrees("128 timeouts", "= ready.rs FEW_SORTED"), Ok(()));
    assert!(agrees("129 timeouts", "= ready.rs FEW_SORTED").is_err());
    assert_eq!(agrees("1 h", "= builder.rs LONGEST_TICK"), Ok(()));
    assert!(agrees("1 s", "= builder.rs LONGEST_TICK").is_err());
    assert!(agrees("128 timeouts", "= ready.rs GONE").is_err());
    assert_eq!(agrees("87", "in docs/figures.md"), Ok(()));
    assert!(agrees("88", "in docs/figures.md").is_err());
    assert!(agrees("3", "by no_such_test").is_err());
}

/// Each file with figures, and how `figures.txt` names it: the sources of a package are one place.
fn places() -> Vec<(String, PathBuf)> {
    let is_written = |path: &PathBuf| WRITTEN.iter().any(|name| path.ends_with(name));
    let documents = documents().into_iter().filter(|path| !is_written(path)).map(|path| {
        (path.strip_prefix(root()).expect("below the root").display().to_string(), path)
    });
    let sources = [
        "src",
        "crates/cli/src",
        "crates/durable/src",
        "crates/systems/src",
        "crates/tokio/src",
        "crates/watch/src",
    ];
    let sources = sources.into_iter().flat_map(|folder| {
        files(folder, "rs").into_iter().map(move |path| (folder.to_string(), path))
    });
    documents.chain(sources).collect()
}

/// The text of a document, or of the public and private docs of a source file, without code.
fn prose(path: &Path) -> String {
    let text = text(path);
    if path.extension().is_some_and(|extension| extension == "md") {
        let is_example = |section: &&str| section.starts_with("A worked example");
        let sections = text.split("\n## ").filter(|section| !is_example(section));
        return without_code(sections.flat_map(str::lines));
    }
    without_code(text.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("//!").or_else(|| line.strip_prefix("///"))
    }))
}

fn without_code<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut is_code = false;
    let mut prose = String::new();
    for line in lines {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code && !line.starts_with("    ") {
            let is_number = |c: char| c.is_ascii_digit();
            let line = line.trim_start().trim_start_matches("| ");
            let item = line.trim_start_matches(is_number).strip_prefix(". ");
            prose += item.unwrap_or(line);
            prose += "\n";
        }
    }
    prose
}

/// The figures in a text: not those in backticks or in the target of a link.
fn figures(prose: &str) -> Vec<String> {
    let prose: String = prose.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let prose: String = prose
        .split("](")
        .enumerate()
        .map(
            |(at, part)| {
                if at == 0 { part } else { part.split_once(')').map_or("", |rest| rest.1) }
            },
        )
        .collect::<Vec<_>>()
        .join("] ");
    let words: Vec<&str> = prose.split_whitespace().collect();
    let word = |at: usize| words.get(at).copied().unwrap_or_default();
    (0..words.len()).filter_map(|at| figure(word(at), word(at + 1), word(at + 2))).collect()
}

/// The figure that begins with `word`, if one does.
fn figure(word: &str, next: &str, after: &str) -> Option<String> {
    let bare =
        |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '%').to_string();
    let start = word.trim_start_matches(['(', '*', '|', '"', '[', '~']);
    if !start.starts_with(|c: char| c.is_ascii_digit()) {
        let next = bare(next);
        let share = next.trim_end_matches('s');
        let is_share = COUNTS.contains(&word) && SHARES.iter().any(|(name, _)| *name == share);
        let is_ratio =
            next == "times" && COUNTS.contains(&word) && RATIOS.contains(&bare(after).as_str());
        return (is_share || is_ratio).then(|| format!("{word} {next}"));
    }
    let end =
        start.find(|c: char| !c.is_ascii_digit() && !".,^".contains(c)).unwrap_or(start.len());
    let number = start[..end].trim_end_matches(['.', ',', '^']);
    let rest = &start[number.len()..];
    let unit = match rest {
        "" => bare(next),
        _ => bare(rest),
    };
    let is_small = number.len() == 1;
    match unit_of(&unit) {
        Some(_) => Some(format!("{number} {unit}")),
        None if is_small => None,
        None if rest.is_empty() && !unit.is_empty() && !SMALL_WORDS.contains(&unit.as_str()) => {
            Some(format!("{number} {unit}"))
        }
        None => Some(number.to_string()),
    }
}

/// Whether a figure agrees with its source.
fn agrees(figure: &str, source: &str) -> Result<(), String> {
    if source == "given" || source.starts_with("run ") {
        return Ok(());
    }
    if let Some(test) = source.strip_prefix("by ") {
        static ALL: LazyLock<Vec<String>> = LazyLock::new(|| {
            let folders = ["tests", "src", "crates/cli", "crates/durable", "crates/systems"];
            let all = folders.into_iter().flat_map(|folder| files(folder, "rs"));
            all.flat_map(|path| functions(&path)).collect()
        });
        let end = format!("::{test}");
        return match ALL.iter().any(|name| name.ends_with(&end)) {
            true => Ok(()),
            false => Err(format!("there is no test {test}")),
        };
    }
    let (number, unit) = figure.split_once(' ').unwrap_or((figure, ""));
    if let Some(page) = source.strip_prefix("in ") {
        let page = text(page);
        let mut numbers = page.split(|c: char| !c.is_ascii_digit() && !".,".contains(c));
        return match numbers.any(|it| it == number) {
            true => Ok(()),
            false => Err(format!("{number} is not {source}")),
        };
    }
    let Some(code) = source.strip_prefix("= ") else {
        return Err(format!("`{source}` is no kind of source"));
    };
    let says = match SHARES.iter().find(|(share, _)| *share == unit.trim_end_matches('s')) {
        Some((_, part)) => count(number) / part,
        None if unit == "times" => count(number),
        None => value(number).ok_or("it is no number")? * unit_of(unit).unwrap_or(1.0),
    };
    let (code, scale) = code.strip_suffix(" in ms").map_or((code, 1.0), |code| (code, 1e6));
    let (code, less) = code.strip_suffix(" less 1").map_or((code, 0.0), |code| (code, 1.0));
    let (code, from) = code.strip_suffix(" from 1").map_or((code, None), |code| (code, Some(1.0)));
    let is = match code.split_once(": ") {
        Some((file, code)) => quoted(file, code)?,
        None => {
            let (file, name) = code.split_once(' ').ok_or("a file and a name")?;
            constant(file, name)?
        }
    };
    let is = from.map_or(is * scale - less, |one| one - is);
    match (is - says).abs() <= 1e-9 * says {
        true => Ok(()),
        false => Err(format!("the code says {is}, in units of one or of a nanosecond")),
    }
}

/// How many a word of number is.
fn count(word: &str) -> f64 {
    let at = COUNTS.iter().position(|count| *count == word).unwrap_or_default();
    [1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 100].map(f64::from)[at]
}

/// The number at the end of `code`, if that is in a file whose path ends with `file`.
fn quoted(file: &str, code: &str) -> Result<f64, String> {
    if !sources_named(file).iter().any(|path| text(path).contains(code)) {
        return Err(format!("{file} has no `{code}`"));
    }
    let start = code.find(" = ").map(|at| at + 3).or_else(|| code.find(": ").map(|at| at + 2));
    // Or it is an argument.
    let start = start.or_else(|| code.rfind(", ").map(|at| at + 2));
    value(&code[start.unwrap_or(0)..]).ok_or_else(|| format!("`{code}` ends with no number"))
}

/// The constant of this name in a file whose path ends with `file`.
fn constant(file: &str, name: &str) -> Result<f64, String> {
    let find = |path: &&PathBuf| {
        let text = text(path);
        let (_, rest) = text.split_once(&format!("const {name}: "))?;
        let (_, rest) = rest.split_once("= ")?;
        value(rest.split_once(';')?.0)
    };
    let found = sources_named(file).iter().find_map(find);
    found.ok_or_else(|| format!("{file} has no constant {name} that is a number"))
}

fn sources_named(file: &str) -> Vec<&'static PathBuf> {
    static ALL: LazyLock<Vec<PathBuf>> = LazyLock::new(|| {
        let folders = [
            "src",
            "tests",
            "crates/cli/src",
            "crates/durable/src",
            "crates/durable/models/tests",
            "crates/durable/tests",
            "crates/simulation/tests",
            "crates/systems/src",
            "crates/systems/tests",
            "benches",
        ];
        folders.into_iter().flat_map(|folder| files(folder, "rs")).collect()
    });
    ALL.iter().filter(|path| file.is_empty() || path.ends_with(file)).collect()
}

/// What an expression of numbers comes to. Durations are in nanoseconds.
fn value(code: &str) -> Option<f64> {
    let code = code.trim().trim_end_matches(" as usize");
    if let Some(start) = code.strip_prefix("if ") {
        return value(start.split_once("{ ")?.1.split_once(" }")?.0);
    }
    if let Some((_, call)) = code.split_once("Duration::from_") {
        let (unit, number) = call.split_once('(')?;
        return Some(value(number.trim_end_matches([')', ',']))? * unit_of(unit)?);
    }
    if let Some((_, parts)) = code.rsplit_once(" / ") {
        // A share of something.
        return Some(value(parts)?.recip());
    }
    if let Some((_, number)) = code.strip_suffix(')').and_then(|call| call.split_once('(')) {
        return value(number);
    }
    if let Some((left, right)) = code.rsplit_once(" - ") {
        return Some(value(left)? - value(right)?);
    }
    if let Some((left, right)) = code.split_once(" << ") {
        return Some(value(left)? * value(right)?.exp2());
    }
    if let Some((left, right)) = code.split_once(" * ") {
        return Some(value(left)? * value(right)?);
    }
    if let Some((left, right)) = code.split_once('^') {
        return Some(value(left)?.powf(value(right)?));
    }
    match code {
        "u32::MAX" => Some(f64::from(u32::MAX)),
        "u64::BITS" => Some(f64::from(u64::BITS)),
        name if name.starts_with(|c: char| c.is_ascii_uppercase()) => constant("", name).ok(),
        _ => code.replace(['_', ','], "").parse().ok(),
    }
}

/// How many nanoseconds, bytes or hundredths a unit has.
fn unit_of(unit: &str) -> Option<f64> {
    let size = match unit {
        "ns" | "nanosecond" | "nanos" | "byte" | "bytes" => 1.0,
        "us" | "microsecond" | "micros" => 1e3,
        "ms" | "millisecond" | "millis" => 1e6,
        "s" | "second" | "secs" => 1e9,
        "min" | "minute" => 60e9,
        "h" | "hour" => 3_600e9,
        "d" | "day" => 86_400e9,
        "KB" | "KiB" => 1024.0,
        "MB" | "MiB" => 1_048_576.0,
        "GB" | "GiB" => 1_073_741_824.0,
        "%" => 0.01,
        _ => return unit.strip_suffix('s').filter(|unit| 2 < unit.len()).and_then(unit_of),
    };
    Some(size)
}

const LIST: &str = "tests/documents/figures.txt";

const WRITTEN: [&str; 3] = ["docs/figures.md", "docs/benchmarks.md", "docs/classical.md"];

const COUNTS: [&str; 13] = [
    "a", "an", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "twenty",
    "hundred",
];

const SHARES: [(&str, f64); 14] = [
    ("third", 3.0),
    ("quarter", 4.0),
    ("fifth", 5.0),
    ("sixth", 6.0),
    ("seventh", 7.0),
    ("eighth", 8.0),
    ("ninth", 9.0),
    ("tenth", 10.0),
    ("twelfth", 12.0),
    ("fifteenth", 15.0),
    ("sixteenth", 16.0),
    ("twentieth", 20.0),
    ("fiftieth", 50.0),
    ("hundredth", 100.0),
];

const RATIOS: [&str; 9] =
    ["as", "slower", "faster", "more", "less", "longer", "shorter", "smaller", "larger"];

/// Words that say nothing about the number before them.
const SMALL_WORDS: [&str; 18] = [
    "always", "and", "are", "at", "by", "for", "if", "in", "is", "of", "on", "or", "that", "times",
    "to", "took", "when", "with",
];
