-- deed.take_tenant_pending: look at the next p_limit pending rows after (at_sub, at_id),
-- by number, and take away those of a tenant, whoever has them in hand. What others have
-- locked is left. more says that there may be more. For deed.take_tenant.
create or replace function deed.take_tenant_pending(
  in    p_tenant  uuid,
  inout at_sub    int,
  inout at_id     bigint,
  in    p_limit   int,
  out   taken     int,
  out   left_some boolean,
  out   more      boolean
) returns record
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
  v_subs int[];
  v_ids  bigint[];
  v_rows tid[];
  v_seen int;
begin
  select count(*), array_agg(q.subscription) filter (where q.tenant_id = p_tenant), array_agg(q.id) filter (where q.tenant_id = p_tenant),
    (array_agg(q.subscription))[count(*)], (array_agg(q.id))[count(*)]
  into v_seen, v_subs, v_ids, at_sub, at_id
  from (
    select p.subscription, p.id, p.tenant_id from deed.pending p
    where (p.subscription, p.id) > (at_sub, at_id)
    order by p.subscription, p.id
    limit p_limit
  ) q;
  v_rows := array(
    select q.ctid
    from unnest(v_subs, v_ids) u(subscription, id)
    cross join lateral (
      select p.ctid from deed.pending p where p.subscription = u.subscription and p.id = u.id for update skip locked
    ) q
  );
  delete from deed.pending p where p.ctid = any (v_rows); -- locked above: they stay where they are
  get diagnostics taken = row_count;
  left_some := taken < coalesce(cardinality(v_ids), 0);
  more := v_seen = p_limit;
end
$$;
