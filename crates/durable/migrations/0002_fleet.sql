-- What a fleet of databases needs: each knows which partitions it has, and where the others are.
-- `DurableTimer::connect` runs this after 0001_timeouts.sql, also in a database that has that
-- already. Workers of the version before go on; the format stays 1 until the database joins a fleet.

-- Tells this database from others.
alter table tickwheel_meta add column id uuid not null default gen_random_uuid();

-- How many timeouts the consumers of all workers may take in so many milliseconds. Each looks at it
-- as it renews its lease.
alter table tickwheel_meta
    add column rate_timeouts bigint check (rate_timeouts >= 1),
    add column rate_per bigint check (rate_per >= 1);

alter table tickwheel_partition
    add column state text not null default 'here'
        -- here: workers of this database share it.
        -- moving: the same, and it is being copied.
        -- gone: another database has it.
        -- coming: it is being copied from another database. Nobody takes it.
        check (state in ('here', 'moving', 'gone', 'coming')),
    -- The other database.
    add column other uuid,
    -- Grows as a move begins, and as it takes place.
    add column moves bigint not null default 0,
    -- Until then its owner is to give it back, and nobody takes it, because it is about to move.
    add column yields timestamptz;

-- Other databases, and what to call them.
create table tickwheel_place (
    id uuid primary key,
    name text not null
);

-- The version of the worker: one of format 1 knows nothing of fleets.
alter table tickwheel_worker add column format int not null default 1;

-- Is called when the database joins a fleet. A sequence, because a transaction sees that at once,
-- whatever it saw before.
create sequence tickwheel_fleet;

-- The names that have changed in the partition that is being copied.
create table tickwheel_changed (
    partition int not null,
    -- Those of its partition then: an older mover is not to take what a newer one needs.
    moves bigint not null,
    name text collate "C" not null
);

-- Runs for that partition alone: `when` in the triggers, which a move makes.
create function tickwheel_note_change() returns trigger
language plpgsql security definer as $$
begin
    insert into tickwheel_changed
    select distinct p.partition, p.moves, changed.name
    from (values (old.partition, old.name), (new.partition, new.name)) changed(partition, name)
    join tickwheel_partition p on p.partition = changed.partition and p.state = 'moving';
    return null;
end
$$;

-- Refuses what does not know of fleets: a program of an older version, or a statement by hand.
create function tickwheel_check_format() returns trigger
language plpgsql as $$
begin
    if current_setting('tickwheel.format', true) is distinct from '2' then
        raise exception 'in a fleet, timeouts are changed by tickwheel_schedule and '
            'tickwheel_cancel, and by programs of this version';
    end if;
    return null;
end
$$;

-- Refuses names whose partition another database has, and keeps their partitions here until the
-- transaction ends. It is called in a statement before a search, and in one after a change, because
-- the database may have joined while the change waited for a lock.
create function tickwheel_check_home(names text[]) returns void
language plpgsql security definer as $$
declare
    places int[];
    away record;
begin
    if pg_sequence_last_value('tickwheel_fleet') is null then
        return;
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'in a fleet, a transaction that schedules or cancels is to be of the '
            'isolation level read committed: others do not see that a partition has moved';
    end if;
    places := array(select distinct ('x' || left(md5(name), 8))::bit(32)::int & 63
        from unnest(names) name order by 1);
    begin
        -- Those of another namespace are others.
        perform pg_advisory_xact_lock_shared(
            7463813 # 'tickwheel_partition'::regclass::oid::int, place)
        from unnest(places) place;
    exception when lock_not_available then
        -- The other database may be far, and the caller's patience short.
        select p.partition, coalesce(place.name, p.other::text) as place into away
        from tickwheel_partition p left join tickwheel_place place on place.id = p.other
        where p.state = 'moving' and p.partition = any(places)
        limit 1;
        if not found then
            raise;
        end if;
        raise exception using
            errcode = 'TW001',
            message = format('partition %s is on its way to %s', away.partition, away.place),
            detail = away.place,
            hint = 'Try again.';
    end;
    select p.partition, coalesce(place.name, p.other::text) as place, p.state into away
    from tickwheel_partition p left join tickwheel_place place on place.id = p.other
    where p.state in ('gone', 'coming') and p.partition = any(places)
    limit 1;
    if found then
        raise exception using
            errcode = 'TW001',
            message = case away.state
                when 'gone' then format('partition %s belongs to %s', away.partition, away.place)
                else format('partition %s is on its way from %s', away.partition, away.place) end,
            detail = away.place,
            hint = 'Ask there. If it is on its way, try again.';
    end if;
end
$$;

-- As before, but for the partitions that others have.
create or replace function tickwheel_put(names text[], deadlines bigint[], payloads bytea[],
    texts text[])
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
    perform tickwheel_check_home(names);
end
$$;

create or replace function tickwheel_cancel(name text) returns boolean
language plpgsql as $$
begin
    perform tickwheel_check_home(array[$1]);
    perform from tickwheel_due due where due.name = $1 collate "C" for update;
    if not found then
        perform tickwheel_check_home(array[$1]);
        return false;
    end if;
    delete from tickwheel_due due where due.name = $1 collate "C";
    if not found then
        raise exception 'a trigger has kept a timeout';
    end if;
    perform tickwheel_check_home(array[$1]);
    return true;
end
$$;

create or replace function tickwheel_revive(name text, at bigint default null)
returns table (was_dead boolean, number bigint, partition int, payload bytea, metadata text)
language plpgsql security definer as $$
#variable_conflict use_column
declare
    letter record;
begin
    perform tickwheel_check_home(array[$1]);
    select * into letter from tickwheel_dead dead where dead.name = $1 collate "C" for update;
    if not found then
        perform tickwheel_check_home(array[$1]);
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
    perform tickwheel_check_home(array[$1]);
end
$$;

-- A function that is replaced forgets its settings.
do $$
declare
    function text;
begin
    foreach function in array array['tickwheel_note_change()', 'tickwheel_check_home(text[])',
        'tickwheel_put(text[], bigint[], bytea[], text[])', 'tickwheel_cancel(text)',
        'tickwheel_revive(text, bigint)']
    loop
        execute format('alter function %s set search_path = %I, pg_temp', function,
            current_schema());
        execute format('alter function %s set tickwheel.format = 2', function);
    end loop;
end
$$;
alter function tickwheel_put(text[], bigint[], bytea[], text[]) set enable_hashjoin = on;
alter function tickwheel_put(text[], bigint[], bytea[], text[]) set work_mem = '8MB';
