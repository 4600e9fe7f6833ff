-- deed.retention: the partitions of the log, with what keeps each.
--
-- state: in use, kept (for the reasons in kept_by), due (nothing keeps it),
-- leaving (its content is being moved out) or empty (its table is still
-- there). unfinished counts what is to be moved out, up to 10,000 for each
-- subscription. overdue is how long nothing but a failure to act keeps it, or
-- what should have read it long ago: since the retention of the topics that it has rows of
-- was over, and that of what nobody declared. What an empty one had rows of is not known:
-- of a retention that was over when it was emptied.
create or replace function deed.retention() returns table (
  n int, from_id bigint, upto_id bigint, state text, opened_at timestamptz, closed_at timestamptz, bytes bigint,
  unfinished bigint, overdue interval, kept_by text[], tried_at timestamptz
)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_p record;
begin
  for v_p in
    select p.*, (select min(o.opened_at) from deed.partitions o where o.n > p.n) as closed,
      to_regclass(format('deed.%I', 'log_p' || p.n)) as rel
    from deed.partitions p
    where p.dropped_at is null
    order by p.n
  loop
    n := v_p.n;
    from_id := v_p.from_id;
    upto_id := v_p.upto_id;
    opened_at := v_p.opened_at;
    closed_at := v_p.closed;
    tried_at := v_p.tried_at;
    bytes := coalesce(pg_total_relation_size(v_p.rel), 0);
    kept_by := array(
      select case k.what
          when 'in use' then 'in use'
          when 'young' then format('its topics'' retention, until %s', to_char(k.until at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
          when 'stream' then format('%s/%s %s', s.topic, s.name, coalesce('lane ' || k.lane || ' has still to read it', 'has not begun to read'))
          else format('%s/%s is still brought what was published before it', s.topic, s.name)
        end
      from deed.keepers(v_p.n) k
      left join deed.subscriptions s on s.id = k.subscription
    );
    unfinished := 0;
    overdue := null;
    if closed_at is not null then
      select count(*) into unfinished
      from deed.subscriptions s
      cross join lateral (
        select from deed.pending w where w.subscription = s.id and w.id >= v_p.from_id and w.id < v_p.upto_id limit 10000
      ) w;
      if not exists (select from deed.keepers(v_p.n) k where k.what in ('in use', 'young')) then
        select clock_timestamp() - v_p.closed - max(k.retention) into overdue
        from (
          select 0 as slot_base, s.retention from deed.settings s
          union all
          select t.slot_base, t.retention from deed.topics t
        ) k
        where k.slot_base = 0 or case when v_p.emptied_at is null
          then exists (
            select from deed.log l
            where l.slot between k.slot_base and k.slot_base + 63 and l.id >= v_p.from_id and l.id < v_p.upto_id
          )
          else k.retention <= v_p.emptied_at - v_p.closed
        end;
      end if;
    end if;
    state := case
      when closed_at is null then 'in use'
      when v_p.emptied_at is not null then 'empty'
      when cardinality(kept_by) > 0 then 'kept'
      when v_p.moving is not null then 'leaving'
      else 'due'
    end;
    return next;
  end loop;
end
$$;
