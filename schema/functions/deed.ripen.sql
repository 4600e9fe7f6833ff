-- deed.ripen: mark the deliveries of a provider whose time has come as due, at
-- most a thousand: queued ones, or those in doubt (p_status 'sending').
--
-- Those that have waited longest. Of queued ones, if there are more, also the
-- latest, and of a hundred tenants, on the way round from behind p_after, the
-- first of each: a million that come due at once hold up no other for long.
-- after is where the next look goes on; null, with the first tenant.
--
-- seconds is when the next one comes; 0, there is more already; null, nothing
-- waits. With nothing to mark it writes nothing.
create or replace function deed.ripen(
  in  p_provider text,
  in  p_status   text,
  in  p_after    uuid,
  out seconds    double precision,
  out after      uuid
)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set enable_sort = off
set jit = off
as $$
declare
  v_now     timestamptz := clock_timestamp();
  v_rows    tid[];
  v_tenants uuid[];
  v_next    timestamptz;
  v_more    boolean;
begin
  if p_status = 'queued' then
    v_rows := array(
      select c.ctid from deed.channel_outbox c
      where c.provider = p_provider and c.status = 'queued' and not c.due and c.ord <= v_now
      order by c.ord
      limit 400
      for update skip locked
    );
    v_more := cardinality(v_rows) = 400;
    if v_more then
      v_rows := v_rows || array(
        select c.ctid from deed.channel_outbox c
        where c.provider = p_provider and c.status = 'queued' and not c.due and c.ord <= v_now
        order by c.ord desc
        limit 200
        for update skip locked
      );
      with recursive around as (
        select f.tenant_id, f.ord, 1 as n
        from (
          select c.tenant_id, c.ord from deed.channel_outbox c
          where c.provider = p_provider and c.status = 'queued' and not c.due
            and (c.tenant_id, c.ord) > (
              coalesce(p_after, '00000000-0000-0000-0000-000000000000'::uuid),
              case when p_after is null then timestamptz '-infinity' else timestamptz 'infinity' end
            )
          order by c.tenant_id, c.ord
          limit 1
        ) f
        union all
        select f.tenant_id, f.ord, a.n + 1
        from around a
        cross join lateral (
          select c.tenant_id, c.ord from deed.channel_outbox c
          where c.provider = p_provider and c.status = 'queued' and not c.due and (c.tenant_id, c.ord) > (a.tenant_id, timestamptz 'infinity')
          order by c.tenant_id, c.ord
          limit 1
        ) f
        where a.n < 100
      )
      select array_agg(a.tenant_id) filter (where a.ord <= v_now), (array_agg(a.tenant_id) filter (where a.n = 100))[1]
      into v_tenants, after
      from around a;
      v_rows := v_rows || array(
        select q.place
        from unnest(v_tenants) t(id)
        cross join lateral (
          select c.ctid as place from deed.channel_outbox c
          where c.provider = p_provider and c.status = 'queued' and not c.due and c.tenant_id = t.id and c.ord <= v_now
          order by c.ord
          limit 4
          for update skip locked
        ) q
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
    v_more := cardinality(v_rows) = 1000;
    select c.ord into v_next from deed.channel_outbox c
    where c.provider = p_provider and c.status = 'sending' and not c.due and c.ord > v_now
      and c.doubt_since is not null and c.held_at is null
    order by c.ord
    limit 1;
  end if;
  if cardinality(v_rows) > 0 then
    update deed.channel_outbox c set due = true where c.ctid = any (v_rows); -- locked above: they stay where they are
  end if;
  seconds := case when v_more then 0 else extract(epoch from v_next - v_now) end;
end
$$;
