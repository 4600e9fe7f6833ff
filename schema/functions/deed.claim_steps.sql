-- deed.claim_steps: lease up to p_limit steps of runs to one worker: those that are due, in
-- the queues that it serves, and unclaimed or whose lease has run out. For workers.
--
-- A step of kind go is in the queue go:HANDLER; all others are in the queue deed. Tenants share
-- alike, on the way round from behind p_after, in one order for all queues: whoever goes on behind the last that
-- was claimed has passed nobody over. Of a tenant the oldest first. Rows that another claimer holds
-- are skipped, and no run is locked, so callers never wait for each other. Of a tenant that is being
-- removed nothing is taken.
--
-- claim is the fencing token: deed.begin_step, deed.extend_steps and deed.finish_steps act only on rows that
-- still carry it. From the second lost claim on a step is claimed alone, and from the fifth on, without p_suspects, it is
-- not claimed at all: whoever has one in hand that may be what kills its workers takes no second one, which would lose its claims with it. Where verdict is not null the step
-- is not to be begun any more, but to be finished: WORKER_LOST after ten lost claims (O17), OUTCOME_UNKNOWN
-- where an attempt that must not be repeated had begun under the claim whose lease ran out, TIMEOUT where the time of an external
-- one is over, HOLD_OVER where no person has decided. parked: it has begun, at begun_at, and waited for a time that it asked for, which has come. Raises DDARG.
create or replace function deed.claim_steps(
  p_queues text[],
  p_worker text,
  p_limit  int,
  p_lease  interval default interval '30 seconds',
  p_after  uuid default null,
  p_engine text default 'local',
  p_suspects bool default true
) returns table (
  run_id uuid, place int, claim bigint, tenant_id uuid, step_id text, attempt int, engine_attempt int, lost_claims int, key_n int,
  at_most_once bool, parked bool, verdict text, begun_at timestamptz,
  plan_id text, plan_version text, plan_sha256 bytea, input jsonb
)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now     timestamptz := clock_timestamp();
  v_removed uuid[] := array(select r.tenant_id from deed.tenant_removals r where r.finished_at is null);
  v_queues  text[] := '{}'; -- in which something is ready, and whose
  v_tenants uuid[] := '{}';
  v_more    text[];
  v_of      uuid[];
  v_part    int := 1; -- behind p_after, and then round to it
  v_from    uuid := p_after; -- behind whom a look begins
  v_upto    uuid; -- up to whom it has seen all; null: to the end
  v_n       int;
  v_at      int;
  v_share   int;
  v_dry     bool[] := '{}'; -- nothing is left there
  v_left    int := p_limit;
  v_got     tid[];
  v_took    int[];
  v_rows    tid[] := '{}';
  v_lost    int[] := '{}';
  v_claim   bigint;
