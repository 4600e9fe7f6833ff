-- deed.deploy_campaign: make a run of a campaign and its jobs, all queued, in the caller's
-- transaction (C1). It changes no member: jobs are expanded by relays.
--
-- The request is p_request_id, for the tenant's workspace (the campaign's) and the channel. A
-- repeat gets the first one's run and changes nothing; with anything else in it it raises
-- DDCON. p_scheduled_for is when it begins; null: now, as of the first call. p_options is an
-- object: provider, purpose (or "transactional": true), from and reply_to of e-mails,
-- content, an id (default: the only one that the campaign has), consent ("required": only
-- who has granted it), expires_after, an interval (default: 24 hours; what has not begun by
-- then is not sent); at, a time of the recipient's zone in p_scheduled_for's stead, with
-- if_passed (now, skip, or, by default, next_day), quiet_hours (22:00-08:00) and zone, of who has
-- none (default UTC), as deed.time_in says; rate and ramp, as deed.pace_of; pause_on, as deed.pause_problem; in content's stead
-- variants, an object of names and contents' ids, among which its members are divided (deed.cells_of), and
-- test, an object: share, the part of the audience to which they go first, by: clicks, complaints or
-- person, and wait, after how long the rest gets the one that did best (deed.decide_winners).
--
-- What would make it fail is named (C8), all of it at once, and then nothing is made:
-- no_provider, no_purpose, no_content, no_sender, unverified_domain, no_unsubscribe_url, empty_audience,
-- expired, window_never_opens, too_many_zones, no_clicks, no_complaints. Raises DDARG, DDTEN, DDNFD for a campaign, a content or an audience that the
-- tenant does not have, DDCON for an audience that is not ready or of another channel.
create or replace function deed.deploy_campaign(
  p_campaign_id   uuid,
  p_audience_id   uuid,
  p_request_id    text,
  p_channel       text,
  p_scheduled_for timestamptz default null,
  p_options       jsonb default '{}',
  p_tenant        uuid default null,
  p_actor         text default null,
  out run_id      uuid,
  out created     boolean
) returns record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
  v_tenant   uuid := deed.tenant_of_call('deploy_campaign', p_tenant);
  v_actor    text := coalesce(nullif(left(p_actor, 200), ''), session_user);
  v_now      timestamptz := clock_timestamp();
  v_hash     bytea;
  v_campaign deed.campaigns;
  v_audience deed.audiences;
  v_contents uuid[];
  v_first    bytea;
  v_purpose  text := p_options ->> 'purpose';
  v_after    interval;
  v_missing  text[];
  v_problem  text;
  v_foreign  text; -- why its provider sends nothing of it: then nothing else of the provider is said
  v_times    record;
