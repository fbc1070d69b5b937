//! What calls have cost, beside what their documentation allows.

use allocation_counter::measure;
use std::hint::black_box;
use tickwheel::steps;

/// The cost that the documentation of a call states. There n is the number of pending timeouts, and
/// p the most that were pending at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cost {
    /// O(1), amortised.
    Constant,
    /// O(log n) amortised, O(n) in one call, beside so many stale entries, which it may pass.
    Log(usize),
    /// O(n) in one call. Its mean goes by the timeouts that it demotes and passes over.
    Drives,
    /// A call with this much work.
    Work(usize),
    /// O(n).
    All,
    /// O(n + p / 4096).
    Groups,
    /// O(n + p).
    Places,
}

/// The steps and bytes of all calls so far.
#[derive(Debug, Default)]
pub(crate) struct Account {
    steps: f64,
    allowed: f64,
    /// The largest part of what it was allowed that one call has taken.
    dearest: f64,
    /// The bytes that are allocated now.
    pub(crate) bytes: i64,
}

impl Account {
    /// Makes the call, and panics if it takes more than it may.
    pub(crate) fn charge<R>(
        &mut self,
        cost: Cost,
        (n, p): (usize, usize),
        call: impl FnOnce() -> R,
    ) -> R {
        let (mut answer, before) = (None, steps());
        let measured = measure(|| answer = Some(call()));
        let taken = (steps() - before) as f64;
        self.bytes += measured.bytes_current;
        self.steps += taken;
        let (n, p) = (n as f64 + 1.0, p as f64);
        let few = ONE_CALL.min(FEW[0] + FEW[1] * n);
        let (mean, one_call) = match cost {
            Cost::Constant => (0.0, 0.0),
            Cost::Log(stale) => (LAST_CHUNK + 32.0 * (1.0 + n.log2()), 40.0 * (n + stale as f64)),
            Cost::Drives => (0.0, 40.0 * n),
            Cost::Work(work) => (0.0, 4.0 * work as f64),
            Cost::All => (40.0 * n, 40.0 * n),
            Cost::Groups => [40.0 * n + 4.0 * p / 4096.0; 2].into(),
            Cost::Places => [40.0 * n + 8.0 * p; 2].into(),
        };
        self.allowed += MEAN + mean;
        self.dearest = self.dearest.max(taken / (few + one_call));
        assert!(
            taken <= few + one_call,
            "{cost:?} takes {taken} steps, with {n} pending, {p} once"
        );
        answer.expect("it was called")
    }

    /// Panics if all calls together took more than they may, beside `moves` that are paid for.
    pub(crate) fn settle(&self, moves: u64) {
        let allowed = ONE_CALL + self.allowed + MOVE * moves as f64;
        climb(self.steps / allowed);
        climb(self.dearest);
        assert!(self.steps <= allowed, "{} steps, and {allowed} are allowed", self.steps);
    }
}

/// Takes more branches the nearer `part` comes to 1, so that the search climbs.
fn climb(part: f64) {
    for step in 0..(7.0 * part.min(2.0)).exp2() as u32 {
        black_box(step);
    }
}

/// Steps that any call may take: it sorts a bucket of 8192, and leaves a chunk or two behind.
const ONE_CALL: f64 = 12_000.0;
/// The same where few timeouts are pending: some steps for each stale entry that no sweep has found
/// yet, which are a chunk at most, and for each timeout.
const FEW: [f64; 2] = [2_500.0, 16.0];
/// The mean number of steps that a call may take beyond what its cost states.
const MEAN: f64 = 64.0;
/// The steps for a timeout that is demoted or passed over.
const MOVE: f64 = 8.0;
/// A look at the last chunk of a bucket.
const LAST_CHUNK: f64 = 600.0;
