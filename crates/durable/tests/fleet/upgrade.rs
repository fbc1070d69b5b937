//! A database of the version before fleets, and its workers.

use postgres::Client;
use postgres::types::{ToSql, Type};
use tickwheel_durable::{Cancelled, DurableTimer, PostgresStore, Scheduled};

use super::LEASE;
use crate::server::{Server, client};
use crate::{HOUR, now, take, until, worker};

/// A worker of the version before, by its statements.
struct Older {
    sql: Client,
    worker: i64,
}

/// What it has read of a row.
struct Read {
    partition: i32,
    name: String,
    number: i64,
    attempt: i32,
}

impl Older {
    fn connect(url: &str) -> Self {
        let mut sql = client(url);
        let worker = sql.query_one("select nextval('tickwheel_worker_number')", &[]);
        let worker = worker.unwrap().get(0);
        Self { sql, worker }
    }

    /// Runs a statement in a transaction as it does, and returns what `read` finds in its rows.
    fn run<R>(
        &mut self,
        statement: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
        read: impl Fn(&postgres::Row) -> R,
    ) -> Vec<R> {
        let mut transaction = self.sql.transaction().unwrap();
        transaction.batch_execute(BEGIN).unwrap();
        let rows = transaction.query_typed(statement, parameters).unwrap();
        transaction.commit().unwrap();
        rows.iter().map(read).collect()
    }

    /// Renews its leases, takes so many partitions that are free, and returns its own with their
    /// epochs.
    fn lease(&mut self, most: i64) -> Vec<(i32, i64)> {
        let worker: (&(dyn ToSql + Sync), Type) = (&self.worker.clone(), Type::INT8);
        let lease = [worker.clone(), (&HOUR.as_secs_f64(), Type::FLOAT8), (&true, Type::BOOL)];
        self.run(RENEW, &lease, |_| ());
        let shares = self.run(SHARES, std::slice::from_ref(&worker), |row| row.get::<_, i64>(0));
        assert_eq!(shares, [64]);
        let most = [worker.clone(), (&most, Type::INT8)];
        let free = self.run(LOCK_FREE, &most, |row| row.get::<_, i32>(0));
        self.run(TAKE, &[worker.clone(), (&free, Type::INT4_ARRAY)], |_| ());
        self.run(LOCK_MINE, &[worker], |row| (row.get(0), row.get(1)))
    }

    fn give_back(&mut self, partitions: &[i32]) {
        self.run(GIVE_BACK, &[(&partitions, Type::INT4_ARRAY)], |_| ());
    }

    fn put(&mut self, name: &str) {
        let deadline = now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
        let put = [
            (&vec![name] as &(dyn ToSql + Sync), Type::TEXT_ARRAY),
            (&vec![deadline], Type::INT8_ARRAY),
            (&vec![&b"older"[..]], Type::BYTEA_ARRAY),
            (&vec![""], Type::TEXT_ARRAY),
        ];
        let put = self.run(PUT, &put, |row| row.get::<_, bool>(2));
        assert_eq!(put, [true]);
    }

    /// Reads what is due in these partitions.
    fn load(&mut self, partitions: &[i32]) -> Vec<Read> {
        let (deadlines, names) = (vec![0_i64; partitions.len()], vec![""; partitions.len()]);
        let parameters = [
            (&partitions as &(dyn ToSql + Sync), Type::INT4_ARRAY),
            (&deadlines, Type::INT8_ARRAY),
            (&names, Type::TEXT_ARRAY),
            (&i64::MAX, Type::INT8),
            (&100_i64, Type::INT8),
            (&i64::MAX, Type::INT8),
        ];
        self.run(LOAD, &parameters, |row| Read {
            partition: row.get(0),
            name: row.get(2),
            number: row.get(3),
            attempt: row.get(4),
        })
    }

