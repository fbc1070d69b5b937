//! What a study says of what was measured, and which configuration it takes. The rounds are made up,
//! and the verdict is that of the command.

use fastrand::Rng;
use std::io::Cursor;
use std::time::{Duration, Instant};
use tickwheel::{Mode, Ticks, Timer, Wheel};
use tickwheel_cli::generate::{Generator, Shape, Size};
use tickwheel_cli::plot;
use tickwheel_cli::study::{
    Budget, Candidate, Configurations, Driver, Figures, Limit, Options, Planner, Study, Unfit,
    study,
};
use tickwheel_cli::tick::Tick;
use tickwheel_cli::trace::{Action, Operation, Trace};

#[test]
fn rounds_of_a_busy_machine_give_the_default_to_a_search_and_to_modes_that_were_given() {
    let [base, small, hashed] = BUSY;
    let samples: &[(&str, &[f64])] =
        &[("hierarchical:64", &base), ("hierarchical:16", &small), ("hashed:512", &hashed)];
    let mut study = measured(samples);
    let verdict = "Take the default: no mode that was measured surely costs over 5 % less. None \
                   of them does. The confidence is 99 % after 16 rounds. The default is \
                   hierarchical:64, here at a tick of 1 ms, not at its own, which is finer.";
    assert_eq!(study.verdict(), verdict);
    let modes = samples.iter().map(|(mode, _)| mode.parse().unwrap()).collect();
    study.options.configurations = Configurations::Given { modes, tick: Default::default() };
    assert_eq!(study.verdict(), verdict);
}

/// The machine was busy in the first rounds, after which one mode was left out.
#[test]
fn a_mode_with_fewer_rounds_is_shown_beside_those_with_all() {
    let (base, other) = ([[200.0; 16], [100.0; 16]].concat(), [220.0; 16]);
    let study = measured(&[("hierarchical:64", &base), ("hashed:512", &other)]);
    let measured = study.candidates[1].measured.as_ref().unwrap();
    for (shown, expected) in
        [(measured.quotient, 1.1), (measured.score, 110.0), (measured.cpu_ns, 110.0)]
    {
        assert!((shown.median / expected - 1.0).abs() < 1e-9, "{measured:?}");
    }
    assert!((measured.parts[0] / 110.0 - 1.0).abs() < 1e-9, "{measured:?}");
}

#[test]
fn what_costs_less_is_named_with_how_much_and_how_sure_it_is() {
    let base: Vec<_> = (0..16).map(|n| 100.0 + f64::from(n)).collect();
    let other: Vec<_> = base.iter().map(|base| base * 0.8).collect();
    let study = measured(&[("hierarchical:64", &base), ("hashed:512", &other)]);
    let headline = "Take hashed:512 at a tick of 1 ms: it costs 20 % less than the default.";
    let details = "The confidence is 99 % after 16 rounds. The default is hierarchical:64, \
                   here at a tick of 1 ms, not at its own, which is finer. Above all it takes 83.6 ns \
                   of CPU time per operation, where hierarchical:64 takes 105 ns of CPU time per \
                   operation.";
    assert_eq!(study.headline(), headline);
    assert_eq!(study.verdict(), format!("{headline} {details}"));
    let code = study.code().unwrap();
    assert_eq!(code, "Timer::builder().mode(Mode::hashed(512)?).build()?");
}

#[test]
fn few_rounds_cannot_tell_however_clear_they_are() {
    for rounds in 0..8 {
        let (base, other) = (vec![100.0; rounds], vec![10.0; rounds]);
        let study = measured(&[("hierarchical:64", &base), ("hashed:512", &other)]);
        assert!(study.candidates.iter().all(|it| it.measured.is_none()));
        assert_eq!(study.recommended().unwrap().mode, Mode::default());
        let verdict = study.verdict();
        assert!(verdict.starts_with("Cannot tell: "), "{verdict}");
        assert!(verdict.contains("`--limit-time` gives more"), "{verdict}");
    }
}

#[test]
fn rounds_that_disagree_cannot_tell_and_say_what_would_help() {
    let base = vec![100.0; 16];
    let other: Vec<_> = (0..16).map(|n| f64::from(80 + 4 * (n % 8))).collect();
    let mut study = measured(&[("hierarchical:64", &base), ("hashed:512", &other)]);
    let [first, second, last] = [
        "Take the default: no mode that was measured surely costs over 5 % less. 16 rounds cannot \
         tell whether hashed:512 costs over 5 % less. hashed:512 costs 0.8 to 1.08 times as much.",
        " Fewer programs beside it, or a longer `--limit-time`, would help.",
        " The default is hierarchical:64, here at a tick of 1 ms, not at its own, which is finer.",
    ];
    assert_eq!(study.verdict(), [first, second, last].concat());
    // There are no more rounds, however much time there is.
    study.rounds = MOST_ROUNDS;
    let said = study.verdict();
    assert!(said.contains(". Fewer programs beside it would help."), "{said}");
}

