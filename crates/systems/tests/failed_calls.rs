//! Failed calls that are tried again, on a clock that the test moves; and over sockets.

mod limit;

use limit::within_minutes;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use systems::failed_calls::{Account, FailedCall, FailedCalls, Failure, Policy};
use tickwheel::{ManualClock, ScheduleErrorKind, Timer};

/// Failed calls on a clock that the test moves, and what became of them, in milliseconds.
struct Still {
    clock: ManualClock,
    timer: Timer,
    calls: FailedCalls,
    log: Log,
}

#[derive(Clone)]
struct Log {
    clock: ManualClock,
    start: Instant,
    lines: Arc<Mutex<Vec<(u128, String)>>>,
}

impl Log {
    fn write(&self, line: impl Into<String>) {
        let passed = self.clock.now() - self.start;
        self.lines.lock().unwrap().push((passed.as_millis(), line.into()));
    }

    fn take(&self) -> Vec<(u128, String)> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }

    fn times(&self) -> Vec<u128> {
        self.take().into_iter().map(|(at, _)| at).collect()
    }
}

impl Still {
    fn new(policy: Policy) -> Self {
        let clock = ManualClock::new();
        let builder = Timer::builder().clock(clock.clone()).max_pending(100);
        let timer = builder.build().expect("in range");
        let log = Log { clock: clock.clone(), start: clock.now(), lines: Arc::default() };
        let told = log.clone();
        let gives_up = move |name: &str, failure: Failure| {
            told.write(format!("{name} gave up: {failure}"));
        };
        let calls = FailedCalls::new(&timer, policy, gives_up);
        Self { clock, timer, calls, log }
    }

    /// Registers a call that fails `failures` times.
    fn register(&self, name: &str, failures: usize) -> FailedCall {
        let (log, mut left, tried) = (self.log.clone(), failures, name.to_owned());
        let call = move || {
            log.write(&tried);
            if left == 0 {
                return Ok(());
            }
            left -= 1;
            Err("nobody answers".into())
        };
        self.calls.register(name, call).expect("there is room")
    }
}

#[test]
fn delays_grow_up_to_the_longest_and_end_with_success() {
    let still = Still::new(POLICY);
    let call = still.register("one", 6);
    still.clock.advance(HOUR);
    assert_eq!(still.log.times(), [1_000, 3_000, 7_000, 15_000, 25_000, 35_000, 45_000]);
    assert!(!call.is_pending());
    assert_eq!(still.timer.pending(), 0);
}

#[test]
fn a_factor_of_one_is_a_fixed_period() {
    let still = Still::new(Policy { factor: 1, ..POLICY });
    still.register("one", 3);
    still.clock.advance(HOUR);
    assert_eq!(still.log.times(), [1_000, 2_000, 3_000, 4_000]);
}

#[test]
fn a_call_that_fails_too_often_is_given_up_and_the_hook_is_told() {
    let still = Still::new(Policy { retries: 3, ..POLICY });
    let call = still.register("one", 1_000);
    still.clock.advance(HOUR);
    let lines = [(1_000, "one"), (3_000, "one"), (7_000, "one")];
    let told = (7_000, "one gave up: nobody answers");
    let expected: Vec<_> =
        lines.iter().chain([&told]).map(|(at, it)| (*at, (*it).into())).collect();
    assert_eq!(still.log.take(), expected);
    assert!(!call.is_pending() && !call.withdraw());
    assert_eq!(still.timer.pending(), 0);
}

#[test]
fn jitter_makes_delays_shorter_within_its_bounds_and_spreads_them() {
    let still = Still::new(Policy { jitter: 0.5, retries: 1, ..POLICY });
    for number in 0..100 {
        still.register(&format!("{number}"), 0);
    }
    still.clock.advance(HOUR);
    let times = still.log.times();
    assert_eq!(times.len(), 100);
    // Rounded up to the tick, so never before.
    assert!(times.iter().all(|at| (500..=1_000).contains(at)), "{times:?}");
    assert!(20 < times.iter().collect::<BTreeSet<_>>().len(), "{times:?}");

    let policy = Policy { jitter: 0.2, ..POLICY };
    assert_eq!(policy.delay(1, 0.0), Duration::from_millis(1_000));
    assert_eq!(policy.delay(1, 1.0), Duration::from_millis(800));
    assert_eq!(policy.delay(9, 0.5), Duration::from_millis(9_000));
}

