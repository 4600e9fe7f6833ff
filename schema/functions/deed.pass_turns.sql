-- deed.pass_turns: let the next message of each of these senders be run, in the
-- transaction in which one of theirs has ended, unless another one is being run.
create or replace function deed.pass_turns(
  p_tenants uuid[],
  p_sources text[],
  p_kinds   text[],
  p_senders text[]
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
begin
  update deed.channel_messages n
  set lease_until = clock_timestamp()
  where n.lease_until = 'infinity' and n.id = any (array(
    select w.id
    from (select distinct u.tenant_id, u.source, u.kind, u.sender from unnest(p_tenants, p_sources, p_kinds, p_senders) u(tenant_id, source, kind, sender)) e
    cross join lateral (
      select m.id
      from deed.channel_messages m
      where m.tenant_id = e.tenant_id and m.source = e.source and m.kind = e.kind and m.sender = e.sender and m.lease_until = 'infinity'
      order by m.turn
      limit 1
    ) w
    where not exists (
      select from deed.channel_messages o
      where o.tenant_id = e.tenant_id and o.source = e.source and o.kind = e.kind and o.sender = e.sender
        and coalesce(o.lease_until, o.process_after) < 'infinity'
    )
  ));
end
$$;