/// A round can take twice as long as each before it.
#[test]
fn a_round_begins_only_if_twice_the_longest_still_fits() {
    let has_room = |limit: u64, begun: &[u64]| {
        let mut budget = Budget::new(Duration::from_millis(limit));
        begun.iter().map(|&at| budget.has_room(Duration::from_millis(at))).collect::<Vec<_>>()
    };
    assert_eq!(has_room(0, &[0]), [false]);
    assert_eq!(has_room(100, &[99]), [true]);
    assert_eq!(has_room(100, &[100]), [false]);
    // The longest took 20, then 30; a shorter one after it does not make room.
    assert_eq!(has_room(100, &[10, 30, 59, 60]), [true, true, false, false]);
    assert_eq!(has_room(100, &[0, 30, 39, 40]), [true, true, true, false]);
    assert_eq!(has_room(100, &[50, 80]), [true, false]);
    assert_eq!(has_room(100, &[200]), [false]);
}

/// Modes are measured again and again, undisturbed and where other programs make every second
/// time longer, some of them a hundred times. For each mode beside the default: how much of the
/// default's time it takes, and how much of its counted work.
#[test]
fn the_answer_is_the_same_in_19_of_20_runs_quiet_and_busy() {
    const PARTS: usize = 50;
    const SAME: [(&str, f64, f64); 4] = [
        ("hashed:1", 1.0, 1.0),
        ("hashed:2", 1.0, 1.0),
        ("hashed:4", 1.0, 1.0),
        ("hashed:8", 1.0, 1.0),
    ];
    let one = |quotient, counted| vec![("hashed:512", quotient, counted)];
    let many = |quotient| [one(quotient, 1.0), SAME.into()].concat();
    // The better of the two changes from run to run, or hardly does.
    let pair = |quotient, counted| {
        vec![("hashed:512", 0.85, 1.0), ("hashed:64", 0.85 * quotient, counted)]
    };
    let (default, hashed, small) = ("hierarchical:64", "hashed:512", "hashed:64");
    let mut cases = vec![
        (one(0.50, 1.0), hashed),
        (one(0.90, 1.0), hashed),
        (one(0.935, 1.0), hashed),
        (one(0.949, 1.0), hashed),
        (one(0.96, 1.0), default),
        (one(0.96, 0.9), hashed),
        (one(0.99, 0.9), default),
        (one(1.0, 1.0), default),
        (one(1.3, 0.9), default),
        // Each of many modes could win by chance.
        (many(0.90), hashed),
        (many(1.0), default),
    ];
    for quotient in [0.97, 1.0, 1.025, 1.035] {
        cases.push((pair(quotient, 1.0), small));
        cases.push((pair(quotient, 0.9), small));
        cases.push((pair(quotient, 1.1), hashed));
    }
    let runs = if std::env::var_os("TICKWHEEL_LONG").is_some() { 100 } else { 20 };
    let mut random = Rng::with_seed(7);
    for (others, expected) in cases {
        for disturbed in [0.01, 0.2, 0.5] {
            let mut time = |ns: f64| {
                let jitter = 1.0 + 0.02 * random.f64();
                let is_disturbed = random.f64() < disturbed;
                let tail = 0.1 * (1.0 - random.f64()).powf(-0.7);
                ns * jitter * if is_disturbed { 1.0 + tail } else { 1.0 }
            };
            let mut rounds = |quotient: f64| -> Vec<Vec<f64>> {
                let mut round = |_| (0..PARTS).map(|_| time(1e5 * quotient)).collect();
                (0..32).map(&mut round).collect()
            };
            let all = [(default, 1.0, 1.0)].into_iter().chain(others.iter().copied());
            let modes: Vec<_> = all.clone().map(|(mode, ..)| mode).collect();
            let mut same = 0;
            for _ in 0..runs {
                let costs: Vec<_> = all.clone().map(|(_, quotient, _)| rounds(quotient)).collect();
                let mut study = measured_in_parts(&modes, &costs);
                for (candidate, (.., counted)) in study.candidates.iter_mut().zip(all.clone()) {
                    candidate.figures.counted_score *= counted;
                }
                let mode = study.recommended().unwrap().mode;
                same += usize::from(mode == expected.parse().unwrap());
            }
            assert!(
                19 * runs <= 20 * same,
                "{others:?} {disturbed}: {same} of {runs} say {expected}"
            );
        }
    }
}

