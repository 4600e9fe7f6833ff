-- deed.payload_copies: who gets copies of an e-mail, by its payload, as addresses are compared
-- (deed.fold_address), each once; null: nobody. One that is no address is a null among them, and
-- so is what is no list.
create or replace function deed.payload_copies(p_payload jsonb) returns text[]
language sql
immutable
begin atomic
  select array_agg(distinct deed.fold_address('email', a.address))
  from jsonb_array_elements_text(case jsonb_typeof(p_payload -> 'cc') when 'array' then p_payload -> 'cc' when 'null' then '[]' else '[""]' end) a(address)
  where p_payload ? 'cc';
end;
