-- deed.dead_letters: the dead messages that an operator means.
--
-- Null selects all. p_error: a part of the last error, in any case of letters.
-- p_older, p_newer: dead for at least, and at most, that long at p_at. Without
-- settings of its own, so that it is planned as part of what asks it.
create or replace function deed.dead_letters(
  p_topic        text default null,
  p_subscription text default null,
  p_tenant       uuid default null,
  p_type         text default null,
  p_error        text default null,
  p_ids          bigint[] default null,
  p_older        interval default null,
  p_newer        interval default null,
  p_at           timestamptz default now()
) returns table (
  subscription int, id bigint, topic text, name text, key text, type text, tenant_id uuid, created_at timestamptz,
  attempts int, lost_claims int, dead_at timestamptz, last_error text
)
language sql
stable
begin atomic
  select p.subscription, p.id, coalesce(l.topic, s.topic), s.name, l.key, l.type, p.tenant_id, coalesce(l.created_at, p.ord_at),
    p.attempts, p.lost_claims, p.dead_at, p.last_error
  from deed.pending p
  join deed.subscriptions s on s.id = p.subscription
  left join (
    select slot, id, topic, key, type, tenant_id, created_at from deed.log
    union all
    select slot, id, topic, key, type, tenant_id, created_at from deed.kept
  ) l on l.slot = p.slot and l.id = p.id
  where p.dead_at is not null
    and (p_topic is null or coalesce(l.topic, s.topic) = p_topic)
    and (p_subscription is null or s.name = p_subscription)
    and (p_tenant is null or p.tenant_id = p_tenant)
    and (p_type is null or l.type = p_type)
    and (p_error is null or strpos(lower(p.last_error), lower(p_error)) > 0)
    and (p_ids is null or p.id = any (p_ids))
    and (p_older is null or p.dead_at <= p_at - p_older)
    and (p_newer is null or p.dead_at >= p_at - p_newer);
end;
