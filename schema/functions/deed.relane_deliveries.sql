-- deed.relane_deliveries: put deliveries of a provider that are not finished into
-- the lanes of their recipients' domains, at most p_limit.
--
-- For those that were reserved before every domain had a lane, which are those
-- whose payload was not measured. Those that somebody holds are skipped. Returns how many were moved; 0, all are where they
-- belong.
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
  v_count int;
begin
  update deed.channel_outbox c
  set lane = m.lane
  from (
    select q.ctid as place, coalesce(d.domain, '') as lane
    from deed.channel_outbox q
    cross join lateral (select deed.address_domain(q.channel, deed.fold_address(q.channel, q.recipient)) as domain offset 0) d
    where q.provider = p_provider and q.status in ('queued', 'sending') and q.payload_bytes is null and q.lane <> coalesce(d.domain, '')
    limit p_limit
    for update of q skip locked
  ) m
  where c.ctid = m.place;
  get diagnostics v_count = row_count;
  return v_count;
end
$$;
