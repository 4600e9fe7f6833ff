-- deed.note_attempts: keep what came of calls that did not simply succeed,
-- before deed.settle acts on it in the same transaction, or of those that did,
-- after it.
--
-- An outcome whose claim is no longer the caller's is late, and kept too; an
-- acceptance that is late is a proof (deed.prove_delivery), but of the sandbox. Of one
-- that was erased meanwhile no text is kept (D12).
-- Repeating it is harmless. Returns those that were late, and of what was proved what it was.
create or replace function deed.note_attempts(
  p_ids         uuid[],
  p_claims      bigint[],
  p_numbers     int[],
  p_outcomes    text[],
  p_message_ids text[],
  p_codes       text[],
  p_errors      text[],
  p_keys        text[],
  p_sandboxes   boolean[],
  p_took        float8[],
  p_worker      text
) returns table (id uuid, status text, was text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set lock_timeout = '1s' -- as in deed.settle
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now   timestamptz := clock_timestamp();
  v_late  record;
  v_proof record;
begin
  -- Most often: all were accepted, and have been settled under these claims.
  if not exists (
    select from unnest(p_ids, p_claims, p_sandboxes) u(id, claim, sandbox)
    where not exists (
      select from deed.channel_outbox c
      where c.id = u.id and c.claim = u.claim and (c.status in ('sent', 'called', 'posted') or (u.sandbox and c.status = 'skipped'))
    )
  ) then
    return;
  end if;
  -- In the order of deed.settle, and those that have ended, too: what is the caller's
  -- here, is so there, and none is erased while its texts are written, or goes
  -- (deed.remove_tenant_step).
  perform q.id
  from (select distinct u.id from unnest(p_ids) u(id) order by u.id) u
  cross join lateral (select c.id from deed.channel_outbox c where c.id = u.id for update) q;
  for v_late in
    with told as (
      select u.*, c.tenant_id, c.erased_at, not coalesce(c.claim = u.claim and c.status in ('queued', 'sending'), false) as late
      from unnest(p_ids, p_claims, p_numbers, p_outcomes, p_message_ids, p_codes, p_errors, p_keys, p_sandboxes, p_took)
        u(id, claim, number, outcome, message_id, code, error, provider_key, sandbox, took)
      cross join lateral (select o.tenant_id, o.claim, o.status, o.erased_at from deed.channel_outbox o where o.id = u.id) c
      -- What has ended under this claim has been settled by it, before the answer
      -- to that was lost. Where it was proved while it was queued nobody has a claim.
      where not coalesce(c.claim = u.claim and (c.status in ('sent', 'called', 'posted') or (u.sandbox and c.status = 'skipped')), false)
    ),
    kept as (
      insert into deed.delivery_attempts (delivery_id, tenant_id, claim, number, outcome, late, sandbox, at, began_at, took, worker,
        provider_key, provider_message_id, code, error)
      select t.id, t.tenant_id, t.claim, t.number, t.outcome, t.late, t.sandbox, v_now, v_now - make_interval(secs => t.took), make_interval(secs => t.took), p_worker,
        left(t.provider_key, 300), case when t.erased_at is null then left(t.message_id, 500) else deed.erased_message_id(left(t.message_id, 500)) end,
        left(t.code, 100), case when t.erased_at is null then left(t.error, 4000) when t.error is not null then 'erased' end
      from told t
      where t.late or t.outcome <> 'accepted'
      order by t.id
      on conflict do nothing
      returning delivery_id, late, sandbox, outcome, provider_message_id
    )
    select k.* from kept k where k.late order by k.delivery_id
  loop
    was := null;
    if v_late.outcome = 'accepted' and not v_late.sandbox then
      select p.ended, p.was into v_proof from deed.prove_delivery(v_late.delivery_id, v_late.provider_message_id, p_worker) p;
      was := v_proof.was;
      if v_proof.ended then
        -- Who is calling it once more is late, too, and what comes of that is kept.
        update deed.channel_outbox c set claim = null where c.id = v_late.delivery_id;
      end if;
    end if;
    id := v_late.delivery_id;
    status := (select c.status from deed.channel_outbox c where c.id = v_late.delivery_id);
    return next;
  end loop;
end
$$;