/// Quotients and counted work as runs on a busy machine gave them: of the trace
/// cache-twitter52, where counted work prefers another mode, and of kvcache-mooncake, where a
/// smaller wheel costs a little more.
#[test]
fn of_modes_that_cost_about_the_same_every_run_takes_the_same() {
    let twitter = [("hashed:4096", 1.003), ("hashed:32768", 1.007), ("hashed:512", 1.008)];
    let leases = [("hierarchical:256", 1.005), ("hierarchical:1024", 1.039)];
    let run = |modes: &[(&str, f64)], quotients: &[(f64, f64, f64)]| {
        let rounds: &[f64] = &[100.0; 16];
        let all = [("hierarchical:64", 1.0)].into_iter().chain(modes.iter().copied());
        let all: Vec<_> = all.map(|(mode, _)| (mode, rounds)).collect();
        let mut study = measured(&all);
        let others = study.candidates[1..].iter_mut().zip(modes);
        for ((other, (_, counted)), &(least, median, most)) in others.zip(quotients) {
            other.figures.counted_score *= counted;
            let quotient = &mut other.measured.as_mut().unwrap().quotient;
            (quotient.least, quotient.median, quotient.most) = (least, median, most);
        }
        study
    };
    let taken = |study: &Study| study.recommended().unwrap().mode.to_string();
    for quotients in [
        [(0.932, 0.937, 0.962), (0.936, 0.941, 0.954), (0.907, 0.914, 0.934)],
        [(0.917, 0.934, 0.942), (0.919, 0.931, 0.940), (0.895, 0.903, 0.923)],
        [(0.897, 0.919, 0.937), (0.893, 0.919, 0.931), (0.880, 0.886, 0.925)],
        [(0.957, 0.962, 0.967), (0.915, 0.935, 0.946), (0.877, 0.909, 0.920)],
        [(0.964, 0.986, 0.993), (0.933, 0.945, 0.973), (0.902, 0.914, 0.928)],
    ] {
        assert_eq!(taken(&run(&twitter, &quotients)), "hashed:512", "{quotients:?}");
    }
    for quotients in [
        [(0.951, 0.971, 0.983), (0.934, 0.941, 0.949)],
        [(0.964, 0.972, 0.978), (0.943, 0.949, 0.954)],
        [(0.963, 0.973, 0.979), (0.943, 0.948, 0.954)],
        [(0.962, 0.972, 0.980), (0.944, 0.951, 0.954)],
        [(0.965, 0.970, 0.977), (0.933, 0.945, 0.949)],
        [(0.960, 0.974, 0.988), (0.944, 0.949, 0.952)],
    ] {
        assert_eq!(taken(&run(&leases, &quotients)), "hierarchical:1024", "{quotients:?}");
    }
    let equal = [(0.85, 0.90, 0.91), (0.85, 0.899, 0.91)];
    assert_eq!(taken(&run(&leases, &equal)), "hierarchical:256");
    let equal = [(0.90, 0.913, 0.93), (0.90, 0.912, 0.93), (0.90, 0.914, 0.93)];
    let study = run(&twitter, &equal);
    assert_eq!(taken(&study), "hashed:512");
    let said = " hashed:4096 and hashed:32768 cost about the same.";
    assert!(study.verdict().contains(said), "{}", study.verdict());
    let mut study = study;
    study.candidates[2].measured.as_mut().unwrap().quotient.median = 0.99;
    let said = " hashed:4096 costs about the same.";
    assert!(study.verdict().contains(said), "{}", study.verdict());
    // Of two that cost the same, a busy machine made the one sure and the other not.
    let beside = [("hashed:512", 1.035), ("hashed:64", 1.091)];
    for (hashed, small) in [
        ((0.886, 0.920, 0.950), (0.888, 0.916, 0.973)),
        ((0.901, 0.931, 1.006), (0.879, 0.911, 0.954)),
        ((0.901, 0.931, 0.970), (0.902, 0.936, 1.012)),
    ] {
        assert_eq!(taken(&run(&beside, &[hashed, small])), "hashed:512", "{hashed:?}");
    }
    let study = run(&beside, &[(0.901, 0.931, 1.006), (0.879, 0.911, 0.954)]);
    let said = "Take hashed:512 at a tick of 1 ms: it costs about the same as hashed:64, which \
                costs 5 to 12 % less than the default. The confidence is 99 % ";
    assert!(study.verdict().starts_with(said), "{}", study.verdict());
    assert!(!study.verdict().contains("cost about the same."), "{}", study.verdict());
    let unsure = run(&beside, &[(0.901, 0.931, 1.006), (0.902, 0.936, 1.012)]);
    assert_eq!(taken(&unsure), "hierarchical:64");
}

