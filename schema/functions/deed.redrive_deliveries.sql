-- deed.redrive_deliveries: put failed or dead deliveries back, in steps, with
-- their attempts at 0; an operator's act, recorded with who and why.
--
-- A request as those of deed.redrive are: the first call remembers it with what
-- it asks for, each call puts back at most p_step deliveries and looks at 20,000
-- that have ended so, by status, provider and id; repeat the same call, each in a
-- transaction of its own, until state is done. What ends again after the request
-- began is not put back by it. chosen is counted up to 100,000, among the first
-- 200,000 that have ended so. p_statuses are
-- of failed and dead; p_since is for how long they have ended so at most; p_error
-- is part of their last error, in any case of letters. Those of a run are left
-- out, as a run is retried as a new one, and so is what was proved to have been accepted or is of who was erased. p_dry changes nothing and says chosen; its
-- state is partly where there may be more.
-- p_rate, p_limit and wait are as there. Raises DDCON when the request id has
-- meant something else, DDARG.
create or replace function deed.redrive_deliveries(
  p_request  text,
  p_statuses text[],
  p_provider text default null,
  p_tenant   uuid default null,
  p_error    text default null,
  p_since    interval default null,
  p_limit    int default null,
  p_rate     int default null,
  p_by       text default null,
  p_reason   text default null,
  p_step     int default 500,
  p_dry      boolean default false
) returns table (state text, chosen bigint, redriven bigint, step int, wait double precision)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
as $$
declare
  v_now    timestamptz := clock_timestamp();
  v_asked  jsonb;
  v_r      deed.redrives%rowtype;
  v_take   bigint := p_step;
  v_ids    uuid[];
  v_looked bigint;
  v_upto   deed.redrives%rowtype; -- as far as this step has come