    /// What was put behind what it has read.
    fn load_news(&mut self, partitions: &[i32], snapshot: &str) -> Vec<String> {
        let ends = vec![i64::MAX; partitions.len()];
        let names = vec!["~"; partitions.len()];
        let parameters = [
            (&partitions as &(dyn ToSql + Sync), Type::INT4_ARRAY),
            (&ends, Type::INT8_ARRAY),
            (&names, Type::TEXT_ARRAY),
            (&snapshot, Type::TEXT),
            (&100_i64, Type::INT8),
            (&i64::MAX, Type::INT8),
        ];
        let news = self.run(NEWS, &parameters, |row| (row.get::<_, i32>(0), row.get(2)));
        news.into_iter().filter(|(partition, _)| 0 <= *partition).map(|(_, name)| name).collect()
    }

    /// Settles one under the epoch it has, and returns the numbers of what was settled.
    fn settle(
        &mut self,
        statement: &str,
        read: &Read,
        more: &[(&(dyn ToSql + Sync), Type)],
    ) -> usize {
        let partitions = [(&vec![read.partition] as &(dyn ToSql + Sync), Type::INT4_ARRAY)];
        assert_eq!(self.run(LOCK_PARTITIONS, &partitions, |_| ()).len(), 1);
        let (names, numbers) = (vec![&*read.name], vec![read.number]);
        let mut parameters: Vec<(&(dyn ToSql + Sync), Type)> =
            vec![(&names, Type::TEXT_ARRAY), (&numbers, Type::INT8_ARRAY)];
        parameters.extend(more.iter().cloned());
        self.run(statement, &parameters, |_| ()).len()
    }
}

#[test]
fn a_database_of_the_first_format_is_upgraded_while_an_older_worker_works_on() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let mut sql = client(&url);
    sql.batch_execute(include_str!("../../migrations/0001_timeouts.sql")).unwrap();
    let mut older = Older::connect(&url);
    assert_eq!(older.lease(64).len(), 64);
    for name in ["a", "b", "c", "d", "e"] {
        older.put(name);
    }
    let all: Vec<i32> = (0..64).collect();
    let mut read = older.load(&all);
    assert_eq!(read.len(), 5);
    let snapshot: String = sql.query_one("select pg_current_snapshot()::text", &[]).unwrap().get(0);
    // A dead letter from before, and a transaction of a caller that has not ended yet.
    sql.batch_execute("insert into tickwheel_dead values ('dead', 1, 2, 3, 'eur 20')").unwrap();

    // The first connection upgrades the tables.
    let timer = DurableTimer::builder().open_store(store(&url)).unwrap();
    let formats = "select format, id is not null from tickwheel_meta";
    let format = sql.query_one(formats, &[]).unwrap();
    assert_eq!((format.get::<_, i32>(0), format.get::<_, bool>(1)), (1, true));
    assert_eq!(timer.len().unwrap(), 5);
    assert!(timer.dead_letter("dead").unwrap().is_some());
    // It is upgraded once.
    store(&url);

    // All that the older one does goes on.
    assert_eq!(older.lease(0).len(), 64);
    older.put("new");
    assert_eq!(older.load_news(&all, &snapshot), ["new"]);
    let mut next = || read.pop().unwrap();
    let (acked, retried, counted, buried, cancelled) = (next(), next(), next(), next(), next());
    assert!([&acked, &retried].iter().all(|read| read.attempt == 0));
    assert_eq!(older.settle(ACK, &acked, &[]), 1);
    let far = [
        (&vec![i64::MAX - 1] as &(dyn ToSql + Sync), Type::INT8_ARRAY),
        (&vec![1], Type::INT4_ARRAY),
    ];
    assert_eq!(older.settle(RETRY, &retried, &far), 1);
    assert_eq!(older.settle(COUNT, &counted, &[(&vec![2], Type::INT4_ARRAY)]), 1);
    assert_eq!(older.settle(BURY, &buried, &[(&7_i64, Type::INT8)]), 1);
    let names = [(&vec![&*cancelled.name] as &(dyn ToSql + Sync), Type::TEXT_ARRAY)];
    assert_eq!(older.run(FIND, &names, |_| ()).len(), 1);
    assert_eq!(older.run(CANCEL, &names, |_| ()).len(), 1);
    let dead = [(&"dead" as &(dyn ToSql + Sync), Type::TEXT), (&1_i64, Type::INT8)];
    assert_eq!(older.run(REVIVE, &dead, |row| row.get::<_, bool>(0)), [true]);
    assert_eq!(timer.dead_letter(&buried.name).unwrap().unwrap().attempts(), 0);

    // Callers of the newer one are served by the older one.
    let put = timer.schedule("newer", now(), b"").unwrap();
    assert_eq!(put.wait().unwrap(), Scheduled::New);
    assert!(older.load_news(&all, &snapshot).contains(&"newer".to_owned()));
    let put = timer.schedule("far", now() + HOUR, b"").unwrap();
    put.wait().unwrap();
    assert_eq!(timer.cancel("far").unwrap().wait().unwrap(), Cancelled::Cancelled);

    // Each takes what the other gives back.
    let newer = worker(&url, LEASE);
    older.give_back(&all);
    until("the newer one has its share", || newer.stats().partitions == 32);
    assert_eq!(older.lease(32).len(), 32);
    sql.batch_execute("delete from tickwheel_worker where format = 1").unwrap();
    until("the newer one has all", || newer.stats().partitions == 64);
    let mut came = [(); 4].map(|()| {
        let due = take(&newer);
        let came = (due.name().to_owned(), due.attempt());
        due.ack();
        came
    });
    came.sort();
    let mut expected = [("dead", 1), ("new", 1), ("newer", 1), (&*counted.name, 3)]
        .map(|(name, attempt)| (name.to_owned(), attempt));
    expected.sort();
    assert_eq!(came, expected);
    until("the retried one is left", || newer.len().unwrap() == 1);
    assert_eq!(newer.stats().fenced, 0);
    for timer in [newer, timer] {
        timer.close().unwrap();
    }
}

