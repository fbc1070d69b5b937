//! What the command `tickwheel report` promises.

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

#[test]
fn the_page_has_the_figures_of_the_trace() {
    let page = jobs_page();
    for said in [
        "Timeouts of jobs-gaia.csv.gz",
        "102,407 operations over 88.1 d, at most 606 timeouts pending, at a tick of 1 ms.",
        "min 4 s, p50 3 d, p90 4.17 d, p99 5 d, max 375 d",
        "<th scope=\"row\">cancelled</th><td>50,448</td><td>97.1 %</td>",
        "<th scope=\"row\">fired</th><td>1,511</td><td>2.9 %</td>",
        "Of 51,959 timeouts. None was moved.",
        "<code>Timer::builder()",
    ] {
        assert!(page.contains(said), "{said} is absent from {page}");
    }
}

#[test]
fn the_page_has_every_chart_with_title_description_and_numbers() {
    let page = jobs_page();
    let figures: Vec<_> = page.split("<figure id=\"").skip(1).collect();
    let ids: Vec<_> = figures.iter().map(|figure| figure.split('"').next().unwrap()).collect();
    assert_eq!(ids, CHARTS);
    for (figure, id) in figures.iter().zip(ids) {
        let names = format!("aria-labelledby=\"{id}-title {id}-text\"");
        assert!(figure.contains("<svg role=\"img\"") && figure.contains(&names), "{figure}");
        for part in [format!("<title id=\"{id}-title\">"), format!("<desc id=\"{id}-text\">")] {
            let text = figure.split(&part).nth(1).unwrap().split('<').next().unwrap();
            assert!(3 < text.len(), "{figure}");
        }
        let table = figure.split("<details>").nth(1).unwrap();
        assert!(table.contains("<summary>") && table.contains("<th scope=\"row\">"), "{table}");
    }
}

#[test]
fn the_page_asks_nothing_of_the_network() {
    let page = jobs_page();
    assert!(page.contains("default-src 'none'"));
    for foreign in ["http:", "https:", "url(", "@import", "<script", "src="] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

#[test]
fn names_are_text_and_not_html() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("<script>&amp;.csv");
    fs::write(&file, format!("{HEADER}0,schedule,1,5\n2,schedule,2,7\n")).unwrap();
    let page = page_of(&folder, &file);
    assert!(page.contains("<h1>Timeouts of &lt;script&gt;&amp;amp;.csv</h1>"), "{page}");
}

#[test]
fn delays_that_are_all_alike_have_a_sentence_and_no_chart() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("alike.csv");
    fs::write(&file, format!("{HEADER}0,schedule,1,30000\n2,schedule,2,30000\n")).unwrap();
    let page = page_of(&folder, &file);
    assert!(page.contains("All delays in the trace are 30 s."), "{page}");
    assert!(!page.contains("<figure id=\"delays\""), "{page}");

    fs::write(&file, format!("{HEADER}0,cancel,1,\n")).unwrap();
    let page = page_of(&folder, &file);
    assert!(page.contains("Nothing is scheduled in the trace."), "{page}");
}

#[test]
fn huge_numbers_and_many_levels_can_be_drawn() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("huge.csv");
    let most = u64::MAX;
    let trace = format!(
        "{HEADER}0,schedule,1,1\n2,schedule,2,{most}\n{0},schedule,3,5\n{most},schedule,4,{most}\n",
        most - 7
    );
    fs::write(&file, trace).unwrap();
    let modes = ["--mode", "hierarchical:2", "--mode", "hashed:1"];
    let page = page_with(&folder, &file, &modes);
    assert!(page.contains("<figure id=\"levels\"") && page.contains("<figure id=\"rounds\""));
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
}

#[test]
fn a_mode_that_was_stopped_is_told() {
    let folder = TempDir::new().unwrap();
    // So many at once, and so far apart, that each takes a row of its buckets.
    let line = |number| format!("0,schedule,{number},{}\n", 1_000 + 97 * number);
    let trace = folder.path().join("apart.csv");
    fs::write(&trace, HEADER.to_string() + &(0..2_000).map(line).collect::<String>()).unwrap();
    let page = page_with(&folder, &trace, &["--max-memory", "600KiB"]);
    let row = "<th scope=\"row\">hashed:262144</th><td>stopped</td>";
    assert_eq!(page.matches(row).count(), 4, "of the score, work, wake-ups and memory: {page}");
    let said =
        "hashed:262144 at a tick of 1 ms was stopped when it was over the limit of 600.0 KiB";
    assert!(page.contains(said), "{page}");
}

