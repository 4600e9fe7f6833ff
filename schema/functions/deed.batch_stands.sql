-- deed.batch_stands: whether all members of a batch may be called again, as far as
-- they are concerned: none has been settled, held, suppressed, erased or left to
-- expire since, and the window of the batch's key is open. Under one that stands
-- some may still be called. What stands no more never does again.
create or replace function deed.batch_stands(
  p_provider text,
  p_batch    uuid
) returns boolean
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set enable_sort = off -- its members by its key, whatever else the provider has in doubt
set jit = off
as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  return (
    select coalesce(count(*) = max(c.batch_size), false)
    from (
      select o.*
      from deed.channel_outbox o
      where o.provider = p_provider and o.status = 'sending' and o.batch_id = p_batch and o.batch_until is not null
      order by o.batch_place
      offset 0
    ) c
    where v_now < c.batch_until and v_now < coalesce(c.expires_at, 'infinity') and c.held_at is null
      and not exists (
        select from deed.suppressed(c.tenant_id, c.channel, coalesce(deed.fold_address(c.channel, c.recipient), lower(c.recipient)), c.purpose, v_now)
      )
      and not exists (select from deed.suppressed_copy(c.tenant_id, c.cc, c.purpose, v_now))
      and not exists (select from deed.revoked(c.tenant_id, c.contact_id, c.channel, c.purpose))
  );
end
$$;
