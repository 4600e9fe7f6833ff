-- deed.delivery_contents: the files that a delivery names which the caller has claimed, for
-- the request that is made of it before it is called.
create or replace function deed.delivery_contents(
  p_id    uuid,
  p_claim bigint
) returns table (sha256 text, bytes bytea, type text)
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
  select encode(c.sha256, 'hex'), c.bytes, c.type
  from deed.channel_outbox o
  -- Each by its key: with all of them PostgreSQL 18 reads the table whole where it was never analysed.
  cross join lateral (select distinct u.sha256 from unnest(o.contents) u(sha256)) n
  cross join lateral (
    select f.sha256, f.bytes, f.type
    from deed.contents f
    where f.tenant_id = o.tenant_id and f.sha256 = n.sha256
    offset 0
  ) c
  where o.id = p_id and o.claim = p_claim and o.status = 'queued'
$$;