#[test]
fn standard_input_and_a_file_give_the_same_page() {
    let folder = TempDir::new().unwrap();
    let jobs = few_jobs(&folder);
    let output = folder.path().join("input.html");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tickwheel"))
        .args(["report", "-", "--limit-time", "0s", "-o"])
        .arg(&output)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&fs::read(&jobs).unwrap()).unwrap();
    assert!(child.wait().unwrap().success());
    let [input, file] = [fs::read_to_string(output).unwrap(), page_of(&folder, &jobs)];
    let of = |page: &str, id: &str| {
        let start = page.find(&format!("<figure id=\"{id}\"")).unwrap();
        let end = start + page[start..].find("</figure>").unwrap();
        page[start..end].to_string()
    };
    assert!(input.contains("Timeouts of standard input"));
    for id in CHARTS {
        assert_eq!(of(&input, id), of(&file, id));
    }
}

#[test]
fn the_page_never_replaces_its_trace() {
    let folder = TempDir::new().unwrap();
    let file = few_jobs(&folder);
    let before = fs::read(&file).unwrap();
    let detour = folder.path().join(".").join(file.file_name().unwrap());
    let link = folder.path().join("link.html");
    #[cfg(unix)]
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let refused = |done: Output| {
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(said.contains("found the trace itself, expected another file"), "{said}");
        assert_eq!(fs::read(&file).unwrap(), before);
    };
    for other in [&file, &detour, &link].into_iter().filter(|other| other.exists()) {
        let [file, other] = [&file, other].map(|path| path.to_str().unwrap());
        refused(report(&[file, "-o", other, "--limit-time", "0s"]));
        refused(report(&[other, "-o", file, "--limit-time", "0s"]));
    }
    #[cfg(target_os = "linux")]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tickwheel"));
        let arguments = ["report", "-", "--limit-time", "0s", "-o", file.to_str().unwrap()];
        refused(command.args(arguments).stdin(File::open(&file).unwrap()).output().unwrap());
    }
}

#[test]
fn the_page_says_what_the_trace_lacks() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("trace.csv");
    fs::write(&file, format!("{HEADER}0,begin,,\n0,schedule,1,5\n7,missing,51,\n9,sched")).unwrap();
    let page = page_of(&folder, &file);
    for said in ["51 operations are missing", "the trace breaks off after 1 operation:"] {
        assert!(page.contains(said), "{said} is absent from {page}");
    }
}

#[test]
fn a_page_of_a_part_of_the_trace_says_so() {
    let folder = TempDir::new().unwrap();
    let page = page_with(&folder, &few_jobs(&folder), &["--operations", "2000"]);
    assert!(page.contains("The first 2,000 operations over "), "{page}");
}

#[test]
fn wrong_input_leaves_no_page() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("bad.csv");
    fs::write(&file, format!("{HEADER}0,schedule,1,5\n9,wait,1,5\n")).unwrap();
    let output = folder.path().join("report.html");
    let done = report(&[file.to_str().unwrap(), "-o", output.to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).contains("bad.csv:3: found op `wait`"));
    assert!(!output.exists());
    for (arguments, said) in [
        (&["trace.csv"][..], "--output"),
        (&["trace.csv", "-o", "report/"], "found a folder"),
        (&["trace.csv", "-o", "-"], "expected the name of a file"),
        (&["trace.csv", "-o", ""], "expected the name of a file"),
        (&["nowhere.csv", "-o", output.to_str().unwrap()], "no such file"),
        (
            &["t.csv", "-o", "r.html", "--mode", "hashed:8", "--mode", "hashed:64"],
            "found two modes of a kind, expected one hierarchical and one hashed mode",
        ),
    ] {
        let done = report(arguments);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&done.stderr).contains(said), "{done:?}");
    }
}