#[test]
fn a_mode_that_was_stopped_is_told() {
    let mut study = equals(["hierarchical:64", "hierarchical:16", "hashed:64"]);
    let stopped = &mut study.candidates[2];
    stopped.stopped = Some(Limit::Work { times: 20, than: Mode::default() });
    stopped.figures.rounds_waited = 1_234_567;
    let said = " Others can cost much: hashed:64 at a tick of 1 ms was stopped when it was over \
                20 times the work of hierarchical:64.";
    assert!(study.verdict().ends_with(said), "{}", study.verdict());
    // Memory says nothing of what a mode costs.
    study.candidates[2].stopped = Some(Limit::Memory(100 << 10));
    assert!(!study.verdict().contains("Others can cost"), "{}", study.verdict());
    study.candidates[2].stopped = Some(Limit::Work { times: 20, than: Mode::default() });
    give(&mut study);
    let said = "\nhashed:64 does not suit this trace: it was stopped when it was over 20 times \
                the work of hierarchical:64: it had left timeouts waiting a round 1,234,567 times.";
    assert!(study.verdict().ends_with(said), "{}", study.verdict());
    let figures = &mut study.candidates[2].figures;
    (figures.rounds_waited, figures.demotions) = (0, 1);
    let said = ": it had demoted timeouts 1 time.";
    assert!(study.verdict().ends_with(said), "{}", study.verdict());
}

/// On the scale of what was measured it has no bar.
#[test]
fn a_mode_that_was_not_measured_says_how_much_its_work_is() {
    let mut study = equals(["hierarchical:64", "hashed:64"]);
    study.candidates[1].measured = None;
    study.candidates[1].figures.counted_score *= 1.26;
    let picture = plot::svg(&study);
    assert!(picture.contains(">not measured: 1.26 x the work<"), "{picture}");
}

/// A mode that was stopped early has counted little, and one that was measured is known better.
#[test]
fn what_another_choice_costs_is_not_what_a_stopped_mode_had_cost() {
    let [base, other, stopped] = [100.0, 150.0, 100.0].map(|ns| vec![ns; 16]);
    let modes = [("hierarchical:64", &*base), ("hashed:512", &other), ("hashed:64", &stopped)];
    let mut study = measured(&modes);
    give(&mut study);
    study.candidates[1].figures.counted_score = 130.0;
    let stopped = &mut study.candidates[2];
    (stopped.stopped, stopped.measured) = (Some(Limit::Memory(1)), None);
    stopped.figures.counted_score = f64::INFINITY;
    let said = " hashed:512 at a tick of 1 ms costs 1.5 times as much.";
    assert!(study.verdict().contains(said), "{}", study.verdict());
    study.candidates[1].measured = None;
    let said = " By counted work, hashed:512 at a tick of 1 ms costs 1.3 times as much.";
    assert!(study.verdict().contains(said), "{}", study.verdict());
}

/// That code compiles, and is what the command prints.
macro_rules! assert_pasted {
    ($driver:ident, $type:ty, $mode:literal, $tick:literal, $code:expr) => {{
        #[expect(dead_code)]
        fn compiles() -> Result<(), Box<dyn std::error::Error>> {
            let _: $type = $code;
            Ok(())
        }
        let squeezed = |code: &str| code.split_whitespace().collect::<String>();
        let mut study = counted(&[$mode]);
        study.candidates[0].tick = $tick.parse().unwrap();
        study.options.driver = Driver::$driver;
        assert_eq!(squeezed(&study.code().unwrap()), squeezed(stringify!($code)));
    }};
}