begin
  if coalesce(cardinality(p_statuses), 0) = 0 or not p_statuses <@ array['failed', 'dead'] then
    raise exception 'redrive_deliveries: the statuses that are put back are failed and dead' using errcode = 'DDARG';
  end if;
  if p_limit < 1 or p_rate < 1 or p_step is null or p_step < 1 or p_since < interval '0' then
    raise exception 'redrive_deliveries: limit, rate and step must be above 0, and since not negative' using errcode = 'DDARG';
  end if;
  state := 'running';
  redriven := 0;
  step := 0;
  wait := 0;
  if not p_dry then
    if coalesce(length(p_request), 0) not between 1 and 200 then
      raise exception 'redrive_deliveries: a request id of 1 to 200 characters is needed' using errcode = 'DDARG';
    end if;
    if coalesce(p_reason, '') = '' or coalesce(p_by, '') = '' or length(p_by) > 200 or length(p_reason) > 2000 then
      raise exception 'redrive_deliveries: a reason and who asks are needed' using errcode = 'DDARG';
    end if;
    select r.* into v_r from deed.redrives r where r.request = p_request for update;
  end if;
  v_asked := jsonb_strip_nulls(jsonb_build_object(
    'deliveries', p_statuses, 'provider', p_provider, 'tenant', p_tenant, 'error', p_error, 'since', p_since, 'limit', p_limit
  ));
  if v_r.request is null then
    select least(coalesce(sum(l.n) filter (where l.wanted), 0), 100000, p_limit), coalesce(sum(l.n), 0) into chosen, v_looked
    from (
      select c.run_id is null and c.proved_at is null and c.erased_at is null and (p_tenant is null or c.tenant_id = p_tenant)
        and (p_error is null or strpos(lower(c.last_error), lower(p_error)) > 0)
        and (p_since is null or c.finished_at >= v_now - p_since) as wanted, count(*) as n
      from (
        select o.run_id, o.proved_at, o.erased_at, o.tenant_id, o.last_error, o.finished_at
        from deed.channel_outbox o
        where o.status in ('failed', 'dead') and o.status = any (p_statuses) and (p_provider is null or o.provider = p_provider)
        limit 200000
      ) c
      group by 1
    ) l;
    if p_dry then
      if chosen < coalesce(p_limit, 100001) and (v_looked = 200000 or chosen = 100000) then
        state := 'partly';
      end if;
      return next;
      return;
    end if;
    insert into deed.redrives (request, asked, rate, chosen, actor, reason, started_at, stepped_at, upto_status, upto_provider, upto_delivery)
    values (p_request, v_asked, p_rate, chosen, p_by, p_reason, v_now, v_now, '', '', '00000000-0000-0000-0000-000000000000')
    on conflict do nothing;
    if found then
      insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, reason, affected, details)
      values (p_tenant, p_by, 'redrive asked for', 'redrive', p_request, p_reason, chosen, v_asked);
    end if;
    select r.* into v_r from deed.redrives r where r.request = p_request for update;
  end if;
  if v_r.asked <> v_asked then
    raise exception 'redrive_deliveries: the request % was for something else: %', quote_literal(p_request), v_r.asked
      using errcode = 'DDCON', hint = 'Repeat it as it was, or take another request id.';
  end if;

  if v_r.state = 'running' then
    v_now := clock_timestamp(); -- it may have waited for another caller
    v_r.rate := coalesce(p_rate, v_r.rate);
    if v_r.rate is not null then
      -- What was not used for longer than a second is gone.
      v_r.stepped_at := greatest(v_r.stepped_at, v_now - interval '1 second');
      v_take := least(v_take, floor(extract(epoch from v_now - v_r.stepped_at) * v_r.rate));
      v_r.stepped_at := v_r.stepped_at + make_interval(secs => v_take::double precision / v_r.rate);
      wait := greatest(0.05, 1.0 / v_r.rate);
    end if;
    v_take := least(v_take, p_limit - v_r.redriven);
    if v_take > 0 then
      with looked as materialized (
        select c.status, c.provider, c.id, c.run_id is null and c.proved_at is null and c.erased_at is null and c.finished_at <= v_r.started_at
          and (p_tenant is null or c.tenant_id = p_tenant)
          and (p_error is null or strpos(lower(c.last_error), lower(p_error)) > 0)
          and (p_since is null or c.finished_at >= v_r.started_at - p_since) as wanted
        from deed.channel_outbox c
        where c.status in ('failed', 'dead') and c.status = any (p_statuses) and (p_provider is null or c.provider = p_provider)
          and (c.status, c.provider, c.id) > (v_r.upto_status, v_r.upto_provider, v_r.upto_delivery)
        order by c.status, c.provider, c.id
        limit 20000
      ),
      taken as (
        select l.* from looked l where l.wanted order by l.status, l.provider, l.id limit v_take
      ),
      upto as (
        (select t.status, t.provider, t.id from taken t where (select count(*) from taken) = v_take order by t.status desc, t.provider desc, t.id desc limit 1)
        union all
        (select l.status, l.provider, l.id from looked l where (select count(*) from taken) < v_take order by l.status desc, l.provider desc, l.id desc limit 1)
      )
      select (select array_agg(t.id order by t.id) from taken t) as ids, (select count(*) from looked) as looked,
        u.status, u.provider, u.id
      into v_ids, v_looked, v_upto.upto_status, v_upto.upto_provider, v_upto.upto_delivery
      from (select) one left join upto u on true;
      v_ids := coalesce(v_ids, '{}');
      step := deed.retry_deliveries(v_ids, coalesce(p_reason, v_r.reason), coalesce(p_by, v_r.actor));
      v_r.redriven := v_r.redriven + step;
    end if;
    if (v_looked < 20000 and cardinality(v_ids) < v_take) or v_r.redriven >= p_limit then
      v_r.state := 'done';
      wait := 0;
    end if;
    update deed.redrives r
    set redriven = v_r.redriven, rate = v_r.rate, stepped_at = v_r.stepped_at, state = v_r.state,
      upto_status = coalesce(v_upto.upto_status, r.upto_status), upto_provider = coalesce(v_upto.upto_provider, r.upto_provider),
      upto_delivery = coalesce(v_upto.upto_delivery, r.upto_delivery),
      finished_at = case when v_r.state = 'done' then v_now end
    where r.request = p_request;
  end if;
  state := v_r.state;
  chosen := v_r.chosen;
  redriven := v_r.redriven;
  return next;
end
$$;
