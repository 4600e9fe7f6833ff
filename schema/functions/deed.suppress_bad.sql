-- deed.suppress_bad: suppress, for everything, the addresses of those of a settlement that are
-- refused as bad (deed.settle, which has locked them). Not the sandbox's, and of no tenant that was removed.
--
-- Whoever has one of them in a transaction that is open is not waited for where p_leave says so: 50 ms,
-- and once one was so, 1 ms for each. Returns those deliveries, of which nothing is written. Else 55P03.
create or replace function deed.suppress_bad(
  p_ids    uuid[],
  p_claims bigint[],
  p_kinds  text[],
  p_worker text,
  p_leave  boolean
) returns uuid[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set lock_timeout = '1s' -- as in deed.settle
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_busy uuid[] := '{}';
  v_d    record;
begin
  for v_d in
    select c.id, c.tenant_id, c.channel, c.recipient, c.provider
    from unnest(p_ids, p_claims, p_kinds) u(id, claim, kind)
    cross join lateral (
      select o.* from deed.channel_outbox o where o.id = u.id and o.claim = u.claim and o.status = 'sending' and not o.sandbox
    ) c
    where u.kind = 'bad_address' and deed.fold_address(c.channel, c.recipient) is not null and not deed.is_removed(c.tenant_id)
    order by c.tenant_id, c.channel, deed.fold_address(c.channel, c.recipient)
  loop
    begin
      if p_leave then
        perform set_config('lock_timeout', case when cardinality(v_busy) = 0 then '50' else '1' end, true);
      end if;
      perform deed.suppress(v_d.channel, array[v_d.recipient], format('a bad address, says %s: delivery %s', v_d.provider, v_d.id), p_worker, v_d.tenant_id);
    exception when lock_not_available then
      if not p_leave then
        raise;
      end if;
      v_busy := v_busy || v_d.id;
    end;
  end loop;
  return v_busy;
end
$$;
