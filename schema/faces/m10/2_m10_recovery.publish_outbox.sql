-- m10_recovery.publish_outbox: store an event in the caller's transaction.
--
-- Returns its number. Raises what deed.publish_many raises.
create or replace function m10_recovery.publish_outbox(
  p_aggregate_type text,
  p_aggregate_id   text,
  p_event_type     text,
  p_payload        jsonb
) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id bigint;
begin
  select p.id into v_id
  from deed.publish_many(
    array[p_event_type], array[convert_to(p_payload::text, 'UTF8')],
    p_keys => array[p_aggregate_id], p_aggregate_types => array[p_aggregate_type]
  ) p;
  return v_id;
end
$$;
