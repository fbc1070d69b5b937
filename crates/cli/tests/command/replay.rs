//! What the command `tickwheel replay` promises.

use crate::long;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

#[test]
fn bundled_jobs_give_their_figures_in_every_mode() {
    let trace = Path::new(DATA).join("jobs-gaia.csv.gz");
    let modes = long(&["hierarchical:64", "hashed:512"][..], &MODES[..]);
    let expected = Naive {
        ops: 102_407,
        scheduled: 51_959,
        cancelled: 50_448,
        fired_in_span: 1_511,
        fired_total: 1_511,
        peak_live: 606,
        ..Naive::default()
    };
    for figures in figures_of(&trace, modes, "1ms") {
        expected.assert_agrees(&figures);
    }
}

#[test]
fn bundled_cache_gives_the_figures_of_a_sorted_map() {
    let trace = Path::new(DATA).join("cache-twitter52.csv.gz");
    let mut text = String::new();
    let packed = File::open(&trace).unwrap();
    let unpacked = flate2::read::MultiGzDecoder::new(packed);
    unpacked.take(long(1 << 20, u64::MAX)).read_to_string(&mut text).unwrap();
    if long(false, true) {
        let whole = Naive::run(&text, 1_000_000);
        assert_eq!((whole.ops, whole.fired_in_span, whole.live_at_end), (300_000, 0, 54_710));
    }
    let folder = TempDir::new().unwrap();
    let start: String = text.split_inclusive('\n').take(long(10_001, 30_001)).collect();
    let expected = Naive::run(&start, 1_000_000);
    let trace = file_of(&folder, "start.csv", start.as_bytes());
    for figures in figures_of(&trace, &MODES, "1ms") {
        expected.assert_agrees(&figures);
    }
}

#[test]
fn every_tick_gives_the_figures_of_a_sorted_map() {
    let folder = TempDir::new().unwrap();
    let text = generated(2_000);
    let trace = file_of(&folder, "trace.csv", text.as_bytes());
    for (tick, nanoseconds) in [
        ("1us", 1_000),
        ("1500us", 1_500_000),
        ("1ms", 1_000_000),
        ("7ms", 7_000_000),
        ("1s", 1_000_000_000),
        ("1h", 3_600_000_000_000),
    ] {
        let expected = Naive::run(&text, nanoseconds);
        for figures in figures_of(&trace, &MODES, tick) {
            expected.assert_agrees(&figures);
        }
    }
}

#[test]
fn coarse_ticks_make_replacements_and_late_cancels_differ() {
    let text = generated(20_000);
    assert_eq!(Naive::run(&text, 1_000_000).fired_in_span, Naive::run(&text, 1_000).fired_in_span);
    let (fine, coarse) = (Naive::run(&text, 1_000_000), Naive::run(&text, 1_000_000_000));
    assert!(fine.replaced < coarse.replaced, "the generated trace tells ticks apart");
    assert!(coarse.late_cancels < fine.late_cancels, "the generated trace tells ticks apart");
}

#[test]
fn all_recorded_traces_give_their_figures() {
    let Some(folder) = crate::recorded() else { return };
    let traces = [
        ("jobs-eagle", [1_985, 1_000, 0, 985, 11, 4, 475]),
        ("kvcache-mooncake", [288_500, 276_279, 12_221, 0, 186_532, 89_747, 96_723]),
        ("rpc-onlineboutique", [190_444, 95_617, 0, 94_827, 789, 1, 21]),
    ];
    for &(name, counts) in long(&traces[..1], &traces[..]) {
        let trace = folder.join(name).with_extension("csv.gz");
        for figures in figures_of(&trace, &["hierarchical:64", "hashed:512", "hashed:65536"], "1ms")
        {
            let columns = [
                "ops",
                "scheduled",
                "rescheduled",
                "cancelled",
                "fired_in_span",
                "live_at_end",
                "peak_live",
            ];
            assert_eq!(columns.map(|column| count(&figures, column)), counts, "{name}");
            assert_eq!((count(&figures, "early"), count(&figures, "max_late_ticks")), (0, 0));
            assert_eq!(
                count(&figures, "fired_total"),
                count(&figures, "fired_in_span") + count(&figures, "live_at_end")
            );
        }
    }
}

#[test]
fn plain_gzip_several_members_and_standard_input_are_the_same() {
    let folder = TempDir::new().unwrap();
    let text = generated(2_000);
    let (start, rest) = text.as_bytes().split_at(text.len() / 3);
    let members = [gzip(start), gzip(rest)].concat();
    let expected = Naive::run(&text, 1_000_000);
    for (name, bytes) in [
        ("plain.gz", text.clone().into_bytes()),
        ("one.csv", gzip(text.as_bytes())),
        ("several.csv", members),
    ] {
        let trace = file_of(&folder, name, &bytes);
        for figures in figures_of(&trace, &MODES, "1ms") {
            expected.assert_agrees(&figures);
        }
        let output = replay_input(&bytes, &["-", "--json", "--mode", "hashed:8"]);
        expected.assert_agrees(&json(&output)[0]);
    }
}

#[test]
fn lines_may_end_like_those_of_other_systems() {
    let text = "\u{feff}time_ms,op,key,delay_ms\r\n0,schedule,1,5\r\n9,cancel,1,\r\n";
    let figures = &json(&replay_input(text.as_bytes(), &["-", "--json"]))[0];
    assert_eq!((count(figures, "ops"), count(figures, "late_cancels")), (2, 1));
}