#[test]
fn numbers_that_make_no_sense_do_not_panic() {
    let numbers = [0, 1, u64::MAX];
    let durations = [Duration::ZERO, Duration::from_secs(1), Duration::MAX];
    for (first, longest) in durations.iter().flat_map(|it| durations.map(|other| (*it, other))) {
        for (factor, jitter) in [(0, f64::NAN), (u32::MAX, f64::INFINITY), (2, -1.0), (2, 1.0)] {
            let policy = Policy { first, factor, longest, jitter, retries: 9 };
            for failures in numbers {
                for chance in [0.0, 1.0] {
                    assert!(policy.delay(failures, chance) <= longest);
                }
            }
        }
    }
}

#[test]
fn a_call_that_panics_has_failed_and_is_tried_again() {
    let still = Still::new(Policy { retries: 2, ..POLICY });
    let log = still.log.clone();
    let call = move || {
        log.write("tried");
        panic!("as it was meant to")
    };
    still.calls.register("one", call).unwrap();
    still.clock.advance(HOUR);
    let lines = still.log.take();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(lines[2], (3_000, "one gave up: the call panicked".into()));
}

#[test]
fn a_call_over_the_limit_comes_back() {
    let still = Still::new(POLICY);
    let calls: Vec<_> = (0..100).map(|number| still.register(&number.to_string(), 9)).collect();
    let log = still.log.clone();
    let call = move || {
        log.write("the one too many");
        Ok(())
    };
    let rejected = still.calls.register("one", call).unwrap_err();
    assert_eq!(rejected.kind, ScheduleErrorKind::Full);
    (rejected.call)().unwrap();
    assert_eq!(still.log.take(), [(0, "the one too many".into())]);
    assert!(calls[7].withdraw());
    assert!(still.calls.register("another", rejected.call).is_ok(), "there is room again");
    assert_eq!(still.timer.pending(), 100);
}

#[test]
fn a_call_that_is_withdrawn_is_not_tried_again() {
    let still = Still::new(POLICY);
    let (one, other) = (still.register("one", 9), still.register("other", 1));
    still.clock.advance(Duration::from_millis(1_500));
    assert!(one.withdraw());
    assert!(!one.withdraw() && !one.is_pending() && other.is_pending());
    still.clock.advance(HOUR);
    let tried = [(1_000, "one"), (1_000, "other"), (3_000, "other")];
    let mut lines = still.log.take();
    lines.sort();
    assert_eq!(lines, tried.map(|(at, name)| (at, name.to_owned())));
}

#[test]
fn withdrawn_in_the_middle_of_a_run_it_waits_for_that_run() {
    let _limit = within_minutes();
    let still = Still::new(Policy { retries: 1, ..POLICY });
    let (begun, log) = (Arc::new(Barrier::new(2)), still.log.clone());
    let runs = Arc::clone(&begun);
    let call = move || {
        runs.wait();
        // Time for `withdraw` to come back too soon.
        thread::sleep(Duration::from_millis(200));
        log.write("registered");
        Err("the answer was lost".into())
    };
    let call = still.calls.register("one", call).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| still.clock.advance(HOUR));
        begun.wait();
        assert!(call.withdraw());
        still.log.write("unregistered");
    });
    let lines: Vec<_> = still.log.take().into_iter().map(|(_, line)| line).collect();
    assert_eq!(lines, ["registered", "unregistered"], "and nobody is told that it gave up");
}

#[test]
fn a_call_may_withdraw_itself() {
    let still = Still::new(POLICY);
    let (log, handle) = (still.log.clone(), Arc::new(Mutex::new(None::<FailedCall>)));
    let own = Arc::clone(&handle);
    let call = move || {
        log.write(format!("{:?}", own.lock().unwrap().take().map(|call| call.withdraw())));
        Err("again".into())
    };
    *handle.lock().unwrap() = Some(still.calls.register("one", call).unwrap());
    still.clock.advance(HOUR);
    assert_eq!(still.log.take(), [(1_000, "Some(true)".into())]);
}