/// A limit on the size of files is met like a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_and_leaves_no_page() {
    let folder = TempDir::new().unwrap();
    let (file, page) = (few_jobs(&folder), folder.path().join("report.html"));
    let before = fs::read_dir(folder.path()).unwrap().count();
    let line = "trap '' XFSZ; ulimit -f 8; exec \"$0\" report \"$1\" -o \"$2\" --limit-time 0s";
    let [command, file] = [env!("CARGO_BIN_EXE_tickwheel").as_ref(), &*file];
    let done = Command::new("sh").args(["-c", line]).args([command, file, &page]).output().unwrap();
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stderr).contains("report.html: "), "{done:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), before);

    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tickwheel"));
    command.arg("choose").arg(file).args(["--limit-time", "0s"]);
    let done = command.stdout(full).output().unwrap();
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stderr).contains("standard output: "), "{done:?}");
}

/// Opens the page in Chromium, on a phone, a tablet and a desktop, light and dark: no errors, every
/// chart, no text that is small, pale, cut or on another, and nothing that axe-core finds. Only
/// with all features, because `cargo test` needs nothing but Rust.
#[cfg(feature = "png")]
#[test]
fn a_browser_and_an_accessibility_checker_find_nothing_wrong() {
    let skip = |absent: &str| {
        assert!(std::env::var_os("CI").is_none(), "{absent}");
        // Written past the capture of the test runner, so that it is seen.
        let mut output = std::io::stderr();
        writeln!(output, "SKIPPED: no browser opened the page: {absent}").unwrap();
    };
    let Some(browser) = browser() else { return skip("Chromium is absent") };
    let checker = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    fs::create_dir_all(&checker).unwrap();
    for name in ["package.json", "package-lock.json", "check.mjs"] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page").join(name);
        fs::copy(source, checker.join(name)).unwrap();
    }
    let npm = Command::new("npm")
        .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
        .current_dir(&checker)
        .output();
    match npm {
        Ok(done) if done.status.success() => {}
        Ok(done) => return skip(&format!("npm ci: {}", String::from_utf8_lossy(&done.stderr))),
        Err(error) => return skip(&format!("npm: {error}")),
    }
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("report.html"), jobs_page()).unwrap();
    let done = Command::new("node")
        .arg("check.mjs")
        .arg(browser)
        .arg(folder.path().join("report.html"))
        .arg(&checker)
        .args(CHARTS)
        .current_dir(&checker)
        .output()
        .expect("where npm is, node is");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[cfg(feature = "png")]
fn browser() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let folders: Vec<_> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let mut all = names.iter().flat_map(|name| folders.iter().map(move |at| at.join(name)));
    all.find(|path| path.is_file())
}

/// The page of the bundled jobs, made once for all tests.
fn jobs_page() -> &'static str {
    static PAGE: OnceLock<String> = OnceLock::new();
    let two = ["--mode", "hierarchical:64", "--mode", "hashed:512"];
    PAGE.get_or_init(|| page_with(&TempDir::new().unwrap(), &jobs(), &two))
}

/// The first of the bundled jobs, packed as they are.
fn few_jobs(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("jobs.csv.gz");
    let all = BufReader::new(GzDecoder::new(File::open(jobs()).unwrap()));
    let mut few = GzEncoder::new(File::create(&path).unwrap(), Compression::fast());
    all.lines().take(5_000).for_each(|line| writeln!(few, "{}", line.unwrap()).unwrap());
    few.finish().unwrap();
    path
}

fn jobs() -> PathBuf {
    Path::new(DATA).join("jobs-gaia.csv.gz")
}

fn page_of(folder: &TempDir, trace: &Path) -> String {
    page_with(folder, trace, &[])
}

fn page_with(folder: &TempDir, trace: &Path, more: &[&str]) -> String {
    let output = folder.path().join("report.html");
    let arguments = [trace.to_str().unwrap(), "-o", output.to_str().unwrap()];
    let done = report(&[&arguments[..], &["--limit-time", "0s"], more].concat());
    assert!(done.status.success(), "{done:?}");
    fs::read_to_string(output).unwrap()
}

fn report(arguments: &[&str]) -> Output {
    let command = env!("CARGO_BIN_EXE_tickwheel");
    Command::new(command).arg("report").args(arguments).output().unwrap()
}

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data");
const HEADER: &str = "time_ms,op,key,delay_ms\n";
const CHARTS: [&str; 11] = [
    "score",
    "ways",
    "delays",
    "operations",
    "pending",
    "ends",
    "work",
    "wakeups",
    "memory",
    "levels",
    "rounds",
];
