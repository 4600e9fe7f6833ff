-- deed.relane_deliveries: put deliveries of a provider that are not finished into the
-- lanes that it has now, at most p_limit.
--
-- Only after the provider has been registered with lanes of another kind
-- (deed.register_provider), or before there were kinds. Those that somebody holds are
-- skipped. Returns how many were moved; fewer than p_limit, all are where they belong,
-- but for what was being reserved meanwhile: it stays in a lane of the former kind.
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
  v_kind  text := (select p.lanes from deed.providers p where p.name = p_provider and p.relane);
  v_count int;
begin
  if v_kind is null then
    return 0;
  end if;
  update deed.channel_outbox c
  set lane = m.lane
  from (
    select q.ctid as place, coalesce(l.lane, '') as lane
    from deed.channel_outbox q
    cross join lateral (select deed.lane_of(v_kind, q.channel, deed.fold_address(q.channel, q.recipient)) as lane offset 0) l
    where q.provider = p_provider and q.status in ('queued', 'sending')
      -- By its looks first: to fold an address takes longer.
      and case v_kind
        when 'recipient' then q.lane !~ '^-?[0-9a-f]{16}$'
        when 'country' then q.lane !~ e'^\\+[0-9]+$'
        when 'none' then q.lane <> ''
        else q.lane = '' or q.lane ~ e'^(\\+[0-9]+|-?[0-9a-f]{16})$'
      end
      and q.lane <> coalesce(l.lane, '')
    limit p_limit
    for update of q skip locked
  ) m
  where c.ctid = m.place;
  get diagnostics v_count = row_count;
  if v_count < p_limit then
    update deed.providers p set relane = false where p.name = p_provider and p.lanes = v_kind;
  end if;
  return v_count;
end
$$;
