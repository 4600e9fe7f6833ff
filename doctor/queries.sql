-- The statements of the doctor. They only read: catalogs and statistics, which
-- every login may, and small tables of deed. None reads a query's text.

-- name: bound
select pg_catalog.set_config('statement_timeout', $1::bigint::text, true);

-- name: login
-- The schema's owner may read all of it, too. What a login only gets by SET
-- ROLE does not count: nothing of deed uses it.
select pg_catalog.quote_ident(me.rolname), me.rolsuper, me.rolbypassrls,
  coalesce(bool_or(pg_catalog.pg_has_role(me.oid, held.oid, 'usage')) filter (where held.rolname <> 'deed_app'), false),
  coalesce(bool_or(pg_catalog.pg_has_role(me.oid, held.oid, 'usage')) filter (where held.rolname = 'deed_app'), false),
  coalesce(bool_or(pg_catalog.pg_has_role(me.oid, held.oid, 'member')), false),
  coalesce((
    select pg_catalog.pg_has_role(me.oid, n.nspowner, 'usage') from pg_catalog.pg_namespace n where n.nspname = 'deed'
  ), false),
  pg_catalog.pg_has_role(me.oid, 'pg_read_all_stats', 'usage'),
  exists (
    select from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'deed' and c.relname = 'migrations'
  )
from pg_catalog.pg_roles me
left join pg_catalog.pg_roles held on held.rolname in ('deed_app', 'deed_worker', 'deed_admin')
where me.rolname = current_user
group by me.oid, me.rolname, me.rolsuper, me.rolbypassrls;

-- name: roles
select wanted.name, r.oid is not null, coalesce(r.rolcanlogin, false), coalesce(r.rolsuper or r.rolbypassrls, false),
  coalesce((
    select string_agg(g.rolname, ', ' order by g.rolname)
    from pg_catalog.pg_auth_members m
    join pg_catalog.pg_roles g on g.oid = m.roleid
    where m.member = r.oid and g.rolname in ('deed_app', 'deed_worker', 'deed_admin')
  ), '')
from unnest(array['deed_app', 'deed_worker', 'deed_admin']) wanted(name)
left join pg_catalog.pg_roles r on r.rolname = wanted.name;

-- name: superuser_logins
-- pg_has_role says yes to every superuser, so memberships are followed by hand.
-- PostgreSQL 16 makes who creates a role its member, without inheritance.
with recursive holders as (
  select g.rolname as held, m.member
  from pg_catalog.pg_auth_members m
  join pg_catalog.pg_roles g on g.oid = m.roleid
  where g.rolname in ('deed_app', 'deed_worker', 'deed_admin')
    and coalesce(to_jsonb(m) ->> 'inherit_option', 'true')::boolean
  union
  select h.held, m.member
  from pg_catalog.pg_auth_members m
  join holders h on h.member = m.roleid
)
select pg_catalog.quote_ident(r.rolname), r.rolsuper, string_agg(h.held, ', ' order by h.held)
from holders h
join pg_catalog.pg_roles r on r.oid = h.member
where r.rolcanlogin and (r.rolsuper or r.rolbypassrls)
group by r.rolname, r.rolsuper
order by r.rolname
limit 20;

-- name: functions
-- Of the faces' schemas only the faces' own: the rest there is their owner's.
select n.nspname::text, p.proname::text, count(*), string_agg(p.oid::regprocedure::text, ', ' order by p.oid)
from pg_catalog.pg_proc p
join pg_catalog.pg_namespace n on n.oid = p.pronamespace
where n.nspname = 'deed' or n.nspname || '.' || p.proname = any ($1)
group by n.nspname, p.proname
order by n.nspname, p.proname;

-- name: row_security
select c.relname::text, c.relrowsecurity
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'deed' and c.relkind in ('r', 'p') and c.relname <> 'migrations'
  and not (c.relrowsecurity and c.relforcerowsecurity)
order by c.relname
limit 20;

-- name: invalid_indexes
select c.relname::text, t.relname::text, i.indisunique
from pg_catalog.pg_index i
join pg_catalog.pg_class c on c.oid = i.indexrelid
join pg_catalog.pg_class t on t.oid = i.indrelid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'deed' and not (i.indisvalid and i.indisready)
order by c.relname
limit 20;

