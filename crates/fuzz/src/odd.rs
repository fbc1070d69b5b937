//! Animals of the zoo that bytes choose, and values that know which of them were dropped.

use crate::bytes::Bytes;
use crate::zoo::caught;
use crate::zoo::executors::Fate;
use crate::zoo::values::{Act, Herd, Odd};
use crate::zoo::wakers::{Habits, does, that_panics};
use allocation_counter::opt_out;
use std::mem::{forget, take};
use std::sync::{Arc, Mutex};

/// Makes values, and knows which of them were dropped.
#[derive(Clone, Debug)]
pub(crate) struct Maker {
    pub(crate) herd: Herd,
    dropped: Arc<Mutex<Vec<usize>>>,
}

impl Maker {
    pub(crate) fn new() -> Self {
        let dropped = Arc::<Mutex<Vec<usize>>>::default();
        let notes = Arc::clone(&dropped);
        let herd = Herd::that_calls(move |act, number| {
            if act == Act::Drop {
                opt_out(|| notes.lock().unwrap().push(number as usize));
            }
        });
        Self { herd, dropped }
    }

    pub(crate) fn make(&self, id: usize) -> Odd {
        self.herd.make(id as u64)
    }

    /// Drops a value without noting it, and returns its number.
    pub(crate) fn number_of(&self, value: Odd) -> usize {
        let id = id(&value);
        caught(|| drop(value));
        assert_eq!(self.dropped.lock().unwrap().pop(), Some(id));
        id
    }

    /// The values that were dropped since the last call, in order of their numbers.
    pub(crate) fn dropped(&self) -> Vec<usize> {
        let mut dropped = take(&mut *self.dropped.lock().unwrap());
        dropped.sort_unstable();
        dropped
    }
}

pub(crate) fn id(value: &Odd) -> usize {
    value.number as usize
}

/// What becomes of an iterator that is not at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Left {
    Dropped,
    Leaked,
}

impl Left {
    pub(crate) fn read(bytes: &mut Bytes<'_>) -> Self {
        [Self::Dropped, Self::Leaked][usize::from(bytes.byte() & 1)]
    }

    pub(crate) fn leave<T>(self, iterator: T) {
        match self {
            Self::Dropped => drop(iterator),
            Self::Leaked => forget(iterator),
        }
    }
}

pub(crate) fn act(bytes: &mut Bytes<'_>) -> Act {
    [Act::Hash, Act::Eq, Act::Drop][usize::from(bytes.byte() % 3)]
}

/// Of 256 answers so many are wrong.
pub(crate) fn lie(keys: &Herd, often: u8) {
    keys.answer(move |_, nth, truth| truth != (nth * 167 % 256 < often.into()));
}

pub(crate) fn fates(bytes: &mut Bytes<'_>) -> Vec<Fate> {
    let fates = bytes.byte();
    let each = [Fate::Runs, Fate::Leaves, Fate::IsShed, Fate::Panics];
    (0..fates % 4).map(|nth| each[usize::from(fates >> (2 + 2 * nth) & 3)]).collect()
}

/// What a waker does that it need not.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Habit {
    Honest,
    PanicsInClone,
    PanicsInWake,
    PanicsInDrop,
    /// Calls back when it wakes.
    Calls,
}

impl Habit {
    pub(crate) fn read(bytes: &mut Bytes<'_>) -> Self {
        match bytes.byte() % 8 {
            0 => Self::PanicsInClone,
            1 => Self::PanicsInWake,
            2 => Self::PanicsInDrop,
            3 | 4 => Self::Calls,
            _ => Self::Honest,
        }
    }

    pub(crate) fn habits(self, call: impl Fn() + Send + Sync + 'static) -> Habits {
        let mut habits = Habits::default();
        match self {
            Self::Honest => {}
            Self::PanicsInClone => habits.clone = that_panics(),
            Self::PanicsInWake => habits.wake = that_panics(),
            Self::PanicsInDrop => habits.drop = that_panics(),
            Self::Calls => habits.wake = does(call),
        }
        habits
    }
}
