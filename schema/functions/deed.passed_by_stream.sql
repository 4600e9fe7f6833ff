-- deed.passed_by_stream: whether a message was published while its topic was a
-- stream, by what its list's version says.
--
-- What lanes have gone past, deed.verify counts in the log: such a message stays
-- there until retention drops its partition.
create or replace function deed.passed_by_stream(
  p_topic        text,
  p_slot         int,
  p_list_version bigint
) returns boolean
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select exists (
    select from deed.subscriptions s
    join deed.former_lanes f on f.subscription = s.id
    where s.topic = p_topic and p_slot between f.slot_from and f.slot_upto
      and p_list_version >= f.since and p_list_version < s.list_version
  )
$$;
