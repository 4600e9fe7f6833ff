-- deed.newest_read: the newest window up to which a lane has read, or the lanes of a stream that has become a
-- queue had; null where no topic was a stream. What retention takes away deed.verify adds up from behind it.
create or replace function deed.newest_read() returns bigint
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select greatest(
    (
      select max(at.from_window)
      from deed.lanes l
      cross join lateral (
        select g.from_window
        from deed.progress g
        where g.subscription = l.subscription and g.lane = l.lane
        order by g.n desc
        limit 1
      ) at
    ),
    (select max(s.read_window) from deed.subscriptions s)
  )
$$;
