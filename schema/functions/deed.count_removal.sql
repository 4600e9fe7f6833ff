-- deed.count_removal: what would be given up with a subscription, or (p_name
-- null) with a topic: a row for each of its subscriptions, and one without a name
-- if publishers have given some to nobody, as it had none.
--
-- waiting: pending rows that are not dead; of those, claimed are under a live
-- lease, aside are a stream's that failed or stand behind one that did; dead;
-- blocked_keys wait for a message; unread is what a stream has still to read,
-- counted up to 10,000 a lane (at_least: there may be more). workers are the
-- processes that are seen at work on it, up to 100; one that has nothing to do is not seen.
-- Raises DDNFD.
create or replace function deed.count_removal(
  p_topic text,
  p_name  text default null
) returns table (
  subscription text, mode text, door boolean, waiting bigint, claimed bigint, aside bigint, dead bigint, blocked_keys bigint,
  unread bigint, at_least boolean, workers text[]
)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now  timestamptz := clock_timestamp();
  v_base int;
  v_mode text;
  v_sub  record;
begin
  select t.slot_base, t.mode into v_base, v_mode from deed.topics t where t.topic = p_topic;
  if not exists (
    select from deed.subscriptions s where s.topic = p_topic and s.name = coalesce(p_name, s.name) and s.id <> 0
  ) and (v_base is null or p_name is not null) then
    raise exception 'count_removal: %', case
        when p_name is null then format('topic %s is not declared', quote_literal(coalesce(p_topic, '')))
        else format('topic %s has no subscription %s', quote_literal(coalesce(p_topic, '')), quote_literal(p_name)) end
      using errcode = 'DDNFD';
  end if;
  for v_sub in
    select s.id, s.name, s.door, s.since is not null as is_stream
    from deed.subscriptions s
    where s.topic = p_topic and s.name = coalesce(p_name, s.name) and s.id <> 0
    order by s.name
  loop
    subscription := v_sub.name;
    mode := case when v_sub.is_stream then 'stream' else 'queue' end;
    door := v_sub.door;
    select count(*) filter (where p.dead_at is null), count(*) filter (where p.dead_at is null and p.lease_until > v_now),
      case when v_sub.is_stream then count(*) filter (where p.dead_at is null) else 0 end, count(*) filter (where p.dead_at is not null),
      count(*) filter (where p.key_hash is not null and not p.parked)
    into waiting, claimed, aside, dead, blocked_keys
    from deed.pending p
    where p.subscription = v_sub.id;
    unread := 0;
    at_least := false;
    if v_sub.is_stream then
      select g.behind, g.behind >= 10000 into unread, at_least from deed.lag(array[v_sub.id], 10000) g;
    end if;
    workers := array(
      select distinct w.name
      from (
        select r.name from deed.relays r where r.subscription = v_sub.id and r.seen_until > v_now
        union all
        select c.name from deed.running_calls c where c.subscription = v_sub.id and c.seen_until > v_now
        union all
        (select p.claimed_by from deed.pending p where p.subscription = v_sub.id and p.lease_until > v_now limit 1000)
      ) w
      order by w.name
      limit 100
    );
    return next;
  end loop;
  if p_name is null and v_base is not null then
    subscription := null;
    mode := v_mode;
    door := false;
    select count(*) filter (where p.dead_at is null), count(*) filter (where p.dead_at is null and p.lease_until > v_now),
      0, count(*) filter (where p.dead_at is not null), 0
    into waiting, claimed, aside, dead, blocked_keys
    from deed.pending p
    where p.subscription = 0 and p.slot between v_base and v_base + 63;
    unread := 0;
    at_least := false;
    workers := '{}';
    if waiting + dead > 0 then
      return next;
    end if;
  end if;
end
$$;
