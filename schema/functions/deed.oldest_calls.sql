-- deed.oldest_calls: of each subscription the call of its sink that has been
-- running longest, as the processes report those that take long: the first
-- message that it was given, how many, by which worker, since when.
create or replace function deed.oldest_calls() returns table (
  topic text, subscription text, id bigint, message_id uuid, messages int, worker text, since timestamptz
)
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select s.topic, s.name, c.id, c.message_id, c.messages, c.name, c.since
  from (
    select distinct on (r.subscription) r.subscription, r.id, r.message_id, r.messages, r.name, r.since
    from deed.running_calls r
    where r.seen_until > clock_timestamp()
    order by r.subscription, r.since
  ) c
  join deed.subscriptions s on s.id = c.subscription
  order by s.topic, s.name
$$;
