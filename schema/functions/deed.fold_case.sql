-- deed.fold_case: a text as it is compared: NFKC, without regard to case.
--
-- ASCII folds as in the locale C, whatever the database's: the Turkish one would
-- make another letter of I. The rest needs ICU or a locale that knows letters
-- beyond ASCII; without both the answer is null.
create or replace function deed.fold_case(
  p_text text
) returns text
language plpgsql
immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  v_text text := lower(normalize(p_text, nfkc) collate "C");
begin
  if v_text !~ e'[^\\x01-\\x7f]' then
    return v_text;
  end if;
  if exists (select from pg_collation c where c.collname = 'und-x-icu') then
    return normalize(lower(v_text collate pg_catalog."und-x-icu"), nfkc);
  elsif lower('Ä') = 'ä' then
    return normalize(lower(v_text), nfkc);
  end if;
  return null;
end
$$;
