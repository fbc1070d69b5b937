//! tickwheel by the routines of the paper.

use crate::Scheme;
use tickwheel::{Key, Mode, Wheel};

/// tickwheel's wheel, in either mode, called at every tick.
#[derive(Debug)]
pub struct Tickwheel {
    wheel: Wheel<u32>,
    keys: Vec<Option<Key>>,
}

impl Tickwheel {
    /// Makes room for the requests below `requests`.
    #[must_use]
    pub fn new(requests: u32, mode: Mode) -> Self {
        let requests = requests as usize;
        Self { wheel: Wheel::with_capacity(mode, requests), keys: vec![None; requests] }
    }
}

impl Scheme for Tickwheel {
    fn start_timer(&mut self, request: u32, interval: u64) {
        let key = self.wheel.schedule(self.wheel.now() + interval, request);
        self.keys[request as usize] = Some(key);
    }

    fn stop_timer(&mut self, request: u32) {
        self.keys[request as usize].take().and_then(|key| self.wheel.cancel(key));
    }

    fn per_tick_bookkeeping(&mut self, expired: &mut Vec<u32>) {
        let now = self.wheel.now() + 1;
        while let Some(timeout) = self.wheel.expire(now) {
            expired.push(timeout.value);
        }
    }
}