#[test]
fn empty_lines_may_end_a_trace() {
    for end in ["\n", "\r\n\n", " \n", " "] {
        let text = format!("{HEADER}0,schedule,1,5\n{end}");
        let figures = &json(&replay_input(text.as_bytes(), &["-", "--json"]))[0];
        assert_eq!(count(figures, "ops"), 1, "{end:?}");
    }
}

#[test]
fn keys_never_seen_are_counted() {
    let text = format!("{HEADER}0,cancel,1,\n0,reschedule,2,10\n3,reschedule,2,10\n");
    for figures in json(&replay_input(text.as_bytes(), &["-", "--json"])) {
        assert_eq!(count(&figures, "late_cancels"), 1);
        assert_eq!(count(&figures, "late_reschedules"), 1);
        assert_eq!(count(&figures, "rescheduled"), 2);
        assert_eq!(count(&figures, "fired_total"), 1);
        assert_eq!((count(&figures, "early"), count(&figures, "max_late_ticks")), (0, 0));
    }
}

#[test]
fn huge_numbers_saturate() {
    let most = u64::MAX;
    let text = format!(
        "{HEADER}0,schedule,1,1\n2,schedule,{},{most}\n{most},schedule,3,{most}\n{most},cancel,3,\n",
        u32::MAX,
    );
    for tick in ["1us", "1ms", "1h"] {
        let output = replay_input(text.as_bytes(), &["-", "--json", "--tick", tick]);
        for figures in json(&output) {
            assert_eq!((count(&figures, "ops"), count(&figures, "cancelled")), (4, 1));
            assert_eq!((count(&figures, "early"), count(&figures, "max_late_ticks")), (0, 0));
        }
    }
}

#[test]
fn what_is_never_reached_stays_pending() {
    let text = format!("{HEADER}0,schedule,1,1\n2,schedule,2,{}\n", u64::MAX);
    for figures in json(&replay_input(text.as_bytes(), &["-", "--json", "--tick", "1us"])) {
        assert_eq!((count(&figures, "live_at_end"), count(&figures, "fired_total")), (1, 1));
    }
}

#[test]
fn bad_lines_are_told_by_file_and_line() {
    let long = "x".repeat(10_000);
    let cases: &[(&str, &str, &str)] = &[
        ("0,expire,1,5\n", "op `expire`", "`schedule`, `reschedule` or `cancel`"),
        ("0,schedule,1\n", "3 columns", "4 columns"),
        ("0,schedule,1,5,9\n", "5 columns", "4 columns"),
        ("\n0,cancel,9,\n", "an empty line", "an operation, or the end"),
        ("cancel\n", "1 column", "4 columns"),
        ("-1,schedule,1,5\n", "time_ms `-1`", "a whole number"),
        ("soon,schedule,1,5\n", "time_ms `soon`", "a whole number"),
        ("1.5,schedule,1,5\n", "time_ms `1.5`", "a whole number"),
        ("+1,schedule,1,5\n", "time_ms `+1`", "a whole number"),
        ("0,schedule,,5\n", "key ``", "a whole number"),
        ("0,schedule,-7,5\n", "key `-7`", "a whole number"),
        ("0,schedule,4294967296,5\n", "key `4294967296`", "from 0 to 4294967295"),
        ("0,schedule,1,\n", "delay_ms ``", "a whole number"),
        ("0,reschedule,1,\n", "delay_ms ``", "a whole number"),
        ("0,cancel,1,5\n", "delay_ms `5`", "no delay for `cancel`"),
        ("0,schedule,1,18446744073709551616\n", "delay_ms `18446744073709551616`", "from 0 to 18"),
        ("18446744073709551616,cancel,1,\n", "time_ms `18446744073709551616`", "from 0 to 18"),
        ("\"0\",schedule,1,5\n", "time_ms `\\\"0\\\"`", "a whole number"),
        (&long, "`xxxxx", "a line of less than 4096 bytes"),
    ];
    let folder = TempDir::new().unwrap();
    for (line, found, expected) in cases {
        let text = format!("{HEADER}0,schedule,9,100\n{line}");
        let trace = file_of(&folder, "bad.csv", text.as_bytes());
        assert_refused(&folder, &trace, &format!("{}:3: found ", trace.display()), found, expected);
    }
}

#[test]
fn time_going_back_is_told() {
    let folder = TempDir::new().unwrap();
    let text = format!("{HEADER}5,schedule,9,100\n4,cancel,9,\n");
    let trace = file_of(&folder, "back.csv", text.as_bytes());
    assert_refused(&folder, &trace, "back.csv:3:", "time_ms `4`", "no time before");
}

#[test]
fn with_a_delay_of_zero_it_is_gone_for_the_next_operation() {
    let folder = TempDir::new().unwrap();
    let text = format!("{HEADER}5,schedule,1,0\n5,schedule,1,0\n5,cancel,1,\n");
    let trace = file_of(&folder, "zero.csv", text.as_bytes());
    for figures in figures_of(&trace, &MODES, "1ms") {
        assert_eq!((count(&figures, "fired_in_span"), count(&figures, "replaced")), (2, 0));
        assert_eq!((count(&figures, "late_cancels"), count(&figures, "cancelled")), (1, 0));
    }
}

