//! The page itself: which charts there are, and what is said beside them.

use super::Page;
use super::chart::{Bar, COLORS, Chart, Columns, Drawing, Lines, Series, Table, prose};
use super::profile::{Ends, Step};
use crate::choose::{self, Candidate};
use crate::replay::{Figures, units};
use crate::turning::ROUNDS_BITS;
use horrorshow::helper::doctype;
use horrorshow::{Raw, html};
use indicatif::HumanCount;
use std::fmt;
use std::ops::Range;

/// HTML.
impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.replayed.trace;
        let title = format!("Timeouts of {name}");
        let sections = [
            ("trace", "The trace", self.of_the_trace()),
            ("modes", "What each mode costs", self.of_the_modes()),
            ("inside", "Inside the wheels", self.of_the_wheels()),
        ];
        let page = html! {
            : doctype::HTML;
            html(lang="en") {
                head {
                    meta(charset="utf-8");
                    meta(name="viewport", content="width=device-width, initial-scale=1");
                    // Nothing comes from the network, not even by mistake.
                    meta(http-equiv="Content-Security-Policy",
                        content="default-src 'none'; style-src 'unsafe-inline'; img-src data:");
                    link(rel="icon", href="data:,");
                    title : &title;
                    style : Raw(include_str!("style.css"));
                }
                body {
                    header {
                        h1 : &title;
                        p : self.summary();
                        nav(aria-label="Sections") { ul {
                            li { a(href="#recommendation") : "Recommendation"; }
                            @ for (id, title, _) in &sections {
                                li { a(href=format_args!("#{id}")) : *title; }
                            }
                        } }
                    }
                    main {
                        section(id="recommendation") {
                            h2 : "Recommendation";
                            p : prose(&self.choice.reason());
                            @ if let Some(code) = self.choice.code() {
                                pre(tabindex="0", aria-label="The code of the timer") {
                                    code : code;
                                }
                            }
                            : self.unbeaten().render("The configurations to choose from");
                            p : self.choice.scoring();
                            div(class="charts") { : self.scores().render(); }
                        }
                        @ for (id, title, (words, charts)) in &sections {
                            section(id=*id) {
                                h2 : *title;
                                @ for paragraph in words { p : prose(paragraph); }
                                div(class="charts") {
                                    @ for chart in charts { : chart.render(); }
                                }
                            }
                        }
                    }
                    footer {
                        p {
                            : "Written by ";
                            code : "tickwheel report";
                            : concat!(" ", env!("CARGO_PKG_VERSION"), ".");
                        }
                    }
                }
            }
        };
        write!(f, "{page}")
    }
}

/// What is said in a section, and its charts.
type Section = (Vec<String>, Vec<Chart>);

impl Page {
    fn summary(&self) -> String {
        format!(
            "{} over {}, at most {} timeouts pending, at a tick of {}.",
            units::operations(self.profile.operations),
            units::milliseconds(self.profile.span_ms),
            HumanCount(self.profile.most_pending),
            self.replayed.tick,
        )
    }

    /// The table of the configurations that no other beats in everything.
    fn unbeaten(&self) -> Table {
        let head = [
            "configuration",
            "score",
            "of 3 repetitions",
            "CPU time per operation",
            "longest call",
            "most memory",
            "wake-ups",
            "late by the tick, most",
        ];
        let row = |candidate: &Candidate| {
            let figures = candidate.figures.as_ref()?;
            Some(vec![
                choose::name(candidate),
                units::duration(figures.score.median),
                units::range(figures.score.least, figures.score.most),
                units::duration(figures.cpu_ns.median),
                choose::longest_call(figures),
                units::memory(figures.memory_bytes),
                HumanCount(figures.wakeups).to_string(),
                units::duration(figures.max_lateness_ns as f64),
            ])
        };
        Table {
            head: head.map(String::from).into(),
            rows: self.choice.unbeaten().into_iter().filter_map(row).collect(),
        }
    }

