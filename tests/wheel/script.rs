//! Situations as text: what is done to a wheel, and what comes out of it.
//!
//! | step | does |
//! |---|---|
//! | `a@5 b@7` | schedules `a` for tick 5, then `b` for tick 7 |
//! | `a>9` | moves `a` to tick 9 |
//! | `a@5..9`, `a>5..9` | schedules or moves `a` within a range of ticks |
//! | `a=8` | asks for the deadline of `a` |
//! | `-a` | cancels `a` |
//! | `!a` | finds nothing by the key of `a`, in any call |
//! | `to 9: a@5` | drives straight to tick 9: `a` comes out, which was due at 5, and nothing else |
//! | `walk 9: a@5` | drives there tick by tick: `a` comes out at tick 5 |
//! | `wake 9: a@5` | drives there by way of the ticks that the wheel asks to be woken at |
//! | `take 9: a@5` | makes one call at tick 9, which hands out `a` |
//! | `next 5` | asks for the next deadline |
//! | `wakes 5` | asks for the next wake-up |
//! | `waits 2` | counts what is pending |
//! | `now 9` | asks what time it is |
//! | `work 2 1` | has looked at two buckets so far, and demoted one timeout; a wheel of few has none |
//! | `stale 2` | has two stale entries |
//! | `clear`, `shrink` | are calls of the wheel |
//! | `anew` | goes on with a new wheel |
//! | `for x in 1 2^6..62` | comes first: the rest is done for tick 1, and for each of these powers |
//!
//! A tick is a number, `max`, `2^40`, `round` or `3round` (a round has as many ticks as there are
//! buckets), `cube` (their number to the third), `x` or `3x`, or a sum or difference: `3round+7`,
//! `max-1`.

use crate::checked::Checked;
use std::collections::HashMap;
use tickwheel::{Key, Mode};

/// Does what the script says, and panics where something else comes out.
pub(crate) fn run(mode: Mode, script: &'static str) {
    let (ticks, script) = match script.strip_prefix("for x in ") {
        Some(script) => script.split_once(';').expect("ticks, and steps"),
        None => ("0", script),
    };
    let run = |x| {
        for is_few in [false, true] {
            let wheel = new(mode, is_few);
            let mut play = Play { mode, x, is_few, wheel, keys: HashMap::new() };
            script.split(';').for_each(|step| play.step(step.trim()));
        }
    };
    let tick = |text| tick(mode, 0, text);
    for ticks in ticks.split(' ') {
        match ticks.split_once("..") {
            Some((first, last)) => {
                (tick(first).ilog2() as u64..=tick(last)).for_each(|bits| run(1 << bits));
            }
            None => run(tick(ticks)),
        }
    }
}

/// Each situation is played in buckets, and in one array.
fn new(mode: Mode, is_few: bool) -> Checked<&'static str> {
    if is_few { Checked::of_few(mode) } else { Checked::new(mode) }
}

struct Play {
    mode: Mode,
    x: u64,
    is_few: bool,
    wheel: Checked<&'static str>,
    keys: HashMap<&'static str, Key>,
}

