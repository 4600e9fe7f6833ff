-- deed.relane_deliveries: put queued deliveries of a provider into the lanes that
-- its limits ask for now, at most p_limit.
--
-- Those that somebody holds are skipped. Returns how many were moved; 0, all
-- are where they belong.
create or replace function deed.relane_deliveries(
  p_provider text,
  p_limit    int
) returns int
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_hashjoin = off -- the rows by their place
set enable_mergejoin = off
set jit = off
as $$
declare
  v_per_domain boolean := (select p.lane_per_domain from deed.providers p where p.name = p_provider);
  v_domains    text[] := array(select r.domain from deed.rate_limits r where r.provider = p_provider and r.domain <> '');
  v_count      int;
begin
  update deed.channel_outbox c
  set lane = m.lane
  from (
    select q.ctid as place, case when v_per_domain or d.domain = any (v_domains) then coalesce(d.domain, '') else '' end as lane
    from deed.channel_outbox q
    cross join lateral (select deed.address_domain(q.channel, deed.fold_address(q.channel, q.recipient)) as domain offset 0) d
    where q.provider = p_provider and q.status = 'queued'
      and q.lane <> case when v_per_domain or d.domain = any (v_domains) then coalesce(d.domain, '') else '' end
    limit p_limit
    for update of q skip locked
  ) m
  where c.ctid = m.place;
  get diagnostics v_count = row_count;
  return v_count;
end
$$;
