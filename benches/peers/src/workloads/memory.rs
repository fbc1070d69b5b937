//! The bytes that a timeout takes beyond its value.

use crate::allocator;
use crate::case::Sample;
use crate::log::Faults;
use crate::random::{Delays, MINUTE};
use crate::subject::{Setup, Subject};

pub(super) fn run<S: Subject>(count: usize) -> Sample {
    let delays = Delays::uniform(MINUTE).many(count);
    let mut keys = Vec::with_capacity(count);
    allocator::start();
    let mut subject = S::new(&Setup::new(MINUTE, count));
    for (value, &delay) in (0..).zip(&delays) {
        keys.push(subject.schedule(delay, value));
    }
    let (live, peak) = (allocator::live(), allocator::peak());
    for key in keys {
        subject.retire(key);
    }
    let each = |bytes: isize| bytes as f64 / count as f64 - size_of::<u64>() as f64;
    Sample::of(Faults::default(), &[("pending", each(live)), ("peak", each(peak))])
}
