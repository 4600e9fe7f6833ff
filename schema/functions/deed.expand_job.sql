-- deed.expand_job: reserve the deliveries of a job that the caller has locked
-- (deed.claim_queued_jobs): one statement, in the order of their keys. Nothing else reserves
-- for a run.
--
-- Each member of the job's part of the audience gets a row, queued or skipped: erased,
-- no address, merged (somebody in the audience is the same contact by now, and has an address that is not suppressed, a local time that has neither passed nor expired, and no delivery of the run that is skipped), sent before (of a
-- run that retries another one: by then it, or one that it retried in turn, has reached them), passed (its local
-- time, and the run says that it is too late then), cancelled, expired, suppressed, no consent. Where the run goes by the
-- recipient's zone each is due when deed.time_in says. Keys are those of D2 (deed.idempotency_key, as one expression), so that again makes none twice. What people
-- get is rendered at the attempt: the payload is the member's data, and which variant they get, where
-- there are some; it is no part of the key, so that nobody gets two. The job of a test's rest is
-- expanded once its winner is written, or the run is cancelled. Returns what has become
-- of the job: locked, once it is expanded; queued or dead where that cannot be done, with why
-- in its last_error; null if the claim is not the caller's. Who holds a contact for longer than
-- two seconds is not waited for: 55P03, which is no attempt (deed.put_back_job); and so it is where
-- contacts are merged whose jobs are expanded at the same time.
create or replace function deed.expand_job(
  p_job     uuid,
  p_claim   bigint,
  p_worker  text,
  out state text,
  out made  bigint
) returns record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
set lock_timeout = '2s'
set work_mem = '32MB'
as $$
#variable_conflict use_column
declare
  v_job     deed.job_queue;
  v_run     deed.campaign_runs;
  v_content deed.campaign_contents;
  v_now     timestamptz := clock_timestamp();
  v_ms      text := lpad(to_hex(floor(extract(epoch from v_now) * 1000)::bigint), 12, '0');
  v_prefix  text := left(v_ms, 8) || '-' || right(v_ms, 4) || '-7';
  v_when    text;
  v_head    bytea; -- of their keys, what stands before and behind who each is for
  v_tail    bytea;
  v_lanes   text;
  v_dues    jsonb; -- when who is in a zone is due; null: all at scheduled_for
  v_spare   interval; -- how long after that it expires
  v_late    text[]; -- zones of those for whom it has; '': all, where the zone does not matter
  v_listed  boolean;
  v_consent boolean;
  v_before  uuid[]; -- the runs that this one retries
  v_cells   record; -- of its variants
  v_members int;
  v_beside  uuid[]; -- other jobs of the run that are being expanded, with a member who is one of this job's
  v_skips   bigint;
  v_none    int; -- null: it is to be counted
