-- deed.check_message: the trigger through which every change of an inbound message's
-- status goes, the owner's and superusers' too (D8). Allowed is what
-- deed.message_transitions lists: what has ended never becomes accepted again, unless
-- it had failed. What has not ended is not deleted, unless its tenant is being removed. Raises DDCON.
create or replace function deed.check_message() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_from text := case when tg_op = 'INSERT' then '' else old.status end;
begin
  if tg_op = 'DELETE' and deed.is_removed(old.tenant_id) then
    return old;
  elsif tg_op = 'DELETE' then
    raise exception 'channel message %: it is % and cannot be deleted before it has ended', old.id, old.status using errcode = 'DDCON';
  end if;
  if not exists (
    select from deed.message_transitions t
    where t.from_status = v_from and t.to_status = case when new.status like 'denied!_%' escape '!' then 'denied_*' else new.status end
  ) then
    raise exception 'channel message %: % may not become %', new.id, coalesce(nullif(v_from, ''), 'a new message'), new.status
      using errcode = 'DDCON', hint = 'deed.message_transitions lists the changes that there are.';
  end if;
  return new;
end
$$;
