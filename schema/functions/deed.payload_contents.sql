-- deed.payload_contents: the SHA-256 of the files that an e-mail's attachments name instead of
-- having their bytes, each once, in order; null: none. What is no SHA-256, or stands beside
-- bytes, is a null among them.
create or replace function deed.payload_contents(p_payload jsonb) returns bytea[]
language sql
immutable
begin atomic
  select array_agg(distinct case when a.file ->> 'sha256' ~ '^[0-9a-f]{64}$' and not a.file ? 'content' then decode(a.file ->> 'sha256', 'hex') end)
  from jsonb_array_elements(case when jsonb_typeof(p_payload -> 'attachments') = 'array' then p_payload -> 'attachments' else '[]' end) a(file)
  where jsonb_typeof(a.file) = 'object' and a.file ? 'sha256';
end;