begin
  if (length(p_request_id) between 1 and 200) is not true then
    raise exception 'deploy_campaign: the request id must have 1 to 200 characters' using errcode = 'DDARG';
  elsif (p_channel in ('email', 'sms', 'voice', 'social', 'chat')) is not true then
    raise exception 'deploy_campaign: channel % is none of email, sms, voice, social, chat', coalesce(quote_literal(left(p_channel, 60)), 'null') using errcode = 'DDARG';
  elsif (jsonb_typeof(p_options) = 'object') is not true or octet_length(p_options::text) > 65536 then
    raise exception 'deploy_campaign: the options must be a JSON object of 64 KiB at the most' using errcode = 'DDARG';
  elsif exists (select from jsonb_object_keys(p_options) k where k not in ('provider', 'purpose', 'transactional', 'from', 'reply_to', 'content', 'consent', 'expires_after',
    'at', 'if_passed', 'quiet_hours', 'zone', 'rate', 'ramp', 'pause_on', 'variants', 'test')) then
    raise exception 'deploy_campaign: the options are provider, purpose, transactional, from, reply_to, content, consent, expires_after, at, if_passed, quiet_hours, zone, rate, ramp, pause_on, variants and test' using errcode = 'DDARG';
  elsif not isfinite(p_scheduled_for) or p_scheduled_for >= '10000-01-01Z' then
    raise exception 'deploy_campaign: scheduled_for is infinite or after the year 9999' using errcode = 'DDARG';
  elsif v_purpose !~ '^[A-Za-z0-9._-]{1,100}$' then
    raise exception 'deploy_campaign: purpose must be 1 to 100 characters of A-Z a-z 0-9 . _ -' using errcode = 'DDARG';
  elsif coalesce(p_options ->> 'consent', 'required') <> 'required' or coalesce(p_options ->> 'transactional', 'true') not in ('true', 'false') then
    raise exception 'deploy_campaign: consent is "required", or not given, and transactional true or false' using errcode = 'DDARG';
  elsif v_purpose is not null and (p_options ->> 'transactional')::boolean then
    raise exception 'deploy_campaign: what has a purpose is not transactional' using errcode = 'DDARG';
  elsif p_options ? 'consent' and v_purpose is null then
    raise exception 'deploy_campaign: consent is to a purpose, and there is none' using errcode = 'DDARG';
  end if;
  begin
    v_after := coalesce((p_options ->> 'expires_after')::interval, interval '24 hours');
  exception when data_exception then
    v_after := interval '0';
  end;
  if v_after not between interval '1 minute' and interval '30 days' then
    raise exception 'deploy_campaign: expires_after must be an interval from 1 minute to 30 days' using errcode = 'DDARG';
  end if;
  v_problem := coalesce(deed.window_problem(p_options, p_scheduled_for), (deed.pace_of(p_options)).problem, deed.pause_problem(p_options), deed.variants_problem(p_options));
  if v_problem is not null then
    raise exception 'deploy_campaign: %', v_problem using errcode = 'DDARG';
  end if;
  select c.* into v_campaign from deed.campaigns c where c.id = p_campaign_id and c.tenant_id = v_tenant;
  if not found then
    raise exception 'deploy_campaign: there is no campaign %', p_campaign_id using errcode = 'DDNFD';
  end if;
  v_hash := sha256(convert_to(jsonb_build_array(p_campaign_id, p_audience_id, extract(epoch from p_scheduled_for), p_options)::text, 'UTF8'));
  created := false;
  for v_try in 1..2 loop
    select r.id, r.request_sha256 into run_id, v_first
    from deed.campaign_runs r
    where r.tenant_id = v_tenant and r.workspace_id = v_campaign.workspace_id and r.request_id = p_request_id and r.channel = p_channel;
    if found and v_first <> v_hash then
      raise exception 'deploy_campaign: request % has made run %, of something else', quote_literal(p_request_id), run_id
        using errcode = 'DDCON', hint = 'Another campaign, audience, time or option is another request: give it an id of its own.';
    elsif found then
      return;
    elsif v_try = 2 then
      raise exception 'deploy_campaign: the run was made since this transaction began' using errcode = '40001';
    end if;

    select a.* into v_audience from deed.audiences a where a.id = p_audience_id and a.tenant_id = v_tenant;
    if not found then
      raise exception 'deploy_campaign: there is no audience %', p_audience_id using errcode = 'DDNFD';
    elsif v_audience.status <> 'ready' or v_audience.channel <> p_channel then
      raise exception 'deploy_campaign: the audience % is %, and of the channel %', p_audience_id, v_audience.status, v_audience.channel
        using errcode = 'DDCON', hint = 'Load all of it, and finish it (deed.finish_audience); an audience is for one channel.';
    end if;
    v_contents := array(select c.id from deed.said_by(p_campaign_id, p_options) c);
    select t.* into v_times from deed.run_times(p_audience_id, p_options, v_now, coalesce(p_scheduled_for, v_now)) t;
    v_foreign := deed.provider_problem(p_options ->> 'provider', p_channel, v_tenant);
    v_missing := array_remove(array[
      v_foreign,
      case when v_purpose is null and (p_options ->> 'transactional')::boolean is not true
        then 'no_purpose: say what it is for, so that who has left that is not written to, or that it is transactional' end,
      case when v_audience.members = 0 then 'empty_audience: there is nobody in it' end,
      case when jsonb_typeof(v_times.zones) = 'number'
        then format('too_many_zones: its members have %s spellings of time zones, and there are some 600: at most 1000', v_times.zones) end,
      case when v_audience.members > 0 and jsonb_typeof(v_times.zones) is distinct from 'number' and (v_times.first_due is null or split_part(p_options ->> 'quiet_hours', '-', 1) = split_part(p_options ->> 'quiet_hours', '-', 2))
        then 'window_never_opens: ' || case when v_times.first_due is null then 'its local time has passed everywhere, and who is late is skipped' else 'its quiet hours are all day' end end,
      case when p_scheduled_for + v_after <= v_now or (p_options ->> 'at')::timestamp at time zone 'Etc/GMT+12' + v_after <= v_now then 'expired: it is to begin so long ago that nothing of it would be sent' end,
      case
        when p_channel = 'email' and coalesce(p_options ->> 'from', '') = '' then 'no_sender: say from whom it is'
        when p_channel = 'email' and deed.sender_domain(p_options ->> 'from') is null
          then format('no_sender: %s is no address, such as Shop <shop@example.com>', quote_literal(left(p_options ->> 'from', 300)))
      end
    ], null) || case when v_foreign is null then deed.provider_lacks(p_options ->> 'provider', p_channel, p_options) end || deed.content_problems(v_contents, p_channel, v_purpose);
    if cardinality(v_missing) > 0 then
      raise exception 'deploy_campaign: %', array_to_string(v_missing, '; ') using errcode = 'DDARG';
    end if;

    insert into deed.campaign_runs (id, campaign_id, tenant_id, workspace_id, audience_id, content_id, channel, provider, purpose, request_id, request_sha256, members,
      scheduled_for, expires_at, created_at, options, zones, last_due)
    values (deed.new_id(), p_campaign_id, v_tenant, v_campaign.workspace_id, p_audience_id, v_contents[1], p_channel, p_options ->> 'provider', coalesce(v_purpose, ''),
      p_request_id, v_hash, v_audience.members, v_times.first_due, coalesce(v_times.last_due, v_times.first_due) + v_after, v_now, p_options, v_times.zones, v_times.last_due)
    on conflict on constraint campaign_runs_request_key do nothing
    returning id into run_id;
    exit when found;
  end loop;
  created := true;
  perform deed.add_jobs(deploy_campaign.run_id, v_actor);
end
$$;
