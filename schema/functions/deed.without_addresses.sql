-- deed.without_addresses: a text in which a service has said something of a recipient,
-- without addresses: neither theirs, nor what looks like another one of e-mail. A number is
-- theirs however it is written: with anything between its digits that people put there, after
-- a + or 00.
create or replace function deed.without_addresses(
  p_text      text,
  p_recipient text
) returns text
language sql
immutable
set search_path = pg_catalog, pg_temp
as $$
  select regexp_replace(
    case
      when deed.fold_address('sms', p_recipient) ~ '[0-9]{7}' then regexp_replace(p_text,
        e'(?<![0-9])((00|\\+)[ ()./\\-\\u00a0\\u2010-\\u2015\\u2212]{0,4})?'
          || regexp_replace(regexp_replace(deed.fold_address('sms', p_recipient), e'^(\\+|00)', ''), '([0-9])(?=[0-9])', e'\\1[ ()./\\\\-\\u00a0\\u2010-\\u2015\\u2212]{0,4}', 'g')
          || '(?![0-9])',
        '(address)', 'g')
      when ltrim(p_recipient, '+') <> '' then regexp_replace(p_text, '***=' || ltrim(p_recipient, '+'), '(address)', 'gi')
      else p_text
    end,
    '[^][[:space:]<>"''(),;:]*(@|%40)[^][[:space:]<>"''(),;:]+', '(address)', 'gi')
$$;
