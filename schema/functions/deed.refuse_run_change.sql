-- deed.refuse_run_change: the trigger that keeps runs and their events as they are, for the
-- owner and superusers too (R1).
--
-- Rows go with their tenant, or by retention; what people put into a run is emptied by
-- deed.redact_run: each says so in the transaction's setting deed.act. Raises DDCON.
create or replace function deed.refuse_run_change() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_act text := coalesce(current_setting('deed.act', true), '');
begin
  if tg_op = 'DELETE' and tg_level = 'ROW' and (v_act = 'run retention' or deed.is_removed(old.tenant_id)) then
    return old;
  elsif tg_op = 'UPDATE' and v_act = 'run redaction' then
    return new;
  elsif tg_op = 'TRUNCATE' and v_act = 'run retention' then
    return null;
  end if;
  raise exception '%.% keeps what was appended: % is refused', tg_table_schema, tg_table_name, lower(tg_op)
    using errcode = 'DDCON';
end
$$;
