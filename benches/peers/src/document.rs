//! What a run writes: all tables to the terminal, and what a visitor reads into docs/benchmarks.md.

use crate::results::Results;
use crate::tables;
use crate::workloads::{HISTORIES, WORKLOADS};
use std::error::Error;
use std::fs;
use std::path::Path;

/// All tables, or with the directory `pictures` a page to look at: what these show has no tables.
pub(crate) fn page(results: &Results, pictures: Option<&Path>) -> String {
    let mut page = results.about.clone();
    if let Some(folder) = pictures {
        page += &format!("- [All figures]({}/{ALL})\n", folder.display());
    }
    page += &(tables::pick(results) + &tables::behind(results) + &tables::wrong(results));
    for workload in WORKLOADS {
        let name = workload.name;
        let sizes = results.sizes_of(name);
        match HISTORIES.iter().position(|(history, _)| *history == name) {
            Some(0) if pictures.is_none() => page += &tables::longest_calls(results, workload),
            // In the table of the first.
            Some(_) => {}
            None if workload.grows() && 1 < sizes.len() => match pictures {
                Some(folder) => {
                    let (folder, about) = (folder.display(), workload.about);
                    page += &format!("\n### {name}\n\n{about}\n\n![{name}]({folder}/{name}.svg)\n");
                }
                None => {
                    let main = sizes.iter().rfind(|&&size| size <= MAIN);
                    page.extend(main.map(|&main| tables::detail(results, workload, main)));
                    page += &tables::growth(results, workload);
                }
            },
            None => {
                let shown = match pictures {
                    None => usize::MAX,
                    Some(_) => usize::from(SHOWN.contains(&name)),
                };
                let sizes = sizes.iter().rev().take(shown).rev();
                page.extend(sizes.map(|&size| tables::detail(results, workload, size)));
            }
        }
    }
    page
}

/// Writes the page into the document at `path`, in the place of the one that is there.
pub(crate) fn write(
    results: &Results,
    path: &Path,
    pictures: Option<&Path>,
) -> Result<(), Box<dyn Error>> {
    if let Some(pictures) = pictures {
        fs::write(pictures.join(ALL), page(results, None))?;
    }
    // As seen from the document.
    let directory = path.parent().unwrap_or(path);
    let pictures = pictures.map(|pictures| pictures.strip_prefix(directory).unwrap_or(pictures));
    let document = fs::read_to_string(path)?;
    fs::write(path, replaced(&document, &page(results, pictures))?)?;
    Ok(())
}

/// The document with another text between its marks.
fn replaced(document: &str, written: &str) -> Result<String, String> {
    let missing = |mark| format!("the document has no line `{mark}`");
    let (before, rest) = document.split_once(BEGIN).ok_or_else(|| missing(BEGIN))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| missing(END))?;
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", written.trim()))
}

const BEGIN: &str = "<!-- Written by the program, from here on. -->";
const END: &str = "<!-- Written by the program, up to here. -->";

/// The file beside the pictures that has all tables.
const ALL: &str = "results.txt";

/// Workloads of which the page has a table.
const SHOWN: [&str; 4] = ["memory", "oversubscribed", "burst", "accuracy"];

/// The size of the table that tells all, of those workloads that have several.
const MAIN: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let document = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let new = replaced(&document, "new").expect("it has both marks");
        assert!(new.starts_with("before\n") && new.ends_with("\nafter\n"), "{new}");
        assert!(new.contains("\nnew\n") && !new.contains("old"), "{new}");
        assert_eq!(replaced(&new, "new").as_ref(), Ok(&new), "again it changes nothing");
        assert!(replaced("nothing", "new").is_err());
    }
}
