-- deed.claim_number: a number for a claim, or an owner of a lane, that was never
-- given out before.
--
-- A standby that takes over may not have heard of the last numbers, and gives
-- them out again, perhaps with the numbers of messages. Whoever holds such a
-- claim from before would record an outcome of somebody else's message. So the
-- server's timeline stands in front. Not in SQL: it would be planned anew for each claim.
create or replace function deed.claim_number() returns bigint
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return (deed.timeline() << 40) + nextval('deed.claim_seq');
end
$$;
