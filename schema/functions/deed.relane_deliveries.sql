-- deed.relane_deliveries: put deliveries of a provider that are not finished into the
-- lanes that it has now, at most p_limit.
--
-- Only after the provider has been registered with lanes of another kind
-- (deed.register_provider), or before there were kinds. Those that somebody holds are
-- skipped, and moved by a later call. Returns how many were moved; where none is elsewhere
-- than it belongs it is over, but for what was being reserved meanwhile: that stays in a
-- lane of the former kind.
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
  v_kind   text := (select p.lanes from deed.providers p where p.name = p_provider and p.relane);
  v_places tid[];
  v_count  int;
begin
  if v_kind is null then
    return 0;
  end if;
  v_places := array(
    select q.ctid
    from deed.channel_outbox q
    cross join lateral (select deed.lane_of(v_kind, q.channel, deed.fold_address(q.channel, q.recipient)) as lane offset 0) l
    where q.provider = p_provider and q.status in ('queued', 'sending')
      -- By its looks first: to fold an address takes longer.
      and case v_kind
        when 'recipient' then q.lane !~ '^-?[0-9a-f]{20}$'
        when 'country' then q.lane !~ e'^\\+[0-9]+$'
        when 'none' then q.lane <> ''
        else q.lane = '' or q.lane ~ e'^(\\+[0-9]+|-?([0-9a-f]{16}|[0-9a-f]{20}))$'
      end
      and q.lane <> coalesce(l.lane, '')
    limit p_limit
  );
  if cardinality(v_places) = 0 then
    update deed.providers p set relane = false where p.name = p_provider and p.lanes = v_kind;
    return 0;
  end if;
  update deed.channel_outbox c
  set lane = coalesce(deed.lane_of(v_kind, c.channel, deed.fold_address(c.channel, c.recipient)), '')
  from (
    -- Whatever stands there by now: its lane is its own.
    select q.ctid as place from deed.channel_outbox q
    where q.ctid = any (v_places) and q.provider = p_provider and q.status in ('queued', 'sending')
    for update skip locked
  ) m
  where c.ctid = m.place;
  get diagnostics v_count = row_count;
  return v_count;
end
$$;
