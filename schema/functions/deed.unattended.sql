-- deed.unattended: of these subscriptions those that nobody works on, as far as it
-- is told: no process reads the stream or pauses, none has a call of the sink under
-- way, and none has ended an attempt within p_for, of the 2,000 that ended last.
--
-- A process that works on a queue shows by what it does alone: ask this of a
-- subscription that has had messages due for longer than p_for.
create or replace function deed.unattended(
  p_subscriptions int[],
  p_for           interval
) returns setof int
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  with seen as materialized (
    select r.subscription
    from (
      select r.subscription, r.claim, r.finished_at from deed.receipts r order by r.n desc limit 2000
    ) r
    where r.finished_at > clock_timestamp() - p_for and r.claim <> 0 -- which an operator's act has not
    union all
    select r.subscription from deed.relays r where r.seen_until > clock_timestamp()
    union all
    select r.subscription from deed.sink_pauses r where r.seen_until > clock_timestamp()
    union all
    select c.subscription from deed.running_calls c where c.seen_until > clock_timestamp()
  )
  select s.id
  from unnest(p_subscriptions) s(id)
  where s.id not in (select n.subscription from seen n)
$$;
