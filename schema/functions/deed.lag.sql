-- deed.lag: how many messages streams have still to read, and since when the
-- oldest of them waits.
--
-- Exact up to p_most for each stretch of a lane, and at least that if there are
-- more. Only what has committed counts; what is put aside does not.
create or replace function deed.lag(
  p_subscriptions int[],
  p_most          int default 10000
) returns table (subscription int, behind bigint, oldest timestamptz)
language sql
set search_path = pg_catalog, pg_temp
as $$
  select u.subscription, u.behind, u.oldest from deed.count_unread(p_subscriptions, p_most, true) u
$$;
