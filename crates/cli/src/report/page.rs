//! The page itself: which charts there are, and what is said beside them.

use super::Page;
use super::profile::Step;
use super::way::way;
use crate::chart::{
    Bar, Bars, COLORS, Chart, Columns, Drawing, delays, numbers, percent, prose, table,
};
use crate::picture::ROUNDS_BITS;
use crate::study::{self, Counts, Figures};
use crate::tick::Tick;
use crate::units;
use horrorshow::helper::doctype;
use horrorshow::{Raw, html};
use std::fmt;
use std::iter;
use std::ops::Range;

/// HTML.
impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.study.trace;
        let title = format!("Timeouts of {name}");
        let sections = [
            ("trace", "The trace", self.of_the_trace()),
            ("modes", "What each mode does", self.of_the_modes()),
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
                        content="default-src 'none'; style-src 'nonce-page'; img-src data:");
                    link(rel="icon", href="data:,");
                    title : &title;
                    style(nonce="page") : Raw(include_str!("style.css"));
                }
                body {
                    header {
                        h1 : &title;
                        p : self.summary();
                        @ for gap in self.study.gaps.to_string().lines() { p : format!("Warning: {gap}."); }
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
                            div(class="front") {
                                div {
                                    p(class="verdict") : prose(&self.study.headline());
                                    @ if let Some(code) = self.study.code() {
                                        pre(tabindex="0", aria-label="The code to paste") {
                                            code : code;
                                        }
                                    }
                                    @ for sentence in self.study.details().lines() {
                                        p : prose(sentence);
                                    }
                                    p : self.study.scoring();
                                    : numbers(&self.study.table(&self.study.shown()),
                                        "The configurations to choose from");
                                }
                                : self.scores().render();
                                : self.ways().render();
                            }
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
            "{}, at most {} pending, at a tick of {}.",
            self.study.extent().replacen("the", "The", 1),
            units::count(self.profile.most_pending, "timeout"),
            self.tick(),
        )
    }

    /// The measured scores of the modes at the tick that is recommended, or the counted ones if
    /// nothing was measured. What was not measured, or is not sure, says so.
    fn scores(&self) -> Chart {
        let (tick, is_measured) = (self.study.tick(), self.study.is_measured());
        let (shown, bars): (Vec<_>, Vec<_>) = self.study.scores().into_iter().unzip();
        let parts = ["CPU time", "wake-ups", "memory", "longest call"];
        let rows = shown.iter().zip(&bars).map(|(it, bar)| {
            let cells = it
                .measured
                .as_ref()
                .map_or([const { String::new() }; 4], |at| at.parts.map(units::duration));
            [bar.label.clone(), bar.text.clone()].into_iter().chain(cells).collect()
        });
        let table = table(&[&["mode", "score"][..], &parts[..]].concat(), rows);
        let source = match is_measured {
            true => format!(
                "The thin line is where the median lies, with a confidence of 99 %, by {} rounds \
                 at most. What was not measured was stopped, or costs so many times as much as \
                 {} by its counted work.",
                self.study.rounds,
                self.study.baseline().map_or_else(String::new, |it| it.mode.to_string()),
            ),
            false => "By counted work: nothing was measured.".into(),
        };
        Chart {
            id: "score",
            title: "What each mode costs per operation",
            description: format!(
                "Less is better; the frame is around the recommended one. At a tick of {tick}. \
                 {source}"
            ),
            drawing: Drawing::Bars(Bars {
                bars,
                parts: match is_measured {
                    true => parts.map(String::from).into(),
                    false => Vec::new(),
                },
            }),
            table,
        }
    }

    fn of_the_trace(&self) -> Section {
        let delays = delays(&self.study.delays);
        let words = delays.as_ref().err().cloned();
        let charts = [self.operations(), self.pending(), self.ends()];
        (words.into_iter().collect(), delays.into_iter().chain(charts).collect())
    }

    fn operations(&self) -> Chart {
        let series = [
            self.series("scheduled", |at| at.scheduled),
            self.series("moved", |at| at.moved),
            self.series("cancelled", |at| at.cancelled),
        ];
        let sums = series.each_ref().map(|(_, values)| values.iter().sum::<u64>());
        let all = sums.iter().sum::<u64>().max(1);
        let [scheduled, moved, cancelled] = sums.map(|sum| percent(sum as f64 / all as f64));
        let description = format!(
            "Operations in each {}: {scheduled} schedule, {moved} move and {cancelled} cancel a \
             timeout.",
            self.step(),
        );
        self.over_time("operations", "Operations over time", description, series)
    }

    fn pending(&self) -> Chart {
        let description = format!(
            "Timeouts pending at the end of each {}. The most at any time are {}.",
            self.step(),
            units::number(self.profile.most_pending)
        );
        let series = [self.series("pending", |at| at.pending)];
        self.over_time("pending", "Pending over time", description, series)
    }

    fn ends(&self) -> Chart {
        let counts = self.counts();
        let timeouts = counts.timeouts();
        let cancelled = counts.cancelled + counts.replaced;
        let moves = counts.rescheduled - counts.late_reschedules;
        let ends = [
            ("cancelled", cancelled),
            ("fired", self.profile.fired),
            ("pending at the end", timeouts - cancelled - self.profile.fired),
        ];
        let share = |count: u64| count as f64 / timeouts.max(1) as f64;
        let bars = ends.map(|(label, count)| Bar {
            label: label.into(),
            text: percent(share(count)),
            parts: vec![share(count)],
            spread: None,
            is_taken: false,
        });
        let rows = ends
            .map(|(label, count)| vec![label.into(), units::number(count), percent(share(count))]);
        Chart {
            id: "ends",
            title: "How timeouts end",
            description: match moves {
                0 => format!("Of {}. None was moved.", units::count(timeouts, "timeout")),
                _ => format!(
                    "Of {}, with {} before the end, which is {} for each.",
                    units::count(timeouts, "timeout"),
                    units::count(moves, "move"),
                    units::three_digits(share(moves)),
                ),
            },
            drawing: Drawing::Bars(Bars { bars: bars.into(), parts: Vec::new() }),
            table: table(&["end", "timeouts", "share"], rows),
        }
    }

    fn of_the_modes(&self) -> Section {
        let about = "These figures are counted, and the same on every machine, busy or not.";
        let stopped = self.study.candidates.iter().filter_map(|it| {
            let limit = it.stopped?;
            Some(format!("{} was stopped when it was {limit}.", study::name(it)))
        });
        let words = [about.into()].into_iter().chain(stopped).collect();
        let work = self.bars(
            "work",
            "Timeouts handled",
            "Less is better. The timeouts that were handed out, moved to a finer level, or looked \
             at in vain because they wait for a later round.",
            |figures| figures.work,
            units::number,
        );
        let wakeups = self.bars(
            "wakeups",
            "Wake-ups",
            "Less is better. How often the wheel asks to be woken up.",
            |figures| figures.wakeups,
            units::number,
        );
        let memory = self.bars(
            "memory",
            "Most memory",
            "Less is better. The most bytes that the wheel held.",
            |figures| figures.memory_bytes,
            units::memory,
        );
        (words, vec![work, wakeups, memory])
    }

    /// A chart with a bar for each mode at the tick that is recommended.
    fn bars(
        &self,
        id: &'static str,
        title: &'static str,
        description: &str,
        value: fn(&Figures) -> u64,
        text: fn(u64) -> String,
    ) -> Chart {
        let bars = self.study.counts(value, text);
        let table =
            table(&["mode", title], bars.iter().map(|it| vec![it.label.clone(), it.text.clone()]));
        Chart {
            id,
            title,
            description: description.into(),
            drawing: Drawing::Bars(Bars { bars, parts: Vec::new() }),
            table,
        }
    }

    fn of_the_wheels(&self) -> Section {
        let [hierarchical, hashed] = self.wheels.each_ref().map(|it| it.mode);
        let tick = self.tick();
        let words = format!(
            "A timeout far away waits on a coarse level of {hierarchical} and comes down as its \
             time comes near. In {hashed} it stays in its bucket, and waits one round of {} after \
             the other.",
            units::duration(hashed.buckets() as f64 * tick.length().as_nanos() as f64),
        );
        let levels = self.inside(
            ("levels", "Timeouts by level over time"),
            format!(
                "Where the timeouts of {hierarchical} are at the end of each {}. A bucket of level \
                 0 spans {tick}, and a bucket of each other level {} times as much as one of the \
                 level below. The sorted ones fire next; few are in no bucket.",
                self.step(),
                hierarchical.buckets(),
            ),
            0,
        );
        let stopped = self.wheels[1]
            .stopped
            .map(|limit| format!("{hashed} is not shown: it was stopped when it was {limit}."));
        let words = [words].into_iter().chain(stopped).collect();
        if self.profile.steps.iter().any(|step| step.wheels.len() < 2) {
            return (words, vec![levels]);
        }
        let rounds = self.inside(
            ("rounds", "Timeouts by rounds over time"),
            format!(
                "How many rounds the timeouts of {hashed} still wait at the end of each {}. The \
                 sorted ones fire next; few are in no bucket.",
                self.step(),
            ),
            1,
        );
        (words, vec![levels, rounds])
    }

    /// A chart of where the timeouts of a wheel are: on which levels or for how many rounds, and
    /// how many are in no bucket.
    fn inside(
        &self,
        (id, title): (&'static str, &'static str),
        description: String,
        wheel: usize,
    ) -> Chart {
        let most = self.profile.steps.iter().map(|step| step.wheels[wheel].0.len()).max();
        let most = most.unwrap_or(0);
        let groups: Vec<_> = match self.wheels[wheel].mode.is_hashed() {
            true => {
                iter::once(0..1).chain(groups(1..most)).map(|it| (rounds_name(&it), it)).collect()
            }
            false => groups(0..most).map(|it| (level_name(&it), it)).collect(),
        };
        let series = groups.into_iter().map(|(name, group)| {
            self.series(name, |step| {
                step.wheels[wheel].0.iter().take(group.end).skip(group.start).sum()
            })
        });
        let sorted = self.series("sorted or few", |step| step.wheels[wheel].1);
        self.over_time(id, title, description, series.chain([sorted]))
    }

    /// How two timeouts of the trace wait, one of a common delay and one of a long delay.
    fn ways(&self) -> Chart {
        let delays = &self.study.delays;
        let mut waited: Vec<_> =
            [0.5, 0.99].into_iter().filter_map(|share| delays.quantile(share)).collect();
        waited.dedup();
        let now = self.tick().deadline(self.profile.from_ms);
        let way = |ms| self.wheels.each_ref().map(|it| way(it.mode, it.tick, now, ms));
        let ways: Vec<_> = waited.iter().flat_map(|&ms| way(ms)).collect();
        let rows = ways.iter().map(|way| {
            let places = way.boxes.iter().map(|(_, name, time)| format!("{name} {time}"));
            let places: Vec<_> = places.collect();
            vec![way.label.clone(), way.text.clone(), places.join(", ").replace("... ", "...")]
        });
        let timeouts = self.counts().timeouts().max(1) as f64;
        let [hierarchical, hashed] = &self.wheels;
        let mean = match self.wheels.iter().all(|it| it.stopped.is_none()) {
            true => format!(
                " In the mean, the timeouts of this trace are moved {} times, or wait {} rounds.",
                units::three_digits(hierarchical.figures.demotions as f64 / timeouts),
                units::three_digits(hashed.figures.rounds_waited as f64 / timeouts),
            ),
            false => String::new(),
        };
        Chart {
            id: "ways",
            title: "The way of a timeout",
            description: format!(
                "Where a timeout of the median delay waits and for how long, and one of the delay \
                 that 99 in 100 do not exceed. Each box on another level is a move; each round is a \
                 look in vain.{mean}"
            ),
            table: table(&["timeout", "way", "places"], rows),
            drawing: Drawing::Ways(ways),
        }
    }

    /// A name, and a number for each step of the profile.
    fn series(&self, name: impl Into<String>, of: impl Fn(&Step) -> u64) -> (String, Vec<u64>) {
        (name.into(), self.profile.steps.iter().map(of).collect())
    }

    /// A chart with a column for each step of the profile. Leaves out series of nothing but zeros.
    fn over_time(
        &self,
        id: &'static str,
        title: &'static str,
        description: String,
        series: impl IntoIterator<Item = (String, Vec<u64>)>,
    ) -> Chart {
        let is_there = |(_, values): &(String, Vec<u64>)| values.iter().any(|&value| 0 < value);
        let series: Vec<_> = series.into_iter().filter(is_there).collect();
        let number = self.profile.steps.len();
        let time = |step: usize| match (step as u64).saturating_mul(self.profile.step_ms) {
            0 => "0".into(),
            ms => units::milliseconds(ms),
        };
        let head: Vec<_> = ["from"].into_iter().chain(series.iter().map(|it| &*it.0)).collect();
        let rows = (0..number).map(|step| {
            let counts = series.iter().map(|(_, values)| units::number(values[step]));
            [time(step)].into_iter().chain(counts).collect()
        });
        let marks = [0, number / 2, number].map(|at| (at as f64 / number.max(1) as f64, time(at)));
        let table = table(&head, rows);
        let drawn = |(name, values): (String, Vec<u64>)| {
            (name, values.into_iter().map(|value| value as f64).collect())
        };
        Chart {
            id,
            title,
            description,
            table,
            drawing: Drawing::Columns(Columns {
                series: series.into_iter().map(drawn).collect(),
                marks: marks.into(),
                value: count,
            }),
        }
    }

    /// What the operations do at that tick, in any wheel.
    fn counts(&self) -> Counts {
        self.wheels[0].figures.counts
    }

    /// The tick of the wheels that are shown.
    fn tick(&self) -> Tick {
        self.wheels[0].tick
    }

    /// How long a step of the profile is.
    fn step(&self) -> String {
        units::milliseconds(self.profile.step_ms)
    }
}

/// Divides a range into as few parts of the same length as can be told apart by color, with one
/// color left.
fn groups(all: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let each = all.len().div_ceil(COLORS - 1).max(1);
    all.clone().step_by(each).map(move |start| start..all.end.min(start + each))
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
    let rounded = |rounds: u128| units::number(rounds.try_into().unwrap_or(u64::MAX));
    match bins.start {
        0 => "no round".into(),
        start => {
            format!("{} to {} rounds", rounded(end(start - 1)), rounded(end(bins.end - 1) - 1))
        }
    }
}

fn count(number: f64) -> String {
    match number {
        _ if 1e6 <= number => format!("{} M", units::three_digits(number / 1e6)),
        _ if 1e4 <= number => format!("{} k", units::three_digits(number / 1e3)),
        _ => format!("{number}"),
    }
}
