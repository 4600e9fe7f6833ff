-- deed.take_due: choose up to p_limit deliveries of a provider that are due, lock
-- them until the claim that is being made commits, and pay for them: queued
-- ones, or those in doubt (p_status 'sending').
--
-- Tenants share alike, whatever they have; of a tenant its runs, of a run its
-- lanes, in turn from where p_places says that the last claim left off (a hint);
-- in a lane the oldest first. p_lanes are those of which the caller knows how
-- many more it may take, p_rooms, null any number; of others it is p_room. Of the
-- tenants in p_places' rooms and bytes it takes no more than these say. A
-- thousand lanes are looked at, and no lane in which nothing is due. p_bytes
-- bounds the contents, but one is always taken. Of a tenant that is being removed
-- nothing is.
--
-- A token of the provider's and of the lane's limit is taken for each, and
-- p_cost of them where a delivery may take several calls. While something in
-- doubt is due, claims of what is queued leave it half of the provider's tokens.
-- Only the limits of what is taken are locked, the provider's first; other claims
-- hold a lane's for a moment only, and it is left out then. A lane that no limit
-- names has that of its class, '-*' for those that begin with - and '*', and a bucket in
-- deed.lane_tokens while that is not full; who writes there holds the limits of the
-- classes, so that claims for such a provider come one after the other. With nothing to take
-- nothing is written. With p_pauses what is paused is left out; where a pause is
-- over one is taken, of which the caller says that it is the probe: of a lane that
-- several runs of its tenant have, the one that has waited longest. With p_kind
-- what was called through another account is left out.
--
-- With p_batch above 1 one call takes up to so many deliveries of one tenant, with
-- contents of 1 MiB together, and the provider's limit pays for calls: calls says
-- of each in which one it is. What has attachments goes alone, and so does what
-- was called before and may have been accepted, or was refused as a member of a
-- batch. A lane's limit pays for deliveries.
--
-- Without p_runs it takes nothing of a campaign's run: the caller cannot render it. What is
-- held (deed.delivery_holds) is left out, but for what is in doubt. Of a run that has a rate of its
-- own (deed.rate_limits) no more is taken than that has tokens for, and while it has none the run
-- is left out; who pays from it has it until the commit, and others take what else there is. What
-- is in its recipient's quiet hours is put off until they end (deed.put_off), and costs nothing.
--
-- walk is for the next claim: places; ripened, for deed.ripen; and wait, in how many seconds it may find
-- something that this one did not, null if only time or another's act can tell.
create or replace function deed.take_due(
  in p_provider text,
  in p_status   text,
  in p_limit    int,
  in p_lanes    text[],
  in p_rooms    int[],
  in p_room     int,
  in p_bytes    bigint,
  in p_cost     int,
  in p_pauses   boolean,
  in p_kind     text,
  in p_account  text,
  in p_places   jsonb,
  in p_batch    int default 1,
  in p_runs     boolean default true,
  out taken     tid[],
  out walk      jsonb,
  out calls     int[]
)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set enable_sort = off
set jit = off
as $$
declare
  v_now     timestamptz := clock_timestamp();
  v_wait    float8;
  v_ripened uuid; -- the last tenant of whose scheduled ones were looked at
  v_paused  boolean := p_pauses and exists (select from deed.pauses p where p.provider = p_provider);
  v_left    int := least(p_limit, case when v_paused then deed.pause_allows(p_provider, '', null) end);
  v_visits  int := 1000;
  v_bytes   bigint := p_bytes;
  v_own     bigint; -- bytes that the tenant may take; null: any number
  v_lanes   text[] := p_lanes;
  v_rooms   int[] := p_rooms;
  v_origin  uuid := p_places ->> 'after';
  v_last    uuid := p_places ->> 'after';
  v_places  jsonb := '{}';
  v_tokens  float8; -- in the provider's bucket; null: it has no limit
  v_rate    float8;
  v_purse   float8; -- in the lane's
  v_refill  float8;
  v_limited boolean := exists (select from deed.rate_limits b where b.provider = p_provider and b.lane > '' and b.run_id is null);
  v_names   boolean := exists (select from deed.rate_limits b where b.provider = p_provider and b.lane > '' and b.lane not in ('*', '-*') and b.run_id is null);
  v_each    deed.rate_limits; -- of each lane that no limit names; null: none
  v_group   deed.rate_limits; -- of those that begin with -
  v_class   deed.rate_limits; -- the lane's, if it is one of these
  v_classes boolean := false; -- they are locked
  v_locked  boolean := false;
  v_tenants uuid[];
  v_held    uuid[] := case when p_runs and p_status = 'queued' then array(select h.run_id from deed.delivery_holds h) else '{}' end;
  v_gone    uuid[] := array(select r.tenant_id from deed.tenant_removals r where r.finished_at is null);
  v_tenant  uuid;
  v_n       int;
  v_share   int;
  v_looks   int;
  v_runs    uuid[];
  v_run     uuid;
  v_rotates boolean;
  v_m       int;
  v_most    int; -- for the run
  v_before  int; -- what was taken before it
  v_pace    deed.rate_limits; -- its own limit, with the tokens that there are by now; rate null: it has none
  v_metered boolean; -- it is locked
  v_quiet   boolean; -- it is night for some of its members
  v_off     tid[]; -- what was put off
  v_look    int; -- lanes of the run that are looked at
  v_marks   jsonb; -- where in the lanes of the tenant's runs something is due (deed.mark_lanes); null: a look begins at the beginning
  v_known   jsonb; -- those of the run
  v_from    timestamptz;
  v_from_id uuid;
  v_marked  uuid[] := '{}'; -- tenants that have some
  v_begun   timestamptz;
  v_walked  interval; -- what it took to find the tenant's runs and lanes
  v_found   int;
  v_key     text;
  v_start   text;
  v_at      text;
  v_round   boolean; -- all lanes of the run have been looked at
  v_seen    int;
  v_took    text; -- the run's last lane that something was taken from
  v_looked  uuid;    -- the tenant's last run that was looked at
  v_idle    boolean; -- nothing was taken from the tenant
  v_cut     boolean := false; -- there is more than was looked at
  v_after   uuid; -- the last such tenant
  v_list    text[];
  v_lane    text;
  v_k       int;
  v_i       int;
  v_room    int;
  v_take    int;
  v_got     tid[];
  v_sizes   bigint[];
  v_alone   boolean[];
  v_paid    int; -- calls that the provider's limit allows; null: any number
  v_call    int := 0; -- the last one
  v_of      uuid; -- the tenant that it is for; null: it takes no more
  v_members int;
  v_weight  bigint;
  v_ord     timestamptz; -- of the first of these
  v_allowed int; -- by the lane's pause
  v_probe   int; -- another run's, of the same lane
  v_probed  text[] := '{}'; -- tenants and lanes
  v_probes  tid[] := '{}';
  v_ords    timestamptz[] := '{}';
