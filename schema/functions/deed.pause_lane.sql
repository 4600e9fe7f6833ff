-- deed.pause_lane: say that a lane has stopped between two windows, for a change
-- of lanes (deed.take_lanes). Its last row of deed.progress says where.
create or replace function deed.pause_lane(
  p_subscription int,
  p_lane         int,
  p_fence        bigint
) returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update deed.lanes l
  set paused_at = (
    select case when g.to_window is null then g.from_window end
    from deed.progress g
    where g.subscription = p_subscription and g.lane = p_lane
    order by g.n desc
    limit 1
  )
  where l.subscription = p_subscription and l.lane = p_lane and l.fence = p_fence;
  return found;
end
$$;
