//! Shows wheels as they turn, in the terminal.
//!
//! ```no_run
//! use tickwheel::Mode;
//! use tickwheel_cli::tick::Tick;
//! use tickwheel_watch::{Demo, Watch};
//!
//! let modes = [Mode::hierarchical(), Mode::hashed(512)?];
//! let demo = Demo::new(1).map(Ok);
//! let mut watch = Watch::new("a demo", demo, &modes, Tick::default())?;
//! let mut terminal = ratatui::try_init()?;
//! let ended = watch.run(&mut terminal, || false);
//! ratatui::try_restore()?;
//! ended?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is drawn
//!
//! The picture is that of the wheels themselves: [`Wheel::bucket`](tickwheel::Wheel::bucket) says
//! where each timeout waits. A hierarchical wheel has a line for each level, the coarsest on top,
//! and one for the timeouts that it has sorted to be handed out next. A hashed wheel has one level
//! over several lines, and counts its timeouts by the rounds that they still wait.
//!
//! Time is that of the trace: a second shows as much of it as the user chooses, and each wheel is
//! woken up when it asks for it, as in [`study`](mod@tickwheel_cli::study).

mod activity;
mod demo;
mod follow;
mod player;
mod screen;
mod telling;
mod turning;

pub use demo::Demo;

use activity::Activity;
use follow::{Following, State};
use indicatif::HumanCount;
use player::{Change, Event, Player};
use ratatui::Terminal;
use ratatui::backend::Backend;
use ratatui::crossterm::event::{self, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::Mode;
use tickwheel_cli::tick::Tick;
use tickwheel_cli::trace::{Operation, TraceError};
use tickwheel_cli::units;
use turning::{Seen, Turning};

/// Wheels on a screen, and the keys that turn them.
pub struct Watch {
    name: String,
    player: Player,
    pace: Pace,
    /// How much of the trace a second shows, as a place in `SPEEDS`.
    speed: usize,
    /// The part of a tick that was played and is not yet shown.
    rest: f64,
    /// The sentence about what is going on.
    told: String,
    tally: Tally,
    activity: Activity,
    /// Of a recording that is followed.
    recording: Option<Recording>,
    ascii: bool,
    /// Whether the keys are explained.
    helps: bool,
}

/// A recording that a program is writing.
struct Recording {
    file: PathBuf,
    state: Arc<State>,
    /// When the last operation came.
    news: Instant,
}

/// How a [`Watch`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The user had seen enough.
    Quit,
    /// By Ctrl-C or a signal.
    Interrupted,
}

/// Why a [`Watch`] could not go on.
#[derive(Debug)]
#[non_exhaustive]
pub enum WatchError {
    /// The trace is wrong.
    Trace(TraceError),
    /// The terminal does not answer.
    Terminal(io::Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Paused,
    Playing,
    Jumping(Target),
    /// To the end of a tick; so many events of it are told.
    Stepping {
        to: u64,
        told: usize,
    },
    Over,
}

/// What a jump goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Any,
    Fired,
    Demoted,
    /// Left waiting for a later round.
    Waited,
}

/// What happened since the last sentence was made of it.
struct Tally {
    since: Instant,
    from_ns: f64,
    operations: u64,
    seen: Vec<Seen>,
}

impl Watch {
    /// Returns a watch that is paused before the first of `operations`. It shows a wheel of each of
    /// `modes`; two fit on a screen of 80 columns and 24 lines. A second shows as much of the trace
    /// as has some 200 operations at its beginning.
    ///
    /// # Errors
    ///
    /// [`TraceError`] if the first operation is not as the format says.
    pub fn new(
        name: &str,
        mut operations: impl Iterator<Item = Result<Operation, TraceError>> + 'static,
        modes: &[Mode],
        tick: Tick,
    ) -> Result<Self, TraceError> {
        let first = operations.by_ref().take(FIRST_OPERATIONS).collect();
        Self::begun(name, first, operations, modes, tick)
    }

    /// Returns a watch as [`new`](Self::new) does, of the trace in `file`, or on standard input if
    /// that is `-`. A thread reads it, so that a pipe which is silent keeps nobody from the keys.
    ///
    /// # Errors
    ///
    /// [`TraceError`] if it cannot be read, or does not begin as the format says.
    pub fn open(name: &str, file: &Path, modes: &[Mode], tick: Tick) -> Result<Self, TraceError> {
        let mut operations = Following::new(file, false);
        let (state, begun, mut first) = (operations.state(), Instant::now(), Vec::new());
        while first.len() < FIRST_OPERATIONS
            && begun.elapsed() < TO_BEGIN
            && !state.is_over.load(Ordering::Relaxed)
        {
            match operations.next() {
                Some(operation) => first.push(operation),
                None => thread::sleep(Duration::from_millis(1)),
            }
        }
        let mut watch = Self::begun(name, first, operations, modes, tick)?;
        watch.player.state = Some(state);
        Ok(watch)
    }

