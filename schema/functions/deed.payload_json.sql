-- deed.payload_json: a payload as the faces show it: JSON as it is, anything
-- else as a string in base64, and so JSON that could not be shown (deed.json_excess).
-- Called stable, for convert_from is: else calls are not inlined.
create or replace function deed.payload_json(
  p_content_type text,
  p_payload      bytea
) returns jsonb
language sql
stable parallel safe
return case
  when (p_content_type = 'application/json' or deed.is_json(p_content_type))
    and (octet_length(p_payload) <= 1024 or deed.json_excess(p_payload) is null) then convert_from(p_payload, 'UTF8')::jsonb
  else to_jsonb(translate(encode(p_payload, 'base64'), E'\n', ''))
end;
