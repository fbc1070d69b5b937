//! Draws a [`Watch`].

use super::turning::Turning;
use super::{Pace, Watch, telling};
use indicatif::HumanCount;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{
    Block, Clear, Padding, Paragraph, RenderDirection, Sparkline, Widget, Wrap,
};
use tickwheel_cli::picture::{Picture, ROUNDS_BITS};
use tickwheel_cli::tick::Tick;
use tickwheel_cli::units;

impl Watch {
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        if area.width < LEAST_WIDTH || area.height < LEAST_HEIGHT {
            let words = format!(
                "{}x{} is too small: {LEAST_WIDTH}x{LEAST_HEIGHT} shows something, 80x24 all.",
                area.width, area.height
            );
            return frame.render_widget(Paragraph::new(words).wrap(Wrap { trim: true }), area);
        }
        let sentence = Paragraph::new(self.told.as_str()).wrap(Wrap { trim: true });
        let panels = self.panels();
        let rows = Layout::vertical([
            Constraint::Length(1),
            Constraint::Max(self.wheels_height(&panels, area.width)),
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(SENTENCE),
            Constraint::Length(1),
        ]);
        let [head, wheels, legend, activity, told, keys] = rows.areas(area);
        frame.render_widget(self.heading(), head);
        self.draw_wheels(panels, wheels, frame.buffer_mut());
        frame.render_widget(self.marks().legend().dim(), legend);
        self.draw_activity(activity, frame.buffer_mut());
        frame.render_widget(sentence, told);
        let line = if self.recording.is_some() { FOLLOWING_KEYS } else { KEYS };
        frame.render_widget(Line::from(line).dim(), keys);
        if self.helps {
            self.draw_help(area, frame.buffer_mut());
        }
    }

    /// Explains the keys in a window.
    fn draw_help(&self, area: Rect, buffer: &mut Buffer) {
        let lines = super::KEYS.lines();
        // A recording goes on as it is written.
        let keys = lines.filter(|line| {
            self.recording.is_none() || FOLLOWING.iter().any(|key| line.starts_with(key))
        });
        let words = keys.collect::<Vec<_>>().join("\n");
        let width = words.lines().map(str::len).max().unwrap_or(0) as u16 + 4;
        let height = words.lines().count() as u16 + 2;
        let window = area.centered(Constraint::Max(width), Constraint::Max(height));
        let frame = Block::bordered().title(" Keys ").padding(Padding::horizontal(1));
        let frame = if self.ascii { frame.border_set(ASCII_BORDER) } else { frame };
        Clear.render(window, buffer);
        Paragraph::new(words).block(frame).render(window, buffer);
    }

    /// Draws rates, lateness, the pending timeouts over time and the last operations, as far as
    /// there is room.
    fn draw_activity(&self, area: Rect, buffer: &mut Buffer) {
        let gaps = self.player.known().0.to_string();
        let lines = [self.activity.rates(), super::activity::lateness(&self.player), gaps];
        let words = Paragraph::new(lines.join("\n")).wrap(Wrap { trim: true });
        let [said, below] =
            Layout::vertical([Constraint::Length(3), Constraint::Fill(1)]).areas(area);
        words.render(said, buffer);
        if below.height < LEAST_BELOW {
            return;
        }
        let halves = Layout::horizontal([Constraint::Fill(1); 2]).spacing(2);
        let [left, right] = match LEAST_BESIDE <= below.width {
            true => halves.areas(below),
            false => [below, Rect::ZERO],
        };
        let pending: Vec<_> = self.activity.pending().collect();
        let most = pending.iter().copied().max().unwrap_or(0);
        let heading = format!("pending over time, at most {}", HumanCount(most));
        buffer.set_stringn(left.x, left.y, heading, left.width.into(), Style::new().bold());
        let bars = if self.ascii { ASCII_BARS } else { symbols::bar::NINE_LEVELS };
        let chart = Sparkline::default().data(pending).max(most.max(1)).bar_set(bars);
        let chart =
            chart.style(Style::new().fg(Color::Cyan)).direction(RenderDirection::RightToLeft);
        let room = |area: Rect| Rect { y: area.y + 1, height: area.height - 1, ..area };
        chart.render(room(left), buffer);
        if right.is_empty() {
            return;
        }
        let heading = "the last operations";
        buffer.set_stringn(right.x, right.y, heading, right.width.into(), Style::new().bold());
        let lines = self.player.recent.iter().map(|applied| {
            let at = clock(applied.operation.time_ms as f64 * 1e6);
            Line::from(format!("{at}  {}", telling::line(applied)))
        });
        Paragraph::new(Text::from_iter(lines)).render(room(right), buffer);
    }

    fn marks(&self) -> &'static Marks {
        if self.ascii { &ASCII } else { &BLOCKS }
    }

    fn heading(&self) -> Line<'_> {
        let pace = match self.pace {
            Pace::Paused => "paused",
            Pace::Playing if self.recording.is_some() => "following",
            Pace::Playing => "playing",
            Pace::Jumping(_) | Pace::Stepping { .. } => "jumping",
            Pace::Over => "over",
        };
        let rest = match &self.recording {
            Some(_) if self.pace == Pace::Over => String::new(),
            Some(recording) => {
                let news = recording.news.elapsed().as_secs();
                format!("news {news} s ago  ")
            }
            None => format!("1 s shows {}  ", units::duration(self.nanoseconds_a_second())),
        };
        Line::from(vec![
            Span::from(self.name.as_str()).bold(),
            Span::from(format!(
                "  at {}  tick {}  {rest}",
                clock(self.player.now_ns()),
                self.player.tick,
            )),
            Span::from(format!("[{pace}]")).bold(),
        ])
    }

    fn panels(&self) -> Vec<Panel<'_>> {
        let panel = |wheel| Panel::new(wheel, self.player.tick, self.marks());
        self.player.wheels.iter().map(panel).collect()
    }

    /// Whether the wheels stand beside each other.
    fn is_beside(&self, width: u16) -> bool {
        LEAST_BESIDE <= width / self.player.wheels.len().max(1) as u16
    }

    /// The lines that the wheels take to show everything, at this width.
    fn wheels_height(&self, panels: &[Panel<'_>], width: u16) -> u16 {
        let number = self.player.wheels.len() as u16;
        let heights = |width| panels.iter().map(move |panel| panel.height(width));
        match self.is_beside(width) {
            true => heights(width / number.max(1)).max().unwrap_or(0),
            false => heights(width).fold(number, u16::saturating_add),
        }
    }

    /// Draws the wheels beside each other if there is room, else below each other.
    fn draw_wheels(&self, panels: Vec<Panel<'_>>, area: Rect, buffer: &mut Buffer) {
        let wheels = &self.player.wheels;
        let number = panels.len().max(1) as u16;
        let areas = match self.is_beside(area.width) {
            true => {
                Layout::horizontal(vec![Constraint::Fill(1); number.into()]).spacing(2).split(area)
            }
            false => {
                let wanted = panels.iter().map(|panel| panel.height(area.width));
                // A hashed wheel shrinks by itself.
                let heights =
                    wanted.zip(wheels).map(|(height, wheel)| match wheel.mode().is_hashed() {
                        true => Constraint::Max(height),
                        false => Constraint::Length(height),
                    });
                let gap = u16::from(24 < area.height);
                Layout::vertical(heights).spacing(gap).split(area)
            }
        };
        for (panel, &area) in panels.into_iter().zip(areas.iter()) {
            panel.render(area, buffer);
        }
    }
}

