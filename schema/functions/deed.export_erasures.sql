-- deed.export_erasures: the erasures that have not been recorded outside the database
-- yet, the oldest p_limit; in the caller's transaction they count as recorded from now
-- on. A database that is restored lacks the later ones: who keeps the record can repeat
-- them (deed.erase_contact). Without p_removed not those of tenants that are being removed,
-- for whom nothing can be published.
create or replace function deed.export_erasures(
  p_limit   int,
  p_removed boolean default true
) returns table (n bigint, tenant_id uuid, contact_id uuid, names uuid[], reason text, actor text, at timestamptz, suppressed boolean)
language sql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
  with told as (
    update deed.erasures e
    set exported_at = clock_timestamp()
    where e.n = any (array(
      select o.n from deed.erasures o
      where o.exported_at is null and (p_removed or not deed.is_removed(o.tenant_id))
      order by o.n
      limit p_limit
      for update skip locked
    ))
    returning e.n, e.tenant_id, e.contact_id, e.names, e.reason, e.actor, e.at, e.suppressed
  )
  select t.n, t.tenant_id, t.contact_id, t.names, t.reason, t.actor, t.at, t.suppressed from told t order by t.n
$$;