#[test]
fn the_line_to_paste_compiles_with_and_without_a_mode_and_a_tick_and_for_a_wheel() {
    assert_pasted!(Timer, Timer, "hierarchical", "1ms", Timer::builder().build()?);
    // Of itself such a timer has a finer tick.
    assert_pasted!(
        Timer,
        Timer,
        "hierarchical:256",
        "1ms",
        Timer::builder()
            .mode(Mode::hierarchical_with(256)?)
            .tick(Duration::from_millis(1))
            .build()?
    );
    assert_pasted!(
        Timer,
        Timer,
        "hashed:4096",
        "1500us",
        Timer::builder().mode(Mode::hashed(4096)?).tick(Duration::from_micros(1500)).build()?
    );
    assert_pasted!(
        Wheel,
        (Wheel<()>, Ticks<Instant>),
        "hierarchical:256",
        "10ms",
        (
            Wheel::new(Mode::hierarchical_with(256)?),
            Ticks::new(Instant::now(), Duration::from_millis(10))
        )
    );
}

#[test]
fn what_was_not_measured_is_not_said_to_be_measured() {
    let mut study = equals(["hierarchical:64", "hashed:64"]);
    study.candidates[1].measured = None;
    study.candidates[1].figures.counted_score = 116.0;
    let said = "Take the default: all others that came to the end cost over 15 % more by counted \
                work. The default is hierarchical:64, here at a tick of 1 ms, not at its own, which \
                is finer.";
    assert_eq!(study.verdict(), said);
    study.options.driver = Driver::Wheel;
    let said = " The default is hierarchical:64, here at a tick of 1 ms.";
    assert!(study.verdict().ends_with(said), "{}", study.verdict());
    // At another tick one came to the end.
    study.candidates[1].tick = "10ms".parse().unwrap();
    let said = "Take the default: nothing else came to the end of the trace at a tick of 1 ms.";
    assert_eq!(study.headline(), said);
    assert!(study.is_known());
}

#[test]
fn the_advice_where_no_mode_came_to_the_end_is_about_what_stopped_them() {
    let mut study = counted(&["hierarchical:64", "hashed:64"]);
    let time = Limit::Time(Duration::from_secs(10));
    for (limits, said) in [
        ([time; 2], " Counting took too long: `--operations` reads less of the trace."),
        ([time, Limit::Memory(1)], " `--max-memory` gives them more, and `--operations` reads"),
    ] {
        study.candidates.iter_mut().zip(limits).for_each(|(it, by)| it.stopped = Some(by));
        let verdict = study.verdict();
        let details = verdict.strip_prefix("No configuration came to the end of the trace.");
        assert!(details.unwrap().starts_with(said), "{verdict}");
    }
}

#[test]
fn a_tick_parses_from_what_it_prints() {
    let mut random = Rng::with_seed(1);
    let some = (0..1_000).map(|_| {
        let longest = 1_000 << random.u32(0..32);
        random.u64(1_000..=longest)
    });
    for ns in [10_001_000, 1_000_000_000_000, 3_600_000_000_000].into_iter().chain(some) {
        let Ok(tick) = Tick::new(Duration::from_nanos(ns)) else { continue };
        assert_eq!(tick.to_string().parse(), Ok(tick), "{tick}");
    }
    for (text, printed) in [("62500ns", "62.5 us"), ("10ms", "10 ms"), ("60min", "1 h")] {
        assert_eq!(text.parse::<Tick>().unwrap().to_string(), printed);
    }
}

#[test]
fn a_trace_lasts_until_its_recording_ended() {
    let lines = (0..=2_000).map(|key| format!("{},schedule,{key},3600000\n", 100 + 5 * key));
    let begin = format!("{}\n0,begin,,\n{}", Trace::HEADER, lines.collect::<String>());
    let said = |trace| study_of(trace, &Options::default()).verdict();
    for (trace, lasts) in [(begin.clone() + "20100,end,,\n", "20 s"), (begin, "10 s")] {
        let said = said(trace);
        assert!(said.contains(&format!(" It lasts {lasts}, and most delays")), "{said}");
    }
}

#[test]
fn a_tick_is_not_compared_with_one_at_which_the_mode_was_stopped() {
    let mut study = of_the_default_at_ticks([(40, 300.0), (20, 200.0), (13, 165.0)]);
    assert_eq!(study.headline().matches(" at a tick of 100 ms").count(), 2, "{}", study.headline());
    let said = " because it wakes up 13 times instead of 40 at 1 ms.";
    assert!(study.verdict().ends_with(said), "{}", study.verdict());
    study.candidates[0].stopped = Some(Limit::Memory(1));
    let said = " because it wakes up 13 times instead of 20 at 10 ms.";
    assert!(study.verdict().ends_with(said), "{}", study.verdict());
}

