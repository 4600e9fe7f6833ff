-- deed.hold_run: the part of deed.pause_run and deed.cancel_run that lets nothing of a run
-- begin any more: once the caller's transaction has committed, nothing does but what is
-- sending. The caller has the run's row.
--
-- Attempts that have looked before and are not committed are waited for, two seconds at the
-- most (55P03: try again); those that come after it see the hold. Returns how many are sending.
create or replace function deed.hold_run(
  p_run    uuid,
  p_tenant uuid
) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
begin
  insert into deed.delivery_holds (run_id, tenant_id, at) values (p_run, p_tenant, clock_timestamp()) on conflict do nothing;
  -- Until the caller commits no attempt of anybody is made: who leaves it open loses it.
  perform set_config('idle_in_transaction_session_timeout', '1s', true);
  lock table deed.provider_lock in exclusive mode;
  return (select count(*) from deed.channel_outbox c where c.run_id = p_run and c.status = 'sending');
end
$$;
