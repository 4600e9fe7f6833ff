-- deed.oldest_pauses: of each subscription that pauses since its sink is
-- unavailable the process that has paused longest, why, and how many processes do,
-- as they report it.
create or replace function deed.oldest_pauses() returns table (
  topic text, subscription text, worker text, workers bigint, why text, since timestamptz
)
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select s.topic, s.name, p.name, p.workers, p.why, p.since
  from (
    select distinct on (r.subscription) r.subscription, r.name, r.why, r.since, count(*) over (partition by r.subscription) as workers
    from deed.sink_pauses r
    where r.seen_until > clock_timestamp()
    order by r.subscription, r.since
  ) p
  join deed.subscriptions s on s.id = p.subscription
  order by s.topic, s.name
$$;