    /// Returns a watch of `first` and then `operations`.
    fn begun(
        name: &str,
        first: Vec<Result<Operation, TraceError>>,
        operations: impl Iterator<Item = Result<Operation, TraceError>> + 'static,
        modes: &[Mode],
        tick: Tick,
    ) -> Result<Self, TraceError> {
        let times = first.iter().flatten().map(|operation| operation.time_ms);
        let span_ms = times.clone().max().unwrap_or(0) - times.min().unwrap_or(0);
        // All can be at one instant.
        let speed = match span_ms {
            0 => Duration::from_secs(1),
            _ => Duration::from_millis(span_ms) / FIRST_SECONDS,
        };
        let operations = first.into_iter().chain(operations);
        let player = Player::new(Box::new(operations), modes, tick)?;
        let mut watch = Self::of(name, player);
        watch.set_speed(speed);
        Ok(watch)
    }

    /// Returns a watch that follows the recording in `file`, or on standard input if that is `-`,
    /// while a program writes it. It shows what the recording says so far: time goes on as far as
    /// the last operation that was written, which is a second ago at most.
    ///
    /// A thread reads the file. What is wrong with it, [`run`](Self::run) returns.
    #[must_use]
    pub fn follow(name: &str, file: &Path, modes: &[Mode], tick: Tick) -> Self {
        let operations = Following::new(file, true);
        let state = operations.state();
        let mut player = Player::empty(Box::new(operations), modes, tick);
        player.state = Some(Arc::clone(&state));
        let recording = Recording { file: file.into(), state, news: Instant::now() };
        let mut watch = Self::of(name, player);
        watch.recording = Some(recording);
        watch.told = "Nothing is recorded yet.".into();
        watch
    }

    fn of(name: &str, player: Player) -> Self {
        let (tally, activity) = (Tally::new(&player), Activity::new(&player));
        Self {
            name: name.into(),
            player,
            pace: Pace::Paused,
            speed: 0,
            rest: 0.0,
            told: "Nothing has happened yet. Press space to play.".into(),
            tally,
            activity,
            recording: None,
            ascii: false,
            helps: false,
        }
    }

    /// Draws with ASCII only, for terminals and fonts without block elements.
    pub fn use_ascii(&mut self) {
        self.ascii = true;
    }

    /// Lets a second show so much of the trace, rounded up to a round number.
    pub fn set_speed(&mut self, a_second: Duration) {
        let speed = SPEEDS.partition_point(|&speed| u128::from(speed) < a_second.as_micros());
        self.speed = speed.min(SPEEDS.len() - 1);
    }

    /// Begins to play, if the watch is paused.
    pub fn play(&mut self) {
        if self.pace == Pace::Paused {
            self.pace = Pace::Playing;
            self.tally = Tally::new(&self.player);
        }
    }

    /// Draws on `terminal` and listens to the keyboard until the user has seen enough, or until
    /// `is_interrupted` says so.
    ///
    /// # Errors
    ///
    /// [`WatchError`] if the trace is wrong further on, or if the terminal does not answer.
    pub fn run<B: Backend<Error: Into<io::Error>>>(
        &mut self,
        terminal: &mut Terminal<B>,
        is_interrupted: impl Fn() -> bool,
    ) -> Result<Ended, WatchError> {
        let terminal_error = |error: B::Error| WatchError::Terminal(error.into());
        let mut last = Instant::now();
        loop {
            terminal.draw(|frame| self.draw(frame)).map_err(terminal_error)?;
            // All keys that are there, and no wait between them.
            let mut wait = Some(self.wait(last.elapsed()));
            while event::poll(wait.take().unwrap_or_default()).map_err(WatchError::Terminal)? {
                let event = event::read().map_err(WatchError::Terminal)?;
                let ended = event.as_key_event().and_then(|key| self.press(key).transpose());
                if let Some(ended) = ended {
                    return ended.map_err(WatchError::Trace);
                }
            }
            if is_interrupted() {
                return Ok(Ended::Interrupted);
            }
            self.elapse(last.elapsed()).map_err(WatchError::Trace)?;
            last = Instant::now();
        }
    }

    /// How long to wait for a key, if the watch went on so long ago.
    fn wait(&self, since: Duration) -> Duration {
        match self.pace {
            Pace::Paused | Pace::Over => Duration::from_millis(200),
            // A pipe that is silent leaves nothing to do.
            Pace::Jumping(_) | Pace::Stepping { .. } if !self.player.is_waiting() => Duration::ZERO,
            Pace::Playing | Pace::Jumping(_) | Pace::Stepping { .. } => FRAME.saturating_sub(since),
        }
    }

