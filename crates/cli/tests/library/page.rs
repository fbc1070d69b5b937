//! What the page shows, in its tables.

use fastrand::Rng;
use std::collections::HashMap;
use std::io::Cursor;
use std::time::Duration;
use tickwheel::{Mode, Wheel};
use tickwheel_cli::generate::{Generator, Shape, Size};
use tickwheel_cli::report::{self, Page, report};
use tickwheel_cli::study::{self, Configurations};
use tickwheel_cli::tick::Tick;
use tickwheel_cli::trace::Trace;
use tickwheel_cli::units::UNITS;

#[test]
fn the_steps_have_all_that_a_replay_counts() {
    for (shape, operations) in [(Shape::Short, 5_000), (Shape::Year, 5_000), (Shape::Bursts, 1)] {
        let size = Size { operations, pending: 500.try_into().unwrap() };
        let operations = Generator::new(shape, size, 3).map(|it| format!("{it}\n"));
        let page = page_of(&operations.collect::<String>(), "hashed:64");
        let (text, study) = (page.to_string(), page.study());
        let figures = &study.candidates[0].figures;

        let operations = columns(&text, "operations");
        let sum = |name: &str| operations.get(name).into_iter().flatten().sum::<u64>();
        assert_eq!(sum("scheduled"), figures.counts.scheduled);
        assert_eq!(sum("moved"), figures.counts.rescheduled);
        assert_eq!(sum("cancelled"), figures.counts.cancelled + figures.counts.late_cancels);
        let ends = &columns(&text, "ends")["timeouts"];
        let cancelled = figures.counts.cancelled + figures.counts.replaced;
        assert_eq!(ends, &[cancelled, figures.fired_in_span, figures.live_at_end]);
        let pending = &columns(&text, "pending")["pending"];
        assert_eq!(pending.last(), Some(&figures.live_at_end));
        let most = format!("The most at any time are {}.", figures.peak_live);
        assert!(text.contains(&most), "{text}");
        assert!(pending.len() <= 96);
        let step_ms = (study.span_ms / 96 + 1).next_power_of_two();
        assert_eq!(study.span_ms / step_ms, pending.len() as u64 - 1);
        for id in ["levels", "rounds"] {
            let mut parts = vec![0; pending.len()];
            for column in columns(&text, id).values() {
                parts.iter_mut().zip(column).for_each(|(sum, part)| *sum += part);
            }
            assert_eq!(&parts, pending, "{id}");
        }
    }
}

/// A recording may end long after its last operation.
#[test]
fn what_fires_before_a_recording_ends_is_not_pending_at_its_end() {
    let operations: String = (0..500).map(|key| format!("{key},schedule,{key},1000\n")).collect();
    for (end_ms, fired) in [(499, 0), (1_000, 1), (1_250, 251), (9_000, 500)] {
        let page = page_of(&format!("0,begin,,\n{operations}{end_ms},end,,\n"), "hashed:64");
        let (text, figures) = (page.to_string(), &page.study().candidates[0].figures);
        assert_eq!((figures.fired_in_span, figures.live_at_end), (fired, 500 - fired));
        assert_eq!(columns(&text, "ends")["timeouts"], [0, fired, 500 - fired], "{end_ms}");
        assert_eq!(columns(&text, "pending")["pending"].last(), Some(&(500 - fired)), "{end_ms}");
    }
}

#[test]
fn the_way_begins_where_a_wheel_puts_the_timeout() {
    let mut random = Rng::with_seed(1);
    for mode in ["hierarchical:64", "hierarchical:2", "hierarchical:256"] {
        for _ in 0..100 {
            let now = random.u64(..1 << 40);
            let longest = 1 << random.u32(1..50);
            let delay = random.u64(1..=longest);
            // With so much room it is not one of few, and has buckets.
            let mut wheel = Wheel::with_capacity(mode.parse().unwrap(), 2_000);
            wheel.expire(now);
            let key = wheel.schedule(now + delay, ());
            let (level, _) = wheel.bucket(key).unwrap();
            let operation = format!("{now},schedule,1,{delay}\n");
            let text = page(&operation, [mode, "hashed:512"], Duration::ZERO).to_string();
            let row = text.split(&format!(" in {mode}</th><td>")).nth(1).unwrap();
            let places = row.split("</td><td>").nth(1).unwrap().split("</td>").next().unwrap();
            assert!(places.starts_with(&format!("level {level} ")), "{level} {places}");
            let levels: Vec<_> = places.split(", ").filter(|place| *place != "...").collect();
            let level = |place: &str| place.split(' ').nth(1).unwrap().parse::<u32>().unwrap();
            assert!(levels.is_sorted_by(|one, next| level(next) < level(one)), "{places}");
            if places.contains("...") {
                continue;
            }
            let nanoseconds = |place: &str| {
                let [number, unit] = [2, 3].map(|at| place.split(' ').nth(at).unwrap());
                let (_, unit) = UNITS.into_iter().find(|(name, _)| *name == unit).unwrap();
                number.parse::<f64>().unwrap() * unit
            };
            let waits: f64 = levels.iter().map(|place| nanoseconds(place)).sum();
            // Each has three digits.
            assert!((waits / (delay as f64 * 1e6) - 1.0).abs() < 0.005, "{delay} {places}");
        }
    }
}

