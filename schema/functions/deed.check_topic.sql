-- deed.check_topic: raise DDARG if a topic cannot have these settings.
create or replace function deed.check_topic(
  p_topic     text,
  p_mode      text,
  p_lanes     int,
  p_retention interval
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_topic is null or p_topic !~ '^[A-Za-z0-9._:/-]{1,200}$' then
    raise exception 'topic % must be 1 to 200 characters of A-Z a-z 0-9 . _ : / -', coalesce(quote_literal(left(p_topic, 60)), 'null')
      using errcode = 'DDARG';
  end if;
  if p_mode not in ('queue', 'stream') then
    raise exception 'topic %: mode % is neither queue nor stream', quote_literal(p_topic), quote_literal(p_mode) using errcode = 'DDARG';
  end if;
  if p_lanes not between 1 and 64 then
    raise exception 'topic %: % lanes; from 1 to 64 are possible', quote_literal(p_topic), p_lanes using errcode = 'DDARG';
  end if;
  if p_retention < interval '1 minute' then
    raise exception 'topic %: a retention of % is below a minute', quote_literal(p_topic), p_retention using errcode = 'DDARG';
  end if;
end
$$;
