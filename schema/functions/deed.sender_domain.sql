-- deed.sender_domain: the domain of a sender, as Shop <shop@example.com>, as A-labels; null where it has none.
create or replace function deed.sender_domain(
  p_from text
) returns text
language sql
immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select deed.domain_ascii(deed.fold_case(coalesce(
    substring(p_from from '<[^<>]*@([^<>@]+)>[^<>]*$'),
    substring(regexp_replace(btrim(p_from), '[[:space:]]*[(][^()]*[)]$', '') from '@([^@<>()[:space:]]+)$')
  )))
$$;
