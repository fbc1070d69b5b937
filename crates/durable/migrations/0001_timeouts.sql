-- The tables of tickwheel-durable, format 1. `DurableTimer::connect` runs this where they are
-- missing; run it by hand where the program may not make tables:
--
--     psql "$URL" -1 -f migrations/0001_timeouts.sql

create table tickwheel_meta (
    format int not null,
    -- Whether workers hand out nothing. Each looks at it as it renews its lease.
    paused boolean not null default false
);
insert into tickwheel_meta values (1);

-- Tells a timeout from earlier ones of the same name. Nothing is read by it.
create sequence tickwheel_number cache 64;

create table tickwheel_due (
    name text collate "C" primary key check (octet_length(name) between 1 and 255),
    partition int not null
        generated always as (('x' || left(md5(name), 8))::bit(32)::int & 63) stored,
    -- Milliseconds since 1970.
    deadline bigint not null check (deadline >= 0),
    number bigint not null default nextval('tickwheel_number'),
    -- How often it was handed out, as far as that was counted.
    attempt int not null default 0,
    -- The transaction that put it. What was not visible at an earlier look is found by this.
    put_by xid8 not null default pg_current_xact_id(),
    payload bytea not null check (octet_length(payload) <= 65536),
    -- A text beside the payload, for whoever does not know what that means.
    metadata text not null default '' check (octet_length(metadata) <= 1024)
) with (
    -- Rows come and go: what is dead must be found soon, and at its own pace.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 1
);
-- By this the owner of a partition finds what is due.
create index tickwheel_due_order on tickwheel_due (partition, deadline, name);
-- And by this what was put behind what it has read.
create index tickwheel_due_new on tickwheel_due (partition, put_by, deadline);

-- A dump brings numbers of transactions that were, and of timeouts that another may have by now; an
-- update of a deadline by hand brings those of the row before. What is set aside keeps its number.
create function tickwheel_put_now() returns trigger
language plpgsql as $$
begin
    new.put_by := pg_current_xact_id();
    if new.deadline < 9223372036854775807 then
        new.number := nextval('tickwheel_number');
    end if;
    return new;
end
$$;
create trigger tickwheel_due_put_now before insert on tickwheel_due
    for each row when (new.put_by <> pg_current_xact_id())
    execute function tickwheel_put_now();
create trigger tickwheel_due_moved before update on tickwheel_due
    for each row when (new.deadline <> old.deadline and new.number = old.number
        and new.deadline < 9223372036854775807)
    execute function tickwheel_put_now();

-- What could not be read, and was set aside.
create table tickwheel_broken (
    number bigint primary key,
    name bytea not null,
    deadline bigint not null,
    reason text not null,
    -- Null if it cannot be read. Then the row of this number is still there, with the last of all
    -- deadlines, because it may be that it cannot be deleted either.
    payload bytea,
    metadata bytea
);

-- What was handed out as often as it may be, and not acked.
create table tickwheel_dead (
    name text collate "C" primary key,
    -- The last deadline, and when it was found dead, in milliseconds since 1970.
    deadline bigint not null,
    died bigint not null,
    attempt int not null,
    payload bytea not null,
    metadata text not null default ''
);

create sequence tickwheel_worker_number;

-- The workers that are alive: a share is counted from them. To renew a lease is to insert a row.
-- The newest are found by the index, however many old ones a foreign snapshot keeps.
create table tickwheel_worker (
    worker bigint not null,
    -- The lease, by the clock of the database.
    until timestamptz not null,
    -- One that wants no partitions may have some that it is about to give back.
    wants boolean not null,
    -- How long it was good for when it was written. If more than that is left, the clock was set
    -- back since.
    good_for interval not null,
    primary key (worker, until)
) with (
    autovacuum_vacuum_threshold = 200,
    autovacuum_vacuum_scale_factor = 0
);
create index tickwheel_worker_until on tickwheel_worker (until);

