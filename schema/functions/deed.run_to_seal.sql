-- deed.run_to_seal: a run of a campaign that ended longer than p_keep ago and is not sealed, which
-- the caller has until its transaction ends; null: there is none. Not one of p_except, and not one that was retried before
-- that one is sealed: what keeps a retry from reaching somebody twice are the deliveries of the runs before.
create or replace function deed.run_to_seal(
  p_keep   interval,
  p_except uuid[] default '{}'
) returns uuid
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
begin
  if p_keep is null or p_keep < interval '2 days' then
    raise exception 'run_to_seal: runs are kept for two days at least: erasures find files by their deliveries' using errcode = 'DDARG';
  end if;
  return (
    select r.id
    from deed.campaign_runs r
    where r.finished_at is not null and r.sealed_at is null and r.finished_at < clock_timestamp() - p_keep and r.id <> all (p_except)
      and not exists (select from deed.campaign_runs o where o.retry_of = r.id and o.sealed_at is null)
      and not exists (select from deed.tenant_removals t where t.tenant_id = r.tenant_id)
    order by r.finished_at
    limit 1
    for no key update of r skip locked
  );
end
$$;
