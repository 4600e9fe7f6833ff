-- public.outbox: the messages of the doors, as seed 004's table shows them.
--
-- What nobody has claimed; what was claimed under a token, found by it
-- (deed.door_claims); what another door's worker has claimed, or a token whose
-- lease ran out a while ago, with a token that is nobody's; and what is finished. A
-- condition on processing_token reads its part alone, and one on delivered_at
-- leaves out the finished or the unfinished. Messages that a person has discarded
-- are not shown.
create schema if not exists app;

create or replace view public.outbox with (security_invoker = true) as
select deed.message_id(l.created_at, l.id) as id, l.tenant_id, l.topic,
  deed.payload_json(l.content_type, l.payload) as payload, l.created_at, null::timestamptz as delivered_at,
  null::uuid as processing_token, p.attempts
from deed.pending p
cross join lateral (
  select * from deed.log where slot = p.slot and id = p.id
  union all
  select * from deed.kept where slot = p.slot and id = p.id
) l
where p.subscription = any ((select deed.doors())::int[]) and p.claim is null
union all
select deed.message_id(l.created_at, l.id), l.tenant_id, l.topic, deed.payload_json(l.content_type, l.payload),
  l.created_at, null::timestamptz, d.token, p.attempts
from deed.door_claims d
cross join lateral unnest(d.ids) i(id)
cross join lateral (
  select q.* from deed.pending q where q.subscription = any ((select deed.doors())::int[]) and q.id = i.id and q.claim = d.claim
  offset 0
) p
cross join lateral (
  select * from deed.log where slot = p.slot and id = p.id
  union all
  select * from deed.kept where slot = p.slot and id = p.id
) l
union all
select deed.message_id(l.created_at, l.id), l.tenant_id, l.topic, deed.payload_json(l.content_type, l.payload),
  l.created_at, null::timestamptz, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid, p.attempts
from deed.pending p
cross join lateral (
  select * from deed.log where slot = p.slot and id = p.id
  union all
  select * from deed.kept where slot = p.slot and id = p.id
) l
where p.subscription = any ((select deed.doors())::int[]) and p.claim is not null
  and not exists (select from deed.door_claims d where d.claim = p.claim and d.tenant_id = p.tenant_id)
union all
select deed.message_id(f.created_at, f.id), f.tenant_id, f.topic, deed.payload_json(f.content_type, f.payload),
  f.created_at, f.finished_at, null::uuid, f.attempts + 1
from deed.finished f;
