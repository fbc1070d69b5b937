//! A rate that the workers of a database share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tickwheel_durable::RateLimit;

use super::server::{Server, client};
use super::{LEASE, until, worker};

#[test]
fn consumers_of_all_workers_get_no_more_together_while_workers_come_and_go() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let limit = RateLimit { timeouts: 6, per: Duration::from_millis(300) };
    let taken = Mutex::new(Vec::new());
    let is_over = AtomicBool::new(false);
    let count = || taken.lock().unwrap().len();
    thread::scope(|scope| {
        let consume = |timer: tickwheel_durable::DurableTimer| {
            let (taken, is_over) = (&taken, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let before = Instant::now();
                    match timer.recv_timeout(Duration::from_millis(20)).unwrap() {
                        Some(due) => {
                            taken.lock().unwrap().push((Instant::now(), before));
                            due.ack();
                        }
                        // It may be closed.
                        None => thread::sleep(Duration::from_millis(1)),
                    }
                }
            })
        };
        // A test that fails ends its threads too.
        let over = Over(&is_over);
        let first = worker(&url, LEASE * 2);
        until("it is limited", || first.limit_rate(Some(limit)).is_ok());
        client(&url)
            .batch_execute(&format!(
                "select tickwheel_schedule('a' || n, now(), '') from generate_series(1, {COUNT}) n"
            ))
            .unwrap();
        let mut consumers = vec![consume(first.clone())];
        let mut others = Vec::new();
        for some in [12, 24] {
            until("some come", || some <= count());
            let other = worker(&url, LEASE * 2);
            consumers.push(consume(other.clone()));
            others.push(other);
        }
        until("more come", || 36 <= count());
        drop(first.close());
        until("all come", || others[0].is_empty().unwrap());
        drop(over);
        others.into_iter().for_each(|other| drop(other.close()));
        consumers.into_iter().for_each(|consumer| consumer.join().unwrap());
    });
    let mut taken = taken.into_inner().unwrap();
    // On a busy machine a lease may be over before an ack, so that one comes twice.
    assert!(COUNT <= taken.len(), "{}", taken.len());
    taken.sort_unstable();
    // Each was taken between its two times, wherever the thread lost its core.
    for some in taken.windows(limit.timeouts + 1) {
        let first = some.iter().map(|(_, before)| before).min().unwrap();
        let took = some[limit.timeouts].0 - *first;
        assert!(limit.per <= took, "{took:?}");
    }
}

#[test]
fn a_limit_below_the_number_of_workers_leaves_no_timeout_with_one_that_may_take_none() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let workers = [worker(&url, LEASE), worker(&url, LEASE)];
    let limit = RateLimit { timeouts: 1, per: Duration::from_millis(10) };
    until("it is limited", || workers[0].limit_rate(Some(limit)).is_ok());
    let shares = || workers.each_ref().map(|worker| worker.stats().partitions);
    // A worker on which nobody receives wants none.
    let take = || workers.iter().find_map(|worker| worker.recv_timeout(SOON).unwrap());
    until("one has all", || take().is_none() && [[64, 0], [0, 64]].contains(&shares()));
    client(&url)
        .batch_execute(
            "select tickwheel_schedule('a' || n, now(), '') from generate_series(1, 9) n",
        )
        .unwrap();
    let mut left = 9;
    until("all come", || {
        take().into_iter().for_each(|due| {
            due.ack();
            left -= 1;
        });
        left == 0
    });
    until("it is limited no more", || workers[1].limit_rate(None).is_ok());
    until("they share again", || take().is_none() && shares() == [32, 32]);
    workers.into_iter().for_each(|worker| drop(worker.close()));
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const COUNT: usize = 48;
const SOON: Duration = Duration::from_millis(5);
