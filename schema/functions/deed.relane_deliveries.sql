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
set jit = off
as $$
declare
  v_per_domain boolean := (select p.lane_per_domain from deed.providers p where p.name = p_provider);
  v_domains    text[] := array(select r.domain from deed.rate_limits r where r.provider = p_provider and r.domain <> '');
  v_count      int;
begin
  update deed.channel_outbox c
  set lane = case when v_per_domain or c.recipient_domain = any (v_domains) then coalesce(c.recipient_domain, '') else '' end
  where c.ctid = any (array(
    select q.ctid from deed.channel_outbox q
    where q.provider = p_provider and q.status = 'queued'
      and q.lane <> case when v_per_domain or q.recipient_domain = any (v_domains) then coalesce(q.recipient_domain, '') else '' end
    limit p_limit
    for update skip locked
  ));
  get diagnostics v_count = row_count;
  return v_count;
end
$$;
