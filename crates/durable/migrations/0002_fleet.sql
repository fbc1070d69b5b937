-- What a fleet of databases needs: each knows which partitions it has, and where the others are;
-- and metadata beside payloads. `DurableTimer::connect` runs this after 0001_timeouts.sql, also in a
-- database that has that already. Workers of the version before go on; the format stays 1 until the
-- database joins a fleet.

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

-- A text beside the payload, for whoever does not know what that means. Rows that are there have
-- none, so no check reads them.
alter table tickwheel_due
    add column metadata text not null default '',
    add constraint tickwheel_due_metadata_check check (octet_length(metadata) <= 1024) not valid;
alter table tickwheel_dead add column metadata text not null default '';
-- Null if it cannot be read, as the payload.
alter table tickwheel_broken add column metadata bytea;

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

-- As before, but with metadata, and not in the partitions that others have.
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
    perform tickwheel_check_home(names);
end
$$;

-- For workers and callers of the version before, and for `tickwheel_schedule` without metadata.
create or replace function tickwheel_put(names text[], deadlines bigint[], payloads bytea[])
returns table (name text, number bigint, is_new boolean, partition int)
language sql as $$
    select * from tickwheel_put($1, $2, $3, array_fill(''::text, array[cardinality($1)]))
$$;

-- With metadata:
--
--     select tickwheel_schedule('order-17/payment', now() + interval '30 minutes', 'eur 20', 'shop 3')
create function tickwheel_schedule(name text, at timestamptz, payload bytea, metadata text)
returns boolean
language sql as $$
    select is_new from tickwheel_put(array[$1], array[
        case when $2 = 'infinity' then 9223372036854775807
            when $2 is not null then greatest(0, ceil(extract(epoch from $2) * 1000))::bigint end
        ], array[$3], array[$4])
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
returns table (was_dead boolean, number bigint, partition int, payload bytea)
language plpgsql security definer as $$
#variable_conflict use_column
declare
    letter record;
begin
    perform tickwheel_check_home(array[$1]);
    select * into letter from tickwheel_dead dead where dead.name = $1 collate "C" for update;
    if not found then
        perform tickwheel_check_home(array[$1]);
        return query select false, null::bigint, null::int, null::bytea;
        return;
    end if;
    return query
    insert into tickwheel_due as due (name, deadline, payload, metadata)
    values (letter.name,
        coalesce($2, ceil(extract(epoch from clock_timestamp()) * 1000)::bigint), letter.payload,
        letter.metadata)
    on conflict (name) do nothing
    returning true, due.number, due.partition, due.payload;
    if found then
        delete from tickwheel_dead dead where dead.name = letter.name;
    else
        return query select true, null::bigint, null::int, null::bytea;
    end if;
    perform tickwheel_check_home(array[$1]);
end
$$;

-- As before, but with metadata; and so is the next.
create or replace function tickwheel_bury(names text[], numbers bigint[], died bigint)
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

create or replace function tickwheel_set_aside(partitions int[], deadlines bigint[], names text[],
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

-- A function that is replaced forgets its settings.
do $$
declare
    function text;
begin
    foreach function in array array['tickwheel_note_change()', 'tickwheel_check_home(text[])',
        'tickwheel_put(text[], bigint[], bytea[], text[])',
        'tickwheel_put(text[], bigint[], bytea[])',
        'tickwheel_schedule(text, timestamptz, bytea, text)', 'tickwheel_cancel(text)',
        'tickwheel_bury(text[], bigint[], bigint)', 'tickwheel_revive(text, bigint)',
        'tickwheel_set_aside(int[], bigint[], text[], bigint[], bigint, bigint, bigint[])']
    loop
        execute format('alter function %s set search_path = %I, pg_temp', function,
            current_schema());
    end loop;
end
$$;
-- These look where the partition is.
alter function tickwheel_put(text[], bigint[], bytea[], text[]) set tickwheel.format = 2;
alter function tickwheel_cancel(text) set tickwheel.format = 2;
alter function tickwheel_revive(text, bigint) set tickwheel.format = 2;
alter function tickwheel_put(text[], bigint[], bytea[], text[]) set enable_hashjoin = on;
alter function tickwheel_put(text[], bigint[], bytea[], text[]) set work_mem = '8MB';
