-- deed.may_repeat: whether the call of a delivery in doubt may be repeated now,
-- under the claim that deed.claim_doubts gave for it: asked at the provider's
-- door, since a claim may have waited for its turn.
--
-- Of a batch its first member is asked about, and every member must be under that
-- claim: they are repeated together or not at all.
--
-- The claim is still the caller's and the provider's window open; nobody has
-- suppressed the recipient since, nor its contact revoked it or been erased, or paused the provider or the destination but
-- for this probe; it has not expired; its tenant is not being removed; and the caller serves the provider as
-- deed.providers says (p_kind, p_account, p_sandbox).
create or replace function deed.may_repeat(
  p_id      uuid,
  p_claim   bigint,
  p_kind    text,
  p_account text,
  p_sandbox boolean
) returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_now     timestamptz := clock_timestamp();
  v_first   deed.channel_outbox;
  v_ids     uuid[] := array[p_id];
  v_erasing boolean := exists (select from deed.erasing);
begin
  select c.* into v_first from deed.channel_outbox c where c.id = p_id;
  if v_first.batch_id is not null then
    v_ids := array(
      select c.id from deed.channel_outbox c
      where c.provider = v_first.provider and c.status = 'sending' and c.batch_id = v_first.batch_id and c.batch_until is not null
    );
  end if;
  return coalesce(v_first.batch_size, 1) = (
    select count(*) from deed.channel_outbox c
    where c.id = any (v_ids) and c.claim = p_claim and c.status = 'sending' and c.doubt_since is not null and c.held_at is null and c.lease_until is not null
      and v_now < case when v_first.batch_id is null then c.repeat_safe_until else c.batch_until end and v_now < coalesce(c.expires_at, 'infinity')
      and not exists (
        select from deed.suppressed(c.tenant_id, c.channel, coalesce(deed.fold_address(c.channel, c.recipient), lower(c.recipient)), c.purpose, v_now)
      )
      and not exists (select from deed.suppressed_copy(c.tenant_id, c.cc, c.purpose, v_now))
      and not exists (select from deed.revoked(c.tenant_id, c.contact_id, c.channel, c.purpose))
      and not (v_erasing and (deed.is_being_erased(c.tenant_id, c.channel, c.recipient, c.created_at) or deed.is_copy_being_erased(c.tenant_id, c.cc, c.created_at)
        or exists (select from deed.contacts k where k.id = c.contact_id and k.erased_at is not null)))
      and not exists (select from deed.tenant_removals r where r.tenant_id = c.tenant_id)
      and not exists (
        select from deed.providers p
        where p.name = c.provider and (p.kind, p.account, p.sandbox) is distinct from (p_kind, p_account, p_sandbox)
      )
      and not exists (
        select from (values ('', '00000000-0000-0000-0000-000000000000'::uuid), (c.lane, c.tenant_id)) d(destination, tenant_id)
        join deed.pauses p using (destination, tenant_id)
        where p.provider = c.provider and (p.probe, p.probe_claim) is distinct from (p_id, p_claim)
      )
  );
end
$$;