/// One wheel.
struct Panel<'a> {
    wheel: &'a Turning,
    picture: Picture,
    tick: Tick,
    marks: &'static Marks,
}

impl<'a> Panel<'a> {
    fn new(wheel: &'a Turning, tick: Tick, marks: &'static Marks) -> Self {
        Self { wheel, picture: Picture::of(wheel.wheel()), tick, marks }
    }

    /// The lines that it takes to show everything, at this width.
    fn height(&self, width: u16) -> u16 {
        let lines = match self.wheel.mode().is_hashed() {
            true => self.wheel.mode().buckets() / self.columns(width),
            false => self.levels(),
        };
        2 + u16::try_from(lines).unwrap_or(u16::MAX - 2)
    }

    /// The levels to show: those up to the coarsest with a timeout, and a few if there is none.
    fn levels(&self) -> usize {
        self.picture.levels.len().max(FEWEST_LEVELS).min(self.wheel.mode().levels())
    }

    /// The columns of a line of buckets: a power of two, as the number of buckets.
    fn columns(&self, width: u16) -> usize {
        let room = width.saturating_sub(BEFORE + AFTER).max(1);
        1 << room.ilog2()
    }

    /// How long the time is that a bucket of `level` spans.
    fn span(&self, level: usize) -> String {
        let ticks = (self.wheel.mode().buckets() as f64).powi(level as i32);
        let nanoseconds = ticks * self.tick.length().as_nanos() as f64;
        let mut units = units::UNITS.into_iter();
        let (name, unit) = units.find(|(_, unit)| *unit <= nanoseconds).unwrap_or(("ns", 1.0));
        match (nanoseconds / unit).round() {
            number if number < 1000.0 => format!("{number} {name}"),
            _ => format!(">999 {name}"),
        }
    }

    /// Draws the buckets of `level` over `lines` lines.
    fn draw_buckets(&self, level: usize, area: Rect, lines: usize, buffer: &mut Buffer) {
        let mode = self.wheel.mode();
        let columns = self.columns(area.width);
        // Either several buckets a cell or several cells a bucket.
        let cells = columns * lines;
        let cells_of = |bucket: usize| {
            let end = (bucket + 1) * cells / mode.buckets();
            let first = bucket * cells / mode.buckets();
            first..end.max(first + 1)
        };
        let mut counts = vec![0; cells];
        for (&bucket, timeouts) in self.picture.levels.get(level).into_iter().flatten() {
            cells_of(bucket).for_each(|cell| counts[cell] += timeouts);
        }
        let cursor = cells_of(self.wheel.cursor(level));
        for (cell, &timeouts) in counts.iter().enumerate() {
            let is_cursor = cursor.contains(&cell);
            let is_past = !mode.is_hashed() && cell < cursor.start;
            let mark = match timeouts {
                0 if is_cursor => self.marks.cursor,
                0 if is_past => ' ',
                0 => self.marks.empty,
                _ => self.marks.filled(timeouts),
            };
            let style = match timeouts {
                0 if !is_cursor => Style::new().dim(),
                _ if is_cursor => Style::new().fg(Color::Yellow).reversed(),
                _ => Style::new().fg(Color::Cyan),
            };
            let at = (area.x + BEFORE + (cell % columns) as u16, area.y + (cell / columns) as u16);
            if let Some(at) = buffer.cell_mut(at) {
                at.set_char(mark).set_style(style);
            }
        }
    }