#[test]
fn wake_ups_are_the_reason_for_a_tick_only_if_most_of_the_gain_is_theirs() {
    // Among 1,000 operations, a wake-up costs 5 ns of each.
    for (wakeups, scores, reason) in [
        ([200, 160], [1_500.0, 1_200.0], "it wakes up 160 times instead of 200"),
        ([200, 171], [1_500.0, 1_200.0], "its score by counted work is 1.2 us instead of 1.5 us"),
        ([200, 200], [1_500.0, 1_200.0], "its score by counted work is 1.2 us instead of 1.5 us"),
    ] {
        let [(first, score), (last, least)] = [0, 1].map(|at| (wakeups[at], scores[at]));
        let study = of_the_default_at_ticks([(first, score), (last, least), (last, least)]);
        let said = format!(" The tick is 100 ms because {reason} at 1 ms.");
        assert!(study.verdict().ends_with(&said), "{}", study.verdict());
    }
    let study = of_the_default_at_ticks([(200, 1_504.0), (200, 1_503.0), (200, 1_501.0)]);
    assert!(!study.verdict().contains(" because "), "{}", study.verdict());
}

#[test]
fn names_are_listed_with_commas_and_one_thing_is_no_plural() {
    for (number, names) in [(1, "hashed:1"), (2, "hashed:1 or hashed:2")]
        .into_iter()
        .chain([(3, "hashed:1, hashed:2 or hashed:4")])
    {
        let modes = ["hierarchical:64", "hashed:1", "hashed:2", "hashed:4"];
        let base = vec![100.0; 16];
        let other: Vec<_> = (0..16).map(|n| f64::from(80 + 4 * (n % 8))).collect();
        let samples =
            modes.map(|mode| (mode, if mode.starts_with("hi") { &*base } else { &*other }));
        let study = measured(&samples[..=number]);
        let said = format!("16 rounds cannot tell whether {names} costs over 5 % less.");
        assert!(study.verdict().contains(&said), "{}", study.verdict());
    }
    let mut study = equals(["hierarchical:64", "hashed:64"]);
    study.growing = Some(1);
    let said = " 1 timeout is pending, and their number still grows";
    assert!(study.verdict().contains(said), "{}", study.verdict());
    let lost = Unfit::Lossy { missing: 1, operations: 2_000 };
    let said = "the trace has lost too many operations. 1 operation is missing, beside 2,000";
    assert!(lost.to_string().starts_with(said), "{lost}");
    let few = Unfit::Few { operations: 1, is_whole: false };
    let said = "only 1 operation was read. `--operations` reads more: at least 1,000, and";
    assert!(few.to_string().starts_with(said), "{few}");
}

#[test]
fn so_many_intervals_as_a_study_looks_at_hold_together() {
    let all: Vec<_> = (0..30).map(|power| format!("hashed:{}", 1 << power)).collect();
    for others in 1..all.len() {
        let modes: Vec<_> = all[..=others].iter().map(String::as_str).collect();
        // Each misses its median if all samples are on one side of it. There is one for each mode
        // at each of five looks.
        let miss = |rounds: usize| 5.0 * others as f64 * 2.0 * 0.5_f64.powi(rounds as i32);
        let fewest = (1..).find(|&rounds| miss(rounds) <= 0.01).unwrap();
        for rounds in [fewest - 1, fewest] {
            let round = |n| vec![(100.0 + n as f64) * OPERATIONS as f64];
            let rounds: Vec<_> = (0..rounds).map(round).collect();
            let study = measured_in_parts(&modes, &vec![rounds.clone(); modes.len()]);
            let all = study.candidates.iter().map(|it| it.measured.as_ref().map(|it| it.cpu_ns));
            let most = 99.0 + fewest as f64;
            for interval in all {
                let bounds = interval.map(|it| (it.least, it.most));
                assert_eq!(bounds, (rounds.len() == fewest).then_some((100.0, most)), "{others}");
            }
        }
    }
}

#[test]
fn a_group_has_the_least_time_of_each_part() {
    let round = |n| vec![100.0 + f64::from(n), 200.0 - f64::from(n)];
    let mut rounds: Vec<_> = (0..20).map(round).collect();
    let cost = |rounds: &Vec<Vec<f64>>| {
        let study = measured_in_parts(&["hierarchical:64", "hashed:64"], &vec![rounds.clone(); 2]);
        let cpu_ns = study.candidates[1].measured.as_ref().unwrap().cpu_ns;
        [cpu_ns.least, cpu_ns.median, cpu_ns.most].map(|ns| (ns * OPERATIONS as f64).round())
    };
    // There are ten groups of two rounds.
    assert_eq!(cost(&rounds), [290.0; 3]);
    rounds[3] = vec![9e9, 9e9];
    assert_eq!(cost(&rounds), [290.0, 290.0, 113.0 + 187.0]);
    rounds[13] = vec![112.0, 9e9];
    rounds[3] = vec![9e9, 189.0];
    assert_eq!(cost(&rounds), [290.0, 290.0, 112.0 + 189.0]);
}

