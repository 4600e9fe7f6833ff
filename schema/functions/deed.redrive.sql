-- deed.redrive: put dead messages back, in steps, with their attempts at 0.
--
-- An operator's act, and the only way back from dead (O9). The first call of a
-- request remembers it, with what it asks for, as deed.dead_letters reads it; each
-- call puts back at most p_step messages, oldest first, and says how far the
-- request is. Repeat the same call, each in a transaction of its own, until state
-- is done; cut off anywhere, it goes on where it was. What dies again after the
-- request began is not put back by it. p_rate caps messages a second, from this
-- call on: wait is how many seconds to wait for the next ones. p_limit: how many
-- in all.
--
-- One time for a step, and the numbers in order: a key's messages keep theirs.
-- Every step leaves a row in deed.audit_log. Raises DDNFD for an unknown topic or
-- subscription, DDCON when the request id has meant something else, DDARG.
create or replace function deed.redrive(
  p_request      text,
  p_topic        text default null,
  p_subscription text default null,
  p_tenant       uuid default null,
  p_type         text default null,
  p_error        text default null,
  p_ids          bigint[] default null,
  p_older        interval default null,
  p_newer        interval default null,
  p_limit        int default null,
  p_rate         int default null,
  p_by           text default null,
  p_reason       text default null,
  p_step         int default 500
) returns table (state text, chosen bigint, redriven bigint, step int, wait double precision)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set enable_sort = off
set enable_incremental_sort = off
set jit = off
as $$
declare
  v_now   timestamptz := clock_timestamp();
  v_asked jsonb;
  v_r     deed.redrives%rowtype;
  v_take  bigint := p_step;
  v_subs  int[];
  v_ids   bigint[];
  v_sub   int;
begin
  if length(p_by) not between 1 and 200 or length(p_reason) > 2000 then
    raise exception 'redrive: who asks is a name of 1 to 200 characters, a reason has up to 2000' using errcode = 'DDARG';
  end if;
  if coalesce(length(p_request), 0) not between 1 and 200 then
    raise exception 'redrive: a request id of 1 to 200 characters is needed' using errcode = 'DDARG';
  end if;
  if p_limit < 0 or p_rate < 1 or p_step is null or p_step < 1 then
    raise exception 'redrive: limit must not be negative (got %), rate and step must be above 0 (got % and %)',
      coalesce(p_limit::text, 'null'), coalesce(p_rate::text, 'null'), coalesce(p_step::text, 'null') using errcode = 'DDARG';
  end if;
  v_asked := jsonb_strip_nulls(jsonb_build_object(
    'topic', p_topic, 'subscription', p_subscription, 'tenant', p_tenant, 'type', p_type, 'error', p_error,
    'ids', p_ids, 'older', p_older, 'newer', p_newer, 'limit', p_limit
  ));

  select r.* into v_r from deed.redrives r where r.request = p_request for update;
  if not found then
    if p_topic is not null
      and not exists (select from deed.subscriptions s where s.topic = p_topic)
      and not exists (select from deed.dead_letters(p_topic => p_topic))
    then
      raise exception 'redrive: topic % has no subscription and no dead message', quote_literal(p_topic) using errcode = 'DDNFD';
    end if;
    if p_subscription is not null
      and not exists (select from deed.subscriptions s where s.topic in (coalesce(p_topic, s.topic), '') and s.name = p_subscription)
    then
      raise exception 'redrive: topic % has no subscription %', quote_literal(coalesce(p_topic, '*')), quote_literal(p_subscription)
        using errcode = 'DDNFD';
    end if;
    insert into deed.redrives (request, asked, rate, chosen, actor, reason, started_at, stepped_at)
    select p_request, v_asked, p_rate, least(count(*), p_limit), coalesce(p_by, session_user), p_reason, v_now, v_now
    from deed.dead_letters(p_topic, p_subscription, p_tenant, p_type, p_error, p_ids, p_older, p_newer, v_now)
    on conflict do nothing;
    if found then
      insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, reason, affected, details)
      select p_tenant, r.actor, 'redrive asked for', 'redrive', p_request, p_reason, r.chosen, v_asked
      from deed.redrives r where r.request = p_request;
    end if;
    select r.* into v_r from deed.redrives r where r.request = p_request for update;
  end if;
  if v_r.asked <> v_asked then
    raise exception 'redrive: the request % was for other messages: %', quote_literal(p_request), v_r.asked
      using errcode = 'DDCON', hint = 'Repeat it as it was, or take another request id.';
  end if;

  step := 0;
  wait := 0;
  if v_r.state = 'running' then
    v_now := clock_timestamp(); -- it may have waited for another caller
    v_r.rate := coalesce(p_rate, v_r.rate);
    if v_r.rate is not null then
      -- What was not used for longer than a second is gone. The clock may have gone back since.
      v_r.stepped_at := least(greatest(v_r.stepped_at, v_now - interval '1 second'), v_now);
      v_take := least(v_take, floor(extract(epoch from v_now - v_r.stepped_at) * v_r.rate));
      v_r.stepped_at := v_r.stepped_at + make_interval(secs => v_take::double precision / v_r.rate);
      wait := greatest(0.05, 1.0 / v_r.rate);
    end if;
    v_take := least(v_take, p_limit - v_r.redriven);

    select array_agg(d.subscription order by d.n), array_agg(d.id order by d.n) into v_subs, v_ids
    from (
      select d.subscription, d.id, row_number() over () as n
      from (
        select d.subscription, d.id
        from deed.dead_letters(p_topic, p_subscription, p_tenant, p_type, p_error, p_ids, p_older, p_newer, v_r.started_at) d
        where (d.subscription, d.id) > (v_r.upto_sub, v_r.upto_id) and d.dead_at <= v_r.started_at
        order by d.subscription, d.id
        limit v_take
      ) d
    ) d;
    for v_sub in select s.id from deed.subscriptions s where s.id = any (v_subs) and s.since is not null order by s.id loop
      perform deed.lock_keys(v_sub, array(
        select p.key_hash
        from unnest(v_subs, v_ids) d(subscription, id)
        join deed.pending p on p.subscription = d.subscription and p.id = d.id
        where d.subscription = v_sub and p.key_hash is not null
      ));
    end loop;
    update deed.pending p
    set dead_at = null, attempts = 0, lost_claims = 0, process_after = v_now
    from unnest(v_subs, v_ids) d(subscription, id)
    where p.subscription = d.subscription and p.id = d.id and p.dead_at is not null;
    get diagnostics step = row_count;

    v_r.redriven := v_r.redriven + step;
    if coalesce(cardinality(v_ids), 0) < v_take or v_r.redriven >= p_limit then
      v_r.state := 'done';
      wait := 0;
    end if;
    update deed.redrives r
    set redriven = v_r.redriven, rate = v_r.rate, stepped_at = v_r.stepped_at, state = v_r.state,
      upto_sub = coalesce(v_subs[cardinality(v_subs)], r.upto_sub), upto_id = coalesce(v_ids[cardinality(v_ids)], r.upto_id),
      finished_at = case when v_r.state = 'done' then v_now end
    where r.request = p_request;
    if step > 0 then
      insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, from_status, to_status, reason, affected, details)
      values (p_tenant, coalesce(p_by, v_r.actor), 'redrive', 'redrive', p_request, 'dead', 'pending', coalesce(p_reason, v_r.reason), step, v_asked);
    end if;
  end if;
  state := v_r.state;
  chosen := v_r.chosen;
  redriven := v_r.redriven;
  return next;
end
$$;