create table tickwheel_partition (
    partition int primary key,
    -- A worker, by a number that is never used again.
    owner bigint,
    -- Grows with each owner.
    epoch bigint not null default 0
) with (
    fillfactor = 50,
    autovacuum_vacuum_threshold = 200,
    autovacuum_vacuum_scale_factor = 0
);
insert into tickwheel_partition (partition) select generate_series(0, 63);

-- Puts timeouts of different names, each in the place of the one that has its name.
create function tickwheel_put(names text[], deadlines bigint[], payloads bytea[], texts text[])
returns table (name text, number bigint, is_new boolean, partition int)
language plpgsql as $$
#variable_conflict use_column
declare
    count bigint;
begin
    return query
    with put as (
        insert into tickwheel_due as due (name, deadline, payload, metadata)
        select * from unnest(names, deadlines, payloads, texts) u(name, deadline, payload, metadata)
        order by u.name collate "C"
        on conflict (name) do update set deadline = excluded.deadline, payload = excluded.payload,
            metadata = excluded.metadata, number = excluded.number, attempt = 0,
            put_by = excluded.put_by
        returning due.*, due.xmax = 0 as is_new)
    select put.name, put.number, put.is_new, put.partition
    from put join unnest(names, deadlines, payloads, texts) u(name, deadline, payload, metadata)
        on put.name = u.name collate "C" and put.deadline = u.deadline
            and put.payload is not distinct from u.payload
            and put.metadata is not distinct from u.metadata;
    get diagnostics count = row_count;
    if count < cardinality(names) then
        raise exception 'a trigger has skipped or changed a timeout';
    end if;
end
$$;

-- Schedules a timeout, or moves the one of this name, in the transaction of the caller. Tells
-- whether the name is new. For any driver and any language:
--
--     select tickwheel_schedule('order-17/payment', now() + interval '30 minutes', 'eur 20')
--
-- Metadata may follow. A NULL is refused.
create function tickwheel_schedule(name text, at timestamptz, payload bytea,
    metadata text default '') returns boolean
language sql as $$
    select is_new from tickwheel_put(array[$1], array[
        case when $2 = 'infinity' then 9223372036854775807
            when $2 is not null then greatest(0, ceil(extract(epoch from $2) * 1000))::bigint end
        ], array[$3], array[$4])
$$;

-- Cancels a timeout in the transaction of the caller, and tells whether it was there.
create function tickwheel_cancel(name text) returns boolean
language plpgsql as $$
begin
    perform from tickwheel_due due where due.name = $1 collate "C" for update;
    if not found then
        return false;
    end if;
    delete from tickwheel_due due where due.name = $1 collate "C";
    if not found then
        raise exception 'a trigger has kept a timeout';
    end if;
    return true;
end
$$;

