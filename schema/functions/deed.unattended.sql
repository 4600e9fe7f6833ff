-- deed.unattended: of these subscriptions those that nobody works on, as far as it
-- is told: for p_for nobody has asked for messages of a queue, nor does so in a
-- transaction that is open, and the subscription is as old; no process reads the stream or pauses, none has a call of the sink
-- under way.
--
-- Who has messages in hand need not ask for more: ask this of a subscription of
-- which messages are due and none is claimed. p_for is a minute at the least, as
-- asking is noted every twenty seconds.
create or replace function deed.unattended(
  p_subscriptions int[],
  p_for           interval
) returns setof int
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select s.id
  from deed.subscriptions s
  where s.id = any (p_subscriptions) and s.created_at <= clock_timestamp() - p_for
    and exists (
      select from deed.attended a
      where a.subscription = s.id and a.asked_at <= clock_timestamp() - p_for
        and not exists ( -- whoever has the row: of the 32 bits of its id those above are the ones next to now
          select
          from (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as next) n
          cross join lateral (select n.next + ((a.xmax::text::bigint - n.next) % 4294967296 + 6442450944) % 4294967296 - 2147483648 as id) x
          where a.xmax::text <> '0' and case when x.id >= n.next then true else pg_xact_status(x.id::text::xid8) = 'in progress' end
        )
    )
    and not exists (select from deed.relays r where r.subscription = s.id and r.seen_until > clock_timestamp())
    and not exists (select from deed.sink_pauses p where p.subscription = s.id and p.seen_until > clock_timestamp())
    and not exists (select from deed.running_calls c where c.subscription = s.id and c.seen_until > clock_timestamp())
$$;