-- name: partitions
select coalesce(max(p.n), -1) - pg_catalog.pg_sequence_last_value('deed.log_seq') / 68719476736,
  coalesce(extract(epoch from pg_catalog.clock_timestamp() - max(p.made_at))::float8, 0)
from deed.partitions p;

-- name: run_partitions
select coalesce(max(p.n), -1) - pg_catalog.floor(extract(epoch from pg_catalog.clock_timestamp()) / 604800)::bigint,
  coalesce(extract(epoch from pg_catalog.clock_timestamp() - max(p.made_at))::float8, 0)
from deed.run_partitions p
where p.dropped_at is null;

-- name: retention
select r.n, r.state, extract(epoch from r.overdue)::float8, r.bytes, r.kept_by
from deed.retention() r
where r.overdue > make_interval(secs => $1::float8)
order by r.n
limit 20;

-- name: sequence
-- What was published is looked for where it is cheap: the log has no index on
-- its id alone. The sequence is read after the statement's snapshot is taken,
-- so it is ahead of every row that the statement sees.
select s.seqcache, s.seqcycle, s.seqincrement, pg_catalog.pg_sequence_last_value('deed.log_seq'),
  greatest(
    (select w.upper from deed.windows w order by w.n desc limit 1),
    (select max(l.id) from (select g.id from deed.log g order by g.xid desc limit 1000) l),
    (select max(r.max_id) from (select t.max_id from deed.receipts t order by t.n desc limit 1000) r),
    (select max(p.from_id) from deed.partitions p where p.opened_at is not null),
    0
  )
from pg_catalog.pg_sequence s
where s.seqrelid = 'deed.log_seq'::regclass;

-- name: cluster
select coalesce(deed.held(true, $1::text), '');

-- name: version
select pg_catalog.current_setting('server_version_num')::int;

-- name: recovery
select pg_catalog.pg_is_in_recovery();

-- name: settings
select s.name::text, s.setting
from pg_catalog.pg_settings s
where s.name in (
  'fsync', 'full_page_writes', 'synchronous_commit', 'idle_in_transaction_session_timeout', 'max_prepared_transactions'
);

-- name: clock
select pg_catalog.clock_timestamp();

-- name: connections
-- What a session is hides itself from logins without pg_monitor; then every one
-- that is in a database counts.
with sessions as (
  select a.datname, coalesce(nullif(a.application_name, ''), 'unnamed') as application
  from pg_catalog.pg_stat_activity a
  where a.datid is not null and coalesce(a.backend_type, 'client backend') = 'client backend'
),
here as (
  select s.application, count(*) as n
  from sessions s
  where s.datname = current_database()
  group by s.application
  order by count(*) desc, s.application
  limit 6
)
select pg_catalog.current_setting('max_connections')::int,
  pg_catalog.current_setting('superuser_reserved_connections')::int
    + coalesce(nullif(pg_catalog.current_setting('reserved_connections', true), '')::int, 0),
  (select count(*) from sessions),
  (select string_agg(h.application || ' ' || h.n, ', ' order by h.n desc, h.application) from here h);

-- name: autovacuum
select 'setting', s.name::text
from pg_catalog.pg_settings s
where s.name in ('autovacuum', 'track_counts') and s.setting = 'off'
union all
select 'table', c.relname::text
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
cross join lateral pg_catalog.pg_options_to_table(c.reloptions) o
where n.nspname = 'deed' and o.option_name = 'autovacuum_enabled' and not o.option_value::boolean;

-- name: dead_rows
-- A table that was never vacuumed is as old as the installation.
with tables as (
  select t.relname, t.n_live_tup, t.n_dead_tup, greatest(t.last_vacuum, t.last_autovacuum) as vacuumed_at,
    coalesce(greatest(t.last_vacuum, t.last_autovacuum), (select s.installed_at from deed.settings s)) as since
  from pg_catalog.pg_stat_all_tables t
  where t.schemaname = 'deed'
)
select t.relname::text, t.n_live_tup, t.n_dead_tup, t.vacuumed_at is not null,
  extract(epoch from pg_catalog.clock_timestamp() - t.since)::float8
from tables t
where t.n_dead_tup > $1::bigint and t.n_dead_tup > 0.2 * (t.n_live_tup + t.n_dead_tup)
  and t.since < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $2::float8)
order by t.n_dead_tup desc
limit 20;