    fn draw_hierarchical(&self, area: Rect, buffer: &mut Buffer) {
        let room = usize::from(area.height.saturating_sub(2));
        for (line, level) in (0..self.levels()).rev().enumerate().take(room) {
            let y = area.y + 1 + line as u16;
            let label = format!("L{level} {}", self.span(level));
            buffer.set_stringn(area.x, y, label, BEFORE.into(), Style::new());
            let count = self.picture.on_level(level);
            let row = Rect { y, height: 1, ..area };
            self.draw_count(count, row, buffer);
            self.draw_buckets(level, row, 1, buffer);
        }
        let y = area.y + 1 + self.levels().min(room) as u16;
        if y < area.bottom() {
            let sorted = format!("{IN_NO_BUCKET}: {}", HumanCount(self.picture.sorted.into()));
            buffer.set_stringn(area.x, y, sorted, area.width.into(), Style::new());
        }
    }

    fn draw_hashed(&self, area: Rect, buffer: &mut Buffer) {
        let room = usize::from(area.height.saturating_sub(2)).max(1);
        let wanted = self.wheel.mode().buckets() / self.columns(area.width);
        let lines = 1 << room.min(wanted.max(1)).ilog2();
        let row = Rect { y: area.y + 1, height: lines as u16, ..area };
        buffer.set_stringn(area.x, row.y, "buckets", BEFORE.into(), Style::new());
        let count = self.picture.on_level(0);
        self.draw_count(count, row, buffer);
        self.draw_buckets(0, row, lines, buffer);
        let mut rounds = String::from("rounds left");
        let bins = self.picture.rounds.iter().enumerate();
        for (bin, &timeouts) in bins.filter(|(_, timeouts)| 0 < **timeouts) {
            // No more rounds than there are ticks.
            let end = |bin: usize| 1_u128 << (bin as u32 * ROUNDS_BITS);
            let name = match bin {
                0 => "0".into(),
                _ if bin + 1 == self.picture.rounds.len() => format!("{} on", end(bin - 1)),
                _ => format!("{}-{}", end(bin - 1), end(bin) - 1),
            };
            rounds += &format!("  {name}:{}", short(timeouts.into()));
        }
        if 0 < self.picture.sorted {
            rounds += &format!("  {IN_NO_BUCKET}: {}", short(self.picture.sorted.into()));
        }
        let y = row.y + lines as u16;
        if y < area.bottom() {
            buffer.set_stringn(area.x, y, rounds, area.width.into(), Style::new());
        }
    }

    fn draw_count(&self, count: u64, row: Rect, buffer: &mut Buffer) {
        let x = row.x + BEFORE + self.columns(row.width) as u16 + 1;
        let room = row.right().saturating_sub(x).into();
        buffer.set_stringn(x, row.y, short(count), room, Style::new());
    }
}

impl Widget for Panel<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let mode = self.wheel.mode();
        let seen = self.wheel.see();
        let moved = match mode.is_hashed() {
            true => format!("waited a round {}", HumanCount(seen.stats.rounds_waited)),
            false => format!("demoted {}", HumanCount(seen.stats.demotions)),
        };
        let heading = Line::from(vec![
            Span::from(mode.to_string()).bold(),
            Span::from(format!(
                "  pending {}  fired {}  {moved}",
                HumanCount(self.wheel.wheel().len() as u64),
                HumanCount(seen.fired),
            )),
        ]);
        buffer.set_line(area.x, area.y, &heading, area.width);
        match mode.is_hashed() {
            true => self.draw_hashed(area, buffer),
            false => self.draw_hierarchical(area, buffer),
        }
    }
}

/// What buckets look like.
struct Marks {
    empty: char,
    cursor: char,
    /// Twice as many timeouts from one to the next.
    filled: [char; 8],
}

impl Marks {
    fn legend(&self) -> Line<'static> {
        let Self { empty, cursor, filled } = self;
        let filled = (0..).zip(filled).map(|(power, mark)| format!("{mark} {} ", 1 << power));
        let filled: String = filled.collect();
        Line::from(format!("{filled}timeouts in a bucket  {empty} none  {cursor} cursor"))
    }

    fn filled(&self, timeouts: u32) -> char {
        self.filled[(timeouts.ilog2() as usize).min(self.filled.len() - 1)]
    }
}

/// A time of the trace as a clock shows it, to the ms.
fn clock(nanoseconds: f64) -> String {
    let ms = (nanoseconds / 1e6) as u64;
    let (s, min, h, days) = (ms / 1000, ms / 60_000, ms / 3_600_000, ms / 86_400_000);
    let day = if days == 0 { String::new() } else { format!("{} d ", HumanCount(days)) };
    format!("{day}{}:{:02}:{:02}.{:03}", h % 24, min % 60, s % 60, ms % 1000)
}

