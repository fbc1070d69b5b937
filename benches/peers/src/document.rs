//! The part of docs/benchmarks.md that a run writes.

use crate::results::{About, Results};
use crate::tables;
use std::error::Error;
use std::fs;
use std::path::Path;

const BEGIN: &str = "<!-- Written by the program, from here on. -->";
const END: &str = "<!-- Written by the program, up to here. -->";

/// Under which circumstances it was found, in a few lines.
pub(crate) fn about(about: &About) -> String {
    let quick = match about.quick {
        true => {
            "A QUICK run: small sizes and few repetitions, to see that it works; not the \
                 figures to judge by.\n\n"
        }
        false => "",
    };
    let minutes = (about.seconds as f64 / 60.0).round();
    format!(
        "{quick}- {}\n- {}, {}\n- {}, commit {}, {minutes} min\n- `{}`\n",
        about.machine, about.system, about.compiler, about.date, about.commit, about.command
    )
}

/// Writes the tables and pictures into the document at `path`, in the place of those that are
/// there; `drawn` are the workloads that have a picture in the directory `pictures`.
pub(crate) fn write(
    results: &Results,
    path: &Path,
    pictures: Option<&Path>,
    drawn: &[&str],
) -> Result<(), Box<dyn Error>> {
    let document = fs::read_to_string(path)?;
    let written = render(results, path, pictures, drawn);
    fs::write(path, replaced(&document, &written)?)?;
    Ok(())
}

fn render(results: &Results, path: &Path, pictures: Option<&Path>, drawn: &[&str]) -> String {
    let mut written = about(&results.about);
    for section in [tables::goals(results), tables::behind(results)] {
        written += "\n";
        written += &section.markdown(3);
    }
    let mut last = "";
    for section in tables::of(results) {
        written += "\n";
        written += &section.markdown(3);
        let is_drawn = drawn.contains(&section.workload) && last != section.workload;
        if let Some(directory) = pictures.filter(|_| is_drawn) {
            // As seen from the document.
            let directory = match path.parent().map(|parent| directory.strip_prefix(parent)) {
                Some(Ok(relative)) => relative,
                _ => directory,
            };
            let name = section.workload;
            written += &format!("\n![{name}]({}/{name}.svg)\n", directory.display());
        }
        last = section.workload;
    }
    written
}

/// The document with another text between its marks.
fn replaced(document: &str, written: &str) -> Result<String, String> {
    let missing = |mark| format!("the document has no line `{mark}`");
    let (before, rest) = document.split_once(BEGIN).ok_or_else(|| missing(BEGIN))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| missing(END))?;
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", written.trim()))
}

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
