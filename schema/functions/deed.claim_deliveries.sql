-- deed.claim_deliveries: lease up to p_limit queued deliveries of a provider.
--
-- Tenants share the claim alike, whatever they have queued: it goes round
-- those from p_after on, at most 100 a call. A tenant's share goes to its
-- lanes, from where p_tenants and p_lanes say that the last claim left off (a
-- hint); in a lane the oldest first. Lanes of p_busy are left out, and no lane
-- gets more than p_per_lane. Rate limits are taken from here: a token for each
-- delivery that is returned. Rows that another claim holds are skipped. What is
-- paused is left out; where a pause is over, one delivery is claimed that finds
-- out whether it may end (deed.pauses).
--
-- A claimed delivery is still queued: nobody has called anything (D4). claim is
-- the fencing token of the rows.
create or replace function deed.claim_deliveries(
  p_provider text,
  p_worker   text,
  p_limit    int,
  p_lease    interval,
  p_busy     text[] default '{}',
  p_per_lane int default null,
  p_after    uuid default null,
  p_tenants  uuid[] default '{}',
  p_lanes    text[] default '{}'
) returns table (
  id uuid, claim bigint, tenant_id uuid, workspace_id uuid, idempotency_key bytea, channel text, lane text,
  recipient text, recipient_id text, payload jsonb, request bytea, guarantee text, attempts int,
  correlation_id text, channel_message_id uuid, taken_over boolean
)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set enable_sort = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now     timestamptz := clock_timestamp();
  v_left    int := p_limit;
  v_tenants uuid[];
  v_tenant  uuid;
  v_lane    text;
  v_start   text;
  v_wrapped boolean;
  v_share   int;
  v_take    int;
  v_n       int;
  v_got     tid[];
  v_rows    tid[] := '{}';
  v_domains text[];
  v_tokens  float8[];
  v_taken   int[];
  v_at      int;
  v_claim   bigint;
  v_paused  boolean := exists (select from deed.pauses p where p.provider = p_provider);
  v_most    int;