-- name: wraparound
-- Beyond half as much again as what makes the server vacuum by force, something
-- keeps it from it.
with ages as (
  select 'database ' || d.datname as subject, age(d.datfrozenxid)::bigint as xids, mxid_age(d.datminmxid)::bigint as mxids
  from pg_catalog.pg_database d
  union all
  select 'deed.' || c.relname, greatest(age(c.relfrozenxid), age(t.relfrozenxid)), greatest(mxid_age(c.relminmxid), mxid_age(t.relminmxid))
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  left join pg_catalog.pg_class t on t.oid = c.reltoastrelid
  where n.nspname = 'deed' and c.relkind in ('r', 'm')
)
select a.subject, greatest(a.xids, a.mxids)
from ages a
where a.xids > 1.5 * pg_catalog.current_setting('autovacuum_freeze_max_age')::bigint
  or a.mxids > 1.5 * pg_catalog.current_setting('autovacuum_multixact_freeze_max_age')::bigint
order by greatest(a.xids, a.mxids) desc, a.subject
limit 20;

-- name: horizon
-- Who holds back the horizon, the oldest first: sessions (of any database if
-- they write, since every snapshot lists them; else of this one), prepared
-- transactions, slots, and standbys that send feedback. A 32-bit id becomes the
-- 64-bit one nearest to the newest. The last column says that a snapshot is no
-- older than a writer that is listed itself. Vacuum's own snapshots do not
-- count. Of other logins' sessions since, last and state are null unless the
-- login may see them; ids and names are for all to see.
with newest as materialized (
  select pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint as xid
),
holders as (
  select case when r.pid is null then 'session' else 'standby' end as kind, a.pid, '' as name, a.datname, a.usename,
    coalesce(a.application_name, '') as application, coalesce(a.state, '') as state, a.xact_start as since,
    a.query_start as last, ids.xid, a.backend_xid is not null as writes
  from pg_catalog.pg_stat_activity a
  left join pg_catalog.pg_stat_replication r on r.pid = a.pid
  cross join lateral (
    select x.xid from (values (a.backend_xid), (a.backend_xmin)) x(xid)
    where x.xid is not null
    order by age(x.xid) desc limit 1
  ) ids
  where a.pid <> pg_catalog.pg_backend_pid()
    and (a.backend_xid is not null or r.pid is not null or a.datid is null or a.datname = current_database())
    and not exists (select from pg_catalog.pg_stat_progress_vacuum v where v.pid = a.pid)
  union all
  select 'prepared', null, p.gid, p.database, p.owner, '', '', p.prepared, p.prepared, p.transaction, true
  from pg_catalog.pg_prepared_xacts p
  union all
  select 'slot', s.active_pid, s.slot_name, s.database, null, '',
    s.slot_type || case when s.active then ', in use' else ', not in use' end
      || case when s.xmin is null then ', of catalogs only' else '' end,
    null, null, ids.xid, false
  from pg_catalog.pg_replication_slots s
  cross join lateral (
    select x.xid from (values (s.xmin), (s.catalog_xmin)) x(xid)
    where x.xid is not null
    order by age(x.xid) desc limit 1
  ) ids
)
select h.kind, coalesce(h.pid, 0), h.name, coalesce(h.datname, ''), coalesce(h.usename, ''), h.application, h.state,
  extract(epoch from pg_catalog.clock_timestamp() - h.since)::float8,
  extract(epoch from pg_catalog.clock_timestamp() - h.last)::float8,
  age(h.xid)::bigint,
  newest.xid - (((newest.xid - h.xid::text::bigint + 2147483648) & 4294967295) - 2147483648),
  not h.writes and exists (select from holders o where o.writes and o.xid = h.xid)
from holders h
cross join newest
order by age(h.xid) desc, h.pid
limit 50;

-- name: published_since
-- How long ago at least a transaction id was taken: the age of the oldest
-- message that was published under it or a later one.
select extract(epoch from pg_catalog.clock_timestamp() - l.created_at)::float8
from deed.log l
where l.xid >= $1::text::xid8
order by l.xid
limit 1;

-- name: publishers
-- Who has written to the log and not ended. A prepared transaction's locks have
-- no pid; the lock on its own id says whose they are.
with locks as (
  select distinct k.pid, k.virtualtransaction
  from pg_catalog.pg_locks k
  join pg_catalog.pg_database d on d.oid = k.database
  where d.datname = current_database() and k.locktype = 'relation' and k.mode = 'RowExclusiveLock'
    and k.relation = 'deed.log'::regclass
)
select coalesce(k.pid, 0), coalesce(p.gid, ''), coalesce(a.application_name, ''), coalesce(a.usename, p.owner, ''),
  coalesce(a.state, ''),
  extract(epoch from pg_catalog.clock_timestamp() - coalesce(a.xact_start, p.prepared))::float8