#[test]
fn a_delay_of_nothing_is_in_the_row_that_begins_with_it() {
    let operations = "0,schedule,1,0\n0,schedule,2,1\n1,schedule,3,6\n2,reschedule,3,7\n";
    let text = page_of(operations, "hashed:64").to_string();
    let (delays, rows) = (figure(&text, "delays"), columns(&text, "delays"));
    // Two of them are those of one timeout.
    assert_eq!(rows["delays"], [2, 2], "{delays}");
    assert!(delays.contains("<th scope=\"row\">0-1.78 ms</th>"), "{delays}");
}

#[test]
fn a_hashed_way_has_its_rounds() {
    let text = page_of("0,schedule,1,5000\n", "hashed:512").to_string();
    let way = "<th scope=\"row\">5 s in hashed:512</th><td>9 rounds</td>\
               <td>round 1 512 ms, ..., round 9 512 ms, then 392 ms</td>";
    assert!(text.contains(way), "{text}");
}

#[test]
fn the_legend_has_the_parts_that_a_bar_has() {
    let size = Size { operations: 1_000, pending: 100.try_into().unwrap() };
    let operations = Generator::new(Shape::Short, size, 3).map(|it| format!("{it}\n"));
    let page =
        page(&operations.collect::<String>(), ["hierarchical:64", "hashed:64"], Duration::MAX);
    let text = page.to_string();
    let legend = figure(&text, "score").split("<ul class=\"legend\">").nth(1).unwrap();
    let legend = legend.split("</ul>").next().unwrap();
    let names: Vec<_> = legend.split("</svg>").skip(1).map(|it| it.split('<').next()).collect();
    // So few timeouts take no memory that counts, and a timer caps its calls.
    assert_eq!(names, [Some("CPU time"), Some("wake-ups")]);
}

/// Of some thousand timeouts in one bucket, each tick looks at all.
#[test]
fn a_wheel_that_takes_too_long_is_not_run_for_the_page() {
    let operations = (0..4_000).map(|key| format!("{key},schedule,{key},2000\n"));
    let page = page_of(&operations.collect::<String>(), "hashed:1").to_string();
    let said = "hashed:1 is not shown: it was stopped when it was over 20 times the work of \
                hierarchical:64.";
    assert!(page.contains(said), "{page}");
    assert!(page.contains("<figure id=\"levels\"") && !page.contains("<figure id=\"rounds\""));
}

/// The page of these operations, at a tick of 1 ms. Nothing is measured.
fn page_of(operations: &str, hashed: &str) -> Page {
    page(operations, ["hierarchical:64", hashed], Duration::ZERO)
}

fn page(operations: &str, modes: [&str; 2], time: Duration) -> Page {
    let trace = format!("{}\n{operations}", Trace::HEADER);
    let modes = modes.map(|mode| mode.parse::<Mode>().unwrap()).to_vec();
    let configurations = Configurations::Given { modes: modes.clone(), tick: Tick::default() };
    let study = study::Options { configurations, time, ..study::Options::default() };
    let options = report::Options { modes, study, ..report::Options::default() };
    report(Trace::new("a trace", Cursor::new(trace)).unwrap(), &options, |_| ()).unwrap()
}

/// The columns of numbers in the table of a chart, by their heads.
fn columns(page: &str, id: &str) -> HashMap<String, Vec<u64>> {
    let figure = figure(page, id);
    let cells = |row: &str, tag: &str| -> Vec<String> {
        let cells = row.split(tag).skip(1);
        cells.map(|cell| cell.split('<').next().unwrap().replace(',', "")).collect()
    };
    let heads = cells(figure, "<th scope=\"col\">");
    let mut columns = HashMap::new();
    for row in figure.split("<th scope=\"row\">").skip(1) {
        for (head, cell) in heads[1..].iter().zip(cells(row, "<td>")) {
            let Ok(number) = cell.parse() else { continue };
            columns.entry(head.clone()).or_insert_with(Vec::new).push(number);
        }
    }
    columns
}

fn figure<'a>(page: &'a str, id: &str) -> &'a str {
    let figure = page.split(&format!("<figure id=\"{id}\"")).nth(1).unwrap();
    figure.split("</figure>").next().unwrap()
}
