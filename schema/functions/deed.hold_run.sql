-- deed.hold_run: the part of deed.pause_run and deed.cancel_run that lets nothing of a run
-- begin any more. The caller has the run's row.
--
-- Attempts that begin after its commit see the hold; where it has stood before, those that
-- looked earlier and are not committed are waited for, two seconds at the most (55P03: try
-- again). It is waited without a lock: one that is kept until the commit, by a caller who
-- leaves his transaction open, would stop everybody's attempts. Returns how many are sending.
create or replace function deed.hold_run(
  p_run    uuid,
  p_tenant uuid
) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_until timestamptz := clock_timestamp() + interval '2 seconds';
  v_begun text[];
begin
  insert into deed.delivery_holds (run_id, tenant_id, at) values (p_run, p_tenant, clock_timestamp()) on conflict do nothing;
  if not found then
    -- Each holds deed.provider_lock from before it looks until it is committed (deed.attempt); so does who pauses (deed.pause).
    v_begun := array(
      select l.virtualtransaction from pg_locks l
      where l.relation = 'deed.provider_lock'::regclass and l.mode = 'RowShareLock' and l.granted and l.pid <> pg_backend_pid()
        and l.database = (select d.oid from pg_database d where d.datname = current_database())
    );
    while exists (
      select from pg_locks l
      where l.relation = 'deed.provider_lock'::regclass and l.mode = 'RowShareLock' and l.virtualtransaction = any (v_begun)
        and l.database = (select d.oid from pg_database d where d.datname = current_database())
    ) loop
      if clock_timestamp() > v_until then
        raise exception 'run % is held, and attempts that began before have not ended', p_run
          using errcode = '55P03', hint = 'Try again: nothing begins once that succeeds.';
      end if;
      perform pg_sleep(0.002);
    end loop;
  end if;
  -- By what its provider is sending, and not by all that the run has.
  return (
    select count(*)
    from (
      select c.run_id
      from deed.channel_outbox c
      where c.provider = (select r.provider from deed.campaign_runs r where r.id = p_run) and c.status = 'sending'
      offset 0
    ) s
    where s.run_id = p_run
  );
end
$$;