#[test]
fn bytes_that_are_no_text_are_told() {
    let folder = TempDir::new().unwrap();
    let bytes = [HEADER.as_bytes(), b"0,schedule,\xff\x1b,5\n"].concat();
    let trace = file_of(&folder, "bytes.csv", &bytes);
    assert_refused(&folder, &trace, "bytes.csv:2:", "key `\\xff\\x1b`", "a whole number");
}

#[test]
fn a_wrong_header_is_told() {
    let folder = TempDir::new().unwrap();
    for (text, found) in [
        ("time,op,key,delay\n0,schedule,1,5\n", "`time,op,key,delay`"),
        ("0,schedule,1,5\n", "`0,schedule,1,5`"),
        ("", "an empty file"),
    ] {
        let trace = file_of(&folder, "header.csv", text.as_bytes());
        assert_refused(&folder, &trace, "header.csv:1:", found, "`time_ms,op,key,delay_ms`");
    }
    let trace = file_of(&folder, "none.csv", HEADER.as_bytes());
    assert_refused(&folder, &trace, "none.csv:2:", "no operations", "at least one");
}

#[test]
fn files_of_other_kinds_are_named() {
    let folder = TempDir::new().unwrap();
    for (bytes, found) in [
        (&b"PK\x03\x04\x14\x00"[..], "found a zip archive"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "found zstd data"),
        (b"\xfd7zXZ\x00\x00", "found xz data"),
        (b"BZh91AY&SY", "found bzip2 data"),
        (b"\xff\xfet\x00i\x00m\x00e\x00", "found UTF-16 text"),
        (b"\xfe\xff\x00t\x00i\x00m\x00e", "found UTF-16 text"),
    ] {
        let trace = file_of(&folder, "other.csv", bytes);
        assert_refused(&folder, &trace, "other.csv:1:", found, "plain or gzip");
    }
}

#[test]
fn broken_gzip_is_told() {
    let folder = TempDir::new().unwrap();
    let packed = gzip(generated(10_000).as_bytes());
    // With a single operation before that it would be replayed.
    for cut in [3, 5, 10] {
        let trace = file_of(&folder, "cut.csv.gz", &packed[..cut]);
        assert_refused(&folder, &trace, "cut.csv.gz:", "gzip data that break off", "the rest");
    }

    let mut damaged = packed;
    let middle = damaged.len() / 2;
    damaged[middle..middle + 64].fill(0);
    let trace = file_of(&folder, "damaged.csv.gz", &damaged);
    assert_refused(&folder, &trace, "damaged.csv.gz:", "found ", "expected ");
}

#[test]
fn what_cannot_be_opened_is_told() {
    let folder = TempDir::new().unwrap();
    let absent = folder.path().join("absent.csv");
    assert_refused(&folder, &absent, "absent.csv:", "no such file", "a trace that can be read");
    let directory = TempDir::new().unwrap();
    assert_refused(&folder, directory.path(), "", "a directory", "a trace that can be read");
}

#[cfg(unix)]
#[test]
fn a_file_without_permission_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let trace = file_of(&folder, "secret.csv", HEADER.as_bytes());
    fs::set_permissions(&trace, fs::Permissions::from_mode(0o000)).unwrap();
    match File::open(&trace) {
        // Nothing is forbidden to the superuser.
        Ok(_) => assert_refused(&folder, &trace, "secret.csv:2:", "no operations", "at least one"),
        Err(_) => {
            assert_refused(&folder, &trace, "secret.csv:", "no permission", "a trace that can");
        }
    }
}

#[test]
fn trailing_bytes_after_gzip_data_are_told() {
    let folder = TempDir::new().unwrap();
    let packed = gzip(generated(100).as_bytes());
    for trailing in [&b"x"[..], b"0,schedule,1,5\n", &[0; 512], b"\x1f\x8c and more than a header"]
    {
        let trace = file_of(&folder, "more.csv.gz", &[&packed, trailing].concat());
        let found = "trailing bytes after the gzip data";
        assert_refused(&folder, &trace, "more.csv.gz:102:", found, "another gzip member");
    }
}

#[test]
fn a_mode_over_20_times_slower_is_stopped_and_the_others_go_on() {
    let folder = TempDir::new().unwrap();
    let text = one_a_round_beside_many_that_wait(20_000);
    let trace = file_of(&folder, "rounds.csv", text.as_bytes());
    let modes = ["--mode", "hashed:512", "--mode", "hierarchical:64"];
    let output = replay(&[&[trace.to_str().unwrap(), "--json"][..], &modes].concat());
    let figures = json(&output);
    assert_eq!(figures[0]["stopped"], "over 20 times the work of hierarchical:64");
    assert!(10_000 < count(&figures[0], "rounds_waited"), "{}", figures[0]);
    assert_eq!(figures[1]["stopped"], Value::Null);
    Naive::run(&text, 1_000_000).assert_agrees(&figures[1]);

    assert_eq!(figures[0]["counted_score"], Value::Null);
    let picture = folder.path().join("picture.svg");
    let arguments = [trace.to_str().unwrap(), "--plot", picture.to_str().unwrap()];
    let table = text_of(&replay(&arguments));
    let score = table.lines().find(|line| line.starts_with("score by counted work")).unwrap();
    let columns: Vec<_> = score.split_whitespace().skip(4).collect();
    assert!(columns.contains(&"-"), "{score}");
    let drawing = fs::read_to_string(picture).unwrap();
    assert_eq!(drawing.matches(">stopped<").count(), 3, "score, wake-ups, memory: {drawing}");
    for part in ["stopped", "yes", "rounds waited"] {
        assert!(table.contains(part), "{part:?} in {table}");
    }
    let verdict = "hashed:512 does not suit this trace: it was stopped when it was over 20 times the \
                   work of hierarchical:64: it had left timeouts waiting a round ";
    assert!(table.contains(verdict), "{table}");
}

