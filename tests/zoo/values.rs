//! Values and keys.

use super::panics;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// What foreign code is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Hash,
    Eq,
    Clone,
    Debug,
    Drop,
    /// To run, as a closure.
    Run,
}

/// Makes values that belong together, counts them, and decides what they do.
#[derive(Clone, Default)]
pub(crate) struct Herd(Arc<Mood>);

#[derive(Default)]
struct Mood {
    made: AtomicUsize,
    dropped: AtomicUsize,
    /// How often one was hashed or compared.
    asked: AtomicUsize,
    fuse: Mutex<Option<Fuse>>,
    answer: Mutex<Option<Answer>>,
    calls: Option<Box<dyn Fn(Act, u64) + Send + Sync>>,
}

/// What panics.
#[derive(Clone, Copy)]
struct Fuse {
    /// None: any.
    act: Option<Act>,
    number: Option<u64>,
    /// After so many others.
    after: usize,
    is_for_ever: bool,
}

/// What a call of `Hash` or `Eq` answers, by its number, and what is true: that two are equal, or
/// that the hash is the value's own.
type Answer = Arc<dyn Fn(Act, usize, bool) -> bool + Send + Sync>;

impl Herd {
    /// A herd whose values call before they act.
    pub(crate) fn that_calls(calls: impl Fn(Act, u64) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Mood { calls: Some(Box::new(calls)), ..Mood::default() }))
    }

    pub(crate) fn make(&self, number: u64) -> Odd {
        self.make_one(number, false)
    }

    /// Makes a value that panics when it is dropped.
    pub(crate) fn bomb(&self, number: u64) -> Odd {
        self.make_one(number, true)
    }

    fn make_one(&self, number: u64, is_bomb: bool) -> Odd {
        self.0.made.fetch_add(1, SeqCst);
        Odd { number, is_bomb, herd: self.clone() }
    }

    /// Has an act panic once, after so many of its kind. None: any act.
    pub(crate) fn panic_at(&self, act: Option<Act>, after: usize) {
        self.light(Fuse { act, number: None, after, is_for_ever: false });
    }

    /// Has an act panic each time.
    pub(crate) fn panic_always(&self, act: Act) {
        self.light(Fuse { act: Some(act), number: None, after: 0, is_for_ever: true });
    }

    /// Has the value of this number panic when it is dropped, and no other.
    pub(crate) fn arm(&self, number: u64) {
        let (act, number) = (Some(Act::Drop), Some(number));
        self.light(Fuse { act, number, after: 0, is_for_ever: false });
    }

    fn light(&self, fuse: Fuse) {
        *self.0.fuse.lock().unwrap() = Some(fuse);
    }

    /// Returns whether something was still to panic. Nothing will.
    pub(crate) fn disarm(&self) -> bool {
        self.0.fuse.lock().unwrap().take().is_some()
    }

    /// Has hashes and comparisons answer so.
    pub(crate) fn answer(&self, answer: impl Fn(Act, usize, bool) -> bool + Send + Sync + 'static) {
        *self.0.answer.lock().unwrap() = Some(Arc::new(answer));
    }

    /// Has all answer truly, and panic no more.
    pub(crate) fn tame(&self) {
        self.disarm();
        *self.0.answer.lock().unwrap() = None;
    }

    /// Foreign code acts for a value.
    pub(crate) fn act(&self, act: Act, number: u64) {
        if let Some(calls) = &self.0.calls {
            calls(act, number);
        }
        let mut fuse = self.0.fuse.lock().unwrap();
        let is_it = |fuse: &Fuse| {
            fuse.act.is_none_or(|it| it == act) && fuse.number.is_none_or(|it| it == number)
        };
        let Some(lit) = fuse.filter(is_it).filter(|_| !std::thread::panicking()) else { return };
        if !lit.is_for_ever {
            *fuse = lit.after.checked_sub(1).map(|after| Fuse { after, ..lit });
        }
        drop(fuse);
        if lit.after == 0 {
            panics();
        }
    }

    /// Returns the number of a call of `Hash` or `Eq`, and its answer.
    fn answers(&self, act: Act, truth: bool) -> (usize, bool) {
        let nth = self.0.asked.fetch_add(1, SeqCst) + 1;
        let answer = self.0.answer.lock().unwrap().clone();
        (nth, answer.map_or(truth, |answer| answer(act, nth, truth)))
    }

    pub(crate) fn alive(&self) -> usize {
        self.0.made.load(SeqCst) - self.dropped()
    }

    pub(crate) fn dropped(&self) -> usize {
        self.0.dropped.load(SeqCst)
    }

    /// How often a value was hashed or compared.
    pub(crate) fn asked(&self) -> usize {
        self.0.asked.load(SeqCst)
    }
}

/// A key or a value.
pub(crate) struct Odd {
    pub(crate) number: u64,
    is_bomb: bool,
    herd: Herd,
}

impl Clone for Odd {
    fn clone(&self) -> Self {
        self.herd.act(Act::Clone, self.number);
        self.herd.make(self.number)
    }
}

impl PartialEq for Odd {
    fn eq(&self, other: &Self) -> bool {
        self.is(other.number)
    }
}

impl Eq for Odd {}

impl Odd {
    fn is(&self, number: u64) -> bool {
        self.herd.act(Act::Eq, self.number);
        self.herd.answers(Act::Eq, self.number == number).1
    }
}

impl Hash for Odd {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.herd.act(Act::Hash, self.number);
        let (nth, is_true) = self.herd.answers(Act::Hash, true);
        // Many keys have one hash.
        (if is_true { self.number / 4 } else { nth as u64 }).hash(state);
    }
}

impl fmt::Debug for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.herd.act(Act::Debug, self.number);
        write!(f, "{}", self.number)
    }
}

impl Drop for Odd {
    fn drop(&mut self) {
        self.herd.0.dropped.fetch_add(1, SeqCst);
        self.herd.act(Act::Drop, self.number);
        if self.is_bomb {
            panics();
        }
    }
}

impl fmt::Debug for Herd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} alive", self.alive())
    }
}
