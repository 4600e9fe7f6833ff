-- deed.plan_graph: the steps of a plan in their order, and what each waits for, as its
-- canonical form says (deed.put_plan). names is how many steps it waits for by name: where
-- they are more than depends, a name is of no step. queue is where the step is claimed, and
-- attempts and backoff are its retries.
create or replace function deed.plan_graph(
  p_body bytea
) returns table (place int, step_id text, kind text, needs_success bool, names int, depends int[], successors int[],
  attempts int, backoff interval, at_most_once bool, queue text)
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  with steps as materialized (
    select (s.ordinality - 1)::int as place, s.key as step_id, s.value ->> 'kind' as kind, coalesce(s.value ->> 'needs', 'success') <> 'done' as needs_success,
      s.value -> 'after' as after, s.value -> 'retry' as retry, coalesce(s.value ->> 'guarantee' = 'at_most_once', false) as at_most_once,
      case s.value ->> 'kind' when 'go' then 'go:' || (s.value ->> 'handler') else 'deed' end as queue
    from json_each(convert_from(p_body, 'UTF8')::json -> 'steps') with ordinality s
  ),
  named as materialized (
    select s.place, a.step_id from steps s cross join lateral json_array_elements_text(s.after) a(step_id)
  ),
  edges as materialized (
    select n.place, d.place as waits_for from named n join steps d on d.step_id = n.step_id
  )
  select s.place, s.step_id, s.kind, s.needs_success, coalesce(n.names, 0), coalesce(d.bits, '{}'), coalesce(u.bits, '{}'),
    coalesce((s.retry ->> 'attempts')::int, 1), coalesce(deed.plan_duration(s.retry ->> 'backoff'), '1 second'), s.at_most_once, s.queue
  from steps s
  left join (select n.place, count(*)::int as names from named n group by n.place) n on n.place = s.place
  left join (select e.place, array_agg(e.waits_for order by e.waits_for) as bits from edges e group by e.place) d on d.place = s.place
  left join (select e.waits_for as place, array_agg(e.place order by e.place) as bits from edges e group by e.waits_for) u on u.place = s.place
  order by s.place
$$;
