-- deed.refuse_campaign_change: the trigger that keeps what a campaign says and to whom: a
-- content never changes, nor a member of an audience, but that an erasure empties it (D12).
-- Both are deleted only with their tenant, and an audience that was never ready, and its members, by
-- deed.remove_audience. Raises DDCON.
create or replace function deed.refuse_campaign_change() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' and deed.is_removed(old.tenant_id) then
    return old;
  end if;
  if tg_op = 'DELETE' and tg_table_name = 'audiences' then
    if old.status = 'removing' then
      return old;
    end if;
  elsif tg_op = 'DELETE' and tg_table_name = 'audience_members' then
    if exists (select from deed.audiences a where a.id = old.audience_id and a.status = 'removing') then
      return old;
    end if;
  end if;
  raise exception '%: a row that is there cannot be changed', tg_table_name using errcode = 'DDCON';
end
$$;