from locks k
left join pg_catalog.pg_stat_activity a on a.pid = k.pid
left join pg_catalog.pg_locks own on k.pid is null and own.pid is null
  and own.virtualtransaction = k.virtualtransaction and own.locktype = 'transactionid' and own.granted
left join pg_catalog.pg_prepared_xacts p on p.transaction = own.transactionid
where coalesce(a.xact_start, p.prepared) < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1::float8)
order by coalesce(a.xact_start, p.prepared)
limit 20;

-- name: suppressions
select pg_catalog.count(*), coalesce(pg_catalog.string_agg(distinct u.channel, ', '), '')
from (
  select s.channel from deed.suppressions s where deed.fold_address(s.channel, s.address) is null and s.address not like 'hmac:%' limit 1000
) u;

-- name: locks_held
-- Who holds one of the tables that are there for their locks: who asks for a
-- change of a list of subscriptions, or does by hand what relays do; and who deletes
-- from a face's relation, for which backfills wait (deed.purges). And who has
-- locked a table of deed, or a face's relation, against readers or writers.
with ours as (
  select c.oid, c.relname::text as name, c.relname like '%\_lock' or c.relname = 'purges' as is_lock
  from pg_catalog.pg_class c
  where c.relnamespace = 'deed'::regnamespace
  union all
  select to_regclass(f.relation), f.relation, false
  from (values ('m10', 'm10_recovery.outbox'), ('app', 'public.outbox')) f(pack, relation)
  join deed.contracts i on i.pack = f.pack
),
locks as (
  select k.pid, k.virtualtransaction, string_agg(distinct o.name, ', ' order by o.name) as names
  from pg_catalog.pg_locks k
  join pg_catalog.pg_database d on d.oid = k.database
  join ours o on o.oid = k.relation
  where d.datname = current_database() and k.locktype = 'relation' and k.granted
    and (k.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
      or o.is_lock and k.mode in ('RowExclusiveLock', 'ShareUpdateExclusiveLock'))
  group by k.pid, k.virtualtransaction
)
select coalesce(k.pid, 0), coalesce(p.gid, ''), coalesce(a.application_name, ''), coalesce(a.usename, p.owner, ''),
  coalesce(a.state, ''),
  extract(epoch from pg_catalog.clock_timestamp() - coalesce(a.xact_start, p.prepared))::float8, k.names
from locks k
left join pg_catalog.pg_stat_activity a on a.pid = k.pid
left join pg_catalog.pg_locks own on k.pid is null and own.pid is null
  and own.virtualtransaction = k.virtualtransaction and own.locktype = 'transactionid' and own.granted
left join pg_catalog.pg_prepared_xacts p on p.transaction = own.transactionid
where coalesce(a.xact_start, p.prepared) < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1::float8)
order by coalesce(a.xact_start, p.prepared)
limit 20;

-- name: lock_waits
-- Of who uses a table of deed or a face's relation, who waits for whom. Pid 0 is
-- a prepared transaction.
select w.pid, coalesce(a.application_name, ''), extract(epoch from pg_catalog.clock_timestamp() - w.waitstart)::float8,
  coalesce((
    select string_agg(case when b.pid = 0 then 'a prepared transaction'
        else format('pid %s (%s%s)', b.pid, coalesce(nullif(o.application_name, ''), 'unnamed'), ', ' || o.state) end, ', ' order by b.pid)
    from (select distinct u.pid from unnest(pg_catalog.pg_blocking_pids(w.pid)) u(pid)) b
    left join pg_catalog.pg_stat_activity o on o.pid = b.pid
  ), '')
from pg_catalog.pg_locks w
left join pg_catalog.pg_stat_activity a on a.pid = w.pid
where not w.granted and w.waitstart < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1::float8)
  and exists (
    select from pg_catalog.pg_locks k
    join pg_catalog.pg_database d on d.oid = k.database
    join pg_catalog.pg_class c on c.oid = k.relation
    where k.pid = w.pid and d.datname = current_database()
      and (c.relnamespace = 'deed'::regnamespace or c.oid in (
        select to_regclass(case i.pack when 'm10' then 'm10_recovery.outbox' when 'app' then 'public.outbox' end) from deed.contracts i
      ))
  )
