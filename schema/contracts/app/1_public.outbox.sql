-- public.outbox: the messages of the doors, as seed 004's table shows them.
--
-- The unfinished half and the finished half; a condition on processing_token, or
-- delivered_at is null, leaves the latter out. A claimer whose name is no UUID
-- (another door's worker) is shown as the MD5 of its name. Messages that a person
-- has discarded are not shown.
create schema if not exists app;

create or replace view public.outbox with (security_invoker = true) as
select deed.message_id(l.created_at, l.id) as id, l.tenant_id, l.topic,
  deed.payload_json(l.content_type, l.payload) as payload, l.created_at, null::timestamptz as delivered_at,
  case
    when p.claimed_by ~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$' then p.claimed_by::uuid
    when p.claimed_by is not null then md5(p.claimed_by)::uuid
  end as processing_token,
  p.attempts
from deed.pending p
cross join lateral (
  select * from deed.log where slot = p.slot and id = p.id
  union all
  select * from deed.kept where slot = p.slot and id = p.id
) l
where p.subscription = any ((select deed.doors())::int[])
union all
select deed.message_id(f.created_at, f.id), f.tenant_id, f.topic, deed.payload_json(f.content_type, f.payload),
  f.created_at, f.finished_at, null::uuid, f.attempts + 1
from deed.finished f;
