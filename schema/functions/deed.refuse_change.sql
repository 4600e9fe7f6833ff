-- deed.refuse_change: the trigger of tables that are append-only, for the owner
-- and superusers too: what stands there stays. A trigger for each row lets those of a
-- tenant that is being removed go. Raises DDCON.
create or replace function deed.refuse_change() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' and tg_level = 'ROW' and deed.is_removed(old.tenant_id) then
    return old;
  end if;
  raise exception '%.% is append-only: % is refused', tg_table_schema, tg_table_name, lower(tg_op)
    using errcode = 'DDCON';
end
$$;
