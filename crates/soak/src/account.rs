//! What durable parts were told, kept by a process that nobody kills.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The account of one place.
#[derive(Debug, Default)]
pub(crate) struct Account {
    timeouts: HashMap<String, Timeout>,
    pub(crate) scheduled: u64,
    pub(crate) fired: u64,
    pub(crate) twice: u64,
    pub(crate) cancelled: u64,
    pub(crate) errors: u64,
    /// Promises that were broken.
    pub(crate) broken: Vec<String>,
    forgot: Option<Instant>,
}

#[derive(Debug, Default)]
struct Timeout {
    /// The store has answered that it is scheduled.
    is_scheduled: bool,
    is_cancelled: bool,
    /// A cancel was asked for: the answer is that it was cancelled, that it fires, or that it is
    /// unknown, or the part was killed before the answer.
    is_gone: bool,
    fired: u32,
    /// When something was last said of it.
    at: Option<Instant>,
}

impl Account {
    /// Takes a line of a part. `is_trusted` if no other process had what it fired: nobody has been
    /// killed or stopped for so long that another had taken over.
    pub(crate) fn read(&mut self, line: &str, is_trusted: bool) {
        let (word, name) = line.split_once(' ').unwrap_or((line, ""));
        if word == "error" {
            self.errors += 1;
            return;
        }
        if !["asks", "scheduled", "cancels", "cancelled", "gone", "fired", "left"].contains(&word) {
            return;
        }
        let timeout = self.timeouts.entry(name.to_owned()).or_default();
        timeout.at = Some(Instant::now());
        match word {
            "scheduled" => {
                self.scheduled += u64::from(!timeout.is_scheduled);
                timeout.is_scheduled = true;
            }
            "cancelled" => {
                self.cancelled += 1;
                timeout.is_cancelled = true;
            }
            "fired" => {
                if timeout.is_cancelled && is_trusted {
                    self.broken.push(format!("{name} fired after it was cancelled"));
                }
                self.fired += 1;
                self.twice += u64::from(0 < timeout.fired);
                timeout.fired += 1;
            }
            // On a database, it may have been handed out or not.
            "cancels" | "gone" => timeout.is_gone = true,
            "left" => timeout.fired += 1,
            _ => {}
        }
        self.forget();
    }

    /// Forgets what has had its end for so long that no line of it is under way.
    fn forget(&mut self) {
        if self.forgot.is_some_and(|forgot| forgot.elapsed() < FORGETS) {
            return;
        }
        self.forgot = Some(Instant::now());
        self.timeouts.retain(|_, timeout| {
            !timeout.has_ended() || timeout.at.is_none_or(|at| at.elapsed() < FORGETS)
        });
    }

    /// All parts have ended: what was scheduled has fired, was cancelled, or is left in the store.
    pub(crate) fn balance(&mut self) {
        for (name, timeout) in &self.timeouts {
            if timeout.is_scheduled && !timeout.has_ended() {
                self.broken.push(format!("{name} was scheduled, and is lost"));
            }
        }
    }
}

impl Timeout {
    fn has_ended(&self) -> bool {
        0 < self.fired || self.is_cancelled || self.is_gone
    }
}

const FORGETS: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::Account;

    fn broken(lines: &[&str]) -> Vec<String> {
        let mut account = Account::default();
        lines.iter().for_each(|line| account.read(line, true));
        account.balance();
        account.broken
    }

    #[test]
    fn what_was_scheduled_and_neither_fired_nor_was_cancelled_is_lost() {
        assert_eq!(broken(&["asks a", "scheduled a"]), ["a was scheduled, and is lost"]);
        let ends = ["fired a", "cancels a", "cancelled a", "gone a", "left a"];
        ends.iter().for_each(|end| assert_eq!(broken(&["asks a", "scheduled a", end]), [""; 0]));
        assert_eq!(broken(&["asks a"]), [""; 0], "the part was killed before the answer");
    }

    #[test]
    fn what_fires_after_it_was_cancelled_breaks_a_promise() {
        let lines = ["asks a", "scheduled a", "cancelled a", "fired a"];
        assert_eq!(broken(&lines), ["a fired after it was cancelled"]);
    }
}
