-- deed.unattended: of these subscriptions those that nobody works on, as far as it
-- is told: no process reads the stream or pauses, none has a call of the sink under
-- way, none has finished anything within p_for, of the 2,000 that ended last, and
-- none has failed at anything.
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
    -- What fails leaves no receipt: it is to be tried again, or dead. Of a thousand of each.
    and not exists (
      select
      from (
        select p.ord from deed.pending p
        where p.subscription = s.id and p.attempts > 0 and p.dead_at is null and not p.parked
        order by p.attempts
        limit 1000
      ) f
      where f.ord > clock_timestamp() - p_for
    )
    and not exists (
      select
      from (
        select p.dead_at from deed.pending p where p.subscription = s.id and p.dead_at is not null order by p.id desc limit 1000
      ) d
      where d.dead_at > clock_timestamp() - p_for
    )
$$;