    fn scores(&self) -> Chart {
        let scored = self.choice.candidates.iter();
        let mut scored: Vec<_> =
            scored.filter_map(|at| Some((at, at.figures.as_ref()?.score))).collect();
        scored.sort_by(|a, b| a.1.median.total_cmp(&b.1.median));
        let bars = scored.iter().take(MOST_BARS).map(|(candidate, score)| Bar {
            label: choose::name(candidate),
            text: units::duration(score.median),
            value: score.median,
            spread: Some([score.least, score.most]),
            is_hashed: candidate.mode.is_hashed(),
        });
        let rows = scored.iter().map(|(candidate, score)| {
            let range = units::range(score.least, score.most);
            vec![choose::name(candidate), units::duration(score.median), range]
        });
        Chart {
            id: "score",
            title: "Score of the best configurations",
            description: format!(
                "Less is better. The thin line is the spread of three repetitions. {} \
                 configurations were searched, and {} came to the end.",
                self.choice.candidates.len(),
                scored.len(),
            ),
            drawing: Drawing::Bars(bars.collect()),
            table: table(&["configuration", "score", "of 3 repetitions"], rows),
        }
    }

    fn of_the_trace(&self) -> Section {
        let mut words = Vec::new();
        let mut charts = Vec::new();
        let delays = &self.profile.delays;
        match (delays.quantile(0.0), delays.quantile(1.0)) {
            (Some(least), Some(most)) if least < most => charts.push(self.delays(least, most)),
            (Some(all), _) => {
                words.push(format!("All delays in the trace are {}.", units::milliseconds(all)));
            }
            (None, _) => words.push("Nothing is scheduled in the trace.".into()),
        }
        charts.extend([self.operations(), self.pending(), self.ends()]);
        (words, charts)
    }

    fn delays(&self, least: u64, most: u64) -> Chart {
        const BINS_A_POWER: f64 = 4.0;
        let bin = |ms: u64| ((ms.max(1) as f64).log10() * BINS_A_POWER).floor() as usize;
        let (first, last) = (bin(least), bin(most));
        let mut counts = vec![0; last - first + 1];
        for (delay_ms, count) in self.profile.delays.iter() {
            counts[bin(delay_ms).clamp(first, last) - first] += count;
        }
        let bins = counts.len() as f64;
        let start_ms = |bin: usize| 10f64.powf((first + bin) as f64 / BINS_A_POWER);
        let place = |ms: f64| (ms.log10() * BINS_A_POWER - first as f64) / bins;
        let marks: Vec<_> = units::marks()
            .map(|ms| (place(ms), units::duration(ms * 1e6)))
            .filter(|(at, _)| (0.0..=1.0).contains(at))
            .collect();
        let every = marks.len().div_ceil(MOST_MARKS).max(1);
        let rows =
            counts.iter().enumerate().filter(|(_, count)| 0 < **count).map(|(bin, count)| {
                let range = units::range(start_ms(bin) * 1e6, start_ms(bin + 1) * 1e6);
                vec![range, HumanCount(*count).to_string()]
            });
        let table = table(&["delay", "timeouts"], rows);
        let all = self.profile.delays.len().max(1) as f64;
        Chart {
            id: "delays",
            title: "Delays",
            description: format!(
                "The share of all delays by length, on a logarithmic axis. {}.",
                self.profile.delays
            ),
            drawing: Drawing::Columns(Columns {
                series: vec![Series {
                    name: "delays".into(),
                    values: counts.iter().map(|&count| count as f64 / all).collect(),
                }],
                marks: marks.into_iter().step_by(every).collect(),
                value: percent,
            }),
            table,
        }
    }

    fn operations(&self) -> Chart {
        let steps = &self.profile.steps;
        let all: u64 = steps.iter().map(|at| at.scheduled + at.moved + at.cancelled).sum();
        let count = |of: fn(&Step) -> u64| steps.iter().map(of).sum::<u64>();
        let share = |of| percent(count(of) as f64 / all.max(1) as f64);
        let description = format!(
            "Operations in each {}: {} schedule, {} move and {} cancel a timeout.",
            self.step(),
            share(|at| at.scheduled),
            share(|at| at.moved),
            share(|at| at.cancelled),
        );
        self.over_time(
            "operations",
            "Operations over time",
            description,
            &[
                ("scheduled", &|at| at.scheduled),
                ("moved", &|at| at.moved),
                ("cancelled", &|at| at.cancelled),
            ],
        )
    }