/// A number in six characters at most. A large one has its first three digits.
fn short(number: u64) -> String {
    let power = number.checked_ilog10().unwrap_or(0);
    if power < 5 {
        return HumanCount(number).to_string();
    }
    let (digits, decimals) = (number / 10_u64.pow(power - 2), 2 - power % 3);
    let unit = UNITS[power as usize / 3 - 1];
    format!("{:.*} {unit}", decimals as usize, digits as f64 / 10_f64.powi(decimals as i32))
}

const BLOCKS: Marks = Marks {
    empty: '\u{b7}',
    cursor: '\u{2502}',
    filled: [
        '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}',
        '\u{2588}',
    ],
};

const ASCII: Marks =
    Marks { empty: '.', cursor: '|', filled: ['1', '2', '3', '4', '5', '6', '7', '8'] };

const KEYS: &str =
    "space play  s tick  next: n event f fired d demoted r round  +/- speed  ? q quit";
const FOLLOWING_KEYS: &str = "space pause or go on  ? help  q quit";
/// How the lines begin that explain them.
const FOLLOWING: [&str; 3] = ["space", "?", "q"];

const ASCII_BORDER: symbols::border::Set<'_> = symbols::border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

const ASCII_BARS: symbols::bar::Set<'_> = symbols::bar::Set {
    full: "#",
    seven_eighths: "#",
    three_quarters: "#",
    five_eighths: "#",
    half: ":",
    three_eighths: ":",
    one_quarter: ".",
    one_eighth: ".",
    empty: " ",
};

/// A thousand, and each a thousand times the one before, as far as a `u64` goes.
const UNITS: [char; 6] = ['k', 'M', 'G', 'T', 'P', 'E'];

/// The timeouts that fire next, or all of a wheel of few.
const IN_NO_BUCKET: &str = "sorted or few";
/// The label of a level.
const BEFORE: u16 = 9;
/// The number of timeouts on a level, behind its buckets.
const AFTER: u16 = 7;
/// The lines of the sentence.
const SENTENCE: u16 = 3;
const FEWEST_LEVELS: usize = 3;
const LEAST_WIDTH: u16 = 40;
const LEAST_HEIGHT: u16 = 12;
/// The width that a wheel takes to be drawn beside another one.
const LEAST_BESIDE: u16 = 80;
/// The lines that are worth a chart.
const LEAST_BELOW: u16 = 3;

#[cfg(test)]
mod tests {
    use super::{UNITS, short};
    use crate::turning::Turning;
    use crate::{Demo, Ended, FRAME, NOTHING_HAPPENS, Pace, Watch};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    use std::collections::HashMap;
    use std::io::Write;
    use std::path::Path;
    use std::sync::{Arc, mpsc};
    use std::time::{Duration, Instant};
    use tickwheel_cli::picture::Picture;
    use tickwheel_cli::trace::{Action, Operation, Trace, TraceError};

    #[test]
    fn each_timeout_is_drawn_in_the_bucket_in_which_it_waits() {
        let watch = watch(vec![(0, 1, 3), (0, 2, 67), (0, 3, 68), (0, 4, 8192)]);
        let mut watch = after_events(watch, 4);
        let lines = drawn(&mut watch, 80, 24);
        assert!(
            lines[1].starts_with("hierarchical:64  pending 4  fired 0  demoted 0"),
            "{lines:?}"
        );
        assert_eq!(lines[2], format!("L2 4 s   |.1{} 1", ".".repeat(61)));
        assert_eq!(lines[3], format!("L1 64 ms |2{} 2", ".".repeat(62)));
        assert_eq!(lines[4], format!("L0 1 ms  |..1{} 1", ".".repeat(60)));
        assert_eq!(lines[5], "sorted or few: 0");
        // Bucket 0 of eight lines is that of the cursor, and of the deadline 8192.
        assert!(lines[6].starts_with("hashed:512  pending 4  fired 0  waited a round 0"));
        assert_eq!(lines[7], format!("buckets  1..1{} 4", ".".repeat(60)));
        assert_eq!(lines[8], format!("{}...11{}", " ".repeat(9), ".".repeat(59)));
        assert_eq!(lines[15], "rounds left  0:3  8 on:1");
    }

    #[test]
    fn of_few_it_is_told_and_drawn_that_they_are_in_no_bucket() {
        let few: Vec<_> = (1..=4).map(|key| (0, key, 3 + u64::from(key))).collect();
        let mut watch = after_events(watch_few(few), 4);
        let told = "Timeout 4 is scheduled for 7 ms from now: hierarchical:64 has all in one \
                    array; hashed:512 has all in one array.";
        assert_eq!(watch.told, told);
        let lines = drawn(&mut watch, 80, 24);
        assert_eq!(lines[5], "sorted or few: 4");
        assert_eq!(lines[15], "rounds left  sorted or few: 4");
    }

