-- deed.replace_snapshots: have what a run is by its events, after number p_seq, in the place
-- of what is stored of it; it is noted as stale no more. For deed run rebuild, in
-- a transaction of its own: until it ends the run has no other snapshot stored, and takes no event.
--
-- What a projector has stored meanwhile, after later events, stays: the run would be behind
-- until it moves again, and if that was its end, for ever. p_redacted is whether the run was redacted
-- when it was read. Raises DDNFD for an unknown run, DDTEN for another tenant's than the transaction has set or the login is bound to, and 40001 where it is redacted by
-- now: what was taken away would come back (D12).
create or replace function deed.replace_snapshots(
  p_run      uuid,
  p_seq      bigint,
  p_snapshot jsonb,
  p_redacted boolean
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant   uuid;
  v_redacted boolean;
begin
  perform from deed.runs r where r.run_id = p_run for update; -- as deed.redact_run does, against who stores
  select r.tenant_id, r.redacted_at is not null into v_tenant, v_redacted from deed.runs r where r.run_id = p_run;
  if not found then
    raise exception 'replace_snapshots: there is no run %', p_run using errcode = 'DDNFD';
  elsif (coalesce(current_setting('app.current_tenant_id', true), '') <> '' or exists (select from deed.tenant_logins l where l.login = session_user)
      or exists (select from deed.shut_logins l where l.login = session_user))
    and (deed.current_tenant() = v_tenant) is not true
  then
    raise exception 'replace_snapshots: the run is of another tenant than the transaction has set, or than this login is bound to' using errcode = 'DDTEN';
  elsif v_redacted is distinct from p_redacted then
    raise exception 'replace_snapshots: the run was redacted since it was read' using errcode = '40001';
  end if;
  delete from deed.run_snapshots s
  where s.run_id = p_run and (
    s.last_event_seq <= p_seq
    or s.last_event_seq > coalesce((select l.run_seq from deed.run_log l where l.run_id = p_run order by l.run_seq desc limit 1), 0) -- of events that are gone
  );
  delete from deed.run_stale t where t.run_id = p_run;
  if p_seq > 0 then
    insert into deed.run_snapshots (run_id, tenant_id, last_event_seq, projected_at, snapshot)
    values (p_run, v_tenant, p_seq, clock_timestamp(), p_snapshot)
    on conflict do nothing;
  end if;
end
$$;
