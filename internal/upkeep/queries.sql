-- The statements of upkeep, of which deed.New checks that they fit the installed
-- schema.

-- name: keep_partitions
select deed.keep_partitions();

-- name: summarise_log
select deed.summarise_log();

-- name: tally
select deed.tally();

-- name: partitions_ahead
select least(
  (select coalesce(max(p.n), -1) - pg_sequence_last_value('deed.log_seq') / 68719476736 from deed.partitions p),
  (select coalesce(max(p.n), -1) - floor(extract(epoch from clock_timestamp()) / 604800)::bigint from deed.run_partitions p where p.dropped_at is null)
);

-- name: purge_keys
select deed.purge_keys($1::int);

-- name: retention_step
select n, did, messages, coalesce(problem, '') from deed.retention_step($1::int);

-- name: empty_partitions
-- One detaches at a time; only the owner may.
select p.n
from deed.partitions p
join pg_class c on c.relname = 'log_p' || p.n and c.relnamespace = 'deed'::regnamespace
join pg_inherits i on i.inhrelid = c.oid
where p.emptied_at is not null and p.dropped_at is null
  and (p.tried_at is null or p.tried_at < clock_timestamp() - interval '1 minute')
  and pg_has_role(c.relowner, 'usage')
  and not exists (select from pg_inherits o where o.inhparent = i.inhparent and o.inhdetachpending);

-- name: purge_history
select what, removed from deed.purge_history($1::int);

-- name: purge_kept
select removed, next_slot, next_id from deed.purge_kept($1::int, $2::bigint, $3::int);

-- name: remove_step
select state, total from deed.remove_step($1::bigint, $2::int);

-- name: open_removals
select coalesce(array_agg(o.n order by o.n), '{}')
from (select r.n from deed.removals r where r.finished_at is null order by r.n limit 1000) o;

-- name: erase_step
select deed.erase_step($1::int, $2::text);

-- name: mark_audit
select deed.mark_audit($1::int);

-- name: removed_tenants
select coalesce(array_agg(o.id), '{}'), coalesce(array_agg(o.id order by o.asked_at) filter (where o.is_open), '{}')
from (
  select r.tenant_id::text as id, r.asked_at, r.finished_at is null as is_open from deed.tenant_removals r
  where coalesce(r.finished_at > clock_timestamp() - interval '7 days', true)
  order by r.asked_at desc
  limit 10000
) o;

-- name: remove_tenant_step
select state from deed.remove_tenant_step($1::text::uuid, $2::int);
