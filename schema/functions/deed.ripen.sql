-- deed.ripen: mark the deliveries of a provider whose time has come as due, at
-- most a thousand: queued ones, or those in doubt (p_status 'sending').
--
-- Half of them those that have waited longest, half the latest, so that a
-- million that come due at once hold up no other for long. Returns in how many
-- seconds the next one comes; 0, there is more already; null, nothing waits.
-- With nothing to mark it writes nothing.
create or replace function deed.ripen(
  p_provider text,
  p_status   text
) returns double precision
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set enable_sort = off
set jit = off
as $$
declare
  v_now  timestamptz := clock_timestamp();
  v_rows tid[];
  v_next timestamptz;
begin
  if p_status = 'queued' then
    v_rows := array(
      select c.ctid from deed.channel_outbox c
      where c.provider = p_provider and c.status = 'queued' and not c.due and c.ord <= v_now
      order by c.ord
      limit 500
      for update skip locked
    );
    if cardinality(v_rows) = 500 then
      v_rows := v_rows || array(
        select c.ctid from deed.channel_outbox c
        where c.provider = p_provider and c.status = 'queued' and not c.due and c.ord <= v_now
        order by c.ord desc
        limit 500
        for update skip locked
      );
    end if;
    select c.ord into v_next from deed.channel_outbox c
    where c.provider = p_provider and c.status = 'queued' and not c.due and c.ord > v_now
    order by c.ord
    limit 1;
  else
    v_rows := array(
      select c.ctid from deed.channel_outbox c
      where c.provider = p_provider and c.status = 'sending' and not c.due and c.ord <= v_now
        and c.doubt_since is not null and c.held_at is null
      order by c.ord
      limit 1000
      for update skip locked
    );
    select c.ord into v_next from deed.channel_outbox c
    where c.provider = p_provider and c.status = 'sending' and not c.due and c.ord > v_now
      and c.doubt_since is not null and c.held_at is null
    order by c.ord
    limit 1;
  end if;
  if cardinality(v_rows) > 0 then
    update deed.channel_outbox c set due = true where c.ctid = any (v_rows); -- locked above: they stay where they are
  end if;
  return case when cardinality(v_rows) >= 1000 then 0 else extract(epoch from v_next - v_now) end;
end
$$;
