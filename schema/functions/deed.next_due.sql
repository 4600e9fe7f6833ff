-- deed.next_due: in how many seconds a subscription has something to claim.
--
-- The nearest of the next due time and the end of a lease that is held now
-- (of the 1,000 oldest); 0 or less if something is claimable, null if nothing
-- is waiting.
create or replace function deed.next_due(
  p_subscription int
) returns double precision
language sql
set search_path = pg_catalog, pg_temp
as $$
  select extract(epoch from least(
    (
      select min(greatest(h.lease_until, h.ord))
      from (
        select p.lease_until, p.ord
        from deed.pending p
        where p.subscription = p_subscription and p.dead_at is null and not p.parked
          and p.ord <= clock_timestamp()
        order by p.ord, p.id
        limit 1000
      ) h
    ),
    (
      select min(p.ord)
      from deed.pending p
      where p.subscription = p_subscription and p.dead_at is null and not p.parked
        and p.ord > clock_timestamp()
    )
  ) - clock_timestamp())::double precision
$$;