fn store(url: &str) -> PostgresStore {
    PostgresStore::connect(url).unwrap().lease(LEASE)
}

/// The statements of the version before, as it makes them.
const BEGIN: &str = "set local statement_timeout = 3333;
     set local idle_in_transaction_session_timeout = 3333;
     set local lock_timeout = 1000;
     set local enable_seqscan = off; set local enable_bitmapscan = off;
     set local enable_sort = off; set local enable_hashjoin = off;
     set local enable_mergejoin = off; set local enable_indexscan = on;
     set local enable_nestloop = on; set local jit = off; set local row_security = off;";
const LOCK_MINE: &str = "select partition, epoch from tickwheel_partition where owner = $1
     order by partition for no key update skip locked";
const RENEW: &str = "with renewed as (
       insert into tickwheel_worker
       values ($1, clock_timestamp() + $2 * interval '1 second', $3, $2 * interval '1 second'))
     delete from tickwheel_worker where (worker, until) in (
       select worker, until from tickwheel_worker
       where worker = $1 and until >= (select clock_timestamp()) for update skip locked)";
const SHARES: &str = "select (select count(*) from tickwheel_partition),
       count(distinct worker) filter (where wants),
       count(distinct worker) filter (where wants and worker < $1),
       ceil(extract(epoch from min(until) filter (where worker <> $1) - clock_timestamp())
         * 1000)::bigint
     from tickwheel_worker where until >= (select clock_timestamp())";
const GIVE_BACK: &str = "update tickwheel_partition set owner = null where partition = any($1)";
const LOCK_FREE: &str = "select partition from tickwheel_partition p
     where owner is distinct from $1 and not exists (
       select from tickwheel_worker w
       where w.worker = p.owner and w.until >= (select clock_timestamp()))
     order by random() limit $2 for update of p skip locked";
const TAKE: &str = "update tickwheel_partition p set owner = $1, epoch = epoch + 1
     where partition = any($2) and not exists (
       select from tickwheel_worker w
       where w.worker = p.owner and w.until >= (select clock_timestamp()))
     returning partition, epoch";
const LOCK_PARTITIONS: &str =
    "select partition, epoch from tickwheel_partition where partition = any($1)
     order by partition for key share skip locked";
const ACK: &str = "delete from tickwheel_due due
     using unnest($1::text[], $2::bigint[]) u(name, number)
     cross join lateral (
       select d.ctid as row from tickwheel_due d
       where d.name >= u.name and d.name <= u.name and d.number = u.number
       order by d.name limit 1) place
     where due.ctid = place.row and due.number = u.number
     returning u.number";
