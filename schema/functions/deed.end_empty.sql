-- deed.end_empty: end as dead what a claim was to hand out and has no content.
--
-- For deed.claim, deed.claim_doors and deed.attend, which have found fewer
-- messages than they claimed at p_at for p_worker. Under REPEATABLE READ it does
-- nothing: such a snapshot may not see what was moved, so the lease runs out.
create or replace function deed.end_empty(
  p_subscriptions int[],
  p_ids           bigint[],
  p_at            timestamptz,
  p_worker        text
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    return;
  end if;
  update deed.pending p
  set dead_at = clock_timestamp(), last_error = 'its content is gone: neither the log nor what was kept of it has the message',
    claim = null, claimed_at = null, claimed_by = null, lease_until = null
  where p.subscription = any (p_subscriptions) and p.id = any (p_ids) and p.claimed_at = p_at and p.claimed_by = p_worker
    and not exists (select from deed.log l where l.slot = p.slot and l.id = p.id)
    and not exists (select from deed.kept k where k.slot = p.slot and k.id = p.id);
end
$$;
