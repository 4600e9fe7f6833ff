-- deed.retry_run: make a run that tries again what failed of one that has ended (C7), in the
-- caller's transaction; the old one stays as it was.
--
-- Its audience is made of those members of the old one's whose delivery is dead, or failed for
-- another reason than a bad address, and of those whose job is dead without having reserved one;
-- with p_missed also of those who were skipped as cancelled or expired before anybody was called.
-- Never of who was sent to, is or was in doubt, was skipped for any other reason, or was erased; who is
-- known by then to have got it after all is skipped by deed.expand_job. What is said, by whom and
-- for what is the old run's, and of its variants everybody gets the same again; it begins now, but where it is
-- night for who has quiet hours. The request is p_request_id, as of
-- deed.deploy_campaign: a repeat gets the first one's run. A run is retried once: what
-- failed of its retry, by retrying that one. Raises DDARG where nobody is to be tried again or the provider is
-- gone, does not serve them, or lacks what it had (deed.provider_lacks), DDTEN, DDNFD, and DDCON for a run that has not ended, is sealed (deed.seal_run), whose test has no winner yet, was retried by another request, or
-- for a request that meant something else.
create or replace function deed.retry_run(
  p_run        uuid,
  p_request_id text,
  p_missed     boolean default false,
  p_reason     text default null,
  p_tenant     uuid default null,
  p_actor      text default null,
  out run_id   uuid,
  out created  boolean,
  out members  bigint
) returns record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_nestloop = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_xid      xid8 := pg_current_xact_id(); -- before it is asked whether the tenant was removed: who removes it waits for this
  v_tenant   uuid := deed.tenant_of_call('retry_run', p_tenant);
  v_actor    text := coalesce(nullif(left(p_actor, 200), ''), session_user);
  v_now      timestamptz := clock_timestamp();
  v_hash     bytea := sha256(convert_to(jsonb_build_array('retry', p_run, p_missed)::text, 'UTF8'));
  v_run      deed.campaign_runs;
  v_first    deed.campaign_runs;
  v_audience uuid;
  v_chosen   bigint[];
  v_options  jsonb;
  v_cells    record;
  v_problem  text;
  v_times    record;
