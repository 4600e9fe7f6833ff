-- deed.release_lane: give a lane back at once, as at a clean stop.
--
-- p_worker's lane with that fence; another's stays as it is.
create or replace function deed.release_lane(
  p_subscription int,
  p_lane         int,
  p_fence        bigint
) returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update deed.lanes l set worker = null, lease_until = null
  where l.subscription = p_subscription and l.lane = p_lane and l.fence = p_fence;
  return found;
end
$$;