begin
  if p_limit is null or p_limit < 0 or p_limit > 10000 then
    raise exception 'claim_deliveries: limit must be from 0 to 10000, got %', p_limit using errcode = 'DDARG';
  end if;
  if coalesce(p_worker, '') = '' or length(p_worker) > 200 then
    raise exception 'claim_deliveries: worker must have 1 to 200 characters' using errcode = 'DDARG';
  end if;
  if p_lease is null or p_lease not between interval '1 second' and interval '24 hours' then
    raise exception 'claim_deliveries: lease must be from 1 second to 24 hours, got %', p_lease using errcode = 'DDARG';
  end if;

  if v_paused then
    v_left := least(v_left, deed.pause_allows(p_provider, ''));
  end if;
  if v_left < 1 then
    return;
  end if;

  -- The buckets are locked in one order, the provider's first, until the claim
  -- commits: what is taken here nobody else takes.
  select array_agg(r.domain), array_agg(r.tokens), array_agg(0)
  into v_domains, v_tokens, v_taken
  from (
    select b.domain, least(b.burst, b.tokens + b.rate * greatest(0, extract(epoch from clock_timestamp() - b.at))) as tokens
    from deed.rate_limits b
    where b.provider = p_provider
    order by b.provider, b.domain
    for update
  ) r;
  if v_domains[1] = '' then
    v_left := least(v_left, floor(v_tokens[1])::int);
  end if;
  if v_left < 1 then
    return;
  end if;

  v_tenants := array(
    with recursive around as (
      (
        select c.tenant_id, 1 as n from deed.channel_outbox c
        where c.provider = p_provider and c.status = 'queued' and c.tenant_id > coalesce(p_after, '00000000-0000-0000-0000-000000000000')
        order by c.tenant_id limit 1
      )
      union all
      select (
        select c.tenant_id from deed.channel_outbox c
        where c.provider = p_provider and c.status = 'queued' and c.tenant_id > a.tenant_id
        order by c.tenant_id limit 1
      ), a.n + 1
      from around a where a.tenant_id is not null and a.n < 100
    )
    select a.tenant_id from around a where a.tenant_id is not null
  );
  if cardinality(v_tenants) < 100 then -- round to the first ones
    v_tenants := v_tenants || array(
      with recursive around as (
        (
          select c.tenant_id, 1 as n from deed.channel_outbox c
          where c.provider = p_provider and c.status = 'queued'
          order by c.tenant_id limit 1
        )
        union all
        select (
          select c.tenant_id from deed.channel_outbox c
          where c.provider = p_provider and c.status = 'queued' and c.tenant_id > a.tenant_id
          order by c.tenant_id limit 1
        ), a.n + 1
        from around a where a.tenant_id is not null and a.n < 100
      )
      select a.tenant_id from around a
      where a.tenant_id <= coalesce(p_after, '00000000-0000-0000-0000-000000000000')
    );
  end if;

  v_n := cardinality(v_tenants);
  foreach v_tenant in array v_tenants loop
    exit when v_left < 1;
    v_share := ceil(v_left::float8 / v_n);
    v_n := v_n - 1;
    v_start := p_lanes[array_position(p_tenants, v_tenant)];
    v_lane := v_start;
    v_wrapped := v_start is null;
    loop
      exit when v_share < 1;
      select c.lane into v_lane from deed.channel_outbox c
      where c.provider = p_provider and c.status = 'queued' and c.tenant_id = v_tenant
        and c.lane >= coalesce(v_lane, '') and (v_lane is null or c.lane > v_lane)
      order by c.lane limit 1;
      if not found and not v_wrapped then -- round to the first one
        v_wrapped := true;
        v_lane := null;
        continue;
      end if;
      exit when not found or (v_wrapped and v_lane > v_start);
      continue when v_lane = any (p_busy);
      v_at := case when v_lane <> '' then array_position(v_domains, v_lane) end;
      v_most := case when v_paused and v_lane <> '' then deed.pause_allows(p_provider, v_lane) end;
      v_take := least(v_share, p_per_lane, case when v_at is not null then floor(v_tokens[v_at])::int - v_taken[v_at] end, v_most);
      continue when v_take < 1;

      v_got := array(
        select c.ctid from deed.channel_outbox c
        where c.provider = p_provider and c.status = 'queued' and c.tenant_id = v_tenant and c.lane = v_lane
          and c.ord <= v_now and (c.lease_until is null or c.lease_until <= v_now)
        order by c.ord
        limit v_take
        for update skip locked
      );
      v_take := cardinality(v_got);
      v_rows := v_rows || v_got;
      v_share := v_share - v_take;
      v_left := v_left - v_take;
      if v_at is not null then
        v_taken[v_at] := v_taken[v_at] + v_take;
      end if;
    end loop;
  end loop;
  if cardinality(v_rows) = 0 then
    return;
  end if;

  if v_domains is not null then
    if v_domains[1] = '' then
      v_taken[1] := cardinality(v_rows);
    end if;
    update deed.rate_limits b
    set tokens = u.tokens - u.taken, at = clock_timestamp()
    from unnest(v_domains, v_tokens, v_taken) u(domain, tokens, taken)
    where b.provider = p_provider and b.domain = u.domain and u.taken > 0;
  end if;
  v_claim := nextval('deed.claim_seq');
  if v_paused then
    perform deed.name_probes(p_provider, v_rows, v_claim);
  end if;

  return query
  with free as (
    -- to say which were taken over
    select c.ctid as place, c.claim is not null as taken_over from deed.channel_outbox c where c.ctid = any (v_rows)
  )
  update deed.channel_outbox c
  set claimed_at = v_now, lease_until = v_now + p_lease, claim = v_claim, claimed_by = p_worker, updated_at = v_now
  from free f
  where c.ctid = f.place -- locked above: they stay where they are
  returning c.id, v_claim, c.tenant_id, c.workspace_id, c.idempotency_key, c.channel, c.lane,
    c.recipient, c.recipient_id, c.payload, c.request, c.guarantee, c.attempts,
    c.correlation_id, c.channel_message_id, f.taken_over;
end
$$;