    fn pending(&self) -> Chart {
        let description = format!(
            "Timeouts pending at the end of each {}. The most at any time are {}.",
            self.step(),
            HumanCount(self.profile.most_pending)
        );
        let series: &[Of<'_>] = &[("pending", &|at| at.pending)];
        self.over_time("pending", "Pending over time", description, series)
    }

    fn ends(&self) -> Chart {
        let Ends { timeouts, moves, cancelled, fired, pending } = self.profile.ends;
        let ends = [
            ("cancelled", cancelled),
            ("fired", fired),
            ("pending at the end of the trace", pending),
        ];
        let share = |count: u64| count as f64 / timeouts.max(1) as f64;
        let bars = ends.map(|(label, count)| Bar {
            label: label.into(),
            text: percent(share(count)),
            value: share(count),
            spread: None,
            is_hashed: false,
        });
        let rows = ends.map(|(label, count)| {
            vec![label.into(), HumanCount(count).to_string(), percent(share(count))]
        });
        Chart {
            id: "ends",
            title: "How timeouts end",
            description: match moves {
                0 => format!("Of {} timeouts. None of them was moved.", HumanCount(timeouts)),
                _ => format!(
                    "Of {} timeouts. Before their end they were moved {} times, which is {} for \
                     each.",
                    HumanCount(timeouts),
                    HumanCount(moves),
                    units::three_digits(share(moves)),
                ),
            },
            drawing: Drawing::Bars(bars.into()),
            table: table(&["end", "timeouts", "share"], rows),
        }
    }

    fn of_the_modes(&self) -> Section {
        let about = "Each call is timed for itself here, and the search above times stretches of \
                     calls, so their figures differ.";
        // The first line recommends a mode, as the search does, out of fewer.
        let stopped = self.replayed.verdict();
        let stopped = stopped.lines().skip(1).map(String::from);
        let words = [about.into()].into_iter().chain(stopped).collect();
        let cost = self.bars(
            "cost",
            "Cost of an operation",
            "Less is better. The mean time of an operation with its share of expiring; the thin \
             line is the spread of three repetitions.",
            |figures| figures.ns_per_op,
            Some(|figures| [figures.least_ns_per_op, figures.most_ns_per_op]),
            units::duration,
        );
        let memory = self.bars(
            "memory",
            "Memory of a timeout",
            "Less is better. The most bytes that the wheel held, by the most timeouts that it \
             held.",
            |figures| figures.peak_bytes_per_timeout,
            None,
            units::bytes,
        );
        (words, [Some(cost), self.calls(), Some(memory)].into_iter().flatten().collect())
    }

    /// A chart with a bar for each mode.
    fn bars(
        &self,
        id: &'static str,
        title: &'static str,
        description: &str,
        value: fn(&Figures) -> f64,
        spread: Option<fn(&Figures) -> [f64; 2]>,
        text: fn(f64) -> String,
    ) -> Chart {
        let bar = |figures: &Figures| Bar {
            label: named(figures),
            text: text(value(figures)),
            value: value(figures),
            spread: spread.map(|spread| spread(figures)),
            is_hashed: figures.mode.is_hashed(),
        };
        let rows = self.replayed.figures.iter().map(|figures| {
            let ends = spread.map(|spread| spread(figures).map(text));
            let cells = [named(figures), text(value(figures))];
            cells.into_iter().chain(ends.into_iter().flatten()).collect()
        });
        let head: &[&str] = match spread {
            Some(_) => &["mode", "middle", "least", "most"],
            None => &["mode", title],
        };
        Chart {
            id,
            title,
            description: description.into(),
            drawing: Drawing::Bars(self.replayed.figures.iter().map(bar).collect()),
            table: table(head, rows),
        }
    }

    /// How long the longest calls take; None if there were no calls.
    fn calls(&self) -> Option<Chart> {
        let figures = &self.replayed.figures;
        let powers = figures.iter().map(|figures| figures.tail_ns.len()).min()?;
        let tail = |figures: &Figures| {
            let tail = figures.tail_ns.iter().take(powers).copied();
            tail.chain([figures.max_call_ns]).collect::<Vec<_>>()
        };
        let one_in = (1..=powers as u32).map(|power| 10_u64.pow(power));
        let rows = one_in
            .map(|calls| format!("1 in {}", HumanCount(calls)))
            .chain(["longest".into()])
            .enumerate()
            .map(|(at, name)| {
                let times = figures.iter().map(|figures| units::duration(tail(figures)[at] as f64));
                [name].into_iter().chain(times).collect()
            });
        let head = ["calls".to_string()].into_iter().chain(figures.iter().map(named));
        let table = Table { head: head.collect(), rows: rows.collect() };
        let short = (1..=powers).map(|power| match power {
            1..=3 => format!("1 in {}", 10_u64.pow(power as u32)),
            4..=5 => format!("1 in {} k", 10_u64.pow(power as u32 - 3)),
            _ => format!("1 in {} M", 10_u64.pow(power as u32 - 6)),
        });
        Some(Chart {
            id: "calls",
            title: "The longest calls",
            description:
                "How long one call in ten, in a hundred and so on takes at least, and the \
                          longest call. Less is better; the axis is logarithmic. `expire_bounded` \
                          caps a call."
                    .into(),
            drawing: Drawing::Lines(Lines {
                series: figures
                    .iter()
                    .map(|figures| Series {
                        name: named(figures),
                        values: tail(figures).into_iter().map(|ns| ns as f64).collect(),
                    })
                    .collect(),
                marks: short.chain(["longest".into()]).collect(),
                value: units::duration,
            }),
            table,
        })
    }

    fn of_the_wheels(&self) -> Section {
        let [hierarchical, hashed] = self.profile.modes;
        let steps = &self.profile.steps;
        let levels = steps.iter().map(|step| step.levels.len()).max().unwrap_or(0);
        let groups = groups(0..levels);
        let values: Vec<_> = groups.iter().map(|group| total(|step| &step.levels, group)).collect();
        let names: Vec<_> = groups.iter().map(level_name).collect();
        let sorted: Of<'_> = ("sorted", &|step| step.sorted);
        let level_series: Vec<_> = series(&names, &values).chain([sorted]).collect();

        let bins = steps.iter().map(|step| step.rounds.len()).max().unwrap_or(0);
        let mut groups = self::groups(1..bins);
        groups.insert(0, 0..1);
        let values: Vec<_> = groups.iter().map(|group| total(|step| &step.rounds, group)).collect();
        let names: Vec<_> = groups.iter().map(rounds_name).collect();
        let round_series: Vec<_> = series(&names, &values).collect();

        let tick = self.replayed.tick;
        let words = format!(
            "A timeout far away waits on a coarse level of {hierarchical} and comes down as its \
             time comes near. In {hashed} it stays in its bucket, and waits one round of {} after \
             the other.",
            units::duration(hashed.buckets() as f64 * tick.length().as_nanos() as f64),
        );
        let levels = self.over_time(
            "levels",
            "Timeouts by level over time",
            format!(
                "Where the timeouts of {hierarchical} are at the end of each {}. A bucket of level \
                 0 spans {tick}, and a bucket of each other level {} times as much as one of the \
                 level below. The sorted ones fire next.",
                self.step(),
                hierarchical.buckets(),
            ),
            &level_series,
        );
        let rounds = self.over_time(
            "rounds",
            "Timeouts by rounds over time",
            format!(
                "How many rounds the timeouts of {hashed} still wait at the end of each {}.",
                self.step(),
            ),
            &round_series,
        );
        (vec![words], vec![levels, rounds])
    }

    /// A chart with a column for each step of the profile. Leaves out series of nothing but zeros.
    fn over_time(
        &self,
        id: &'static str,
        title: &'static str,
        description: String,
        series: &[Of<'_>],
    ) -> Chart {
        let steps = &self.profile.steps;
        let is_there = |of: &&Of<'_>| steps.iter().any(|step| 0 < of.1(step));
        let series: Vec<_> = series.iter().filter(is_there).collect();
        let time = |step: usize| match (step as u64).saturating_mul(self.profile.step_ms) {
            0 => "0".into(),
            ms => units::milliseconds(ms),
        };
        let head = ["from".to_string()].into_iter();
        let rows = steps.iter().enumerate().map(|(number, step)| {
            let counts = series.iter().map(|of| HumanCount(of.1(step)).to_string());
            [time(number)].into_iter().chain(counts).collect()
        });
        Chart {
            id,
            title,
            description,
            table: Table {
                head: head.chain(series.iter().map(|of| of.0.into())).collect(),
                rows: rows.collect(),
            },
            drawing: Drawing::Columns(Columns {
                series: series
                    .iter()
                    .map(|of| Series {
                        name: of.0.into(),
                        values: steps.iter().map(|step| of.1(step) as f64).collect(),
                    })
                    .collect(),
                marks: [0, steps.len() / 2, steps.len()]
                    .map(|step| (step as f64 / steps.len().max(1) as f64, time(step)))
                    .into(),
                value: count,
            }),
        }
    }

    /// How long a step of the profile is.
    fn step(&self) -> String {
        units::milliseconds(self.profile.step_ms)
    }
}

/// A series over the steps of a profile: its name, and its value in a step.
type Of<'a> = (&'a str, &'a dyn Fn(&Step) -> u64);

fn named(figures: &Figures) -> String {
    let stopped = if figures.stopped.is_some() { ", stopped" } else { "" };
    format!("{}{stopped}", figures.mode)
}

/// Divides a range into as few parts of the same length as can be told apart by color, with one
/// color left.
fn groups(all: Range<usize>) -> Vec<Range<usize>> {
    let each = all.len().div_ceil(COLORS - 1).max(1);
    all.clone().step_by(each).map(|start| start..all.end.min(start + each)).collect()
}

/// The sum of a group of the counts of a step.
fn total<'a>(
    counts: fn(&Step) -> &[u64],
    group: &'a Range<usize>,
) -> impl Fn(&Step) -> u64 + use<'a> {
    move |step| counts(step).iter().take(group.end).skip(group.start).sum()
}