    /// Does what a key stands for.
    fn press(&mut self, key: KeyEvent) -> Result<Option<Ended>, TraceError> {
        if key.kind == KeyEventKind::Release {
            return Ok(None);
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let helps = std::mem::replace(&mut self.helps, key.code == KeyCode::Char('?'));
        match key.code {
            KeyCode::Char('c') if is_control => return Ok(Some(Ended::Interrupted)),
            // Any key ends the help.
            _ if helps => self.helps = false,
            KeyCode::Char('q') | KeyCode::Esc => return Ok(Some(Ended::Quit)),
            KeyCode::Char(' ') => match self.pace {
                Pace::Playing | Pace::Jumping(_) | Pace::Stepping { .. } => {
                    self.pace = Pace::Paused
                }
                Pace::Paused => self.play(),
                Pace::Over => {}
            },
            // A recording goes on as it is written.
            _ if self.recording.is_some() => {}
            KeyCode::Char('+' | '=') | KeyCode::Up => self.change_speed(1),
            KeyCode::Char('-') | KeyCode::Down => self.change_speed(-1),
            KeyCode::Char('s') | KeyCode::Right => self.step_a_tick()?,
            KeyCode::Char('n') => self.jump(Target::Any),
            KeyCode::Char('f') => self.jump(Target::Fired),
            KeyCode::Char('d') => self.jump(Target::Demoted),
            KeyCode::Char('r') => self.jump(Target::Waited),
            _ => {}
        }
        Ok(None)
    }

    fn change_speed(&mut self, by: isize) {
        self.speed = self.speed.saturating_add_signed(by).min(SPEEDS.len() - 1);
    }

    fn jump(&mut self, target: Target) {
        if self.pace != Pace::Over {
            self.pace = Pace::Jumping(target);
        }
    }

    /// Goes on by one tick, as far as a frame takes it; the next frames do the rest.
    fn step_a_tick(&mut self) -> Result<(), TraceError> {
        if self.pace != Pace::Over {
            self.told.clear();
            self.pace = Pace::Stepping { to: self.player.now().saturating_add(1), told: 0 };
        }
        self.elapse(Duration::ZERO)
    }

    /// Goes on as far as `real` time takes it.
    fn elapse(&mut self, real: Duration) -> Result<(), TraceError> {
        let deadline = Instant::now() + FRAME;
        match self.pace {
            Pace::Paused | Pace::Over => {}
            Pace::Playing if self.recording.is_some() => {
                let operations = self.player.catch_up(deadline)?;
                self.tally.operations += operations;
                if let Some(recording) = self.recording.as_mut().filter(|_| 0 < operations) {
                    recording.news = Instant::now();
                }
            }
            Pace::Playing => {
                let tick = self.player.tick.length().as_nanos() as f64;
                // After a pause of the machine, time goes on where it was.
                let real = real.min(3 * FRAME).as_secs_f64();
                self.rest += real * self.nanoseconds_a_second() / tick;
                let to = self.player.now().saturating_add(self.rest as u64);
                self.rest = self.rest.fract();
                self.tally.operations += self.player.play(to, deadline)?;
            }
            Pace::Stepping { to, mut told } => {
                while Instant::now() < deadline {
                    self.player.read()?;
                    // Nobody knows yet whether something happens in this tick.
                    if self.player.is_waiting() {
                        break;
                    }
                    if self.player.next_event().is_none_or(|next| to < next) {
                        self.player.play(to, deadline)?;
                        if told == 0 {
                            self.told = NOTHING_HAPPENS.into();
                        }
                        self.pace = Pace::Paused;
                        break;
                    }
                    let Some(event) = self.player.step()? else { break };
                    if told < MOST_TOLD {
                        self.told += if told == 0 { "" } else { " " };
                        self.told += &telling::event(&event, &self.player);
                        told += 1;
                    }
                    self.pace = Pace::Stepping { to, told };
                }
            }
            Pace::Jumping(target) => {
                while Instant::now() < deadline {
                    let Some(event) = self.player.step()? else { break };
                    if target.is(&event) {
                        self.told = telling::event(&event, &self.player);
                        self.pace = Pace::Paused;
                        break;
                    }
                }
            }
        }
        if self.pace == Pace::Playing {
            self.activity.look(&self.player);
            if TALLIED <= self.tally.since.elapsed() {
                self.told = self.tally.told(&self.player);
                self.tally = Tally::new(&self.player);
            }
        }
        self.notice_the_end();
        Ok(())
    }

    fn notice_the_end(&mut self) {
        let end = match &self.recording {
            Some(recording) if recording.state.is_over.load(Ordering::Relaxed) => {
                if recording.state.is_anew.load(Ordering::Relaxed) {
                    return self.begin_anew();
                }
                "The recording is over."
            }
            None if self.player.next_event().is_none() && !self.player.is_waiting() => {
                "The trace is over, and nothing is pending that will ever be due."
            }
            _ => return,
        };
        if self.pace != Pace::Over {
            // What was told last does not know of the rest.
            if self.pace == Pace::Playing && 0 < self.tally.operations {
                self.told = self.tally.told(&self.player);
            }
            self.pace = Pace::Over;
            self.told += " ";
            self.told += end;
        }
    }

    /// Follows the recording of a program that was restarted.
    fn begin_anew(&mut self) {
        let Some(recording) = &self.recording else { return };
        let modes: Vec<_> = self.player.wheels.iter().map(Turning::mode).collect();
        let new = Self::follow(&self.name, &recording.file, &modes, self.player.tick);
        let told = "The recording was begun anew: its program was restarted.".into();
        *self = Self { ascii: self.ascii, pace: self.pace, told, ..new };
    }

    fn nanoseconds_a_second(&self) -> f64 {
        SPEEDS[self.speed] as f64 * 1e3
    }
}

impl Target {
    fn is(self, event: &Event) -> bool {
        let count = match self {
            Self::Any => return true,
            Self::Fired => Change::fired,
            Self::Demoted => Change::demoted,
            Self::Waited => Change::waited,
        };
        event.changes.iter().any(|change| 0 < count(change))
    }
}

impl Tally {
    fn new(player: &Player) -> Self {
        Self {
            since: Instant::now(),
            from_ns: player.now_ns(),
            operations: 0,
            seen: player.wheels.iter().map(Turning::see).collect(),
        }
    }

