-- deed.erased_message_id: what is kept of a provider's message id once its delivery has
-- been erased: WhatsApp's is made of a number, and becomes its hash; others stay.
create or replace function deed.erased_message_id(p_message_id text) returns text
language plpgsql
immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  return case when p_message_id like 'wamid.%' then 'sha256:' || encode(sha256(convert_to(p_message_id, 'UTF8')), 'hex') else p_message_id end;
end
$$;
