-- deed.check_campaign: the trigger through which every change of the status of a campaign's
-- run or job goes, the owner's and superusers' too (C2). Allowed is what
-- deed.campaign_transitions lists; both begin as queued. What they are of never changes, and
-- they are deleted only with their tenant. Raises DDCON.
create or replace function deed.check_campaign() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_kind text := case tg_table_name when 'campaign_runs' then 'run' else 'job' end;
begin
  if tg_op = 'DELETE' and deed.is_removed(old.tenant_id) then
    return old;
  elsif tg_op = 'DELETE' then
    raise exception 'campaign %: % cannot be deleted', v_kind, old.id using errcode = 'DDCON';
  elsif tg_op = 'INSERT' then
    raise exception 'campaign %: a new one is queued, and cannot be %', v_kind, new.status using errcode = 'DDCON';
  end if;
  if not exists (select from deed.campaign_transitions t where t.kind = v_kind and t.from_status = old.status and t.to_status = new.status) and old.status <> new.status then
    raise exception 'campaign %: % is % and may not become %', v_kind, old.id, old.status, new.status
      using errcode = 'DDCON', hint = 'deed.campaign_transitions lists the changes that there are.';
  elsif old.status = new.status then
    raise exception 'campaign %: what % is of cannot be changed', v_kind, old.id using errcode = 'DDCON';
  end if;
  return new;
end
$$;