const RETRY: &str = "update tickwheel_due due
     set deadline = u.deadline, attempt = u.attempt, number = nextval('tickwheel_number'),
       put_by = pg_current_xact_id()
     from unnest($1::text[], $2::bigint[], $3::bigint[], $4::int[])
       u(name, number, deadline, attempt)
     cross join lateral (
       select d.ctid as row from tickwheel_due d
       where d.name >= u.name and d.name <= u.name and d.number = u.number
       order by d.name limit 1) place
     where due.ctid = place.row and due.number = u.number
     returning u.number, due.partition, due.deadline, due.name, due.number, due.attempt,
       due.payload";
const COUNT: &str = "update tickwheel_due due set attempt = u.attempt
     from unnest($1::text[], $2::bigint[], $3::int[]) u(name, number, attempt)
     cross join lateral (
       select d.ctid as row from tickwheel_due d
       where d.name >= u.name and d.name <= u.name and d.number = u.number
       order by d.name limit 1) place
     where due.ctid = place.row and due.number = u.number
     returning u.number, due.partition, due.deadline, due.name, due.number, due.attempt,
       due.payload, due.ctid::text";
const BURY: &str = "select number from tickwheel_bury($1, $2, $3)";
const NEWS: &str = "select -1, (select count(*) from tickwheel_partition where owner is null),
       pg_current_snapshot()::text, floor(extract(epoch from clock_timestamp()) * 1000)::bigint, 0, convert_to(
       concat_ws(' ', extract(epoch from pg_postmaster_start_time()),
         extract(epoch from pg_stat_get_bgwriter_stat_reset_time())), 'UTF8'), null
     union all
     select partition, deadline, name, number, attempt,
       case when sum(octet_length(payload)) over (rows unbounded preceding)
         - octet_length(payload) < $6 then payload end, place::text
     from (select due.* from unnest($1::int[], $2::bigint[], $3::text[]) u(partition, deadline, name)
       cross join lateral (
         (select d.*, d.ctid as place from tickwheel_due d
          where d.partition = u.partition and d.put_by >= pg_snapshot_xmax($4::text::pg_snapshot)
            and d.put_by < (select pg_snapshot_xmax(pg_current_snapshot()))
            and d.deadline <= u.deadline
            and (d.deadline, d.name) <= (u.deadline, u.name)
          order by d.put_by, d.deadline limit $5)
         union all
         (select over.* from pg_snapshot_xip($4::text::pg_snapshot) xid cross join lateral (
            select d.*, d.ctid as place from tickwheel_due d
            where d.partition = u.partition and d.put_by >= xid
              and (d.put_by, d.deadline) <= (xid, u.deadline)
              and (d.deadline, d.name) <= (u.deadline, u.name)
            order by d.put_by, d.deadline limit $5) over
          where pg_visible_in_snapshot(xid, (select pg_current_snapshot())))) due
       limit $5) new";
const LOAD: &str = "select due.partition, due.deadline, due.name, due.number, due.attempt,
       case when sum(octet_length(due.payload)) over (rows unbounded preceding)
         - octet_length(due.payload) < $6 then due.payload end, due.place::text
     from unnest($1::int[], $2::bigint[], $3::text[]) u(partition, deadline, name)
     cross join lateral (
       select d.*, d.ctid as place from tickwheel_due d
       where d.partition = u.partition and (d.deadline, d.name) > (u.deadline, u.name)
         and d.deadline <= $4
       order by d.deadline, d.name limit $5) due";
const FIND: &str = "select name, number, deadline from tickwheel_due where name = any($1)
     order by name for update";
const PUT: &str = "select name, number, is_new, partition from tickwheel_put($1, $2, $3, $4)";
const CANCEL: &str = "delete from tickwheel_due where ctid = any(array(
       select d.ctid from tickwheel_due d where d.name = any($1) order by d.name))
     returning name, number, deadline";
const REVIVE: &str = "select was_dead, number, partition, payload from tickwheel_revive($1, $2)";
