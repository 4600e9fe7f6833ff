-- breaking: no
-- Which steps of runs are due, and who does them (R5, R12, R15).

-- What a run needs of a plan while it goes on, read in its body (deed.plan_graph): queue is where a
-- step is claimed, attempts and backoff are its retries, hold is how long a run waits for a
-- person whose step has failed.
alter table deed.plans add column approval bool not null default false;
alter table deed.plans add column hold interval;
alter table deed.plan_steps add column attempts int not null default 1;
alter table deed.plan_steps add column backoff interval not null default '1 second';
alter table deed.plan_steps add column at_most_once bool not null default false;
alter table deed.plan_steps add column queue text not null default 'deed';

-- Of a run that has begun, a bit for each step of its plan, by its place: it has ended, it has
-- succeeded. Bits behind the last step are set in both. failing: a step has failed for good.
alter table deed.runs add column done bytea;
alter table deed.runs add column passed bytea;
alter table deed.runs add column failing bool not null default false;

-- Plans that were stored before.
do $$
declare
  v_plan record;
begin
  for v_plan in
    select p.tenant_id, p.plan_id, p.plan_version, convert_from(p.body, 'UTF8')::json as body from deed.plans p
  loop
    update deed.plans p
    set approval = coalesce(v_plan.body ->> 'approval' = 'person', false),
      hold = (
        select make_interval(secs => sum(m[1]::float8 * case m[2] when 'd' then 86400 when 'h' then 3600 when 'm' then 60 when 's' then 1 when 'ms' then 1e-3 when 'ns' then 1e-9 else 1e-6 end))
        from regexp_matches(case when json_typeof(v_plan.body -> 'on_failure') = 'object' then v_plan.body -> 'on_failure' ->> 'hold' end, '([0-9.]+)(ns|us|µs|μs|ms|d|h|m|s)', 'g') m
      )
    where p.tenant_id = v_plan.tenant_id and p.plan_id = v_plan.plan_id and p.plan_version = v_plan.plan_version;
    update deed.plan_steps s
    set attempts = coalesce((b.body -> 'retry' ->> 'attempts')::int, 1),
      backoff = coalesce((
        select make_interval(secs => sum(m[1]::float8 * case m[2] when 'd' then 86400 when 'h' then 3600 when 'm' then 60 when 's' then 1 when 'ms' then 1e-3 when 'ns' then 1e-9 else 1e-6 end))
        from regexp_matches(b.body -> 'retry' ->> 'backoff', '([0-9.]+)(ns|us|µs|μs|ms|d|h|m|s)', 'g') m
      ), '1 second'),
      at_most_once = coalesce(b.body ->> 'guarantee' = 'at_most_once', false),
      queue = case s.kind when 'go' then 'go:' || (b.body ->> 'handler') else 'deed' end
    from (select e.key as step_id, e.value as body from json_each(v_plan.body -> 'steps') e) b
    where s.tenant_id = v_plan.tenant_id and s.plan_id = v_plan.plan_id and s.plan_version = v_plan.plan_version and s.step_id = b.step_id;
  end loop;
end
$$;

-- A row for each step that is ready, waits or is claimed, and for no other; of a run that has
-- ended there is none. It is ready once it is due (process_after): claims make it so
-- (deed.claim_steps), and nothing in an index changes when it is claimed.
--
-- parked: it has begun, and waits for a time that it asked for. verdict: what becomes of it
-- whatever its worker says (deed.finish_steps). key_n is the n of the key of its effects, idempotency_key(run, step, n):
-- the logical attempt, but that of the one before while that one may have been done.
create table deed.run_steps (
  run_id         uuid        not null,
  tenant_id      uuid        not null,
  process_after  timestamptz not null,
  begun_at       timestamptz, -- when this logical attempt began, once that is known
  claim          bigint,
  claimed_at     timestamptz,
  lease_until    timestamptz,
  place          int         not null,
  attempt        int         not null default 1, -- the logical one
  engine_attempt int         not null default 0, -- how often that was claimed
  lost_claims    int         not null default 0, -- of these, how many ran out
  key_n          int         not null default 1,
  ready          bool        not null,
  parked         bool        not null default false,
  at_most_once   bool        not null,
  engine         text        not null,
  queue          text        not null,
  step_id        text        not null,
  verdict        text,
  claimed_by     text,
  constraint run_steps_pkey primary key (run_id, place),
  constraint run_steps_claim_is_whole check ((claim is null) = (lease_until is null) and (claim is null) = (claimed_at is null) and (claim is null) = (claimed_by is null)),
  constraint run_steps_claimed_is_ready check (ready or claim is null),
  constraint run_steps_counts check (attempt >= 1 and engine_attempt >= 0 and lost_claims >= 0 and key_n >= 1 and key_n <= attempt + 1),
  constraint run_steps_verdict_is_known check (verdict in ('WORKER_LOST', 'OUTCOME_UNKNOWN', 'HOLD_OVER'))
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.2);
create index run_steps_ready_idx on deed.run_steps (engine, queue, tenant_id, process_after) where ready;
create index run_steps_waiting_idx on deed.run_steps (process_after) where not ready;

do $$
begin
  alter table deed.run_steps enable row level security;
  alter table deed.run_steps force row level security;
  execute 'create policy run_steps_owner on deed.run_steps to current_user using (true) with check (true)';
  create policy run_steps_worker on deed.run_steps for select to deed_worker using (true);
  create policy run_steps_admin on deed.run_steps for select to deed_admin using (true);
  create policy run_steps_app on deed.run_steps for select to deed_app using (tenant_id = (select deed.current_tenant()));
  grant select on deed.run_steps to deed_app, deed_worker, deed_admin;
end
$$;