#[test]
fn what_is_counted_moves_the_border_for_the_time() {
    for (counted, border) in [0.5, 0.94, 0.96, 1.0, 1.04, 1.06, 2.0]
        .into_iter()
        .zip([0.98, 0.98, 0.955, 0.955, 0.955, 0.95, 0.95])
    {
        for (quotient, is_taken) in [(border - 0.001, true), (border + 0.001, false)] {
            let (base, other) = (vec![100.0; 16], vec![100.0 * quotient; 16]);
            let mut study = measured(&[("hierarchical:64", &base), ("hashed:512", &other)]);
            give(&mut study);
            study.candidates[1].figures.counted_score *= counted;
            let mode = study.recommended().unwrap().mode;
            assert_eq!(mode.is_hashed(), is_taken, "{counted} {quotient}");
        }
    }
}

#[test]
fn counts_are_the_same_within_the_same_step_of_five_percent() {
    // Counted, the times of the second mode beside the first, and which of the two is taken: the
    // smaller one, if neither its count nor its time is worse.
    for (counted, times, taken) in [
        ([1.0, 1.049], 1.0, "hashed:64"),
        ([1.0, 1.051], 1.0, "hashed:512"),
        ([1.051, 1.1], 1.0, "hashed:64"),
        ([1.051, 1.11], 1.0, "hashed:512"),
        ([1.0, 1.0], 0.9, "hashed:64"),
        ([1.0, 1.0], 1.04, "hashed:64"),
        ([1.0, 1.0], 1.05, "hashed:512"),
    ] {
        let [base, large, small] = [100.0, 80.0, 80.0 * times].map(|ns| vec![ns; 16]);
        let modes = [("hierarchical:64", &*base), ("hashed:512", &large), ("hashed:64", &small)];
        let mut study = measured(&modes);
        for (candidate, counted) in study.candidates[1..].iter_mut().zip(counted) {
            candidate.figures.counted_score *= counted;
        }
        let mode = study.recommended().unwrap().mode;
        assert_eq!(mode.to_string(), taken, "{counted:?} {times}");
    }
}

#[test]
fn a_score_is_cpu_time_and_wakeups_and_a_twentieth_for_each_doubling() {
    let score = |driver, set: fn(&mut Figures)| {
        let mut study = counted(&["hierarchical:64", "hashed:64"]);
        study.operations = 100;
        study.options.driver = driver;
        study.candidates.iter_mut().for_each(|it| set(&mut it.figures));
        study.note(&[vec![vec![5_000.0]; 16], vec![vec![5_000.0]; 16]]);
        let score = study.candidates[1].measured.as_ref().unwrap().score.median;
        (score * 1e6).round() / 1e6
    };
    for driver in [Driver::Timer, Driver::Wheel] {
        assert_eq!(score(driver, |_| ()), 50.0);
        assert_eq!(score(driver, |it| it.wakeups = 1), 100.0);
        assert_eq!(score(driver, |it| it.memory_bytes = 2 << 20), 52.5);
    }
    assert_eq!(score(Driver::Timer, |it| it.longest_call = 4 * 4096), 50.0);
    assert_eq!(score(Driver::Wheel, |it| it.longest_call = 4 * 4096), 55.125);
}

#[test]
fn keys_that_are_gone_take_no_memory_and_are_late_by_the_tick_all_the_same() {
    const KEYS: u32 = 100_000;
    let schedule = |key: u32| {
        let action = Action::Schedule { delay_ms: 100 };
        Operation { time_ms: key.into(), key, action }
    };
    let mut planner = Planner::new(Tick::default());
    let calls = (0..KEYS).flat_map(|key| planner.calls(&schedule(key)).collect::<Vec<_>>());
    let most = calls.map(|call| call.place).max().unwrap();
    assert!(most < 8 << 10, "{most}");
    assert_eq!(planner.counts.scheduled, u64::from(KEYS));

    let tick: Tick = "7ms".parse().unwrap();
    let late_ms =
        (0..KEYS).map(|key| tick.deadline(u64::from(key) + 100) * 7 - u64::from(key) - 100);
    let mean_ns = late_ms.sum::<u64>() * 1_000_000 / u64::from(KEYS);
    let operations = (0..KEYS).map(|key| format!("{}\n", schedule(key)));
    let trace = format!("{}\n{}", Trace::HEADER, operations.collect::<String>());
    let configurations = Configurations::Given { modes: vec![Mode::default()], tick };
    let options = Options { configurations, time: Duration::ZERO, ..Options::default() };
    assert_eq!(study_of(trace, &options).candidates[0].figures.mean_lateness_ns, mean_ns);
}

