-- deed.refuse_campaign_change: the trigger that keeps what a campaign says and to whom: a
-- content never changes, nor a member of an audience, but that an erasure empties it (D12).
-- Both are deleted only with their tenant. Raises DDCON.
create or replace function deed.refuse_campaign_change() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' and deed.is_removed(old.tenant_id) then
    return old;
  end if;
  raise exception '%: a row that is there cannot be changed', tg_table_name using errcode = 'DDCON';
end
$$;