#[test]
fn a_mode_slower_than_the_limit_is_stopped_wherever_it_stands_in_the_list() {
    let lines = (0..10_000).map(|key| format!("{key},schedule,{key},5000\n"));
    let trace = HEADER.to_string() + &lines.collect::<String>();
    for modes in ["hashed:1,hashed:4096", "hashed:4096,hashed:1"] {
        let found = json(&replay_input(trace.as_bytes(), &["-", "--json", "--mode", modes]));
        let stopped = |mode| &found.iter().find(|it| it["mode"] == mode).unwrap()["stopped"];
        assert_eq!(stopped("hashed:1"), "over 20 times the work of hashed:4096", "{modes}");
        assert_eq!(stopped("hashed:4096"), &Value::Null, "{modes}");
    }
}

#[test]
fn without_time_to_measure_all_is_counted_and_nothing_is_said() {
    let folder = TempDir::new().unwrap();
    let trace = file_of(&folder, "trace.csv", generated(4_000).as_bytes());
    let arguments = [trace.to_str().unwrap(), "--limit-time", "0s"];
    for figures in json(&replay(&[&arguments[..], &["--json"]].concat())) {
        assert_eq!((count(&figures, "ops"), &figures["measured"]), (4_000, &Value::Null));
    }
    let verdict = "Cannot tell: nothing was measured. `--limit-time` gives more";
    assert!(text_of(&replay(&arguments)).contains(verdict));
}

#[test]
fn two_runs_count_the_same() {
    let folder = TempDir::new().unwrap();
    let trace = file_of(&folder, "trace.csv", generated(5_000).as_bytes());
    let run = || text_of(&replay(&[trace.to_str().unwrap(), "--json"]));
    assert_eq!(run(), run());
}

#[test]
fn a_mode_over_the_limit_of_memory_is_stopped() {
    let folder = TempDir::new().unwrap();
    let mut input = HEADER.to_string();
    for key in 0..100_000 {
        input += &format!("0,schedule,{key},{}\n", 1_000 + key);
    }
    let trace = file_of(&folder, "trace.csv", input.as_bytes());
    let trace = trace.to_str().unwrap();
    let arguments = [trace, "--max-memory", "4MiB", "--mode", "hierarchical:64"];
    let output = replay(&[&arguments[..], &["--json"]].concat());
    let figures = &json(&output)[0];
    assert_eq!(figures["stopped"], "over the limit of 4.0 MiB");
    assert!(count(figures, "peak_live") < 100_000, "{figures}");
    let table = text_of(&replay(&arguments));
    let verdict = "No configuration came to the end of the trace";
    assert!(table.contains(verdict), "{table}");
}

#[test]
fn a_limit_is_looked_at_while_the_last_timeouts_are_handed_out() {
    let mut input = HEADER.to_string();
    for key in 0..10_000_u64 {
        input += &format!("0,schedule,{key},{}\n", 512 * (1 + key));
    }
    let modes = ["--mode", "hashed:512", "--mode", "hierarchical:64"];
    let table = text_of(&replay_input(input.as_bytes(), &[&["-"][..], &modes].concat()));
    let verdict = "hashed:512 does not suit this trace: it was stopped when it was over 20 times ";
    assert!(table.contains(verdict), "{table}");
}

/// So short a run is over before a limit is looked at for the first time.
#[test]
fn a_limit_holds_in_a_short_run_too() {
    // Each round looks at all that wait, which are more than a wheel holds in no bucket.
    let waiting = (0..1_100).map(|key| format!("0,schedule,{key},102400\n"));
    let rounds = (0..100).map(|round| format!("{},schedule,{},512\n", 512 * round, 2_000 + round));
    let trace = HEADER.to_string() + &waiting.chain(rounds).collect::<String>();
    let stopped = |limit: [&str; 2]| -> Vec<Value> {
        let modes = ["-", "--json", "--mode", "hierarchical:64,hashed:512"];
        let found = json(&replay_input(trace.as_bytes(), &[&modes[..], &limit].concat()));
        found.into_iter().map(|figures| figures["stopped"].clone()).collect()
    };
    assert_eq!(stopped(["--limit-slower", "1000"]), [Value::Null, Value::Null]);
    let over = "over 4 times the work of hierarchical:64".into();
    assert_eq!(stopped(["--limit-slower", "4"]), [Value::Null, over]);
    let over = "over the limit of 1.0 KiB";
    assert_eq!(stopped(["--max-memory", "1KiB"]), [over, over]);
}

