//! Calls that failed and are tried again, as Dubbo's `FailbackRegistry` and
//! `FailbackClusterInvoker` do: with backoff and jitter, up to a limit, until they succeed or are
//! withdrawn.

use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tickwheel::{Next, ScheduleErrorKind, Status, Timeout, Timer};

/// When failed calls are tried again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// Before the first retry.
    pub first: Duration,
    /// Each delay is this many times the one before it. With 1 the period is fixed.
    pub factor: u32,
    /// No delay is longer.
    pub longest: Duration,
    /// How much of a delay is left to chance: of 10 s and 0.2, a delay of 8 to 10 s is made.
    pub jitter: f64,
    /// How many retries there are at most. There is one at least.
    pub retries: u64,
}

/// Tries failed calls again, on a timer, whose `max_pending` limits how many wait.
///
/// Calls run where the timer's tasks do. Calls that take long want a timer with an executor.
#[derive(Clone)]
pub struct FailedCalls {
    timer: Timer,
    policy: Policy,
    gives_up: Arc<Hook>,
    account: Arc<Mutex<Account>>,
}

/// What became of each call. `registered` is always the sum of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub registered: u64,
    pub succeeded: u64,
    pub given_up: u64,
    pub withdrawn: u64,
    /// The timer had no room for the call, or was stopped.
    pub rejected: u64,
    /// The timer stopped, or its executor dropped the call.
    pub dropped: u64,
    /// The call is to be tried, or runs, or the hook is being told of it.
    pub pending: u64,
}

type Hook = dyn Fn(&str, Failure) + Send + Sync;

/// Why a call failed.
pub type Failure = Box<dyn Error + Send + Sync>;

/// A call that is tried again. Dropping this changes nothing.
#[derive(Debug)]
pub struct FailedCall {
    timeout: Timeout,
    end: Arc<OnceLock<End>>,
}

/// How a call ended. The first that says so counts: its last run, or a caller who withdraws it.
#[derive(Clone, Copy, Debug)]
enum End {
    Succeeded,
    GivenUp,
    Withdrawn,
    Rejected,
}

/// Enters the end of a call into the account when the timer drops the call.
struct Entry {
    account: Arc<Mutex<Account>>,
    end: Arc<OnceLock<End>>,
}

/// Says why a failed call will not be tried again, and gives it back.
pub struct Rejected<F> {
    pub kind: ScheduleErrorKind,
    pub call: F,
}

impl Policy {
    /// Returns the delay after `failures` failures, of which `chance`, from 0 to 1, chooses one.
    #[must_use]
    pub fn delay(&self, failures: u64, chance: f64) -> Duration {
        let exponent = u32::try_from(failures).unwrap_or(u32::MAX).saturating_sub(1);
        let delay = self.first.saturating_mul(self.factor.saturating_pow(exponent));
        let delay = delay.min(self.longest);
        let part = (self.jitter * chance).clamp(0.0, 1.0);
        delay
            - Duration::try_from_secs_f64(delay.as_secs_f64() * part).unwrap_or_default().min(delay)
    }
}

impl FailedCalls {
    /// Makes one whose calls run on `timer`. It calls `gives_up` with the name of a call, and its
    /// last failure, when the policy has no retry left.
    pub fn new(
        timer: &Timer,
        policy: Policy,
        gives_up: impl Fn(&str, Failure) + Send + Sync + 'static,
    ) -> Self {
        let (account, gives_up) = (Arc::default(), Arc::new(gives_up));
        Self { timer: timer.clone(), policy, gives_up, account }
    }

    /// Tries `call`, which has just failed, again and again, until it succeeds, is withdrawn, or
    /// has failed too often. A call that panics has failed.
    ///
    /// # Errors
    ///
    /// If as many calls wait as the timer's limit allows, or the timer was stopped. The error gives
    /// the call back.
    pub fn register<F>(&self, name: impl Into<String>, call: F) -> Result<FailedCall, Rejected<F>>
    where
        F: FnMut() -> Result<(), Failure> + Send + 'static,
    {
        let (policy, gives_up, name) = (self.policy, Arc::clone(&self.gives_up), name.into());
        let entry = Entry::new(&self.account);
        let end = Arc::clone(&entry.end);
        // Beside the task, because a closure cannot be taken apart if the timer gives it back.
        let call = Arc::new(Mutex::new(call));
        let called = Arc::clone(&call);
        let retry = move |run: &tickwheel::Run| {
            let mut call = called.lock().unwrap_or_else(PoisonError::into_inner);
            let outcome = catch_unwind(AssertUnwindSafe(&mut *call));
            let outcome = outcome.unwrap_or_else(|_| Err("the call panicked".into()));
            if outcome.is_err() && run.count() < policy.retries {
                return Next::After(policy.delay(run.count() + 1, fastrand::f64()));
            }
            let is_first =
                entry.end.set(outcome.as_ref().map_or(End::GivenUp, |()| End::Succeeded));
            if let (Err(failure), Ok(())) = (outcome, is_first) {
                gives_up(&name, failure);
            }
            Next::Stop
        };
        match self.timer.schedule_with(policy.delay(1, fastrand::f64()), retry) {
            Ok(timeout) => Ok(FailedCall { timeout, end }),
            Err(error) => {
                let kind = error.kind();
                // Nothing else can have ended it.
                let _ = end.set(End::Rejected);
                drop(error);
                let call = Arc::into_inner(call).expect("the task is gone");
                Err(Rejected {
                    kind,
                    call: call.into_inner().unwrap_or_else(PoisonError::into_inner),
                })
            }
        }
    }

    /// Returns what became of all calls so far. When none is pending, no call runs, and the hook
    /// has been told of all that were given up.
    #[must_use]
    pub fn account(&self) -> Account {
        *self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn new(account: &Arc<Mutex<Account>>) -> Self {
        let mut now = account.lock().unwrap_or_else(PoisonError::into_inner);
        now.registered += 1;
        now.pending += 1;
        Self { account: Arc::clone(account), end: Arc::default() }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        account.pending -= 1;
        *match self.end.get() {
            Some(End::Succeeded) => &mut account.succeeded,
            Some(End::GivenUp) => &mut account.given_up,
            Some(End::Withdrawn) => &mut account.withdrawn,
            Some(End::Rejected) => &mut account.rejected,
            None => &mut account.dropped,
        } += 1;
    }
}

impl FailedCall {
    /// Withdraws the call, and returns whether that ended it: it had not succeeded, was not given
    /// up, and was not withdrawn before.
    ///
    /// When this returns, the call is not running and never will: so an `unregister` after this is
    /// not undone by a `register` that was on its way. Inside a task of the timer, the call itself
    /// included, this does not wait: a run that has begun goes on to its end.
    pub fn withdraw(&self) -> bool {
        let is_first = self.end.set(End::Withdrawn).is_ok();
        if self.timeout.cancel_and_wait().is_err() {
            self.timeout.cancel();
        }
        is_first
    }

    /// Returns whether it is still to be tried, or runs.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.timeout.status() == Status::Pending
    }
}

impl fmt::Debug for FailedCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailedCalls").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for Rejected<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<F> fmt::Display for Rejected<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the call is not tried again: {}", self.kind)
    }
}

impl<F> Error for Rejected<F> {}