order by w.waitstart
limit 20;

-- name: calls
select c.topic || '/' || c.subscription, c.id, c.worker, extract(epoch from pg_catalog.clock_timestamp() - c.since)::float8
from deed.oldest_calls() c
where c.since < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1::float8)
order by c.since
limit 20;

-- name: sink_pauses
select p.topic || '/' || p.subscription, p.why, p.worker, p.workers, extract(epoch from pg_catalog.clock_timestamp() - p.since)::float8
from deed.oldest_pauses() p
where p.since < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1::float8)
order by p.since
limit 20;

-- name: unattended
-- What nobody declared is no subscription's: see unread. (Its name is none of theirs
-- where the topic has some.)
with late as materialized (
  select s.id, s.topic || '/' || s.name as name, t.due || case when t.at_least then '+' else '' end as due, t.oldest_due_seconds as seconds
  from deed.look_at_topics(1000000) t
  join deed.subscriptions s on s.topic = t.topic and s.name = t.subscription
  where t.oldest_due_seconds > $1::float8 and t.claimed = 0 and t.lanes_held = 0
)
select l.name, l.due, l.seconds
from late l
where l.id in (
  select a.id
  from deed.unattended((select pg_catalog.array_agg(n.id) from late n), pg_catalog.make_interval(secs => $1::float8)) a(id)
)
order by l.seconds desc
limit 20;

-- name: unread
-- Subscription 0 has what was published to topics that nobody declared. Of the
-- first thousand that may be claimed, by the index that claims use. What is older than
-- the log is kept apart.
select l.topic, pg_catalog.count(*), extract(epoch from pg_catalog.clock_timestamp() - pg_catalog.min(p.ord))::float8
from (
  select q.slot, q.id, q.ord from deed.pending q
  where q.subscription = 0 and q.dead_at is null and not q.parked
    and q.ord < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1::float8)
  order by q.ord, q.id
  limit 1000
) p
cross join lateral (
  select o.topic from deed.log o where o.slot = p.slot and o.id = p.id
  union all
  select k.topic from deed.kept k where k.slot = p.slot and k.id = p.id
) l
group by l.topic
order by pg_catalog.min(p.ord), l.topic
limit 20;

-- name: old_dead
-- Of each subscription the first dead letters by number, up to ten thousand, by
-- the index that has those alone.
select case when s.id = 0 then 'topics that nobody declared' else s.topic || '/' || s.name end, d.n, extract(epoch from pg_catalog.clock_timestamp() - d.since)::float8
from deed.subscriptions s
cross join lateral (
  select pg_catalog.count(*) as n, pg_catalog.min(q.dead_at) as since
  from (
    select p.dead_at from deed.pending p
    where p.subscription = s.id and p.dead_at is not null
    order by p.id
    limit 10000
  ) q
) d
where d.since < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1::float8)
order by d.since
limit 20;

-- name: pauses
select p.provider, p.destination, pg_catalog.left(p.why, 300), extract(epoch from pg_catalog.clock_timestamp() - p.since)::float8,
  (select pg_catalog.count(*) from (select from deed.channel_outbox c where c.provider = p.provider and c.status = 'queued' and c.due limit 100000) w), p.tenants,
  p.until, p.until > pg_catalog.clock_timestamp() + interval '10 minutes'
from (
  select o.provider, o.destination, pg_catalog.min(o.since) as since, pg_catalog.max(o.until) as until, pg_catalog.count(*) as tenants,
    (pg_catalog.array_agg(o.why order by o.since))[1] as why
  from deed.pauses o
  where o.since < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1::float8)
  group by o.provider, o.destination
) p
order by p.destination <> '', p.since
limit 20;

-- name: idle_relays
select p.name, p.kind, p.account, p.sandbox, p.idle_worker, p.idle_kind, p.idle_account, p.idle_sandbox
from deed.providers p
where p.idle_until > clock_timestamp()
order by p.name
limit 100;

