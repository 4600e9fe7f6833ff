-- deed.purge_keys: forget idempotency keys older than the dedup window.
--
-- In batches: returns how many it removed, p_limit meaning that there may be
-- more. A key is remembered for at least the window.
create or replace function deed.purge_keys(
  p_limit int default 5000
) returns int
language sql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
  with old as (
    select k.tenant_id, k.topic, k.key
    from deed.publish_keys k
    where k.used_at < statement_timestamp() - (select s.dedup_window from deed.settings s)
    limit p_limit
    for update skip locked
  ),
  gone as (
    delete from deed.publish_keys k
    using old o
    where k.tenant_id = o.tenant_id and k.topic = o.topic and k.key = o.key
    returning 1
  )
  select count(*)::int from gone
$$;