begin
  taken := '{}';
  calls := '{}';
  if p_runs and p_status = 'queued' then
    select v_held || coalesce(array_agg(b.run_id), '{}'), min((1 - b.tokens) / b.rate) into v_held, v_refill
    from (
      select b.run_id, b.rate, least(b.burst, b.tokens + b.rate * greatest(0, extract(epoch from v_now - b.at))) as tokens
      from deed.rate_limits b
      where b.provider = p_provider and b.run_id is not null
    ) b
    where b.tokens < 1;
  end if;
  select least(r.seconds, v_refill), r.after into v_wait, v_ripened from deed.ripen(p_provider, p_status, (p_places ->> 'ripened')::uuid) r;
  if v_paused and v_left = 0 and p_limit > 0 then
    walk := jsonb_build_object('ripened', v_ripened, 'wait', (
      select greatest(extract(epoch from p.until - v_now), case when p.probe is not null then 0.5 end) from deed.pauses p
      where p.provider = p_provider and p.destination = ''
    ));
    return;
  end if;
  select least(b.burst, b.tokens + b.rate * greatest(0, extract(epoch from v_now - b.at))), b.rate into v_tokens, v_rate
  from deed.rate_limits b
  where b.provider = p_provider and b.lane = '';
  if v_tokens < 1 then
    walk := jsonb_build_object('ripened', v_ripened, 'wait', (1 - v_tokens) / v_rate);
    return;
  end if;
  v_paid := greatest(floor(v_tokens / p_cost)::int, case when v_tokens >= 1 then 1 end);
  v_left := least(v_left, least(v_paid, 100000) * p_batch);
  if v_limited then
    select b.* into v_each from deed.rate_limits b where b.provider = p_provider and b.lane = '*';
    select b.* into v_group from deed.rate_limits b where b.provider = p_provider and b.lane = '-*';
    if not found then
      v_group := v_each;
    end if;
  end if;
  if v_tokens is not null and p_status = 'queued' and exists (
    select from deed.channel_outbox c where c.due and c.status = 'sending' and c.provider = p_provider and c.lease_until is null
  ) then
    v_paid := least(v_paid, floor(v_tokens / 2 + random())::int);
    v_left := least(v_left, least(v_paid, 100000) * p_batch);
    v_wait := coalesce(least(v_wait, 1 / v_rate), 1 / v_rate);
  end if;

  if p_runs and p_status = 'queued' then
    v_marked := array(select left(k, 36)::uuid from jsonb_object_keys(p_places) k where k like '% marks' order by 1);
  end if;
  <<around>>
  loop
    exit when v_left < 1 or v_visits < 1;
    v_tenants := deed.due_tenants(p_provider, p_status, v_last, v_origin, 100, v_marked);
    v_n := cardinality(v_tenants);
    exit when v_n = 0;
    foreach v_tenant in array v_tenants loop
      exit around when v_left < 1 or v_visits < 1;
      v_last := v_tenant;
      v_share := least(greatest(ceil(v_left::float8 / v_n)::int, case when v_paid is not null then p_batch end), (p_places -> 'rooms' ->> v_tenant::text)::int);
      v_looks := ceil(v_visits::float8 / v_n);
      v_n := v_n - 1;
      v_own := (p_places -> 'bytes' ->> v_tenant::text)::bigint;
      continue when v_share < 1 or v_own < 1 or v_tenant = any (v_gone);
      v_start := p_places ->> v_tenant::text;
      v_marks := null;
      v_walked := '0';
      v_found := 0;
      if p_runs then
        if v_tenant = any (v_marked) then
          v_marks := p_places ->> (v_tenant || ' marks');
          if (v_marks ->> 'at')::float8 > extract(epoch from v_now)
              or (v_marks ->> 'at')::float8 + greatest(0.05, 20 * (v_marks ->> 'cost')::float8) <= extract(epoch from v_now) then
            v_marks := deed.mark_lanes(p_provider, v_tenant, array(select h.run_id from deed.delivery_holds h), 200);
            if (v_marks ->> 'cost')::float8 < 0.0005 + 0.00003 * (v_marks ->> 'lanes')::int then
              v_marks := null; -- there is next to nothing to step over
            end if;
            v_places := v_places || jsonb_build_object(v_tenant || ' marks', v_marks::text);
          end if;
        end if;
        v_begun := clock_timestamp();
        v_runs := deed.due_runs(p_provider, p_status, v_tenant, v_start::uuid, v_start::uuid, 20, v_held, v_marks);
        v_walked := clock_timestamp() - v_begun;
        v_found := cardinality(v_runs);
      else
        v_start := null;
        v_runs := array(select r from unnest(deed.due_runs(p_provider, p_status, v_tenant, null, null, 1)) r where r = '00000000-0000-0000-0000-000000000000');
      end if;
      v_m := cardinality(v_runs);
      v_rotates := v_m > 1;
      v_idle := true;
      if v_start is not null and not v_rotates then
        v_places := v_places || jsonb_build_object(v_tenant::text, null);
      end if;
      foreach v_run in array v_runs loop
        exit when v_share < 1 or v_looks < 1;
        v_most := ceil(v_share::float8 / v_m);
        v_look := ceil(v_looks::float8 / v_m);
        v_m := v_m - 1;
        v_before := cardinality(taken);
        v_pace.rate := null;
        v_metered := false;
        v_quiet := false;
        if p_status = 'queued' and v_run <> '00000000-0000-0000-0000-000000000000' then
          select b.* into v_pace from deed.rate_limits b where b.provider = p_provider and b.run_id = v_run;
          v_pace.tokens := least(v_pace.burst, v_pace.tokens + v_pace.rate * greatest(0, extract(epoch from v_now - v_pace.at)));
          v_most := least(v_most, floor(v_pace.tokens)::int);
          select exists (
            select from jsonb_object_keys(r.zones) z
            cross join lateral deed.time_in(r.options, r.created_at, r.scheduled_for, z, v_now) t
            where t.loud > v_now
          ) into v_quiet
          from deed.campaign_runs r
          where r.id = v_run and r.options ? 'quiet_hours';
        end if;
        v_key := v_tenant || ' ' || v_run;
        v_start := p_places ->> v_key;
        v_at := v_start;
        v_round := false;
        v_seen := 0;
        v_took := null;
        v_known := nullif(v_marks -> 'runs' -> v_run::text, 'null');
        v_from := '-infinity';
        v_from_id := '00000000-0000-0000-0000-000000000000';
        <<lanes>>
        loop
          exit when v_most < 1 or v_look < 1;
          if v_known is not null then
            v_list := case when v_at is distinct from v_start then '{}' else array(
              select l.lane from (select k as lane, v_start is not null and k <= v_start as later from jsonb_object_keys(v_known) k) l order by l.later, l.lane
            ) end;
          else
            v_begun := clock_timestamp();
            v_list := deed.due_lanes(p_provider, p_status, v_tenant, v_run, v_at, v_start, least(100, v_most, v_look));
            v_walked := v_walked + (clock_timestamp() - v_begun);
            v_found := v_found + cardinality(v_list);
          end if;
          v_k := cardinality(v_list);
          v_round := v_k = 0;
          exit lanes when v_round;
          foreach v_lane in array v_list loop
            exit lanes when v_most < 1 or v_left < 1;
            v_seen := v_seen + 1;
            v_look := v_look - 1;
            v_looks := v_looks - 1;
            v_visits := v_visits - 1;
            v_at := v_lane;
            v_i := array_position(v_lanes, v_lane);
            v_room := case when v_i is null then p_room else v_rooms[v_i] end;
            v_probe := case when v_paused and v_rotates then array_position(v_probed, v_tenant || ' ' || v_lane) end;
            v_take := case when v_probe is null then least(ceil(v_most::float8 / v_k)::int, v_room) else 1 end;
            v_k := v_k - 1;
            continue when v_take < 1;
            if v_limited and v_lane <> '' and v_probe is null then
              v_purse := null;
              v_class := null;
              if v_names then
                select least(b.burst, b.tokens + b.rate * greatest(0, extract(epoch from v_now - b.at))), b.rate into v_purse, v_refill
                from deed.rate_limits b
                where b.provider = p_provider and b.lane = v_lane;
              end if;
              if v_purse is null then
                v_class := case when v_lane like '-%' then v_group else v_each end;
                if v_class.rate is not null then
                  select least(v_class.burst, b.tokens + v_class.rate * greatest(0, extract(epoch from v_now - b.at))) into v_purse
                  from deed.lane_tokens b
                  where b.provider = p_provider and b.lane = v_lane;
                  v_purse := coalesce(v_purse, v_class.burst);
                  v_refill := v_class.rate;
                end if;
              end if;
              if v_purse < 1 then
                v_wait := least(v_wait, (1 - v_purse) / v_refill);
                continue;
              end if;
              v_take := least(v_take, case when v_purse is not null then greatest(floor(v_purse / p_cost)::int, 1) end);
            end if;

            v_allowed := null;
            if v_paused and v_lane <> '' and v_probe is null then
              v_allowed := deed.pause_allows(p_provider, v_lane, v_tenant);
              v_take := least(v_take, v_allowed);
              if v_take < 1 then
                v_wait := least(v_wait, (
                  select greatest(extract(epoch from p.until - v_now), case when p.probe is not null then 0.5 end) from deed.pauses p
                  where p.provider = p_provider and p.destination = v_lane and p.tenant_id = v_tenant
                ));
                continue;
              end if;
            end if;
            if v_known is not null then
              v_from := v_known -> v_lane ->> 0;
              v_from_id := v_known -> v_lane ->> 1;
            end if;
            select array_agg(q.place), array_agg(q.size), min(q.ord), array_agg(q.alone) into v_got, v_sizes, v_ord, v_alone
            from (
              select c.ctid as place, c.ord,
                p_batch > 1 and (c.unsettled_since is not null or c.batch_id is not null or c.payload ? 'attachments') as alone,
                coalesce(c.payload_bytes, octet_length(c.payload::text))::bigint + coalesce(octet_length(c.request), 0) as size
              from deed.channel_outbox c
              where c.due and c.status = p_status and c.provider = p_provider and c.tenant_id = v_tenant
                and coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) = v_run and c.lane = v_lane and c.ord <= coalesce(v_ords[v_probe], v_now)
                and (c.ord, c.id) >= (v_from, v_from_id)
                and (c.lease_until is null or (p_status = 'queued' and c.lease_until <= v_now))
                and (p_kind is null or c.request_kind is null or (c.request_kind, c.request_account) = (p_kind, p_account))
              order by c.ord, c.id
              limit v_take
              for update skip locked
            ) q;
            -- By what it has taken, which the next look steps over.
            if v_known is not null and random() < greatest(0.2, cardinality(v_got) * 0.1) then
              -- Not to where this has begun: another claim may have what stands before that, and give it back.
              select c.ord, c.id into v_from, v_from_id
              from deed.channel_outbox c
              where c.due and c.status = p_status and c.provider = p_provider and c.tenant_id = v_tenant
                and coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) = v_run and c.lane = v_lane and (c.ord, c.id) >= (v_from, v_from_id)
              order by c.ord, c.id
              limit 1;
              if found then
                v_known := v_known || jsonb_build_object(v_lane, jsonb_build_array(v_from, v_from_id));
              end if;
            end if;
            continue when v_got is null;
            if v_quiet then
              v_off := deed.put_off(v_run, v_got, v_now);
              if cardinality(v_off) > 0 then
                v_wait := 0; -- there may be more
                v_look := v_look - cardinality(v_off);
                v_looks := v_looks - cardinality(v_off);
                v_visits := v_visits - cardinality(v_off);
                select array_agg(u.place), array_agg(u.size), array_agg(u.alone) into v_got, v_sizes, v_alone
                from unnest(v_got, v_sizes, v_alone) u(place, size, alone)
                where u.place <> all (v_off);
                continue when v_got is null;
              end if;
            end if;

            if v_probe is not null then
              -- In its place, which is paid for.
              continue when v_sizes[1] > least(v_bytes, v_own);
              v_bytes := v_bytes - v_sizes[1];
              v_own := v_own - v_sizes[1];
              taken := array_replace(taken, v_probes[v_probe], v_got[1]);
              v_probes[v_probe] := v_got[1];
              v_ords[v_probe] := v_ord;
              v_took := v_lane;
              continue;
            end if;
            if v_tokens is not null and not v_locked then
              -- It may have to wait: nobody who holds it waits for anything.
              v_locked := true;
              select least(b.burst, b.tokens + b.rate * greatest(0, extract(epoch from clock_timestamp() - b.at))), b.rate into v_tokens, v_rate
              from deed.rate_limits b
              where b.provider = p_provider and b.lane = ''
              for update;
              v_paid := least(v_paid, case when v_tokens < 1 then 0 else greatest(floor(v_tokens / p_cost)::int, 1) end);
              v_left := least(v_left, least(v_paid, 100000) * p_batch);
              if v_tokens < 1 then
                v_wait := (1 - v_tokens) / v_rate;
                exit around;
              end if;
            end if;
            if v_pace.rate is not null and not v_metered then
              -- Who has it is paying from it, and may wait for others: it is not waited for.
              select b.* into v_pace from deed.rate_limits b where b.provider = p_provider and b.run_id = v_run for update skip locked;
              v_metered := found;
              v_pace.tokens := least(v_pace.burst, v_pace.tokens + v_pace.rate * greatest(0, extract(epoch from clock_timestamp() - v_pace.at)));
              v_most := case when v_metered then least(v_most, floor(v_pace.tokens)::int) else 0 end;
              if v_most < 1 then
                v_wait := least(v_wait, case when v_metered then (1 - v_pace.tokens) / v_pace.rate else 0.01 end);
                v_round := true;
                exit lanes;
              end if;
            end if;
            v_take := least(cardinality(v_got), v_left, v_most);
            if v_limited and v_lane <> '' and v_class.rate is not null and v_take > 0 then
              if not v_classes then
                -- As with the provider's: who holds them waits for nothing.
                v_classes := true;
                perform from deed.rate_limits b where b.provider = p_provider and b.lane in ('*', '-*') order by b.lane for update;
              end if;
              select least(v_class.burst, b.tokens + v_class.rate * greatest(0, extract(epoch from clock_timestamp() - b.at))) into v_purse
              from deed.lane_tokens b
              where b.provider = p_provider and b.lane = v_lane;
              v_purse := coalesce(v_purse, v_class.burst);
              if v_purse < 1 then
                v_wait := least(v_wait, (1 - v_purse) / v_class.rate);
              end if;
              v_take := least(v_take, case when v_purse < 1 then 0 else greatest(floor(v_purse / p_cost)::int, 1) end);
            elsif v_limited and v_lane <> '' and v_purse is not null and v_take > 0 then
              if not v_classes and (v_each.rate is not null or v_group.rate is not null) then
                -- First, as deed.register_provider does: another lane may want them after this one.
                v_classes := true;
                perform from deed.rate_limits b where b.provider = p_provider and b.lane in ('*', '-*') order by b.lane for update;
              end if;
              select least(b.burst, b.tokens + b.rate * greatest(0, extract(epoch from clock_timestamp() - b.at))) into v_purse
              from deed.rate_limits b
              where b.provider = p_provider and b.lane = v_lane
              for update skip locked;
              if not found then
                v_wait := coalesce(least(v_wait, 0.01), 0.01);
                continue;
              end if;
              v_take := least(v_take, case when v_purse < 1 then 0 else greatest(floor(v_purse / p_cost)::int, 1) end);
            end if;
            for i in 1..v_take loop
              if p_batch > 1 and (v_of is distinct from v_tenant or v_members = p_batch or v_weight + v_sizes[i] > 1048576 or v_alone[i]) then
                v_of := null;
                if v_call >= v_paid then
                  v_take := i - 1;
                  v_visits := 0; -- no other call is paid for
                  v_looks := 0;
                  v_most := 0;
                  exit;
                end if;
              end if;
              if v_sizes[i] > v_own then
                v_take := i - 1;
                v_looks := 0; -- that is all for this tenant
                v_most := 0;
                exit;
              end if;
              v_own := v_own - v_sizes[i];
              if v_bytes is not null then
                if v_sizes[i] > v_bytes and cardinality(taken) > 0 then
                  v_take := i - 1;
                  v_visits := 0; -- the rest is for the next claim
                  v_looks := 0;
                  v_most := 0;
                  exit;
                end if;
                v_bytes := v_bytes - v_sizes[i];
              end if;
              if p_batch > 1 then
                if v_of is null then
                  v_call := v_call + 1;
                  v_of := case when not v_alone[i] then v_tenant end;
                  v_members := 0;
                  v_weight := 0;
                end if;
                v_members := v_members + 1;
                v_weight := v_weight + v_sizes[i];
                calls := calls || v_call;
              end if;
              taken := taken || v_got[i];
            end loop;
            if v_take > 0 and v_limited and v_lane <> '' and v_class.rate is not null then
              insert into deed.lane_tokens as b (provider, lane, tokens, at)
              values (p_provider, v_lane, v_purse - v_take * p_cost, clock_timestamp())
              on conflict on constraint lane_tokens_pkey do update set tokens = excluded.tokens, at = excluded.at;
            elsif v_take > 0 and v_limited and v_lane <> '' and v_purse is not null then
              update deed.rate_limits b set tokens = v_purse - v_take * p_cost, at = clock_timestamp()
              where b.provider = p_provider and b.lane = v_lane;
            end if;
            if v_take > 0 then
              v_took := v_lane;
              v_after := v_tenant;
              if v_allowed = 1 then
                v_probed := v_probed || (v_tenant || ' ' || v_lane);
                v_probes := v_probes || v_got[1];
                v_ords := v_ords || v_ord;
              end if;
            end if;
            v_left := v_left - v_take;
            v_share := v_share - v_take;
            v_most := v_most - v_take;
            if v_room is not null then
              if v_i is null then
                v_lanes := v_lanes || v_lane;
                v_rooms := v_rooms || (v_room - v_take);
              else
                v_rooms[v_i] := v_room - v_take;
              end if;
            end if;
          end loop;
          v_round := v_at = v_start;
          exit lanes when v_round;
        end loop;
        if v_metered and cardinality(taken) > v_before then
          v_pace.spent := v_pace.spent + (cardinality(taken) - v_before) / v_pace.rate;
          v_refill := coalesce((
            select v_pace.ramp[i + 1] from generate_series(1, cardinality(v_pace.ramp), 2) i where v_pace.ramp[i] <= v_pace.spent order by i desc limit 1
          ), v_pace.rate);
          update deed.rate_limits b
          set tokens = v_pace.tokens - (cardinality(taken) - v_before), at = clock_timestamp(), spent = v_pace.spent, rate = v_refill, burst = greatest(1, v_refill)
          where b.provider = p_provider and b.run_id = v_run;
        end if;
        if v_known is not null then
          v_marks := jsonb_set(v_marks, array['runs', v_run::text], v_known);
        end if;
        -- Behind the last one that had its turn; who was passed over keeps his.
        v_at := coalesce(v_took, case when v_round then v_start else v_at end);
        if v_round and v_seen < 2 then
          v_at := null; -- there is no other lane
        end if;
        if v_at is not null or v_start is not null then
          v_places := v_places || jsonb_build_object(v_key, v_at);
        end if;
        if v_took is not null then
          v_idle := false;
          if v_rotates then
            v_places := v_places || jsonb_build_object(v_tenant::text, v_run);
          end if;
        end if;
        v_looked := v_run;
        v_cut := v_cut or v_round is not true;
      end loop;
      if v_marks is not null then
        v_places := v_places || jsonb_build_object(v_tenant || ' marks', v_marks::text);
        v_refill := (v_marks ->> 'at')::float8 + greatest(0.05, 20 * (v_marks ->> 'cost')::float8) - extract(epoch from v_now);
        v_wait := least(v_wait, greatest(0.02, v_refill)); -- what stands before its mark is found then
      elsif p_status = 'queued' and extract(epoch from v_walked) > 0.0005 + 0.00003 * v_found and not v_places ? (v_tenant || ' marks') then
        -- It has stepped over much that is dead.
        v_places := v_places || jsonb_build_object(v_tenant || ' marks', '{"at": 0, "cost": 0}');
      end if;
      if v_idle and (cardinality(v_runs) = 20 or v_looked <> v_runs[cardinality(v_runs)]) then
        -- There may be others behind those of which nothing may be taken.
        v_places := v_places || jsonb_build_object(v_tenant::text, v_looked);
        v_cut := true;
      end if;
    end loop;
    exit when v_last = v_origin;
  end loop;

  if v_locked and cardinality(taken) > 0 then
    update deed.rate_limits b set tokens = v_tokens - case when p_batch > 1 then v_call else cardinality(taken) end * p_cost, at = clock_timestamp()
    where b.provider = p_provider and b.lane = '';
  end if;
  if cardinality(taken) = 0 and (v_cut or v_visits < 1) then
    v_wait := 0;
  end if;
  walk := jsonb_build_object('after', coalesce(v_after, v_last), 'ripened', v_ripened, 'wait', v_wait, 'places', v_places);
end
$$;