    #[test]
    fn the_sentence_says_that_few_became_many() {
        let many: Vec<_> = (1..=1_057).map(|key| (0, key, 5000)).collect();
        let mut watch = watch_few(many);
        let mut told = Vec::new();
        for _ in 1..=1_057 {
            watch = after_events(watch, 1);
            told.push(watch.told.clone());
        }
        let (last, before) = told.split_last().unwrap();
        let many = ". They are many now: hierarchical:64 puts 1,056 into buckets.";
        assert!(last.ends_with(many), "{last}");
        assert!(before.iter().all(|told| told.ends_with("has all in one array.")), "{before:?}");
    }

    #[test]
    fn what_is_drawn_is_what_the_statistics_count() {
        let mut watch = Watch::new("demo", Demo::new(7).map(Ok), &modes(), tick()).unwrap();
        for second in 1..=20 {
            watch.player.play(second * 1000, Instant::now() + Duration::from_secs(60)).unwrap();
            for wheel in &watch.player.wheels {
                let (picture, stats) = (Picture::of(wheel.wheel()), wheel.see().stats);
                let drawn = picture.levels.iter().flat_map(HashMap::values).sum::<u32>() as usize;
                assert_eq!(drawn + picture.sorted as usize, wheel.wheel().len());
                let entries = stats.timeouts_per_level.iter().sum::<usize>() + stats.sorted;
                assert_eq!(drawn + picture.sorted as usize + stats.stale, entries);
                for (level, buckets) in picture.levels.iter().enumerate() {
                    let drawn = buckets.values().sum::<u32>() as usize;
                    let entries = stats.timeouts_per_level[level];
                    assert!(entries - stats.stale.min(entries) <= drawn && drawn <= entries);
                }
                let rounds = picture.rounds.iter().sum::<u32>() as usize;
                assert_eq!(rounds, if wheel.mode().is_hashed() { drawn } else { 0 });
            }
        }
        assert!(watch.player.wheels.iter().all(|wheel| 1000 < wheel.wheel().len()));
    }

    #[test]
    fn the_sentence_says_that_timeouts_are_demoted() {
        let operations: Vec<_> = (0..200).map(|key| (0, key, 5000 + u64::from(key) * 10)).collect();
        let mut watch = watch(operations);
        press(&mut watch, 'd');
        finish_jump(&mut watch);
        let told = "hierarchical:64: the cursor comes to bucket 1 of level 2, whose 200 entries \
                    are demoted; 1 timeout fires.";
        assert!(watch.told.starts_with(told), "{}", watch.told);
        assert_eq!(watch.player.now(), 5000, "it jumped over five seconds");
        let levels = Picture::of(watch.player.wheels[0].wheel()).levels;
        let left = levels.iter().map(|buckets| buckets.values().sum::<u32>());
        assert_eq!(left.clone().sum::<u32>(), 199);
        assert_eq!(left.skip(2).sum::<u32>(), 0, "none is left on level 2");
    }

    #[test]
    fn the_sentence_says_that_timeouts_wait_for_a_round() {
        let mut watch = watch(vec![(0, 1, 3), (0, 2, 3 + 512), (0, 3, 3 + 1024)]);
        press(&mut watch, 'r');
        finish_jump(&mut watch);
        assert!(
            watch
                .told
                .ends_with("hashed:512: 1 timeout fires; 2 in bucket 3 wait for a later round."),
            "{}",
            watch.told
        );
    }

    #[test]
    fn the_sentence_says_where_a_timeout_is_put() {
        let mut watch = after_events(watch(vec![(0, 17, 5000)]), 1);
        let told = "Timeout 17 is scheduled for 5 s from now: bucket 1 of level 2 of \
                    hierarchical:64; bucket 392 of hashed:512, after 9 rounds.";
        assert_eq!(watch.told, told);
        assert_eq!(watch.player.wheels[1].place(0), Some((0, 392, 9)));
        let rounds = |deadline| {
            let watch = after_events(self::watch(vec![(0, 1, deadline)]), 1);
            watch.player.wheels[1].place(0).map(|(_, _, rounds)| rounds)
        };
        assert_eq!([512, 513, 1024, 1025].map(rounds), [0, 1, 1, 2].map(Some));
        press(&mut watch, 's');
        assert!(watch.told.starts_with("Nothing happens in this tick"), "{}", watch.told);
        assert_eq!(watch.player.now(), 1);
    }

    #[test]
    fn every_size_can_be_drawn() {
        let mut watch = Watch::new("demo", Demo::new(7).map(Ok), &modes(), tick()).unwrap();
        watch.player.play(5000, Instant::now() + Duration::from_secs(60)).unwrap();
        for width in (1..=90).step_by(7).chain([39, 40, 79, 80, 159, 160, 161, 300]) {
            for height in (1..=13).chain([23, 24, 60]) {
                let lines = drawn(&mut watch, width, height);
                let is_told = lines.concat().contains("Nothing has happened yet.");
                assert_eq!(is_told, 40 <= width && 12 <= height, "{width}x{height}");
            }
        }
        let lines = drawn(&mut watch, 160, 24);
        let beside =
            |line: &String| line.contains("hierarchical:64") && line.contains("hashed:512");
        assert!(lines.iter().any(beside), "{lines:?}");
    }

