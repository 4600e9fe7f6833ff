-- deed.put_plan: store a plan of a tenant, under its name and version (R12). p_body is its
-- canonical form, as run/plan writes it, which checks all that is in it; what a run relies
-- on, its graph, is read from the same bytes and checked here.
--
-- The same bytes again change nothing; other bytes under the same name and version raise
-- DDCON. It is in the audit log. p_tenant null: the one that the transaction has set.
-- Raises DDARG, DDTEN, DDNFD for an unknown tenant, DDCON for a removed one, and 40001 under
-- REPEATABLE READ.
create or replace function deed.put_plan(
  p_body       bytea,
  p_by         text default null,
  p_tenant     uuid default null,
  out plan_id      text,
  out plan_version text,
  out sha256       bytea,
  out created      boolean
) returns record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_tenant  uuid := deed.tenant_of_call('put_plan', p_tenant);
  v_plan    json;
  v_hold    interval;
  v_steps   deed.plan_steps[];
  v_step    deed.plan_steps;
  v_row     record;
  v_waits   int[] := '{}'; -- of each step: how many it still waits for
  v_ready   int[] := '{}';
  v_at      int := 1;
  v_next    int;
  v_first   bytea;
  v_by      text := coalesce(nullif(left(p_by, 200), ''), session_user);
begin
  if octet_length(p_body) > 262144 or p_body is null then
    raise exception 'put_plan: a plan of % bytes; at most 262144 are possible', coalesce(octet_length(p_body), 0) using errcode = 'DDARG';
  end if;
  begin
    v_plan := convert_from(p_body, 'UTF8')::json;
    plan_id := v_plan ->> 'plan';
    plan_version := v_plan ->> 'version';
    v_hold := case when json_typeof(v_plan -> 'on_failure') = 'object' then deed.plan_duration(v_plan -> 'on_failure' ->> 'hold') end;
    for v_row in select g.* from deed.plan_graph(p_body) g loop
      if v_row.kind is null or v_row.kind <> all ('{go,http,publish,deliver,external,sleep}') or v_row.place > 999 then
        raise exception 'put_plan: step % has no kind that is known, or is one of more than 1000', quote_literal(left(v_row.step_id, 100)) using errcode = 'DDARG';
      -- Nothing of a step called RUN could be recorded, not even that it has failed, and a slash is of inner steps.
      elsif v_row.step_id !~ '^[A-Za-z_][A-Za-z0-9_-]{0,99}$' or v_row.step_id = 'RUN' then
        raise exception 'put_plan: a step cannot be called %: its name is 1 to 100 of A-Z a-z 0-9 _ -, begins with a letter or _, and is not RUN', quote_literal(left(v_row.step_id, 100)) using errcode = 'DDARG';
      elsif (length(v_row.queue) <= 300) is not true or v_row.attempts not between 1 and 100 or v_row.backoff < interval '0' then
        raise exception 'put_plan: step % has no handler, or no retries that are possible: 1 to 100 attempts', quote_literal(v_row.step_id) using errcode = 'DDARG';
      elsif v_row.names <> cardinality(v_row.depends) then
        raise exception 'put_plan: step % waits for one that is not there, or for one twice', quote_literal(v_row.step_id) using errcode = 'DDARG';
      end if;
      v_step := row(v_tenant, v_row.place, v_row.needs_success, plan_id, plan_version, v_row.step_id, v_row.kind, v_row.depends, v_row.successors,
        v_row.attempts, v_row.backoff, v_row.at_most_once, v_row.queue);
      v_steps := v_steps || v_step;
      v_waits := v_waits || cardinality(v_row.depends);
      if v_row.depends = '{}' then
        v_ready := v_ready || v_row.place;
      end if;
    end loop;
  exception when data_exception then
    raise exception 'put_plan: the plan is not in its canonical form, JSON with an object of steps: %', sqlerrm
      using errcode = 'DDARG', hint = 'deed plan put reads YAML and JSON, and stores it so.';
  end;
  if (length(plan_id) between 1 and 100 and length(plan_version) between 1 and 100) is not true then
    raise exception 'put_plan: plan and version must have 1 to 100 characters each' using errcode = 'DDARG';
  elsif v_steps is null then
    raise exception 'put_plan: a plan has a step at least' using errcode = 'DDARG';
  elsif (select count(distinct s.step_id) from unnest(v_steps) s) < cardinality(v_steps) then
    raise exception 'put_plan: two steps are called the same' using errcode = 'DDARG';
  end if;
  -- Whom nobody waits for any more is taken away, until none is left, or a circle.
  while v_at <= cardinality(v_ready) loop
    foreach v_next in array v_steps[v_ready[v_at] + 1].successors loop
      v_waits[v_next + 1] := v_waits[v_next + 1] - 1;
      if v_waits[v_next + 1] = 0 then
        v_ready := v_ready || v_next;
      end if;
    end loop;
    v_at := v_at + 1;
  end loop;
  if cardinality(v_ready) < cardinality(v_steps) then
    raise exception 'put_plan: steps wait for each other, one of them being %',
      (select quote_literal(s.step_id) from unnest(v_steps) s where v_waits[s.place + 1] > 0 order by s.place limit 1) using errcode = 'DDARG';
  end if;

  sha256 := pg_catalog.sha256(p_body);
  insert into deed.plans (tenant_id, sha256, created_at, schema_version, steps, plan_id, plan_version, created_by, body, approval, hold)
  values (v_tenant, sha256, clock_timestamp(), 1, cardinality(v_steps), plan_id, plan_version, v_by, p_body, coalesce(v_plan ->> 'approval' = 'person', false), v_hold)
  on conflict do nothing;
  created := found;
  if not created then
    -- A statement of its own: the one above does not show whom it met.
    select p.sha256 into v_first from deed.plans p where p.tenant_id = v_tenant and p.plan_id = put_plan.plan_id and p.plan_version = put_plan.plan_version;
    if v_first is distinct from sha256 then
      raise exception 'put_plan: version % of plan % is stored with other bytes', quote_literal(plan_version), quote_literal(plan_id)
        using errcode = 'DDCON', hint = 'A version never changes: give the plan a new one.';
    end if;
    return;
  end if;
  insert into deed.plan_steps (tenant_id, place, needs_success, plan_id, plan_version, step_id, kind, depends, successors,
    attempts, backoff, at_most_once, queue)
  select s.tenant_id, s.place, s.needs_success, s.plan_id, s.plan_version, s.step_id, s.kind, s.depends, s.successors,
    s.attempts, s.backoff, s.at_most_once, s.queue
  from unnest(v_steps) s;
  insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, details)
  values (v_tenant, v_by, 'put', 'plan', plan_id || '@' || plan_version, jsonb_build_object('sha256', encode(sha256, 'hex'), 'steps', cardinality(v_steps)));
end
$$;
