//! What a timer tells through the crate `tracing`.
#![cfg(all(feature = "tracing", not(loom)))]

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, Once, PoisonError, mpsc};
use std::time::Duration;
use tickwheel::{ManualClock, Next, Status, Timer, TimerBuilder};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// What was told, a line each.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Whether entering a span panics.
static PANICS: AtomicBool = AtomicBool::new(false);

/// A timer that is called where a span is entered.
static CALLED: Mutex<Option<Timer>> = Mutex::new(None);

struct Teller;

impl Layer<Registry> for Teller {
    fn on_new_span(
        &self,
        attributes: &tracing::span::Attributes<'_>,
        _: &tracing::span::Id,
        _: Context<'_, Registry>,
    ) {
        let mut line = Line::new("new", attributes.metadata());
        attributes.record(&mut line);
        line.tell();
    }

    fn on_enter(&self, _: &tracing::span::Id, _: Context<'_, Registry>) {
        assert!(!PANICS.load(SeqCst), "as the test wants it");
        let timer = CALLED.lock().unwrap().clone();
        if let Some(timer) = timer {
            assert!(timer.schedule(ms(60_000), || {}).unwrap().cancel());
            assert!(timer.stop().is_err(), "it would wait for itself");
        }
    }

    fn on_close(&self, id: tracing::span::Id, context: Context<'_, Registry>) {
        Line::new("end", context.metadata(&id).unwrap()).tell();
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, Registry>) {
        let span = context.lookup_current().map_or("none", |span| span.name());
        let mut line = Line::new(&format!("in {span}"), event.metadata());
        event.record(&mut line);
        line.tell();
    }
}

struct Line(String);

impl Line {
    fn new(what: &str, metadata: &tracing::Metadata<'_>) -> Self {
        let name = if metadata.is_span() { metadata.name() } else { "event" };
        Self(format!("{what}: {} {} {name}", metadata.level(), metadata.target()))
    }

    fn tell(self) {
        TOLD.lock().unwrap().push(self.0);
    }
}

impl tracing::field::Visit for Line {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn Debug) {
        self.0 += &format!(" {field}={value:?}");
    }
}

/// Has every thread tell, and lets one test at a time listen.
fn listen() -> MutexGuard<'static, ()> {
    static TELLS: Once = Once::new();
    static LISTENING: Mutex<()> = Mutex::new(());
    let listening = LISTENING.lock().unwrap_or_else(PoisonError::into_inner);
    TELLS.call_once(|| {
        let subscriber = tracing_subscriber::registry().with(Teller);
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
    TOLD.lock().unwrap().clear();
    listening
}

fn told() -> Vec<String> {
    TOLD.lock().unwrap().clone()
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn built(with: impl FnOnce(TimerBuilder) -> TimerBuilder) -> (Timer, ManualClock) {
    let clock = ManualClock::new();
    let timer = with(Timer::builder().clock(clock.clone())).build().unwrap();
    (timer, clock)
}

#[test]
fn each_run_of_a_task_has_a_span_that_says_how_late_it_is() {
    let _listening = listen();
    let (timer, clock) = built(|builder| builder);
    timer.schedule(ms(5), || tracing::info!(target: "task", "runs")).unwrap();
    timer.schedule(ms(6), || panic!("as the test wants it")).unwrap();
    clock.jump(ms(12));
    let twice =
        |run: &tickwheel::Run| if run.count() == 2 { Next::Stop } else { Next::After(ms(1)) };
    timer.schedule_with(ms(1), twice).unwrap();
    clock.advance(ms(10));
    let (new, end) = ("new: TRACE tickwheel task lateness_us", "end: TRACE tickwheel task");
    assert_eq!(
        told(),
        [
            &format!("{new}=7000"),
            "in task: INFO task event message=runs",
            end,
            &format!("{new}=6000"),
            end,
            &format!("{new}=0"),
            end,
            &format!("{new}=0"),
            end,
        ]
    );
}

#[test]
fn a_slow_task_tells_inside_its_span() {
    let _listening = listen();
    let (timer, clock) = built(|builder| builder.slow_task(ms(20)));
    let slow = clock.clone();
    timer.schedule(ms(5), move || slow.advance(ms(20))).unwrap();
    timer.schedule(ms(500), || {}).unwrap();
    clock.advance(ms(1_000));
    let new = "new: TRACE tickwheel task lateness_us=0";
    let event = "in task: WARN tickwheel event message=a task was slow took_us=20000 lateness_us=0";
    let end = "end: TRACE tickwheel task";
    assert_eq!(told(), [new, event, end, new, end]);
}

#[test]
fn on_an_executor_the_span_counts_the_wait_too() {
    let _listening = listen();
    let (sender, receiver) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
    let sender = Mutex::new(sender);
    let (timer, clock) =
        built(|builder| builder.executor(move |task| sender.lock().unwrap().send(task).unwrap()));
    timer.schedule(ms(5), || {}).unwrap();
    clock.jump(ms(8));
    clock.advance(ms(30));
    receiver.recv().unwrap()();
    let new = "new: TRACE tickwheel task lateness_us=33000";
    assert_eq!(told(), [new, "end: TRACE tickwheel task"]);
}

#[test]
fn the_worker_outlives_a_subscriber_that_panics() {
    let _listening = listen();
    let (timer, clock) = built(|builder| builder);
    let [never, fires] = [5, 20].map(|at| timer.schedule(ms(at), || {}).unwrap());
    PANICS.store(true, SeqCst);
    clock.advance(ms(10));
    PANICS.store(false, SeqCst);
    clock.advance(ms(20));
    assert!(never.status() == Status::Fired && fires.status() == Status::Fired);
    assert_eq!((timer.stats().panics, timer.stats().fired), (1, 2));
}

#[test]
fn a_subscriber_may_call_the_timer() {
    let _listening = listen();
    let (timer, clock) = built(|builder| builder.shards(1));
    let fires = timer.schedule(ms(5), || {}).unwrap();
    *CALLED.lock().unwrap() = Some(timer.clone());
    clock.advance(ms(10));
    *CALLED.lock().unwrap() = None;
    assert_eq!((fires.status(), timer.stats().panics), (Status::Fired, 0));
    assert_eq!((timer.pending(), timer.stats().cancelled), (0, 1));
}

#[test]
fn waking_a_future_has_no_span() {
    let _listening = listen();
    let (timer, clock) = built(|builder| builder);
    let mut sleep = timer.sleep(ms(5));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::pin::Pin::new(&mut sleep).poll(&mut context).is_pending());
    clock.advance(ms(9));
    assert!(std::pin::Pin::new(&mut sleep).poll(&mut context).is_ready());
    assert!(told().is_empty());
}