#[test]
fn a_call_is_pending_until_its_last_run_and_the_hook_have_ended() {
    let _limit = within_minutes();
    let (runs, told) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (run, tell) = (Arc::clone(&runs), Arc::clone(&told));
    let executor = |task| drop(thread::spawn(task));
    let timer = Timer::builder().executor(executor).build().unwrap();
    let policy = Policy { first: Duration::ZERO, retries: 1, ..POLICY };
    let calls = FailedCalls::new(&timer, policy, move |_, _| _ = (tell.wait(), tell.wait()));
    let call = move || {
        run.wait();
        run.wait();
        Err("nobody answers".into())
    };
    calls.register("one", call).unwrap();
    let pending = Account { registered: 1, pending: 1, ..Account::default() };
    for at in [runs, told] {
        at.wait();
        assert_eq!(calls.account(), pending);
        at.wait();
    }
    while calls.account().pending != 0 {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(calls.account(), Account { given_up: 1, pending: 0, ..pending });
}

#[test]
fn the_account_has_one_end_for_each_call() {
    let still = Still::new(Policy { retries: 2, ..POLICY });
    let calls: Vec<_> = (0..4).map(|number| still.register("one", number)).collect();
    assert!(calls[0].withdraw() && !calls[0].withdraw());
    still.clock.advance(HOUR);
    assert!(!calls[1].withdraw() && !calls[2].withdraw());
    let _pending: Vec<_> = (0..100).map(|_| still.register("another", 9)).collect();
    assert!(still.calls.register("one too many", || Ok(())).is_err());
    let account = Account { registered: 105, succeeded: 1, given_up: 2, ..Account::default() };
    let account = Account { withdrawn: 1, rejected: 1, ..account };
    assert_eq!(still.calls.account(), Account { pending: 100, ..account });
    drop(still.timer.stop().expect("not inside a task"));
    assert_eq!(still.calls.account(), Account { dropped: 100, ..account });
}

#[test]
fn the_program_tells_of_each_call() {
    let _limit = within_minutes();
    let program = Command::new(env!("CARGO_BIN_EXE_failed_calls")).output().unwrap();
    let lines = String::from_utf8(program.stdout).unwrap();
    assert!(lines.contains("gave up service 17: it has no address"), "{lines}");
    let many = Account { registered: 200, succeeded: 198, ..Account::default() };
    let many = Account { withdrawn: 1, rejected: 1, ..many };
    let few = Account { registered: 1, given_up: 1, ..Account::default() };
    assert!(lines.contains(&format!("many retries: {many:?}")), "{lines}");
    assert!(lines.contains(&format!("five: {few:?}")), "{lines}");
}

#[test]
fn a_registry_that_comes_back_has_all_services_once() {
    let _limit = within_minutes();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let first = Duration::from_millis(20);
    let policy = Policy { first, factor: 2, longest: first * 4, jitter: 0.5, retries: 1_000 };
    let executor = |task| drop(thread::spawn(task));
    let timer = Timer::builder().executor(executor).build().unwrap();
    let calls = FailedCalls::new(&timer, policy, |name, failure| panic!("{name}: {failure}"));
    let services: Vec<_> = (0..50).map(|number| format!("service {number}")).collect();
    for name in &services {
        let line = name.clone();
        let register = move || {
            let mut stream = TcpStream::connect(address)?;
            Ok(writeln!(stream, "{line}")?)
        };
        calls.register(name, register).unwrap();
    }
    while timer.stats().fired < 100 {
        thread::sleep(Duration::from_millis(1)); // each has failed some times
    }
    let listener = TcpListener::bind(address).unwrap();
    let mut registered = BTreeSet::new();
    for _ in &services {
        let (stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert!(registered.insert(line.trim_end().to_owned()), "twice: {line}");
    }
    assert_eq!(registered, services.into_iter().collect());
}

const HOUR: Duration = Duration::from_secs(3_600);
const POLICY: Policy = Policy {
    first: Duration::from_secs(1),
    factor: 2,
    longest: Duration::from_secs(10),
    jitter: 0.0,
    retries: 100,
};