begin
  select j.* into v_job
  from deed.job_queue j
  where j.id = p_job and j.claim = p_claim and j.status = 'locked' and j.expanded_at is null
  for update;
  if not found then
    return;
  end if;
  select r.* into strict v_run from deed.campaign_runs r where r.id = v_job.run_id;
  select c.* into strict v_content from deed.campaign_contents c where c.id = v_run.content_id;
  select p.lanes into v_lanes from deed.providers p where p.name = v_run.provider;
  if not found then
    state := deed.fail_job(p_job, format('the provider %s is gone', v_run.provider), true, p_worker);
    return;
  end if;
  if v_job.part = 'rest' and v_run.winner is null and v_run.cancelled_at is null then
    raise exception 'expand_job: job % is for the rest of a test that is not decided', p_job using errcode = 'DDCON';
  end if;
  select c.names, c.share, c.salt into v_cells from deed.cells_of(v_run.options, v_run.request_id) c;
  v_members := coalesce(v_job.members, v_job.upto_n - v_job.from_n + 1);
  v_when := to_char(v_run.scheduled_for at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
  v_head := deed.key_part(v_job.run_id::text) || case v_run.channel when 'social' then deed.key_part(v_content.post_id) else '' end;
  v_tail := case v_run.channel when 'social' then '' when 'voice' then deed.key_part(v_content.script_version) else deed.key_part(v_content.asset_id) end
    || deed.key_part(v_when) || case when v_run.channel in ('email', 'voice', 'social') then '' else deed.key_part(v_run.channel) end;
  select jsonb_object_agg(z, t.due) into v_dues
  from jsonb_object_keys(v_run.zones) z
  cross join lateral deed.time_in(v_run.options, v_run.created_at, v_run.scheduled_for, z, v_now) t;
  v_spare := v_run.expires_at - coalesce(v_run.last_due, v_run.scheduled_for);
  v_late := array(
    select z
    from jsonb_object_keys(coalesce(v_run.zones, '{"": 0}')) z
    cross join lateral (select case when v_dues is null then v_run.scheduled_for else (v_dues ->> z)::timestamptz end as due) t
    where v_run.paused_at is null and t.due + v_spare <= v_now and t.due + v_spare + deed.held_up(v_run.provider, v_run.id, v_run.options, z, t.due, v_now) <= v_now
  );
  v_before := array(
    with recursive earlier(id) as (
      select v_run.retry_of
      union all
      select r.retry_of from earlier e join deed.campaign_runs r on r.id = e.id
    )
    select e.id from earlier e where e.id is not null
  );
  v_listed := exists (select from deed.suppressions s where s.tenant_id = v_job.tenant_id);
  v_consent := coalesce(v_run.options ->> 'consent' = 'required', false);
  -- Against erasures, which lock them in the same order; the next statement sees what it has
  -- waited for.
  perform from (
    select c.id from deed.contacts c
    where c.id = any (array(
      select m.contact_id
      from deed.audience_members m
      where m.audience_id = v_run.audience_id and m.n between v_job.from_n and v_job.upto_n
        and (v_job.part is null or (deed.variant_of(v_cells.names, v_cells.share, v_cells.salt, m.contact_id) is null) = (v_job.part = 'rest'))
    ))
    order by c.id
    for key share
  ) locked;
  -- Who is expanding a job of which a member is one with one of this job, since a while ago,
  -- may not know of it, nor is it seen yet what they make: they are waited for, by the first of two
  -- who wait for each other, and begin no more before this has ended.
  v_beside := deed.jobs_beside(p_job);
  if v_beside <> '{}' then
    perform from (select j.id from deed.job_queue j where j.id = any (v_beside) and j.id < p_job order by j.id for share nowait) locked;
    perform from (select j.id from deed.job_queue j where j.id = any (v_beside) and j.id > p_job order by j.id for share) locked;
  end if;
  with items as (
    insert into deed.channel_outbox (
      id, tenant_id, workspace_id, idempotency_key, status, skipped, skip_reason, finished_at, channel, provider, lane, recipient, recipient_id, payload,
      guarantee, process_after, purpose, contact_id, run_id, job_id, due, payload_bytes, created_at, updated_at
    )
    select (v_prefix || substr(gen_random_uuid()::text, 16))::uuid, v_job.tenant_id, v_job.workspace_id, u.key,
      case when u.skip is null then 'queued' else 'skipped' end, u.skip is not null, u.skip, case when u.skip is not null then v_now end,
      v_run.channel, v_run.provider, case when u.address is null then '' else coalesce(deed.lane_of(v_lanes, v_run.channel, u.address), '') end,
      u.address, null, u.payload, 'at_most_once', case when u.at > v_now then u.at end, v_run.purpose, u.contact_id, v_job.run_id, p_job,
      u.skip is null and u.at <= v_now, octet_length(u.payload::text), v_now, v_now
    from (
      select k.*, coalesce(case
          when k.erased then 'erased'
          when k.address is null then 'no address'
          when k.merged then 'merged'
          when k.before then 'sent before'
          when v_run.cancelled_at is not null then 'cancelled'
          when k.at is null then 'passed'
          when case when v_dues is null then '' else k.zone end = any (v_late) then 'expired' end, case when v_listed then (
          select 'suppressed: ' || left(s.reason, 180)
          from deed.suppressed(v_job.tenant_id, v_run.channel, k.address, v_run.purpose, greatest(v_now, k.at)) s
        ) end,
        (select v.reason from deed.revoked(v_job.tenant_id, k.contact_id, v_run.channel, v_run.purpose) v),
        case when v_consent and not exists (
          select from deed.consents_of(array[deed.contact_of(v_job.tenant_id, k.contact_id)]) s
          where s.channel = v_run.channel and s.purpose = v_run.purpose and s.state = 'granted'
        ) then 'no consent' end) as skip
      from (
        select m.n, m.contact_id, m.address, coalesce(m.zone, '') as zone, case when v_dues is null then v_run.scheduled_for else (v_dues ->> coalesce(m.zone, ''))::timestamptz end as at,
          case
            when c.erased_at is not null then '{}'
            when v_cells.names is null then jsonb_build_object('contact', m.data)
            else jsonb_build_object('contact', m.data, 'variant', coalesce(deed.variant_of(v_cells.names, v_cells.share, v_cells.salt, m.contact_id), v_run.winner))
          end as payload, c.erased_at is not null as erased,
          c.merged_into is not null and exists (
            select
            from deed.names_of(deed.contact_of(v_job.tenant_id, c.id)) o(id)
            join deed.audience_members s on s.contact_id = o.id and s.audience_id = v_run.audience_id
            where o.id <> c.id and (s.n < m.n or o.id = deed.contact_of(v_job.tenant_id, c.id)) and s.address is not null
              and (v_dues is null or (v_dues ->> coalesce(s.zone, '') is not null and coalesce(s.zone, '') <> all (v_late))) -- its time has neither passed nor expired
              and not (v_listed and exists ( -- as it is asked of that one, or two may go
                select
                from deed.suppressed(v_job.tenant_id, v_run.channel, s.address, v_run.purpose,
                  greatest(v_now, case when v_dues is null then v_run.scheduled_for else (v_dues ->> coalesce(s.zone, ''))::timestamptz end))
              ))
              and not exists ( -- it is skipped already, and stays so, whatever has ended since
                select
                from deed.channel_outbox d
                where d.contact_id = o.id and d.run_id is not distinct from v_job.run_id and d.status = 'skipped' -- by the contact, who has few, and not by the run
              )
          ) or exists ( -- since the job of another of their names was expanded
            select
            from (
              select u.id from deed.names_of(deed.contact_of(v_job.tenant_id, c.id)) u(id)
              where u.id <> c.id and (c.merged_into is not null or exists (select from deed.contacts x where x.merged_into = c.id))
            ) o
            cross join lateral (select d.status from deed.channel_outbox d where d.contact_id = o.id and d.run_id = v_job.run_id) d
            where d.status <> 'skipped'
          ) as merged,
          cardinality(v_before) > 0 and exists (
            select
            from deed.names_of(deed.contact_of(v_job.tenant_id, c.id)) o(id)
            cross join lateral (select d.status, d.proved_at from deed.channel_outbox d where d.contact_id = o.id and d.run_id = any (v_before)) d
            where d.status in ('queued', 'sending', 'sent', 'called', 'posted') or d.proved_at is not null
          ) as before,
          sha256(v_head || deed.key_part(case when v_run.channel = 'social' and m.address is not null then m.address else m.contact_id::text end) || v_tail) as key
        from deed.audience_members m
        join deed.contacts c on c.id = m.contact_id
        where m.audience_id = v_run.audience_id and m.n between v_job.from_n and v_job.upto_n
          and (v_job.part is null or (deed.variant_of(v_cells.names, v_cells.share, v_cells.salt, m.contact_id) is null) = (v_job.part = 'rest'))
        order by key
        offset 0
      ) k
      offset 0 -- what it is skipped for is asked once, and not in each column that needs it
    ) u
    on conflict on constraint channel_outbox_idempotency_key_key do nothing
    returning status
  )
  select count(*), count(*) filter (where i.status = 'skipped') into made, v_skips from items i;
  -- Of those who have become one since it was looked for jobs beside this.
  if not deed.jobs_beside(p_job) <@ v_beside or deed.are_merged_twice(p_job) then
    raise exception 'expand_job: contacts of job % were merged while it was expanded', p_job using errcode = '55P03';
  end if;
  -- Again: some were there. Or somebody else's are in their place.
  if made < v_members
    and (select count(*) from deed.channel_outbox c where c.run_id = v_job.run_id and c.job_id = p_job) < v_members
  then
    raise exception 'expand_job: of job % there are fewer deliveries than members: their audience has gone, or others have reserved under their keys', p_job using errcode = 'DDCON';
  end if;
  v_none := case when made = v_members and v_skips = 0 then 0 end; -- all of them wait: that need not be counted (deed.roll_up)
  update deed.job_queue j
  set expanded_at = v_now, claim = null, claimed_by = null, lease_until = null, process_after = v_now,
    queued = made + v_none, sending = v_none, in_doubt = v_none, held = v_none, sent = v_none, skipped = v_none, missed = v_none, failed = v_none, dead = v_none,
    counted_at = case v_none when 0 then v_now end, reasons = case v_none when 0 then '[]'::jsonb end
  where j.id = p_job;
  if made > 0 then
    insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, to_status, affected, details)
    values (v_job.tenant_id, v_job.run_id, p_worker, 'reserve', 'delivery', 'queued', made, jsonb_build_object('asked', made, 'skipped', v_skips, 'job', p_job));
  end if;
  state := 'locked';
end
$$;