    /// Says in a sentence what happened.
    fn told(&self, player: &Player) -> String {
        let time = units::duration(player.now_ns() - self.from_ns);
        let fired = player.wheels.iter().zip(&self.seen);
        let fired = fired.map(|(wheel, seen)| wheel.see().fired - seen.fired).max().unwrap_or(0);
        let mut told = format!(
            "In the last {time}: {}, {} fired",
            units::count(self.operations, "operation"),
            HumanCount(fired)
        );
        for (wheel, before) in player.wheels.iter().zip(&self.seen) {
            let (before, after) = (&before.stats, wheel.see().stats);
            let (count, act) = match wheel.mode().is_hashed() {
                true => (after.rounds_waited - before.rounds_waited, "left waiting a round"),
                false => (after.demotions - before.demotions, "demoted"),
            };
            told += &format!("; {} {} by {}", HumanCount(count), act, wheel.mode());
        }
        told + "."
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("name", &self.name)
            .field("now", &self.player.now())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trace(error) => write!(f, "{error}"),
            Self::Terminal(error) => write!(f, "the terminal does not answer: {error}"),
        }
    }
}

impl Error for WatchError {}

impl From<TraceError> for WatchError {
    fn from(error: TraceError) -> Self {
        Self::Trace(error)
    }
}

/// What the keys do, a line each.
pub const KEYS: &str = "\
space        play or pause
s, right     go on by one tick
n            go on to the next event
f            go on to the next timeout that fires
d            go on until timeouts are demoted
r            go on until timeouts are left waiting for a later round
+, -         show more or less of the trace in a second
?            explain the keys
q, Esc       quit";

/// What a second can show, in microseconds.
const SPEEDS: [u64; 41] = {
    const MS: u64 = 1_000;
    const S: u64 = 1_000 * MS;
    const MIN: u64 = 60 * S;
    const H: u64 = 60 * MIN;
    const D: u64 = 24 * H;
    #[rustfmt::skip]
    let speeds = [
        10, 20, 50, 100, 200, 500, MS, 2 * MS, 5 * MS, 10 * MS, 20 * MS, 50 * MS, 100 * MS, 200 * MS,
        500 * MS, S, 2 * S, 5 * S, 10 * S, 20 * S, 30 * S, MIN, 2 * MIN, 5 * MIN, 10 * MIN, 20 * MIN,
        30 * MIN, H, 2 * H, 5 * H, 10 * H, D, 2 * D, 5 * D, 10 * D, 20 * D, 50 * D, 100 * D, 1000 * D,
        10_000 * D, 100_000 * D,
    ];
    speeds
};

const NOTHING_HAPPENS: &str = "Nothing happens in this tick: press n for the next event.";

/// How long a pipe may take to say how fast to begin.
const TO_BEGIN: Duration = Duration::from_secs(1);

const FRAME: Duration = Duration::from_millis(33);

/// The operations that say how fast to begin, and in how many seconds they are shown.
const FIRST_OPERATIONS: usize = 2_000;
const FIRST_SECONDS: u32 = 10;

/// How long a sentence stands while the watch plays.
const TALLIED: Duration = Duration::from_secs(1);

/// The most events of a tick that are told.
const MOST_TOLD: usize = 3;