/// Modes that cost the same.
fn equals<const NUMBER: usize>(modes: [&str; NUMBER]) -> Study {
    measured(&modes.map(|mode| (mode, &[100.0; 16][..])))
}

/// Makes a search one of modes that were given.
fn give(study: &mut Study) {
    let (modes, tick) = (Vec::new(), Tick::default());
    study.options.configurations = Configurations::Given { modes, tick };
}

/// A search in which each round took so many nanoseconds per operation, mode by mode.
fn measured(samples: &[(&str, &[f64])]) -> Study {
    let modes: Vec<_> = samples.iter().map(|&(mode, _)| mode).collect();
    let round = |&ns: &f64| vec![ns * OPERATIONS as f64];
    let rounds = samples.iter().map(|(_, samples)| samples.iter().map(round).collect());
    measured_in_parts(&modes, &rounds.collect::<Vec<_>>())
}

/// A search in which the parts of each round took so many nanoseconds, mode by mode.
fn measured_in_parts(modes: &[&str], rounds: &[Vec<Vec<f64>>]) -> Study {
    let mut study = counted(modes);
    study.rounds = rounds[0].len();
    study.note(rounds);
    study
}

/// A search among 1,000 operations that takes a tick of 100 ms. The default mode alone came to the
/// end, with these wake-ups and scores by counted work at 1, 10 and 100 ms.
fn of_the_default_at_ticks(counted: [(u64, f64); 3]) -> Study {
    let size = Size { operations: 1_000, pending: 100.try_into().unwrap() };
    let operations = Generator::new(Shape::Short, size, 1).map(|it| format!("{it}\n"));
    let trace = format!("{}\n{}", Trace::HEADER, operations.collect::<String>());
    let configurations = Configurations::Search(Duration::from_millis(100));
    let options = Options { configurations, time: Duration::ZERO, ..Options::default() };
    let mut study = study_of(trace, &options);
    let mut counted = counted.into_iter();
    for Candidate { mode, figures, stopped, .. } in &mut study.candidates {
        match *mode == Mode::default() {
            true => (figures.wakeups, figures.counted_score) = counted.next().unwrap(),
            false => *stopped = Some(Limit::Memory(1)),
        }
    }
    study
}

/// A search of these modes at a tick of 1 ms, all of which have the same counts.
fn counted(modes: &[&str]) -> Study {
    let trace = format!("{}\n0,schedule,1,1\n", Trace::HEADER);
    let modes = modes.iter().map(|mode| mode.parse().unwrap()).collect();
    let configurations = Configurations::Given { modes, tick: Tick::default() };
    let mut study = study_of(trace, &Options { configurations, ..Options::default() });
    study.operations = OPERATIONS;
    study.unfit = Vec::new();
    study.options = Options::default();
    for candidate in &mut study.candidates {
        candidate.figures = Figures::default();
        candidate.figures.counted_score = 100.0;
    }
    study
}

fn study_of(trace: String, options: &Options) -> Study {
    study(Trace::new("a trace", Cursor::new(trace)).unwrap(), options, |_| ()).unwrap()
}

/// CPU time per operation, in nanoseconds, as rounds on two cores with a load of 22 gave it:
/// hierarchical:64, hierarchical:16 and hashed:512 under the trace kvcache-mooncake.
const BUSY: [[f64; 16]; 3] = [
    [
        66.3, 73.3, 73.2, 65.0, 59.3, 59.2, 61.1, 64.8, 62.4, 59.5, 60.0, 59.1, 58.3, 59.7, 59.5,
        72.0,
    ],
    [
        82.1, 87.2, 75.0, 79.2, 68.6, 64.9, 69.5, 70.6, 68.7, 68.2, 72.8, 67.0, 68.5, 68.5, 66.4,
        81.2,
    ],
    [
        84.6, 88.7, 79.3, 72.2, 64.6, 63.9, 68.0, 70.9, 67.2, 60.4, 68.9, 63.9, 62.4, 64.9, 64.5,
        79.4,
    ],
];

const OPERATIONS: u64 = 100_000;

/// The most rounds of a study.
const MOST_ROUNDS: usize = 256;
