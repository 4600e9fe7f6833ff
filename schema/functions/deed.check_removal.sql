-- deed.check_removal: raise DDARG for what no removal may be asked with. For
-- deed.remove_subscription and deed.remove_topic.
create or replace function deed.check_removal(
  p_topic  text,
  p_reason text,
  p_by     text
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if length(p_by) not between 1 and 200 or length(p_reason) > 2000 then
    raise exception 'remove: who asks is a name of 1 to 200 characters, a reason has up to 2000' using errcode = 'DDARG';
  end if;
  if coalesce(btrim(p_reason), '') = '' then
    raise exception 'remove: a reason is needed: nothing that is owed is given up silently' using errcode = 'DDARG';
  end if;
  if p_topic is null or p_topic !~ '^[A-Za-z0-9._:/-]{1,200}$' then
    raise exception 'remove: topic % must be 1 to 200 characters of A-Z a-z 0-9 . _ : / -', coalesce(quote_literal(left(p_topic, 60)), 'null')
      using errcode = 'DDARG', hint = 'The subscription of what nobody declared cannot be removed.';
  end if;
end
$$;