impl Play {
    fn step(&mut self, step: &'static str) {
        let (call, out) = step.split_once(':').unwrap_or((step, ""));
        let (verb, at) = call.split_once(' ').unwrap_or((call, ""));
        let out = out.split_whitespace().map(|timeout| {
            let (name, at) = timeout.split_once('@').expect("a name, @ and a tick");
            (self.tick(at), name)
        });
        let out: Vec<_> = out.collect();
        let some = |play: &Self| (at != "none").then(|| play.tick(at));
        match verb {
            "to" => assert_eq!(self.wheel.jump(self.tick(at)), out, "{step}"),
            "walk" => assert_eq!(self.wheel.walk(self.tick(at)), out, "{step}"),
            "wake" => assert_eq!(self.wheel.wake_up_until(self.tick(at)), out, "{step}"),
            "take" => {
                let expired = self.wheel.expire(self.tick(at));
                let key = expired.as_ref().map(|expired| expired.key);
                assert_eq!(key, out.first().map(|(_, name)| self.keys[name]), "{step}");
                let came = expired.map(|expired| (expired.deadline, expired.value));
                assert!(came.into_iter().eq(out), "{step}");
            }
            "next" => assert_eq!(self.wheel.next_deadline(), some(self), "{step}"),
            "wakes" => assert_eq!(self.wheel.next_wake(), some(self), "{step}"),
            "waits" => assert_eq!(self.wheel.len() as u64, self.tick(at), "{step}"),
            "now" => assert_eq!(self.wheel.now(), self.tick(at), "{step}"),
            "stale" => assert_eq!(self.wheel.stats().stale as u64, self.tick(at), "{step}"),
            "work" => {
                let (buckets, demotions) = at.split_once(' ').expect("two numbers");
                let work = (self.tick(buckets), self.tick(demotions));
                let work = if self.is_few { (0, 0) } else { work };
                assert_eq!(self.wheel.work(), work, "{step}");
            }
            "anew" => self.wheel = new(self.mode, self.is_few),
            "clear" => self.wheel.clear(),
            "shrink" => self.wheel.shrink_to_fit(),
            _ => call.split(' ').for_each(|change| self.change(change)),
        }
    }

    fn change(&mut self, change: &'static str) {
        let at = change.find(['-', '!', '@', '>', '=']).expect("a change");
        let (name, ticks) = (&change[..at], &change[at + 1..]);
        let key = self.keys.get(if at == 0 { ticks } else { name }).copied();
        let key = || key.expect("a timeout");
        let range = ticks.split_once("..").map(|(from, to)| self.tick(from)..=self.tick(to));
        let tick = || self.tick(ticks);
        match (&change[at..=at], range) {
            ("-", _) => assert_eq!(self.wheel.cancel(key()), Some(ticks), "{change}"),
            ("!", _) => self.assert_stale(key()),
            ("=", _) => assert_eq!(self.wheel.deadline(key()), Some(tick()), "{change}"),
            (">", None) => assert!(self.wheel.reschedule(key(), tick()), "{change}"),
            (">", Some(range)) => {
                assert!(self.wheel.reschedule_within(key(), range), "{change}");
            }
            (_, None) => {
                let deadline = tick();
                self.keys.insert(name, self.wheel.schedule(deadline, name));
            }
            (_, Some(range)) => {
                self.keys.insert(name, self.wheel.schedule_within(range, name));
            }
        }
    }

    fn assert_stale(&mut self, key: Key) {
        assert_eq!((self.wheel.get(key), self.wheel.deadline(key)), (None, None));
        assert_eq!(self.wheel.unchecked().get_mut(key), None);
        assert_eq!(self.wheel.cancel(key), None);
        assert!(!self.wheel.reschedule(key, 7));
        assert!(!self.wheel.reschedule_within(key, 0..=u64::MAX));
    }

    fn tick(&self, text: &str) -> u64 {
        tick(self.mode, self.x, text)
    }
}

fn tick(mode: Mode, x: u64, text: &str) -> u64 {
    if let Some((more, less)) = text.split_once('-') {
        return tick(mode, x, more) - tick(mode, x, less);
    }
    let number = |text: &str| text.replace('_', "").parse::<u64>().expect("a number");
    let round = mode.buckets() as u64;
    let units = [("round", round), ("cube", round.saturating_pow(3)), ("x", x), ("max", u64::MAX)];
    let term = |text: &str| {
        // `max` ends with `x`, too.
        for (unit, ticks) in units.into_iter().rev() {
            match text.strip_suffix(unit) {
                Some("") => return ticks,
                Some(times) => return number(times) * ticks,
                None => {}
            }
        }
        text.strip_prefix("2^").map_or_else(|| number(text), |bits| 1 << number(bits))
    };
    text.split('+').map(term).sum()
}
