//! Situations as text: what is done to a wheel, and what comes out of it.
//!
//! | step | does |
//! |---|---|
//! | `a@5 b@7` | schedules `a` for tick 5, then `b` for tick 7 |
//! | `a>9` | moves `a` to tick 9 |
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
//! | `idle` | has looked at no bucket so far |
//! | `clear`, `shrink` | are calls of the wheel |
//! | `anew` | goes on with a new wheel |
//! | `for x in 1 64` | comes first: the rest is done for each tick `x` |
//!
//! A tick is a number, `max`, `2^40`, `round` or `3round` (a round has as many ticks as there are
//! buckets), `x` or `3x`, or a sum or difference: `3round+7`, `max-1`.

use crate::checked::Checked;
use std::collections::HashMap;
use tickwheel::{Key, Mode};

/// Does what the script says, and panics where something else comes out.
pub(crate) fn run(mode: Mode, script: &'static str) {
    let (ticks, script) = match script.strip_prefix("for x in ") {
        Some(script) => script.split_once(';').expect("ticks, and steps"),
        None => ("0", script),
    };
    for x in ticks.split(' ') {
        run_for(mode, tick(mode, 0, x), script);
    }
}

fn run_for(mode: Mode, x: u64, script: &'static str) {
    let mut wheel = Checked::new(mode);
    let mut keys = HashMap::new();
    let tick = |text| tick(mode, x, text);
    for step in script.split(';').map(str::trim) {
        let (call, out) = step.split_once(':').unwrap_or((step, ""));
        let timeout = |text: &'static str| {
            let (name, at) = text.split_once('@').expect("a name, @ and a tick");
            (tick(at), name)
        };
        let out: Vec<_> = out.split_whitespace().map(timeout).collect();
        let (verb, at) = call.split_once(' ').unwrap_or((call, ""));
        let some = || (at != "none").then(|| tick(at));
        match verb {
            "to" => assert_eq!(wheel.jump(tick(at)), out, "{step}"),
            "walk" => assert_eq!(wheel.walk(tick(at)), out, "{step}"),
            "take" => {
                let expired = wheel.expire(tick(at));
                let key = expired.as_ref().map(|expired| expired.key);
                assert_eq!(key, out.first().map(|(_, name)| keys[name]), "{step}");
                let came = expired.map(|expired| (expired.deadline, expired.value));
                assert!(came.into_iter().eq(out), "{step}");
            }
            "wake" => assert_eq!(wheel.wake_up_until(tick(at)), out, "{step}"),
            "next" => assert_eq!(wheel.next_deadline(), some(), "{step}"),
            "wakes" => assert_eq!(wheel.next_wake(), some(), "{step}"),
            "waits" => assert_eq!(wheel.len() as u64, tick(at), "{step}"),
            "now" => assert_eq!(wheel.now(), tick(at), "{step}"),
            "idle" => assert_eq!(wheel.work(), (0, 0), "{step}"),
            "anew" => wheel = Checked::new(mode),
            "clear" => wheel.clear(),
            "shrink" => wheel.shrink_to_fit(),
            _ => call.split(' ').for_each(|change| match change.split_at(1) {
                ("-", name) => assert_eq!(wheel.cancel(keys[name]), Some(name), "{step}"),
                ("!", name) => assert_stale(&mut wheel, keys[name]),
                _ => match change.split_once('>') {
                    Some((name, at)) => assert!(wheel.reschedule(keys[name], tick(at)), "{step}"),
                    None => {
                        let (at, name) = timeout(change);
                        keys.insert(name, wheel.schedule(at, name));
                    }
                },
            }),
        }
    }
}

fn assert_stale(wheel: &mut Checked<&str>, key: Key) {
    assert_eq!((wheel.get(key), wheel.deadline(key)), (None, None));
    assert_eq!(wheel.unchecked().get_mut(key), None);
    assert_eq!(wheel.cancel(key), None);
    assert!(!wheel.reschedule(key, 7));
}

fn tick(mode: Mode, x: u64, text: &str) -> u64 {
    if let Some((more, less)) = text.split_once('-') {
        return tick(mode, x, more) - tick(mode, x, less);
    }
    let number = |text: &str| text.replace('_', "").parse::<u64>().expect("a number");
    let times = |text: &str| if text.is_empty() { 1 } else { number(text) };
    let term = |text: &str| {
        if let Some(count) = text.strip_suffix("round") {
            times(count) * mode.buckets() as u64
        } else if text == "max" {
            u64::MAX
        } else if let Some(count) = text.strip_suffix('x') {
            times(count) * x
        } else if let Some(bits) = text.strip_prefix("2^") {
            1 << number(bits)
        } else {
            number(text)
        }
    };
    text.split('+').map(term).sum()
}
