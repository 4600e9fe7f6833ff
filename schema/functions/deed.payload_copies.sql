-- deed.payload_copies: who gets copies of an e-mail, by its payload, as addresses are compared
-- (deed.fold_address), each once; null: nobody. One that is no address is a null among them, and
-- so is what is no list, or is named CC: what reads JSON in Go would take that for cc.
create or replace function deed.payload_copies(p_payload jsonb) returns text[]
language sql
immutable
begin atomic
  select array_agg(distinct deed.fold_address('email', a.address))
  from jsonb_array_elements_text(case
      when p_payload ?| '{CC,Cc,cC}' then '[""]'
      when jsonb_typeof(p_payload -> 'cc') = 'array' then p_payload -> 'cc'
      when jsonb_typeof(p_payload -> 'cc') = 'null' then '[]'
      else '[""]'
    end) a(address)
  where p_payload ?| '{cc,CC,Cc,cC}';
end;
