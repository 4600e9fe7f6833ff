-- deed.is_json: whether a media type promises JSON.
create or replace function deed.is_json(
  p_content_type text
) returns boolean
language sql
immutable parallel safe
return p_content_type is null
  or lower(split_part(p_content_type, ';', 1)) = 'application/json'
  or lower(split_part(p_content_type, ';', 1)) like '%+json';
