-- deed.forget_lanes: take away the buckets of a provider's lanes that are full, which is
-- what a lane has of which there is none (deed.take_due): at most p_limit. Returns how
-- many.
create or replace function deed.forget_lanes(
  p_provider text,
  p_limit    int
) returns int
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_each  deed.rate_limits;
  v_group deed.rate_limits;
  v_count int;
begin
  if not exists (select from deed.lane_tokens b where b.provider = p_provider) then
    return 0;
  end if;
  perform from deed.rate_limits b where b.provider = p_provider and b.lane in ('*', '-*') order by b.lane for update;
  select b.* into v_each from deed.rate_limits b where b.provider = p_provider and b.lane = '*';
  select b.* into v_group from deed.rate_limits b where b.provider = p_provider and b.lane = '-*';
  if not found then
    v_group := v_each;
  end if;
  delete from deed.lane_tokens b
  where b.ctid = any (array(
    select l.ctid
    from deed.lane_tokens l
    cross join lateral (
      select case when l.lane like '-%' then v_group.rate else v_each.rate end as rate, case when l.lane like '-%' then v_group.burst else v_each.burst end as burst
    ) c
    where l.provider = p_provider and coalesce(l.tokens + c.rate * extract(epoch from clock_timestamp() - l.at) >= c.burst, true)
    limit p_limit
  ));
  get diagnostics v_count = row_count;
  return v_count;
end
$$;
