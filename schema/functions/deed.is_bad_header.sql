-- deed.is_bad_header: whether no message may carry this header, because a sink
-- could not, or because the name is deed's own.
create or replace function deed.is_bad_header(
  p_name  text,
  p_value jsonb
) returns boolean
language sql
immutable parallel safe
return p_name !~ '^[!#$%&''*+.^_`|~0-9a-z-]{1,200}$'
  or p_name ~ '^(deed|webhook)-'
  or jsonb_typeof(p_value) <> 'string'
  or p_value #>> '{}' ~ e'[\\x01-\\x08\\x0a-\\x1f\\x7f]'
  or octet_length(p_value #>> '{}') > 8192;
