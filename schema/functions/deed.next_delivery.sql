-- deed.next_delivery: in how many seconds a claim may find a queued delivery.
--
-- The latest of the next due time, the provider's next token, and the end of its
-- pause; 0 or less if a claim may be made now, null if nothing is queued. While
-- a probe is under way it is half a second. Limits of domains do not count: a
-- claim is cheap.
create or replace function deed.next_delivery(
  p_provider text
) returns double precision
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set enable_sort = off
set jit = off
as $$
declare
  v_now  timestamptz := clock_timestamp();
  v_due  timestamptz;
  v_wait double precision;
  v_rest double precision;
begin
  select min(n.due) into v_due
  from (
    select greatest(c.ord, c.lease_until, p.until, case when p.probe is not null then v_now + interval '500 milliseconds' end) as due
    from deed.channel_outbox c
    left join deed.pauses p on p.provider = p_provider and p.destination = c.lane and c.lane <> ''
    where c.provider = p_provider and c.status = 'queued'
    order by c.ord
    limit 1000
  ) n;
  if v_due is null then
    return null;
  end if;
  select (1 - (b.tokens + b.rate * extract(epoch from v_now - b.at))) / b.rate into v_wait
  from deed.rate_limits b
  where b.provider = p_provider and b.domain = '';
  select greatest(extract(epoch from p.until - v_now), case when p.probe is not null then 0.5 end) into v_rest
  from deed.pauses p
  where p.provider = p_provider and p.destination = '';
  return greatest(extract(epoch from v_due - v_now), v_wait, v_rest);
end
$$;