/// Series of these names and values.
fn series<'a>(
    names: &'a [String],
    values: &'a [impl Fn(&Step) -> u64],
) -> impl Iterator<Item = Of<'a>> {
    let values = values.iter().map(|values| values as &dyn Fn(&Step) -> u64);
    names.iter().map(String::as_str).zip(values)
}

fn level_name(levels: &Range<usize>) -> String {
    match levels.len() {
        1 => format!("level {}", levels.start),
        _ => format!("levels {} to {}", levels.start, levels.end - 1),
    }
}

/// The rounds of bins of a profile.
fn rounds_name(bins: &Range<usize>) -> String {
    let end = |bin: usize| 1_u128 << (bin as u32 * ROUNDS_BITS);
    let rounded = |rounds: u128| HumanCount(rounds.try_into().unwrap_or(u64::MAX)).to_string();
    match bins.start {
        0 => "no round".into(),
        start => {
            format!("{} to {} rounds", rounded(end(start - 1)), rounded(end(bins.end - 1) - 1))
        }
    }
}

fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    Table { head: head.iter().map(|&head| head.into()).collect(), rows: rows.into_iter().collect() }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent != 0.0 && percent < 1.0 => format!("{} %", units::three_digits(percent)),
        percent => format!("{} %", (percent * 10.0).round() / 10.0),
    }
}

fn count(number: f64) -> String {
    match number {
        _ if 1e6 <= number => format!("{} M", units::three_digits(number / 1e6)),
        _ if 1e4 <= number => format!("{} k", units::three_digits(number / 1e3)),
        _ => format!("{number}"),
    }
}

/// More bars do not help to choose.
const MOST_BARS: usize = 8;
/// As many marks have room below columns.
const MOST_MARKS: usize = 4;