#[test]
fn arguments_are_checked_before_any_work() {
    let folder = TempDir::new().unwrap();
    let trace = file_of(&folder, "good.csv", generated(100).as_bytes());
    let trace = trace.to_str().unwrap();
    let nowhere = folder.path().join("nowhere/out.svg");
    let cases: &[(&[&str], &str)] = &[
        (&["--mode", "hashed"], "\"hashed\" is no mode"),
        (&["--mode", "hashed:0"], "0 buckets asked for"),
        (&["--tick", "2h"], "1us to 1h"),
        (&["--tick", "1ns"], "1us to 1h"),
        (&["--tick", "often"], "\"often\" is no duration"),
        (&["--plot", "out.pdf"], ".svg or .png"),
        (&["--plot", "out"], ".svg or .png"),
        (&["--plot", "out.svg/"], "found a folder"),
        (&["--plot", "out.svg/."], "found a folder"),
        (&["--plot", folder.path().to_str().unwrap()], ".svg or .png"),
        (&["--limit-time", "soon"], "expected number"),
        (&["--max-memory", "much"], "much"),
        (&["--operations", "0"], "expected a whole number from 1 to "),
        (&["--operations", "1e99"], "expected a whole number from 1 to "),
        (&["--limit-slower", "0"], "0 is not in 1.."),
        (&["--for", "me"], "timer"),
        (&["--plot", nowhere.to_str().unwrap()], "nowhere"),
    ];
    for (arguments, message) in cases {
        let output = replay(&[&[trace][..], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
    assert_eq!(names_in(&folder), ["good.csv"]);
}

#[test]
fn a_picture_shows_modes_and_delays() {
    let folder = TempDir::new().unwrap();
    let trace = file_of(&folder, "a <trace> & more.csv", generated(5_000).as_bytes());
    let svg = folder.path().join("out.svg");
    let output = replay(&[trace.to_str().unwrap(), "--plot", svg.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(names_in(&folder), ["a <trace> & more.csv", "out.svg"]);
    let drawing = fs::read_to_string(svg).unwrap();
    for word in ["a &lt;trace&gt; &amp; more.csv", "hashed:65536", "Wake-ups", "10 min"] {
        assert!(drawing.contains(word), "{word}");
    }
    for word in ["Most memory", "Score", "Delays, share of all"] {
        assert!(drawing.contains(word), "{word}");
    }
    let verdict = text(&output.stdout).lines().last().unwrap().to_string();
    let drawn = drawing.replace('\n', " ");
    for word in verdict.replace('`', " ").split_whitespace() {
        assert!(drawn.contains(word), "{word:?} of {verdict:?}");
    }
}

#[test]
fn a_picture_of_delays_that_are_all_alike_has_no_chart_of_them() {
    let folder = TempDir::new().unwrap();
    for (line, said) in [
        ("0,schedule,1,86400000\n", "All delays in the trace are 1 d."),
        ("0,cancel,1,\n", "Nothing is scheduled in the trace."),
    ] {
        let trace = file_of(&folder, "trace.csv", format!("{HEADER}{line}").as_bytes());
        let svg = folder.path().join("out.svg");
        let output = replay(&[trace.to_str().unwrap(), "--plot", svg.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let drawing = fs::read_to_string(svg).unwrap();
        assert!(drawing.contains(said), "{drawing}");
        assert!(!drawing.contains("share of all"), "{drawing}");
    }
}

#[cfg(not(feature = "png"))]
#[test]
fn a_picture_as_png_needs_the_feature() {
    let output = replay(&["-", "--plot", "out.png"]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("built without the feature `png`"), "{message}");
}

#[cfg(feature = "png")]
#[test]
fn a_picture_as_png_is_the_svg_in_twice_the_pixels() {
    let folder = TempDir::new().unwrap();
    let trace = file_of(&folder, "trace.csv", generated(5_000).as_bytes());
    let (svg, png) = (folder.path().join("out.svg"), folder.path().join("out.PNG"));
    for plot in [&svg, &png] {
        let output = replay(&[trace.to_str().unwrap(), "--plot", plot.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    let drawing = fs::read_to_string(svg).unwrap();
    let size = ["width", "height"].map(|name| {
        let (_, rest) = drawing.split_once("<svg ").unwrap();
        let (_, rest) = rest.split_once(&format!("{name}=\"")).unwrap();
        rest.split_once('"').unwrap().0.parse::<u32>().unwrap()
    });
    let picture = resvg::tiny_skia::Pixmap::decode_png(&fs::read(png).unwrap()).unwrap();
    assert_eq!([picture.width(), picture.height()], size.map(|pixels| 2 * pixels));

    // The title is drawn: there is ink where it stands.
    let ink = (0..100)
        .flat_map(|y| (0..picture.width()).map(move |x| (x, y)))
        .filter(|&(x, y)| picture.pixel(x, y).is_some_and(|pixel| pixel.red() < 100))
        .count();
    assert!(500 < ink, "{ink} dark pixels");
}

#[cfg(unix)]
#[test]
fn a_picture_goes_where_a_link_leads() {
    use std::os::unix::fs::symlink;
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("pictures")).unwrap();
    let trace = file_of(&folder, "trace.csv", generated(100).as_bytes());
    file_of(&folder, "pictures/there.svg", b"older");
    for (link, target) in [
        ("there.svg", "pictures/there.svg"),
        ("second.svg", "there.svg"),
        ("new.svg", "pictures/new.svg"),
    ] {
        let link = folder.path().join(link);
        symlink(target, &link).unwrap();
        let output = replay(&[trace.to_str().unwrap(), "--plot", link.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(fs::read_link(&link).unwrap(), Path::new(target), "the link is still a link");
        assert!(fs::read_to_string(&link).unwrap().starts_with("<svg"));
    }
    assert_eq!(fs::read_dir(folder.path().join("pictures")).unwrap().count(), 2);

    let (ring, null) = (folder.path().join("ring.svg"), folder.path().join("null.svg"));
    symlink("ring.svg", &ring).unwrap();
    symlink("/dev/null", &null).unwrap();
    for (link, found) in [(ring, "found a link that leads to itself"), (null, "found a device")] {
        let output = replay(&[trace.to_str().unwrap(), "--plot", link.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(found), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_picture_never_replaces_its_trace() {
    let folder = TempDir::new().unwrap();
    let trace = file_of(&folder, "trace.svg", generated(20).as_bytes());
    let name = trace.to_str().unwrap();
    let output = command(&[name, "--plot", name]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("found the trace itself, expected another file"), "{said}");
    assert_eq!(fs::read_to_string(&trace).unwrap(), generated(20));
}

#[test]
fn a_warning_that_nobody_can_read_loses_no_result() {
    let folder = TempDir::new().unwrap();
    let torn = generated(20).replacen('\n', "\n0,begin,,\n", 1) + "99";
    let trace = file_of(&folder, "trace.csv", torn.as_bytes());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = command(&[trace.to_str().unwrap(), "--mode", "hashed:500"]);
    let output = command.stderr(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("hashed:512"), "{}", text(&output.stdout));
}

#[test]
fn a_delay_of_zero_is_shown_as_zero() {
    let folder = TempDir::new().unwrap();
    let text = "time_ms,op,key,delay_ms\n0,schedule,1,0\n5,schedule,1,2000\n";
    let trace = file_of(&folder, "trace.csv", text.as_bytes());
    let picture = folder.path().join("picture.svg");
    let arguments = [trace.to_str().unwrap(), "--plot", picture.to_str().unwrap()];
    let table = text_of(&replay(&arguments));
    assert!(table.contains("delays: min 0 ns, p50 0 ns, p90 2 s"), "{table}");
    assert!(fs::read_to_string(picture).unwrap().contains("min 0 ns"));
}

#[test]
fn a_picture_replaces_an_older_one() {
    let folder = TempDir::new().unwrap();
    let trace = file_of(&folder, "trace.csv", generated(100).as_bytes());
    let plot = file_of(&folder, "out.svg", b"older");
    let output = replay(&[trace.to_str().unwrap(), "--plot", plot.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    assert!(fs::read_to_string(plot).unwrap().starts_with("<svg"));
    assert_eq!(names_in(&folder), ["out.svg", "trace.csv"]);
}

#[test]
fn a_pipe_gets_the_table_alone() {
    let output = replay_input(generated(5_000).as_bytes(), &["-"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("5,000 operations"), "{table}");
    assert!(table.lines().all(|line| line.len() <= 80 || line.ends_with('.')), "{table}");
    let verdict = table.lines().last().unwrap();
    assert!(verdict.ends_with('.') && verdict.contains("hierarchical:64"), "{verdict}");
    assert!(!table.contains('\u{1b}'), "{table}");
}

#[test]
fn a_mode_of_another_size_is_said() {
    let modes = ["-", "--mode", "hashed:500", "--mode", "hierarchical:64"];
    let output = replay_input(generated(100).as_bytes(), &modes);
    let said = "tickwheel: hashed:500 is run as hashed:512: the buckets are a power of two\n";
    assert_eq!(text(&output.stderr), said);
    assert!(text(&output.stdout).contains("hashed:512"));
    // Not before the arguments are known to be right.
    let output = replay(&["-", "--mode", "hashed:500", "--limit-slower", "0"]);
    assert!(text(&output.stderr).starts_with("error: "), "{}", text(&output.stderr));
}

#[test]
fn a_mode_that_is_given_twice_is_run_once() {
    let modes = ["--mode", "hashed:64,hierarchical:64", "--mode", "hashed:64"];
    let output = replay_input(generated(100).as_bytes(), &[&["-", "--json"][..], &modes].concat());
    let modes: Vec<_> = json(&output).iter().map(|figures| figures["mode"].clone()).collect();
    assert_eq!(modes, ["hashed:64", "hierarchical:64"]);
}

#[test]
fn json_has_an_object_for_each_mode() {
    // More at once than a wheel of few holds, so that there are buckets.
    let line = |time| format!("{time},schedule,{time},5000\n");
    let trace = HEADER.to_string() + &(0..2_000).map(line).collect::<String>();
    let output = replay_input(trace.as_bytes(), &["-", "--json"]);
    assert!(output.stderr.is_empty());
    let modes: Vec<_> = json(&output).iter().map(|figures| figures["mode"].clone()).collect();
    assert_eq!(modes, ["hierarchical:64", "hashed:512", "hashed:65536"]);
    for figures in json(&output) {
        assert!(figures["counted_score"].is_f64(), "{figures}");
        for field in ["wakeups", "work", "longest_call", "buckets_visited", "memory_bytes"] {
            assert!(0 < count(&figures, field), "{field} in {figures}");
        }
    }
}

#[test]
fn few_operations_get_no_verdict() {
    let output = replay_input(generated(10).as_bytes(), &["-"]);
    let verdict = "Cannot tell: the trace has only 10 operations. Record at least 1,000, and better a \
                   million. Take the default until then. The default is hierarchical:64, here at a \
                   tick of 1 ms, not at its own, which is finer.";
    assert!(text(&output.stdout).contains(verdict), "{}", text(&output.stdout));
}

#[test]
fn a_closed_pipe_is_no_panic() {
    for arguments in [&["-"][..], &["-", "--json"]] {
        let mut child = command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        child.stdin.take().unwrap().write_all(generated(1_000).as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_leaves_nothing_behind() {
    let folder = TempDir::new().unwrap();
    let plot = folder.path().join("out.svg");
    let mut child = command(&["-", "--plot", plot.to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // More than a pipe holds: when it is written, the trace is being read.
    input.write_all(generated(100_000).as_bytes()).unwrap();
    let pid = child.id().to_string();
    let signal = if crate::is_ignored("INT") { "-TERM" } else { "-INT" };
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    drop(input);
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(output.stdout.is_empty());
    assert!(names_in(&folder).is_empty());
}

#[test]
fn help_and_version_are_there() {
    let help = replay(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(text(&help.stdout).contains("tickwheel replay data/jobs-gaia.csv.gz"));
    let version = tickwheel().arg("--version").output().unwrap();
    assert_eq!(text(&version.stdout).trim(), concat!("tickwheel ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn shells_and_man_know_the_command() {
    for (shell, part) in [("bash", "--limit-time"), ("zsh", "--limit-time"), ("fish", "limit-time")]
    {
        let output = tickwheel().args(["completions", shell]).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains(part), "{shell}");
    }
    let folder = TempDir::new().unwrap();
    let output = tickwheel().arg("man").arg(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = fs::read_to_string(folder.path().join("tickwheel-replay.1")).unwrap();
    assert!(page.contains(r"\-\-max\-memory"), "{page}");

    let output = tickwheel().arg("man").arg(folder.path().join("absent")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("absent"), "{}", text(&output.stderr));
}

#[cfg(unix)]
#[test]
fn the_name_of_an_output_sends_nothing_to_the_terminal() {
    let folder = TempDir::new().unwrap();
    let trace = file_of(&folder, "good.csv", generated(10).as_bytes());
    let path = |name| folder.path().join(name);
    let [absent, taken, link] = ["a\x1b/out.svg", "t\x1b.svg", "l\x1b.svg"].map(path);
    fs::create_dir(&taken).unwrap();
    std::os::unix::fs::symlink(&link, &link).unwrap();
    let plot = |path: &Path| replay(&[trace.to_str().unwrap(), "--plot", path.to_str().unwrap()]);
    let page = tickwheel().arg("man").arg(absent.parent().unwrap()).output().unwrap();
    for (output, told) in [
        (plot(&absent), "a\u{fffd}: "),
        (plot(&taken), "t\u{fffd}.svg: found a directory"),
        (plot(&link), "l\u{fffd}.svg: found a link that leads to itself"),
        (page, "a\u{fffd}/tickwheel-"),
    ] {
        let said = text(&output.stderr);
        assert!(said.contains(told) && !said.contains('\x1b'), "{said:?}");
    }
}

/// A limit on the size of files is met like a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_man_page_that_cannot_be_written_is_named_and_is_not_there() {
    let folder = TempDir::new().unwrap();
    let line = "trap '' XFSZ; ulimit -f 1; exec \"$0\" man \"$1\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", line, env!("CARGO_BIN_EXE_tickwheel")]).arg(folder.path());
    let output = shell.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = text(&output.stderr);
    assert!(told.contains(".1: "), "{told}");
    for page in fs::read_dir(folder.path()).unwrap() {
        let page = page.unwrap().path();
        assert!(!told.contains(&page.display().to_string()), "{told}");
    }
}

/// What a sorted map of exact deadlines makes of a trace.
#[derive(Default)]
struct Naive {
    /// Deadline in ticks and number of the operation, to key.
    sorted: BTreeMap<(u128, u64), u32>,
    places: HashMap<u32, (u128, u64)>,
    ops: u64,
    scheduled: u64,
    rescheduled: u64,
    cancelled: u64,
    fired_in_span: u64,
    live_at_end: u64,
    fired_total: u64,
    replaced: u64,
    late_cancels: u64,
    late_reschedules: u64,
    peak_live: u64,
}

impl Naive {
    fn run(text: &str, tick: u128) -> Self {
        let mut naive = Self::default();
        for line in text.lines().skip(1) {
            let fields: Vec<_> = line.split(',').collect();
            let time = fields[0].parse::<u128>().unwrap() * 1_000_000;
            let key = fields[2].parse().unwrap();
            naive.ops += 1;
            naive.fire(time / tick);
            if fields[1] == "cancel" {
                match naive.remove(key) {
                    true => naive.cancelled += 1,
                    false => naive.late_cancels += 1,
                }
                continue;
            }
            let pending = naive.remove(key);
            match (fields[1], pending) {
                ("schedule", true) => naive.replaced += 1,
                ("reschedule", false) => naive.late_reschedules += 1,
                _ => {}
            }
            match fields[1] {
                "schedule" => naive.scheduled += 1,
                _ => naive.rescheduled += 1,
            }
            let due = time + fields[3].parse::<u128>().unwrap() * 1_000_000;
            let place = (due.div_ceil(tick), naive.ops);
            naive.sorted.insert(place, key);
            naive.places.insert(key, place);
            naive.peak_live = naive.peak_live.max(naive.sorted.len() as u64);
        }
        naive.fired_in_span = naive.fired_total;
        naive.live_at_end = naive.sorted.len() as u64;
        naive.fire(u128::MAX);
        naive
    }

    fn fire(&mut self, now: u128) {
        while let Some(first) = self.sorted.first_entry().filter(|first| first.key().0 <= now) {
            self.places.remove(&first.remove());
            self.fired_total += 1;
        }
    }

    fn remove(&mut self, key: u32) -> bool {
        match self.places.remove(&key) {
            Some(place) => self.sorted.remove(&place).is_some(),
            None => false,
        }
    }

    fn assert_agrees(&self, figures: &Value) {
        for (column, expected) in [
            ("ops", self.ops),
            ("scheduled", self.scheduled),
            ("rescheduled", self.rescheduled),
            ("cancelled", self.cancelled),
            ("fired_in_span", self.fired_in_span),
            ("live_at_end", self.live_at_end),
            ("fired_total", self.fired_total),
            ("replaced", self.replaced),
            ("late_cancels", self.late_cancels),
            ("late_reschedules", self.late_reschedules),
            ("peak_live", self.peak_live),
            ("early", 0),
            ("max_late_ticks", 0),
        ] {
            assert_eq!(count(figures, column), expected, "{column} of {}", figures["mode"]);
        }
    }
}

/// A trace of so many operations on few keys, with delays from 1 ms to 10 h, that mixes what is
/// pending and what is gone.
fn generated(operations: u32) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut text = HEADER.to_string();
    let mut time = 0;
    for _ in 0..operations {
        let most = [1, 1, 2, 30, 3_000][random(5) as usize];
        time += random(most);
        let key = random(500);
        let most = [5, 100, 2_000, 60_000, 36_000_000][random(5) as usize];
        let delay = 1 + random(most);
        text += &match random(10) {
            0..=4 => format!("{time},schedule,{key},{delay}\n"),
            5..=6 => format!("{time},reschedule,{key},{delay}\n"),
            _ => format!("{time},cancel,{key},\n"),
        };
    }
    text
}

/// A trace that takes a hashed wheel of 512 buckets a time that grows with the square of its lines.
///
/// Half of the timeouts wait in one bucket for a far round, and in each round before that one more
/// timeout in the same bucket comes due. To find it, the wheel looks at all.
fn one_a_round_beside_many_that_wait(operations: u64) -> String {
    const ROUND: u64 = 512;
    let waiting = operations / 2;
    let mut text = HEADER.to_string();
    for key in 0..waiting {
        text += &format!("0,schedule,{key},{}\n", ROUND * operations);
    }
    for round in 0..operations - waiting {
        text += &format!("{},schedule,{},{ROUND}\n", ROUND * round, waiting + round);
    }
    text
}

fn figures_of(trace: &Path, modes: &[&str], tick: &str) -> Vec<Value> {
    let mut arguments = vec![trace.to_str().unwrap(), "--json", "--tick", tick];
    arguments.extend(["--limit-slower", "1000000"]);
    arguments.extend(modes.iter().flat_map(|mode| ["--mode", mode]));
    let figures = json(&replay(&arguments));
    assert_eq!(figures.len(), modes.len());
    figures
}

fn replay(arguments: &[&str]) -> Output {
    command(arguments).stdin(Stdio::null()).output().unwrap()
}

fn replay_input(input: &[u8], arguments: &[&str]) -> Output {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn command(arguments: &[&str]) -> Command {
    let mut command = tickwheel();
    command.arg("replay").args(arguments);
    // Nothing is measured here: what is promised of figures is promised of any.
    if !arguments.contains(&"--limit-time") {
        command.args(["--limit-time", "0s"]);
    }
    command
}

fn tickwheel() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tickwheel"))
}

/// That `trace` is refused with one message, and without a trace of output.
fn assert_refused(folder: &TempDir, trace: &Path, place: &str, found: &str, expected: &str) {
    let before = names_in(folder);
    let plot = folder.path().join("never.svg");
    let output = replay(&[trace.to_str().unwrap(), "--plot", plot.to_str().unwrap()]);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.starts_with("tickwheel: ") && message.lines().count() == 1, "{message}");
    for part in [place, &trace.display().to_string(), ": found ", found, ", expected ", expected] {
        assert!(message.contains(part), "{part:?} in {message}");
    }
    assert!(output.stdout.is_empty());
    assert_eq!(names_in(folder), before);
}

/// The modes of a replay.
fn json(output: &Output) -> Vec<Value> {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let mut study: Value = serde_json::from_slice(&output.stdout).unwrap();
    serde_json::from_value(study["candidates"].take()).unwrap()
}

fn count(figures: &Value, column: &str) -> u64 {
    figures[column].as_u64().unwrap_or_else(|| panic!("{column} is a count"))
}

fn text_of(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn file_of(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn names_in(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

const HEADER: &str = "time_ms,op,key,delay_ms\n";
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data");
const MODES: [&str; 5] =
    ["hierarchical:64", "hierarchical:2", "hashed:1", "hashed:512", "hashed:65536"];
