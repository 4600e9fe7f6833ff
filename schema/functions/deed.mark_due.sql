-- deed.mark_due: the trigger that says of a delivery whether it may be claimed
-- now: it is queued, or in doubt and not held, and its time has come.
--
-- due follows from process_after, which alone schedules (O5). What becomes due
-- because time passes, deed.ripen marks; what is new, deed.reserve, for which a
-- trigger cost a third of its rate. And one that a person has put back
-- begins anew: claims that it lost before do not count.
create or replace function deed.mark_due() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  new.due := (new.process_after is null or new.process_after <= clock_timestamp())
    and (new.status = 'queued' or (new.status = 'sending' and new.doubt_since is not null and new.held_at is null));
  if new.status = 'queued' and (old.finished_at is not null or old.held_at is not null) then
    new.lost_claims := 0;
  end if;
  return new;
end
$$;