begin
  if (p_limit between 0 and 10000) is not true then
    raise exception 'claim_steps: limit must be from 0 to 10000, got %', coalesce(p_limit::text, 'null') using errcode = 'DDARG';
  elsif coalesce(p_worker, '') = '' or length(p_worker) > 200 then
    raise exception 'claim_steps: worker must have 1 to 200 characters' using errcode = 'DDARG';
  elsif (p_lease between interval '1 second' and interval '24 hours') is not true then
    raise exception 'claim_steps: lease must be from 1 second to 24 hours, got %', coalesce(p_lease::text, 'null') using errcode = 'DDARG';
  end if;
  if p_limit = 0 then
    return;
  end if;

  update deed.run_steps s
  set ready = true, queue = case when s.claim is null then s.queue else 'deed' end -- lost by a worker of the kind external
  where s.ctid = any (array(
    select w.ctid from deed.run_steps w
    where not w.ready and w.process_after <= v_now
    order by w.process_after
    limit 1000
    for update skip locked
  ));

  -- One look into the index for each tenant that has something ready in a queue, and one for
  -- each queue: first those behind p_after, then round to it. Behind the hundredth of a queue nobody's turn has come, in
  -- any queue, unless all that these have is in somebody's hands.
  for v_look in 1..20 loop
    select coalesce(array_agg(a.queue order by a.tenant_id, a.toss) filter (where a.is_due), '{}'),
      coalesce(array_agg(a.tenant_id order by a.tenant_id, a.toss) filter (where a.is_due), '{}'), min(a.upto)::uuid
    into v_more, v_of, v_upto
    from (
      select w.queue, w.tenant_id, w.toss, w.upto, w.tenant_id <> all (v_removed) and (w.upto is null or w.tenant_id <= w.upto::uuid) as is_due
      from (
        select q.queue, t.tenant_id, random() as toss, min(t.tenant_id::text collate "C") filter (where t.n = 100) over () as upto
        from (select distinct u.queue from unnest(p_queues) u(queue)) q
        cross join lateral (
          with recursive around as (
            select f.tenant_id, 1 as n
            from (
              (
                select s.tenant_id from deed.run_steps s
                where v_from is not null and s.ready and s.engine = p_engine and s.queue = q.queue and s.tenant_id > v_from
                order by s.tenant_id limit 1
              )
              union all
              (
                select s.tenant_id from deed.run_steps s
                where v_from is null and s.ready and s.engine = p_engine and s.queue = q.queue
                order by s.tenant_id limit 1
              )
            ) f
            union all
            select (
              select s.tenant_id from deed.run_steps s
              where s.ready and s.engine = p_engine and s.queue = q.queue and s.tenant_id > r.tenant_id
              order by s.tenant_id limit 1
            ), r.n + 1
            from around r
            where r.tenant_id is not null and r.n < 100 and (v_part = 1 or r.tenant_id < p_after)
          )
          select r.tenant_id, r.n from around r where r.tenant_id is not null and (v_part = 1 or r.tenant_id <= p_after)
        ) t
      ) w
    ) a;
    v_queues := v_queues || v_more;
    v_tenants := v_tenants || v_of;
    if v_upto is null and v_part = 1 and p_after is not null and cardinality(v_tenants) < p_limit then
      v_part := 2;
      v_from := null;
      continue;
    end if;

    -- Each its share, and then what others have left of theirs.
    v_n := cardinality(v_tenants);
    for k in 1..2 * v_n loop
      exit when v_left < 1;
      v_at := 1 + (k - 1) % v_n;
      continue when v_dry[v_at];
      v_share := case when k <= v_n then ceil(v_left::float8 / (v_n - k + 1))::int else v_left end;
      select array_agg(q.ctid), array_agg(q.lost) into v_got, v_took
      from (
        select s.ctid, case when s.claim is not null then s.lost_claims + 1 when s.lost_claims >= 5 then s.lost_claims else 0 end as lost
        from deed.run_steps s
        where s.ready and s.engine = p_engine and s.queue = v_queues[v_at] and s.tenant_id = v_tenants[v_at]
          and (s.lease_until is null or s.lease_until <= v_now) and s.ctid <> all (v_rows)
          and (p_suspects or case when s.claim is null then s.lost_claims < 5 else s.lost_claims not between 4 and 8 end) -- with the tenth it is only to be finished
        order by s.process_after
        limit v_share
        for update skip locked
      ) q;
      v_dry[v_at] := coalesce(cardinality(v_got), 0) < v_share;
      if v_got is not null then
        v_rows := v_rows || v_got;
        v_lost := v_lost || v_took;
        v_left := v_left - cardinality(v_got);
      end if;
    end loop;
    exit when v_rows <> '{}' or (v_upto is null and (v_part = 2 or p_after is null));
    v_part := case when v_upto is null then 2 else v_part end;
    v_from := v_upto;
    v_queues := '{}';
    v_tenants := '{}';
    v_dry := '{}';
  end loop;
  if v_rows = '{}' then
    return;
  end if;
  if 1 < any (v_lost) then
    v_rows := case
      when v_lost[1] > 1 then v_rows[1:1]
      -- Nothing behind it, either: it is the first when its tenant's turn comes, for which nobody may have gone on behind that one.
      else v_rows[1:(select min(u.n)::int - 1 from unnest(v_lost) with ordinality u(lost, n) where u.lost > 1)]
    end;
  end if;

  -- What is handed out must have been flushed: otherwise a step whose claim a crash takes back
  -- has been done (the window protocol's rule 12).
  if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  v_claim := deed.claim_number();
  return query
  with claimed as (
    update deed.run_steps s
    set claim = v_claim, claimed_at = v_now, claimed_by = p_worker, lease_until = v_now + p_lease, deadline = null, engine_attempt = s.engine_attempt + 1,
      lost_claims = s.lost_claims + case when s.claim is null then 0 else 1 end,
      verdict = case
        when s.verdict is not null or s.claim is null then s.verdict
        when s.at_most_once and s.begun_at is not null and coalesce(s.begun_claim, s.claim) = s.claim then 'OUTCOME_UNKNOWN'
        when s.deadline <= v_now then 'TIMEOUT'
        when s.lost_claims >= 9 then 'WORKER_LOST'
      end
    where s.ctid = any (v_rows) -- locked above: they stay where they are
    returning s.run_id, s.place, s.tenant_id, s.step_id, s.attempt, s.engine_attempt, s.lost_claims, s.key_n, s.at_most_once, s.parked, s.verdict, s.begun_at
  )
  select c.run_id, c.place, v_claim, c.tenant_id, c.step_id, c.attempt, c.engine_attempt, c.lost_claims, c.key_n,
    c.at_most_once, c.parked, c.verdict, c.begun_at, r.plan_id, r.plan_version, r.plan_sha256, r.input
  from claimed c
  cross join lateral (select o.plan_id, o.plan_version, o.plan_sha256, o.input from deed.runs o where o.run_id = c.run_id) r;
end
$$;
