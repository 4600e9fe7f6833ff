-- deed.without_addresses: a text in which a service has said something of a recipient,
-- without addresses: neither theirs, nor what looks like another one of e-mail.
create or replace function deed.without_addresses(
  p_text      text,
  p_recipient text
) returns text
language sql
immutable
set search_path = pg_catalog, pg_temp
as $$
  select regexp_replace(
    case when ltrim(p_recipient, '+') <> '' then regexp_replace(p_text, '***=' || ltrim(p_recipient, '+'), '(address)', 'gi') else p_text end,
    '[^][[:space:]<>"''(),;:]*(@|%40)[^][[:space:]<>"''(),;:]+', '(address)', 'gi')
$$;
