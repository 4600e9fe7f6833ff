-- deed.topics_of: of which topics messages are, and how many of each: for receipts
-- of the subscription 0, which has the topics that nobody declared. Null if the
-- content of none is left.
create or replace function deed.topics_of(
  p_slots int[],
  p_ids   bigint[]
) returns jsonb
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
begin
  return (
    select jsonb_object_agg(t.topic, t.n)
    from (
      select l.topic, count(*) as n
      from unnest(p_slots, p_ids) u(slot, id)
      cross join lateral (
        select g.topic from deed.log g where g.slot = u.slot and g.id = u.id
        union all
        select k.topic from deed.kept k where k.slot = u.slot and k.id = u.id
        limit 1
      ) l
      group by l.topic
    ) t
  );
end
$$;
