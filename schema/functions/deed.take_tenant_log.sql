-- deed.take_tenant_log: take a tenant's messages out of the next stretch of the log,
-- p_span numbers above at_id, and out of the receipts that name them. more says that
-- there are more numbers. For deed.take_tenant.
--
-- Numbers are missing afterwards, as they are of who has rolled back: no reader counts on
-- them. Nothing of the tenant is pending by now, so nobody writes a receipt of it, and
-- retention, whose lock this takes, keeps nothing.
create or replace function deed.take_tenant_log(
  in    p_tenant uuid,
  inout at_id    bigint,
  in    p_span   bigint,
  out   taken    bigint,
  out   more     boolean
) returns record
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
set enable_indexscan = off
set jit = off
as $$
declare
  v_from     bigint;
  v_upto     bigint;
  v_ids      bigint[];
  v_receipts bigint[];
begin
  lock table deed.retention_lock in share update exclusive mode nowait;
  taken := 0;
  -- What is between a partition's last number and its end is far, and little.
  select f.at, case when f.at + p_span < e.last_id then f.at + p_span else e.upto_id end into v_from, v_upto
  from deed.log_extents() e
  cross join lateral (select greatest(at_id, e.from_id - 1) as at) f
  where e.upto_id > at_id
  order by e.from_id
  limit 1;
  more := found;
  at_id := case when more then v_upto else 0 end;
  if not more then
    return;
  end if;
  with gone as (
    delete from deed.log l where l.id > v_from and l.id <= v_upto and l.tenant_id = p_tenant returning l.id
  )
  select array_agg(g.id) into v_ids from gone g;
  if v_ids is null then
    return;
  end if;
  taken := cardinality(v_ids);
  v_receipts := array(
    select distinct r.n
    from deed.receipts r
    cross join lateral unnest(r.ids) i(id)
    join unnest(v_ids) g(id) on g.id = i.id
    where r.finished > 0 and int8range(r.min_id, r.max_id, '[]') && int8range(v_from, v_upto, '(]')
  );
  perform deed.take_receipts(v_receipts, v_ids);
end
$$;
