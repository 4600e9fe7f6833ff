-- deed.refuse_rewrite: the trigger that keeps what a delivery is.
--
-- Neither its identity nor, once it is there, its request may change: what is
-- sent under one key is sent unchanged ever after; of what has ended an erasure takes
-- it away (D12), and of what a campaign has sent deed.settle, as it
-- ends it, which keeps its SHA-256. What is not finished cannot be deleted, unless its tenant is being
-- removed. Raises DDCON.
create or replace function deed.refuse_rewrite() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' and deed.is_removed(old.tenant_id) then
    return old;
  elsif tg_op = 'DELETE' then
    raise exception 'delivery %: it is % and cannot be deleted before it is finished', old.id, old.status using errcode = 'DDCON';
  end if;
  if (old.id, old.tenant_id, old.workspace_id, old.idempotency_key, old.provider, old.channel)
    is distinct from (new.id, new.tenant_id, new.workspace_id, new.idempotency_key, new.provider, new.channel)
  then
    raise exception 'delivery %: its identity cannot be changed', old.id using errcode = 'DDCON';
  end if;
  if old.request is not null and old.request is distinct from new.request
    and (new.request is not null or new.finished_at is null
      or not (new.erased_at is not null and old.finished_at is not null
        or new.run_id is not null and (old.finished_at is not null or new.status in ('sent', 'called', 'posted'))
          and new.request_sha256 is not distinct from sha256(old.request)))
  then
    raise exception 'delivery %: its request cannot be changed once it is made', old.id using errcode = 'DDCON';
  end if;
  if old.erased_at is not null and (new.erased_at is distinct from old.erased_at or new.request is not null or new.recipient is not null) then
    raise exception 'delivery %: it has been erased', old.id using errcode = 'DDCON';
  end if;
  return new;
end
$$;
