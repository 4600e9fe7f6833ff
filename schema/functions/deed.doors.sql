-- deed.doors: the subscriptions that the published faces claim and show.
--
-- The default one, which has the topics that nobody declared, and of declared
-- topics the subscription that is marked (deed.set_door). Streams have none:
-- their messages have no rows to claim.
create or replace function deed.doors() returns int[]
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return array(
    select s.id from deed.subscriptions s where s.door and s.since is null order by s.id
  );
end
$$;