    #[test]
    fn keys_play_pause_and_end() {
        let mut watch = Watch::new("demo", Demo::new(7).map(Ok), &modes(), tick()).unwrap();
        press(&mut watch, ' ');
        assert_eq!(watch.pace, Pace::Playing);
        let a_second = watch.nanoseconds_a_second();
        let before = watch.player.now();
        watch.elapse(Duration::from_millis(20)).unwrap();
        let now = watch.player.now();
        assert_eq!((now - before) as f64, (a_second * 0.02 / 1e6).floor());
        press(&mut watch, ' ');
        watch.elapse(Duration::from_millis(20)).unwrap();
        assert_eq!((watch.pace, watch.player.now()), (Pace::Paused, now));
        press(&mut watch, '+');
        assert!(a_second < watch.nanoseconds_a_second());
        assert_eq!(press(&mut watch, 'q'), Some(Ended::Quit));
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(watch.press(control).unwrap(), Some(Ended::Interrupted));
    }

    #[test]
    fn operations_at_one_instant_begin_at_a_second_in_a_second() {
        let watch = watch(vec![(7, 1, 3), (7, 2, 60_000)]);
        assert_eq!(watch.nanoseconds_a_second(), 1e9);
    }

    #[test]
    fn the_end_of_the_trace_is_said() {
        let mut watch = watch(vec![(0, 1, 3), (2, 2, 5)]);
        for _ in 0..5 {
            press(&mut watch, 'n');
            finish_jump(&mut watch);
        }
        assert!(watch.told.ends_with("nothing is pending that will ever be due."));
        assert_eq!(watch.pace, Pace::Over);
        assert!(watch.player.wheels.iter().all(|wheel: &Turning| wheel.see().fired == 2));
    }

    #[test]
    fn what_is_never_due_does_not_fire_at_any_speed() {
        let mut watch = watch(vec![(u64::MAX - 100, 1, 1_000)]);
        watch.set_speed(Duration::MAX);
        press(&mut watch, ' ');
        watch.elapse(FRAME).unwrap();
        assert!(watch.told.ends_with("nothing is pending that will ever be due."));
        for wheel in &watch.player.wheels {
            assert_eq!((wheel.see().fired, wheel.wheel().len()), (0, 1));
        }
    }

    #[test]
    fn a_question_mark_explains_the_keys_until_the_next_key() {
        let mut watch = watch(vec![(0, 1, 3)]);
        press(&mut watch, '?');
        let lines = drawn(&mut watch, 80, 24);
        for key in crate::KEYS.lines() {
            assert!(lines.iter().any(|line| line.contains(key)), "{key} in {lines:?}");
        }
        assert_eq!(press(&mut watch, 'q'), None);
        assert!(!drawn(&mut watch, 80, 24).concat().contains(" Keys "));
        assert_eq!(press(&mut watch, 'q'), Some(Ended::Quit));
    }

    #[test]
    fn the_room_that_is_left_shows_rates_and_the_last_operations() {
        let mut watch = after_events(watch(vec![(0, 17, 5000), (500, 18, 64), (1000, 19, 7)]), 4);
        watch.activity.add(&watch.player);
        let lines = drawn(&mut watch, 120, 40);
        let is_there = |part: &str| lines.iter().any(|line| line.contains(part));
        assert!(is_there("per second: 3 scheduled, 0 moved, 0 cancelled, 1 fired"), "{lines:?}");
        assert!(is_there("late by the tick: mean 0 ns, most 0 ns; too late: 0 "), "{lines:?}");
        assert!(is_there("pending over time, at most 2"), "{lines:?}");
        let first = lines.iter().position(|line| line.contains("the last operations")).unwrap();
        let last = ["01.000  schedule 19 in 7 ms", "00.500  schedule 18 in 64 ms"];
        assert!((1..=2).all(|line| lines[first + line].contains(last[line - 1])), "{lines:?}");
        let is_empty = |line: &&String| line.is_empty();
        assert!(lines.iter().filter(is_empty).count() < 25, "{lines:?}");
    }

    #[test]
    fn a_timeout_that_replaces_another_is_late_once() {
        let operations = [10, 11].map(|delay_ms| {
            Ok(Operation { time_ms: 0, key: 1, action: Action::Schedule { delay_ms } })
        });
        let tick = "10ms".parse().unwrap();
        let watch = Watch::new("a trace", operations.into_iter(), &modes(), tick).unwrap();
        let watch = after_events(watch, 2);
        let late = crate::activity::lateness(&watch.player);
        assert!(late.contains("mean 4.5 ms, most 9 ms"), "{late}");
    }

    #[test]
    fn what_came_too_late_is_told_in_80_columns() {
        let mut watch = watch(vec![(0, 1, 3)]);
        let counts = &mut watch.player.planner.counts;
        (counts.late_cancels, counts.late_reschedules) = (12_345, 1_234);
        let lines = drawn(&mut watch, 80, 40);
        let said = "; too late: 12,345 cancels, 1,234 moves";
        assert!(lines.iter().any(|line| line.ends_with(said)), "{lines:?}");
    }