-- Makes dead letters of these timeouts, each in the place of an older one, and returns the numbers
-- of those that were there.
create function tickwheel_bury(names text[], numbers bigint[], died bigint)
returns table (number bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    gone record;
begin
    for gone in
        delete from tickwheel_due due using unnest(names, numbers) u(name, number)
        cross join lateral (
            select d.ctid as row from tickwheel_due d
            where d.name >= u.name and d.name <= u.name and d.number = u.number
            order by d.name limit 1) place
        where due.ctid = place.row and due.number = u.number
        returning due.*
    loop
        insert into tickwheel_dead as dead (name, deadline, died, attempt, payload, metadata)
        values (gone.name, gone.deadline, $3, gone.attempt, gone.payload, gone.metadata)
        on conflict (name) do update set deadline = excluded.deadline, died = excluded.died,
            attempt = excluded.attempt, payload = excluded.payload, metadata = excluded.metadata;
        if not found then
            raise exception 'a trigger has skipped a dead letter';
        end if;
        number := gone.number;
        return next;
    end loop;
end
$$;

-- Makes a timeout of the dead letter of this name, due now and never handed out, unless a timeout
-- has the name; and tells whether there was a dead letter, and the new timeout. An operator who may
-- not put others may do this.
create function tickwheel_revive(name text, at bigint default null)
returns table (was_dead boolean, number bigint, partition int, payload bytea, metadata text)
language plpgsql security definer as $$
#variable_conflict use_column
declare
    letter record;
begin
    select * into letter from tickwheel_dead dead where dead.name = $1 collate "C" for update;
    if not found then
        return query select false, null::bigint, null::int, null::bytea, null::text;
        return;
    end if;
    return query
    insert into tickwheel_due as due (name, deadline, payload, metadata)
    values (letter.name,
        coalesce($2, ceil(extract(epoch from clock_timestamp()) * 1000)::bigint), letter.payload,
        letter.metadata)
    on conflict (name) do nothing
    returning true, due.number, due.partition, due.payload, due.metadata;
    if found then
        delete from tickwheel_dead dead where dead.name = letter.name;
    else
        return query select true, null::bigint, null::int, null::bytea, null::text;
    end if;
end
$$;

-- Reads rows of these partitions after a deadline and a name, of each so many, until they are so
-- many bytes, and sets aside what cannot be read; of all, or of the rows of these numbers.
create function tickwheel_set_aside(partitions int[], deadlines bigint[], names text[],
    lasts bigint[], most bigint, bytes bigint, numbers bigint[])
returns table (name bytea, deadline bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    place record;
    raw bytea;
    why text;
begin
    for place in
        select due.row, due.deadline, due.number,
            octet_length(due.payload) + octet_length(due.metadata) as size
        from unnest(partitions, deadlines, names, lasts) u(partition, deadline, name, last)
        cross join lateral (
            select d.ctid as row, d.* from tickwheel_due d
            where d.partition = u.partition and (d.deadline, d.name) > (u.deadline, u.name)
                and d.deadline <= u.last and (numbers is null or d.number = any(numbers))
                and not exists (select from tickwheel_broken b where b.number = d.number)
            order by d.deadline, d.name limit most) due
    loop
        exit when bytes <= 0;
        bytes := bytes - place.size;
        raw := '';
        begin
            raw := (select convert_to(due.name, 'SQL_ASCII') from tickwheel_due due
                where due.ctid = place.row);
            perform convert_to(due.name, 'UTF8'), md5(due.payload), convert_to(due.metadata, 'UTF8')
                from tickwheel_due due where due.ctid = place.row;
            continue;
        exception when others then
            -- The server lacks something: the row may be sound.
            if sqlstate like '53%' then
                raise;
            end if;
            why := sqlerrm;
        end;
        begin
            insert into tickwheel_broken (number, name, deadline, reason, payload, metadata)
            select place.number, raw, place.deadline, why, due.payload,
                convert_to(due.metadata, 'SQL_ASCII')
            from tickwheel_due due
            where due.ctid = place.row and due.number = place.number;
            delete from tickwheel_due due
            where due.ctid = place.row and due.number = place.number;
        exception when others then
            insert into tickwheel_broken (number, name, deadline, reason)
            values (place.number, raw, place.deadline, why);
            update tickwheel_due due set deadline = 9223372036854775807
            where due.ctid = place.row and due.number = place.number;
        end;
        return query select raw, place.deadline;
    end loop;
end
$$;

-- The functions find the tables, whatever the caller's search path is.
do $$
declare
    function text;
begin
    foreach function in array array['tickwheel_put_now()',
        'tickwheel_put(text[], bigint[], bytea[], text[])',
        'tickwheel_schedule(text, timestamptz, bytea, text)', 'tickwheel_cancel(text)',
        'tickwheel_bury(text[], bigint[], bigint)', 'tickwheel_revive(text, bigint)',
        'tickwheel_set_aside(int[], bigint[], text[], bigint[], bigint, bigint, bigint[])']
    loop
        execute format('alter function %s set search_path = %I, pg_temp', function,
            current_schema());
    end loop;
end
$$;
revoke execute on function tickwheel_revive(text, bigint) from public;
-- The join in it is one of as many as are put, and their payloads have room in memory.
alter function tickwheel_put(text[], bigint[], bytea[], text[]) set enable_hashjoin = on;
alter function tickwheel_put(text[], bigint[], bytea[], text[]) set work_mem = '8MB';
