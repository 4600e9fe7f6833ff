-- deed.pause: leave a provider, or its destinations, alone after calls that failed.
--
-- Of every call: which delivery's, under which claim (a caller that has lost it comes too
-- late to say how the provider is), what of the provider
-- failed ('' is all of it), why, and for how many seconds it asks to be left
-- alone, null if it does not. A destination is left alone for the delivery's
-- tenant: what it answered may be of the tenant's own making. What was called through another
-- account than the one that the name is served through by now pauses nothing. The first failure
-- makes the pause; p_opens false only prolongs one. It is as long as was asked for,
-- of which an hour is obeyed, else p_base; after each probe that failed twice as
-- long, at most p_most and at least what was asked for; times a random factor
-- between p_jitter's two. Only a failed probe counts: other calls were under way
-- when the pause began. After a pause that was over for an hour, in which nobody looked, a
-- new one begins (deed.give_up_deliveries forgets such).
--
-- p_until says that a quota is used up, and until when the destination rests: for so many
-- seconds, or until 'day', the next midnight of UTC, or 'month', that of the next month's first,
-- both with some minutes to spare, since the provider's clock is not the database's. At
-- most 32 days are obeyed, p_after is not then, and nobody finds out before. Where the
-- day or month has just begun it rests for an hour: it may be the last one's quota. Returns
-- the pauses that are new or were prolonged by a probe or a quota.
create or replace function deed.pause(
  p_provider     text,
  p_ids          uuid[],
  p_claims       bigint[],
  p_destinations text[],
  p_errors       text[],
  p_after        float8[],
  p_opens        boolean[],
  p_base         interval default interval '5 seconds',
  p_jitter       float8[] default '{0.5,1}',
  p_most         interval default interval '5 minutes',
  p_until        text[] default null
) returns table (destination text, tenant_id uuid, since timestamptz, until timestamptz, failures int)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now   timestamptz;
  v_call  record;
  v_row   deed.pauses;
  v_made  boolean; -- it is this call's
  v_anew  boolean; -- nobody had looked for so long that it is as forgotten
  v_until timestamptz;
  v_begun timestamptz; -- the day or the month
begin
  -- As in deed.attempt, and before any row: whoever serves the name through another account ends what
  -- pauses there are (deed.register_provider), and is seen from then on.
  lock table deed.provider_lock in row share mode;
  v_now := clock_timestamp();
  -- In one order: two relays' calls fail at the same time.
  for v_call in
    select u.*, case when u.destination = '' then '00000000-0000-0000-0000-000000000000' else c.tenant_id end as tenant
    from unnest(p_ids, p_claims, p_destinations, p_errors, p_after, p_opens, p_until) u(id, claim, destination, error, after, opens, quota)
    join deed.channel_outbox c on c.id = u.id and c.claim = u.claim
    where c.request_kind is null or not exists (
      select from deed.providers r
      where r.name = p_provider and (r.kind, r.account) is distinct from (c.request_kind, c.request_account)
    )
    order by u.destination, tenant
  loop
    if v_call.quota in ('day', 'month') then
      v_begun := date_trunc(v_call.quota, v_now, 'UTC');
      v_until := case when v_now < v_begun + interval '1 hour' then v_now + interval '1 hour'
        else (v_begun at time zone 'UTC' + ('1 ' || v_call.quota)::interval) at time zone 'UTC' + interval '1 minute' * (1 + 4 * random()) end;
    elsif v_call.quota is not null then
      v_until := v_now + make_interval(secs => greatest(1, least(v_call.quota::float8, 32 * 86400)) + random());
    else
      v_until := case when v_call.after is not null then v_now + make_interval(secs => least(v_call.after, 3600)) end;
    end if;
    v_made := false;
    select p.* into v_row from deed.pauses p
    where p.provider = p_provider and p.destination = v_call.destination and p.tenant_id = v_call.tenant
    for update;
    if not found then
      continue when not v_call.opens;
      insert into deed.pauses as p (provider, destination, tenant_id, since, until, why)
      select p_provider, v_call.destination, v_call.tenant, v_now, coalesce(v_until, v_now + least(p_base, p_most) * (p_jitter[1] + random() * (p_jitter[2] - p_jitter[1]))), left(coalesce(nullif(v_call.error, ''), 'it failed'), 4000)
      from deed.tenants t
      where t.tenant_id = v_call.tenant and not deed.is_removed(v_call.tenant)
      for key share -- the removal of the tenant comes after, or before (deed.take_tenant)
      on conflict (provider, destination, tenant_id) do nothing
      returning p.* into v_row;
      v_made := found;
      if not v_made then -- another relay's, at the same moment: what this one was told counts, too
        select p.* into v_row from deed.pauses p
        where p.provider = p_provider and p.destination = v_call.destination and p.tenant_id = v_call.tenant
        for update;
        continue when not found;
      end if;
    end if;
    if v_made then
      null;
    elsif v_row.probe = v_call.id and v_row.probe_claim = v_call.claim then
      v_anew := v_row.until < v_now - interval '1 hour';
      v_until := greatest(v_until, v_now
        + least(p_base * 2 ^ case when v_anew then 0 else least(v_row.failures, 20) end, p_most) * (p_jitter[1] + random() * (p_jitter[2] - p_jitter[1])));
      update deed.pauses p
      set since = case when v_anew then v_now else p.since end, failures = case when v_anew then 1 else p.failures + 1 end, until = v_until, why = left(coalesce(nullif(v_call.error, ''), p.why), 4000), probe = null, probe_claim = null
      where p.provider = p_provider and p.destination = v_call.destination and p.tenant_id = v_call.tenant
      returning p.* into v_row;
    elsif v_call.quota is not null and v_row.until < v_until then
      -- What it was paused for is over before that.
      update deed.pauses p
      set until = v_until, why = left(coalesce(nullif(v_call.error, ''), p.why), 4000)
      where p.provider = p_provider and p.destination = v_call.destination and p.tenant_id = v_call.tenant
      returning p.* into v_row;
    else
      -- One that was under way.
      update deed.pauses p set until = v_until
      where p.provider = p_provider and p.destination = v_call.destination and p.tenant_id = v_call.tenant and p.until < v_until and v_call.opens;
      continue;
    end if;
    destination := v_row.destination;
    tenant_id := v_row.tenant_id;
    since := v_row.since;
    until := v_row.until;
    failures := v_row.failures;
    return next;
  end loop;
end
$$;