    #[test]
    fn a_number_fits_in_six_characters_and_keeps_its_first_digits() {
        let borders = (0..20).map(|power| 10_u64.pow(power));
        let all = borders.flat_map(|border| [border - 1, border, border / 4 * 5, border / 2 * 3]);
        for number in all.chain([u64::MAX]) {
            let shown = short(number);
            assert!(shown.len() <= 6, "{number}: {shown}");
            let (value, unit) = shown.split_once(' ').unwrap_or((&shown, ""));
            let power = UNITS.iter().position(|it| unit == it.to_string()).map_or(0, |at| at + 1);
            let unit = 1000_u64.pow(power as u32);
            let (whole, part) = value.split_once('.').unwrap_or((value, ""));
            let digits: u64 = [whole, part].concat().replace(',', "").parse().unwrap();
            let step = unit / 10_u64.pow(part.len() as u32);
            assert_eq!(digits, number / step, "{number}: {shown}");
            assert!(number < 100_000 || 100 <= digits, "{number}: {shown}");
        }
        let shown = [99_999, 999_999, 1_000_000, 12_345_678, 100_000_000, 1_234_567_890].map(short);
        assert_eq!(shown, ["99,999", "999 k", "1.00 M", "12.3 M", "100 M", "1.23 G"]);
    }

    #[test]
    fn a_jump_waits_a_frame_for_what_a_pipe_has_not_said_yet() {
        let (pipe, mut watch) = piped();
        (0..2).for_each(|key| pipe.send((0, key)).unwrap());
        watch = after_events(watch, 1);
        press(&mut watch, 'n');
        assert_eq!(watch.wait(Duration::ZERO), Duration::ZERO, "the next is there");
        finish_jump(&mut watch);
        press(&mut watch, 'n');
        for _ in 0..3 {
            watch.elapse(Duration::ZERO).unwrap();
            assert!(matches!(watch.pace, Pace::Jumping(_)));
            assert_eq!(watch.wait(Duration::ZERO), FRAME);
        }
        pipe.send((7, 2)).unwrap();
        finish_jump(&mut watch);
        assert_eq!(watch.player.planner.counts.scheduled, 3);
    }

    #[test]
    fn nothing_is_said_of_a_tick_before_a_pipe_has_said_what_happens_in_it() {
        let (pipe, mut watch) = piped();
        pipe.send((0, 0)).unwrap();
        watch = after_events(watch, 1);
        press(&mut watch, 's');
        assert_eq!((watch.told.as_str(), watch.wait(Duration::ZERO)), ("", FRAME));
        pipe.send((9, 1)).unwrap();
        watch.elapse(Duration::ZERO).unwrap();
        assert_eq!((watch.told.as_str(), watch.pace), (NOTHING_HAPPENS, Pace::Paused));
        assert_eq!(watch.player.now(), 1);
    }

    #[test]
    fn a_recording_is_shown_as_far_as_it_is_written() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let modes = &modes()[..1];
        let mut watch = Watch::follow("a program", file.path(), modes, tick());
        watch.play();
        let until = |watch: &mut Watch, is_so: fn(&Watch) -> bool| {
            let begun = Instant::now();
            while !is_so(watch) {
                watch.elapse(Duration::ZERO)?;
                assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", watch.told);
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok::<_, TraceError>(())
        };
        let scheduled = |watch: &Watch| watch.player.planner.counts.scheduled;
        write!(file, "{}\n0,begin,,\n7,schedule,1,5\n8,sched", Trace::HEADER).unwrap();
        until(&mut watch, |watch| 0 < watch.player.planner.counts.scheduled).unwrap();
        for _ in 0..20 {
            watch.elapse(Duration::from_millis(10)).unwrap();
        }
        // What the program did after the last line is not known yet.
        assert_eq!((scheduled(&watch), watch.player.now()), (1, 7));
        assert!(drawn(&mut watch, 80, 24)[0].contains("[following]"));
        press(&mut watch, '?');
        let help = drawn(&mut watch, 80, 24).concat();
        assert!(help.contains("play or pause") && !help.contains("go on to"), "{help}");
        press(&mut watch, ' ');
        write!(file, "ule,2,90\n20,cancel,2,\n").unwrap();
        until(&mut watch, |watch| 0 < watch.player.planner.counts.cancelled).unwrap();
        assert_eq!((watch.player.now(), watch.player.wheels[0].see().fired), (20, 1));
        assert_eq!(watch.pace, Pace::Playing);
        writeln!(file, "21,end,,").unwrap();
        until(&mut watch, |watch| watch.pace == Pace::Over).unwrap();
        assert!(watch.told.ends_with("The recording is over."), "{}", watch.told);
        assert!(!drawn(&mut watch, 80, 24)[0].contains("news"));
        assert_eq!(watch.player.now(), 21, "time goes on to the end");

        // The end of packed lines is their own, and not that of the bytes in the file.
        let packed = std::fs::File::create(file.path()).unwrap();
        let mut packed = flate2::write::GzEncoder::new(packed, flate2::Compression::fast());
        write!(packed, "{}\n0,begin,,\n7,schedule,1,5\n21,end,,\n", Trace::HEADER).unwrap();
        packed.finish().unwrap();
        let mut watch = Watch::follow("a program", file.path(), modes, tick());
        watch.play();
        until(&mut watch, |watch| watch.pace == Pace::Over).unwrap();
        let told = "In the last 21 ms: 1 operation, 1 fired; 0 demoted by hierarchical:64. The \
                    recording is over.";
        assert_eq!(watch.told, told);

        std::fs::write(file.path(), format!("{}\n0,wait,1,2\n", Trace::HEADER)).unwrap();
        let mut watch = Watch::follow("a program", file.path(), modes, tick());
        watch.play();
        let error = until(&mut watch, |_| false).unwrap_err();
        assert!(error.to_string().contains(":2: found op `wait`"), "{error}");
    }