-- name: foreign_deliveries
-- Those that wait for another account are put off by a minute or so at a time.
select p.name, p.kind, p.account, count(*), min(c.request_kind), coalesce(min(c.request_account), '')
from deed.providers p
cross join lateral (
  (select o.request_kind, o.request_account from deed.channel_outbox o
   where o.provider = p.name and o.status = 'queued' and not o.due and o.ord <= clock_timestamp() + interval '2 minutes' order by o.ord limit 10000)
  union all
  (select o.request_kind, o.request_account from deed.channel_outbox o
   where o.provider = p.name and o.status = 'sending' and o.held_at is null and o.doubt_since is not null order by o.ord limit 10000)
) c
where c.request_kind is not null and (c.request_kind, coalesce(c.request_account, '')) <> (p.kind, p.account)
group by p.name, p.kind, p.account
order by p.name
limit 100;

-- name: deferred_deliveries
select p.name, d.n, extract(epoch from pg_catalog.clock_timestamp() - d.since)::float8, coalesce(pg_catalog.left(d.last_error, 300), '')
from deed.providers p
cross join lateral (
  select pg_catalog.count(*) as n, pg_catalog.min(c.deferred_since) as since, (pg_catalog.array_agg(c.last_error order by c.deferred_since))[1] as last_error
  from (
    (select o.deferred_since, o.last_error from deed.channel_outbox o
     where o.provider = p.name and o.status = 'queued' and not o.due order by o.ord limit 10000)
    union all
    (select o.deferred_since, o.last_error from deed.channel_outbox o
     where o.provider = p.name and o.status = 'queued' and o.due limit 10000)
  ) c
  where c.deferred_since < pg_catalog.clock_timestamp() - interval '1 hour'
) d
where d.n > 0
order by d.n desc, p.name
limit 20;

-- name: dead_deliveries
-- Those that somebody may put back: a run's are its own, and there is nothing to decide of who was erased, or of what is
-- known to have been accepted.
select c.provider, coalesce((
    select pg_catalog.left(l.last_error, 300) from deed.channel_outbox l
    where l.provider = c.provider and l.status = 'dead' and l.run_id is null and l.proved_at is null and l.erased_at is null
    order by l.finished_at desc limit 1
  ), ''), pg_catalog.count(*)
from deed.channel_outbox c
where c.status = 'dead' and c.run_id is null and c.proved_at is null and c.erased_at is null
group by c.provider
order by pg_catalog.count(*) desc, c.provider
limit 20;

-- name: bad_rates
-- Where services begin to stop accounts; among fewer than a hundred nothing is meant.
select r.provider, r.day_accepted, r.day_bounced, r.day_complained, r.day_bounced >= 3 and r.day_bounced > 0.05 * r.day_accepted,
  r.day_complained >= 3 and r.day_complained > 0.001 * r.day_accepted
from deed.look_at_rates(2000) r
where r.day_accepted >= 100 and (r.day_bounced >= 3 and r.day_bounced > 0.05 * r.day_accepted or r.day_complained >= 3 and r.day_complained > 0.001 * r.day_accepted)
limit 100;

-- name: held_messages
select m.source, pg_catalog.count(*)
from deed.channel_messages m
where m.held_at is not null
group by m.source
order by pg_catalog.count(*) desc, m.source
limit 20;

-- name: failed_messages
-- Inbound messages that have failed and that nobody but their platform repeats.
select m.source, pg_catalog.count(*), extract(epoch from pg_catalog.clock_timestamp() - pg_catalog.min(m.finished_at))::float8
from deed.channel_messages m
where m.status = 'dispatch_failed' and m.held_at is null and m.process_after is null
  and m.finished_at < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1::float8)
group by m.source
order by pg_catalog.count(*) desc, m.source
limit 20;

-- name: waiting_messages
-- Inbound messages that are due and whom nobody takes.
select m.source, pg_catalog.count(*), extract(epoch from pg_catalog.clock_timestamp() - pg_catalog.min(coalesce(m.lease_until, m.process_after)))::float8
from deed.channel_messages m
where coalesce(m.lease_until, m.process_after) < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1::float8)
  and coalesce(m.lease_until, m.process_after) < 'infinity'
group by m.source
order by pg_catalog.count(*) desc, m.source
limit 20;

-- name: unsealed
-- Where nobody has ever sealed the audit log, nobody wants to.
select s.upto_n, extract(epoch from pg_catalog.clock_timestamp() - s.at)::float8, extract(epoch from pg_catalog.clock_timestamp() - a.at)::float8
from (select o.upto_n, o.at from deed.audit_seals o order by o.k desc limit 1) s
cross join lateral (select l.at from deed.audit_log l where l.n > s.upto_n order by l.n limit 1) a
where a.at < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1::float8);
