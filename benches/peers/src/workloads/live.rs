//! Timeouts that come and go while time goes on, as in a server.

use super::LEAST;
use crate::case::Sample;
use crate::log::{Fault, Faults, Log};
use crate::random::{Delays, MINUTE, SECOND};
use crate::subject::{Setup, Subject};
use cpu_time::ThreadTime;

/// For each request that begins another one ends, at random. Each takes 6.5 s on average, so that
/// 1 % run into their timeout of 30 s.
pub(super) fn requests<S: Subject>(live: usize) -> Sample {
    const TIMEOUT: u64 = 30 * SECOND;
    /// -ln(1 %)
    const LIVES: f64 = 4.605;
    let a_tick = live as f64 * LIVES / TIMEOUT as f64;
    Server::<S>::new(live, TIMEOUT).measure("request", a_tick, |server, which| {
        server.cancel(which);
        server.schedule(which, server.now + TIMEOUT);
    })
}

/// A packet arrives on a random connection, each of which is idle for 10 s on average.
pub(super) fn idle<S: Subject>(connections: usize) -> Sample {
    const TIMEOUT: u64 = 60 * SECOND;
    let a_tick = connections as f64 / (10.0 * SECOND as f64);
    Server::<S>::new(connections, TIMEOUT).measure("reschedule", a_tick, |server, which| {
        server.place(which, server.now + TIMEOUT);
    })
}

/// What fires is scheduled again, and for each of those a random one is moved, and one cancelled
/// and scheduled again. Time goes on from wake to wake.
pub(super) fn mix<S: Subject>(live: usize) -> Sample {
    let mut server = Server::<S>::new(live, MINUTE);
    let draws = server.draws();
    let turns = draws.len() / 2;
    let mut started = ThreadTime::now();
    let mut turn = 0;
    while turn < 2 * turns {
        assert!(server.wait(), "nothing is pending, of {live}");
        let fired = std::mem::take(&mut server.fired);
        for &id in &fired {
            let (which, delay) = draws[2 * turn % draws.len()];
            let (other, another_delay) = draws[(2 * turn + 1) % draws.len()];
            turn += 1;
            if turn == turns {
                started = ThreadTime::now();
            }
            server.schedule(id, server.now + delay);
            server.place(which as usize, server.now + another_delay);
            server.cancel(other as usize);
            server.schedule(other as usize, server.now + delay / 2 + 1);
        }
        server.fired = fired;
    }
    let each = started.elapsed().as_nanos() as f64 / turns as f64;
    server.finish(&[("turn", each)])
}

/// A timeout for each of many places, which hold the keys as their owners would.
pub(super) struct Server<S: Subject> {
    pub(super) subject: S,
    /// The key of each timeout that is pending, and its deadline.
    pub(super) places: Vec<Option<(S::Key, u64)>>,
    pub(super) now: u64,
    delays: Delays,
    pub(super) log: Log,
    /// Those of the last turn.
    pub(super) fired: Vec<usize>,
    last: u64,
    pub(super) faults: Faults,
}

impl<S: Subject> Server<S> {
    fn new(live: usize, longest: u64) -> Self {
        let mut server = Self::empty(&Setup::new(longest, live));
        server.now = 1;
        for (which, delay) in (0..).zip(server.delays.many(live)) {
            server.schedule(which, 1 + delay);
        }
        server
    }

    pub(super) fn empty(setup: &Setup) -> Self {
        Self {
            subject: S::new(setup),
            places: (0..setup.timeouts).map(|_| None).collect(),
            now: 0,
            delays: Delays::uniform(setup.longest),
            log: Log::with_capacity(setup.timeouts),
            fired: Vec::with_capacity(setup.timeouts),
            last: 0,
            faults: Faults::default(),
        }
    }

    /// Which place, and a delay: drawn beforehand, as drawing costs as much as a cancel. As many
    /// as there are places, and twice.
    fn draws(&self) -> Vec<(u32, u64)> {
        let mut rng = fastrand::Rng::with_seed(3);
        let places = self.places.len() as u32;
        let count = 2 * self.places.len().clamp(LEAST, 1_000_000);
        (0..count).map(|_| (rng.u32(..places), self.delays.draw(&mut rng))).collect()
    }

    /// Does `step` for each of the draws, first to warm up and then timed, so many in a tick, with
    /// a turn of the loop every tick, or every 16 steps if they are more than a tick apart.
    fn measure(&mut self, metric: &str, a_tick: f64, step: impl Fn(&mut Self, usize)) -> Sample {
        let draws = self.draws();
        let (warm_up, timed) = draws.split_at(draws.len() / 2);
        let each_turn = a_tick.ceil().max(16.0) as usize;
        let ticks = each_turn as f64 / a_tick;
        let mut time = self.now as f64;
        let mut run = |draws: &[(u32, u64)]| {
            for chunk in draws.chunks(each_turn) {
                chunk.iter().for_each(|&(which, _)| step(self, which as usize));
                time += ticks;
                self.turn(time as u64, self.now + 1);
            }
        };
        run(warm_up);
        let started = ThreadTime::now();
        run(timed);
        let each = started.elapsed().as_nanos() as f64 / timed.len() as f64;
        self.finish(&[(metric, each)])
    }

    /// One turn of the loop: what is due at `now` fires.
    pub(super) fn turn(&mut self, now: u64, since: u64) {
        self.now = now;
        self.log.clear();
        self.subject.expire(now, &mut self.log);
        self.take_fired(since);
    }

    /// Sleeps until the next wake, and returns false if there is none.
    fn wait(&mut self) -> bool {
        self.log.clear();
        let wake = self.subject.wait(self.now, &mut self.log);
        self.now = wake.unwrap_or(self.now);
        self.take_fired(self.now);
        wake.is_some()
    }

    pub(super) fn take_fired(&mut self, since: u64) {
        self.fired.clear();
        for &id in &self.log.values {
            match self.places[id as usize].take() {
                Some((key, deadline)) => {
                    self.faults.judge(deadline, self.now, since);
                    self.faults.add(Fault::Disordered, deadline < self.last);
                    self.last = self.last.max(deadline);
                    self.subject.retire(key);
                    self.fired.push(id as usize);
                }
                None => self.faults.add(Fault::Duplicated, true),
            }
        }
    }

    pub(super) fn schedule(&mut self, which: usize, deadline: u64) {
        let Self { places, subject, .. } = self;
        places[which].get_or_insert_with(|| (subject.schedule(deadline, which as u64), deadline));
    }

    pub(super) fn cancel(&mut self, which: usize) {
        if let Some((key, _)) = self.places[which].take() {
            self.faults.add(Fault::Wrong, !self.subject.cancel(key, which as u64));
        }
    }

    /// Moves the timeout, or schedules it if none waits.
    pub(super) fn place(&mut self, which: usize, deadline: u64) {
        let value = which as u64;
        let key = match self.places[which].take() {
            Some((key, _)) => self.subject.reschedule(key, deadline, value),
            None => self.subject.schedule(deadline, value),
        };
        self.places[which] = Some((key, deadline));
    }

    /// Drives on until nothing is left, to see that it all comes out.
    pub(super) fn finish(&mut self, values: &[(&str, f64)]) -> Sample {
        if S::FIRES {
            while self.wait() {}
            self.faults.add(Fault::Lost, self.places.iter().flatten().count() as u64);
        }
        for (key, _) in self.places.iter_mut().filter_map(Option::take) {
            self.subject.retire(key);
        }
        Sample::of(self.faults.clone(), values)
    }
}
