//! Timeouts that come and go while time goes on, as in a server.

use super::LEAST;
use crate::case::Sample;
use crate::log::{Faults, Log};
use crate::random::{Delays, MINUTE, SECOND};
use crate::subject::{Cancelled, Setup, Subject};
use cpu_time::ThreadTime;

/// For each request that begins another one ends, at random. Each takes 6.5 s on average, so that
/// 1 % run into their timeout of 30 s.
pub(super) fn requests<S: Subject>(live: usize) -> Sample {
    const TIMEOUT: u64 = 30 * SECOND;
    /// -ln(1 %)
    const LIVES: f64 = 4.605;
    let delays = Delays::uniform(TIMEOUT);
    let a_tick = live as f64 * LIVES / TIMEOUT as f64;
    let mut server = Server::<S>::new(delays, live, a_tick);
    server.measure("request", |server, which, _| {
        server.cancel(which);
        server.schedule(which, server.now + TIMEOUT);
    })
}

/// A packet arrives on a random connection, each of which is idle for 10 s on average.
pub(super) fn idle<S: Subject>(connections: usize) -> Sample {
    const TIMEOUT: u64 = 60 * SECOND;
    let delays = Delays::uniform(TIMEOUT);
    let a_tick = connections as f64 / (10.0 * SECOND as f64);
    let mut server = Server::<S>::new(delays, connections, a_tick);
    server.measure("reschedule", |server, which, _| {
        server.place(which, server.now + TIMEOUT);
    })
}

/// What fires is scheduled again, and for each of those a random one is moved, and one cancelled
/// and scheduled again. Time goes on from wake to wake.
pub(super) fn mix<S: Subject>(live: usize) -> Sample {
    let delays = Delays::uniform(MINUTE);
    let mut server = Server::<S>::new(delays, live, 1.0);
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
    pub(super) places: Vec<Place<S::Key>>,
    pub(super) now: u64,
    delays: Delays,
    /// How many come in a tick.
    a_tick: f64,
    pub(super) log: Log,
    /// Those of the last turn.
    pub(super) fired: Vec<usize>,
    last: u64,
    pub(super) faults: Faults,
}

pub(super) struct Place<K> {
    pub(super) key: Option<K>,
    pub(super) deadline: u64,
}

impl<S: Subject> Server<S> {
    fn new(delays: Delays, live: usize, a_tick: f64) -> Self {
        let mut server = Self::empty(S::new(&Setup::new(delays.longest, live)), delays, live);
        server.a_tick = a_tick;
        server.now = 1;
        for (which, delay) in (0..).zip(delays.many(live)) {
            server.schedule(which, 1 + delay);
        }
        server
    }

    pub(super) fn empty(subject: S, delays: Delays, live: usize) -> Self {
        Self {
            subject,
            places: (0..live).map(|_| Place { key: None, deadline: 0 }).collect(),
            now: 0,
            delays,
            a_tick: 1.0,
            log: Log::with_capacity(live),
            fired: Vec::with_capacity(live),
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

    /// Does `step` for each of the draws, first to warm up and then timed, with a turn of the
    /// loop every tick, or every 16 steps if they are more than a tick apart.
    fn measure(&mut self, metric: &str, step: impl Fn(&mut Self, usize, u64)) -> Sample {
        let draws = self.draws();
        let (warm_up, timed) = draws.split_at(draws.len() / 2);
        let each_turn = self.a_tick.ceil().max(16.0) as usize;
        let ticks = each_turn as f64 / self.a_tick;
        let mut time = self.now as f64;
        let mut run = |draws: &[(u32, u64)]| {
            for chunk in draws.chunks(each_turn) {
                for &(which, delay) in chunk {
                    step(self, which as usize, delay);
                }
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
        let Some(now) = self.subject.wait(self.now, &mut self.log) else {
            self.fired.clear();
            return false;
        };
        self.now = now;
        self.take_fired(now);
        true
    }

    pub(super) fn take_fired(&mut self, since: u64) {
        self.fired.clear();
        for &mut id in self.log.values() {
            let place = &mut self.places[id as usize];
            match place.key.take() {
                Some(key) => {
                    self.faults.judge(place.deadline, self.now, since);
                    self.faults.disordered += u64::from(place.deadline < self.last);
                    self.last = self.last.max(place.deadline);
                    self.subject.retire(key);
                    self.fired.push(id as usize);
                }
                None => self.faults.duplicated += 1,
            }
        }
    }

    pub(super) fn schedule(&mut self, which: usize, deadline: u64) {
        let place = &mut self.places[which];
        if place.key.is_none() {
            place.key = Some(self.subject.schedule(deadline, which as u64));
            place.deadline = deadline;
        }
    }

    pub(super) fn cancel(&mut self, which: usize) {
        if let Some(key) = self.places[which].key.take() {
            let cancelled = self.subject.cancel(key);
            let right = cancelled == Cancelled::Value(which as u64) || cancelled == Cancelled::Done;
            self.faults.wrong += u64::from(!right);
        }
    }

    pub(super) fn reschedule(&mut self, which: usize, deadline: u64) -> bool {
        let place = &mut self.places[which];
        match place.key.take() {
            Some(key) => {
                place.key = Some(self.subject.reschedule(key, deadline, which as u64));
                place.deadline = deadline;
                true
            }
            None => false,
        }
    }

    /// Moves the timeout, or schedules it if none waits.
    pub(super) fn place(&mut self, which: usize, deadline: u64) {
        if !self.reschedule(which, deadline) {
            self.schedule(which, deadline);
        }
    }

    /// Drives on until nothing is left, to see that it all comes out.
    pub(super) fn finish(&mut self, values: &[(&str, f64)]) -> Sample {
        if S::PROFILE.fires {
            while self.wait() {}
            let left = self.places.iter().filter(|place| place.key.is_some()).count();
            self.faults.lost += left as u64;
        }
        for place in &mut self.places {
            if let Some(key) = place.key.take() {
                self.subject.retire(key);
            }
        }
        Sample::of(self.faults.clone(), values)
    }
}