    #[test]
    fn a_recording_that_is_begun_anew_is_followed_anew_and_its_losses_are_told() {
        let begin = format!("{}\n0,begin,,\n", Trace::HEADER);
        let lines = |operations: std::ops::Range<u32>| -> String {
            operations.map(|number| format!("{number},schedule,{number},5\n")).collect()
        };
        let again = |last| format!("{begin}3,missing,51,\n{}", lines(7..last));
        type Restart<'a> = &'a dyn Fn(&Path) -> std::io::Result<()>;
        let restarts: [(&str, Restart<'_>); 4] = [
            ("truncated", &|file| std::fs::write(file, again(8))),
            ("longer by the next look", &|file| std::fs::write(file, again(900))),
            ("replaced", &|file| {
                let new = file.with_extension("new");
                std::fs::write(&new, again(900))?;
                std::fs::rename(new, file)
            }),
            ("rotated", &|file| {
                std::fs::rename(file, file.with_extension("1"))?;
                // The old program may still write.
                std::thread::sleep(Duration::from_millis(300));
                std::fs::write(file, again(9))
            }),
        ];
        for (how, restart) in restarts {
            let folder = tempfile::TempDir::new().unwrap();
            let file = folder.path().join("recording.csv");
            std::fs::write(&file, format!("{begin}{}", lines(0..9))).unwrap();
            let mut watch = Watch::follow("a program", &file, &modes()[..1], tick());
            watch.play();
            let begun = Instant::now();
            let mut until = |is_so: fn(&mut Watch) -> bool| {
                while !is_so(&mut watch) {
                    watch.elapse(Duration::ZERO).unwrap();
                    assert!(begun.elapsed() < Duration::from_secs(60), "{how}: {:?}", watch.told);
                    std::thread::sleep(Duration::from_millis(1));
                }
            };
            until(|watch| watch.player.planner.counts.scheduled == 9);
            restart(&file).unwrap();
            until(|watch| watch.told.contains("begun anew"));
            until(|watch| drawn(watch, 120, 40).concat().contains("51 operations are missing"));
            assert_eq!(watch.pace, Pace::Playing, "{how}");
        }
    }

    /// Wheels with so much room that they hold few in buckets, too.
    fn watch(scheduled: Vec<(u64, u32, u64)>) -> Watch {
        let mut watch = watch_few(scheduled);
        watch.player.wheels.iter_mut().for_each(|wheel| wheel.run.wheel.reserve(2_000));
        watch
    }

    fn watch_few(scheduled: Vec<(u64, u32, u64)>) -> Watch {
        let operations = scheduled.into_iter().map(|(time_ms, key, delay_ms)| {
            Ok(Operation { time_ms, key, action: Action::Schedule { delay_ms } })
        });
        let mut watch = Watch::new("a trace", operations, &modes(), tick()).unwrap();
        watch.use_ascii();
        watch
    }

    /// A watch of what is sent as time and key: timeouts of a minute.
    fn piped() -> (mpsc::Sender<(u64, u32)>, Watch) {
        let (pipe, sent) = mpsc::channel();
        let operations = std::iter::from_fn(move || {
            let (time_ms, key) = sent.try_recv().ok()?;
            Some(Ok(Operation { time_ms, key, action: Action::Schedule { delay_ms: 60_000 } }))
        });
        let mut watch = Watch::new("a pipe", operations, &modes(), tick()).unwrap();
        watch.player.state = Some(Arc::default());
        (pipe, watch)
    }

    fn after_events(mut watch: Watch, events: usize) -> Watch {
        for _ in 0..events {
            press(&mut watch, 'n');
            finish_jump(&mut watch);
        }
        watch
    }

    fn finish_jump(watch: &mut Watch) {
        while matches!(watch.pace, Pace::Jumping(_)) {
            watch.elapse(Duration::ZERO).unwrap();
        }
    }

    fn press(watch: &mut Watch, key: char) -> Option<Ended> {
        watch.press(KeyCode::Char(key).into()).unwrap()
    }

    fn drawn(watch: &mut Watch, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| watch.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let lines = buffer.content().chunks(width.into());
        lines
            .map(|line| {
                let text: String = line.iter().map(|cell| cell.symbol()).collect();
                text.trim_end().into()
            })
            .collect()
    }

    fn modes() -> [tickwheel::Mode; 2] {
        [tickwheel::Mode::hierarchical(), tickwheel::Mode::hashed(512).unwrap()]
    }

    fn tick() -> tickwheel_cli::tick::Tick {
        tickwheel_cli::tick::Tick::default()
    }
}