begin
  if (length(p_request_id) between 1 and 200) is not true then
    raise exception 'retry_run: the request id must have 1 to 200 characters' using errcode = 'DDARG';
  elsif p_missed is null then
    raise exception 'retry_run: missed is null' using errcode = 'DDARG';
  end if;
  -- Of two at once the second sees the first one's.
  select r.* into v_run from deed.campaign_runs r where r.id = p_run and r.tenant_id = v_tenant for no key update;
  if not found then
    raise exception 'retry_run: there is no run %', p_run using errcode = 'DDNFD';
  end if;
  select r.* into v_first
  from deed.campaign_runs r
  where r.tenant_id = v_tenant and r.workspace_id = v_run.workspace_id and r.request_id = p_request_id and r.channel = v_run.channel;
  if found and v_first.request_sha256 <> v_hash then
    raise exception 'retry_run: request % has made run %, of something else', quote_literal(p_request_id), v_first.id using errcode = 'DDCON', hint = 'Give another request an id of its own.';
  elsif found then
    run_id := v_first.id;
    created := false;
    members := v_first.members;
    return;
  end if;
  if v_run.finished_at is null then
    raise exception 'retry_run: run % is %; only one that has ended is retried', p_run, v_run.status using errcode = 'DDCON';
  end if;
  if v_run.sealed_at is not null then
    raise exception 'retry_run: the deliveries of run % are purged, since %, and with them who of it failed', p_run, v_run.sealed_at using errcode = 'DDCON';
  end if;
  if v_run.options ? 'test' and v_run.winner is null then
    raise exception 'retry_run: the test of run % has no winner', p_run using errcode = 'DDCON', hint = 'Say which it is: deed campaign winner ' || p_run || ' VARIANT.';
  end if;
  select c.names, c.share, c.salt into v_cells from deed.cells_of(v_run.options, v_run.request_id) c;
  select r.id into run_id from deed.campaign_runs r where r.retry_of = p_run;
  if found then
    raise exception 'retry_run: run % was retried as run %', p_run, run_id using errcode = 'DDCON', hint = 'What failed of that one is tried again by retrying it.';
  end if;
  -- What was so when the run was deployed may not be so any more. Its test is over.
  v_problem := coalesce(deed.provider_problem(v_run.provider, v_run.channel, v_tenant), nullif(array_to_string(deed.provider_lacks(v_run.provider, v_run.channel, v_run.options - 'test'), '; '), ''));
  if v_problem is not null then
    raise exception 'retry_run: %', v_problem using errcode = 'DDARG';
  end if;

  insert into deed.audiences (id, tenant_id, workspace_id, name, channel, created_at)
  values (deed.new_id(), v_tenant, v_run.workspace_id, 'retry of run ' || p_run, v_run.channel, v_now)
  on conflict on constraint audiences_name_key do nothing
  returning id into v_audience;
  if not found then
    raise exception 'retry_run: there is an audience %', quote_literal('retry of run ' || p_run) using errcode = 'DDCON';
  end if;
  v_chosen := array(
    select m.n
    from deed.audience_members m
    left join deed.channel_outbox c on c.run_id = p_run and c.contact_id = m.contact_id
    where m.audience_id = v_run.audience_id and m.address is not null
      and case
        -- Where its job was expanded there was a delivery, whoever has lost it: what became of it is not known.
        when c.id is null then exists (
          select from deed.job_queue j where j.run_id = p_run and j.from_n <= m.n and j.upto_n >= m.n and j.expanded_at is null
            and (j.part is null or (deed.variant_of(v_cells.names, v_cells.share, v_cells.salt, m.contact_id) is null) = (j.part = 'rest'))
        )
        when c.status = 'dead' then true
        when c.status = 'failed' then not exists (select from deed.delivery_attempts a where a.delivery_id = c.id and a.outcome = 'bad address')
        when c.status = 'skipped' then p_missed and c.skip_reason in ('cancelled', 'expired')
        else false end
      and (c.id is null or (c.proved_at is null and c.unsettled_since is null and c.erased_at is null))
  );
  -- Against erasures, as deed.expand_job does; the next statement sees what it has waited for.
  perform from (
    select o.id from deed.contacts o
    where o.id = any (array(select m.contact_id from deed.audience_members m where m.audience_id = v_run.audience_id and m.n = any (v_chosen)))
    order by o.id
    for key share
  ) locked;
  insert into deed.audience_members (audience_id, n, tenant_id, contact_id, address, zone, data)
  select v_audience, row_number() over (order by m.n), m.tenant_id, m.contact_id, m.address, m.zone, m.data
  from deed.audience_members m
  join deed.contacts o on o.id = m.contact_id
  where m.audience_id = v_run.audience_id and m.n = any (v_chosen) and m.address is not null and o.erased_at is null;
  get diagnostics members = row_count;
  if members = 0 then
    raise exception 'retry_run: empty_audience: nobody of run % is to be tried again', p_run using errcode = 'DDARG';
  end if;
  update deed.audiences a set members = retry_run.members where a.id = v_audience;
  perform deed.finish_audience(v_audience, retry_run.members, v_tenant, p_actor);
  v_options := v_run.options - '{at,if_passed}'::text[] || case when v_run.options ? 'variants' then jsonb_build_object('cells', v_cells.salt) else '{}' end;
  select t.* into v_times from deed.run_times(v_audience, v_options, v_now, v_now) t;
  if jsonb_typeof(v_times.zones) = 'number' then
    raise exception 'retry_run: too_many_zones: those who are to be tried again have % spellings of time zones: at most 1000', v_times.zones using errcode = 'DDARG';
  end if;
  insert into deed.campaign_runs (id, campaign_id, tenant_id, workspace_id, audience_id, content_id, channel, provider, purpose, request_id, request_sha256, members,
    scheduled_for, expires_at, created_at, options, retry_of, zones, last_due, winner, winner_at)
  select deed.new_id(), v_run.campaign_id, v_tenant, v_run.workspace_id, v_audience, v_run.content_id, v_run.channel, v_run.provider, v_run.purpose,
    p_request_id, v_hash, retry_run.members, v_now, coalesce(v_times.last_due, v_now) + coalesce((v_run.options ->> 'expires_after')::interval, interval '24 hours'), v_now,
    v_options, p_run, v_times.zones, v_times.last_due, v_run.winner, v_run.winner_at
  on conflict do nothing
  returning id into run_id;
  if not found then
    raise exception 'retry_run: the run was retried since this transaction began' using errcode = '40001';
  end if;
  -- Who seals the run (deed.run_to_seal) of a snapshot from before this commits does not see the retry: of a new version
  -- of the run they have no lock (40001), where a lock that is gone would not stop them.
  update deed.campaign_runs r set expires_at = r.expires_at where r.id = p_run;
  perform deed.add_jobs(run_id, v_actor);
  insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, reason, affected, details)
  values (v_tenant, p_run, v_actor, 'retry', 'run', p_run::text, left(p_reason, 2000), retry_run.members, jsonb_build_object('as', run_id));
  created := true;
end
$$;
