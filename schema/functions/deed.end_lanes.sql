-- deed.end_lanes: end the lanes of a subscription that was removed. For
-- deed.remove_step.
--
-- As another owner does: each gets a last record under a new fence, so a page that is
-- under way is not recorded, and nothing of it is put aside.
create or replace function deed.end_lanes(
  p_subscription int
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_lane deed.lanes%rowtype;
begin
  for v_lane in select l.* from deed.lanes l where l.subscription = p_subscription order by l.lane for update loop
    loop
      insert into deed.progress as g (subscription, lane, n, fence, from_window, to_window, slot, id, total)
      select last.subscription, last.lane, last.n + 1, deed.claim_number(), last.from_window, last.to_window, last.slot, last.id, last.total
      from deed.progress last
      where last.subscription = p_subscription and last.lane = v_lane.lane
      order by last.n desc
      limit 1
      on conflict do nothing; -- of a page that was just being recorded
      exit when found or not exists (select from deed.progress g where g.subscription = p_subscription and g.lane = v_lane.lane);
    end loop;
    insert into deed.former_lanes (subscription, lane, slot_from, slot_upto, kept_from)
    values (p_subscription, v_lane.lane, v_lane.slot_from, v_lane.slot_upto, v_lane.kept_from);
    delete from deed.lanes l where l.subscription = p_subscription and l.lane = v_lane.lane;
  end loop;
end
$$;
