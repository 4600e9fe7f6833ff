-- The statements of package inbound.

-- name: accept
select id::text, status, did, correlation_id
from deed.accept_messages($1::text, $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text, $9::text, $10::text::uuid, $11::text, $12::int[], $13::text[], $14::text[])
order by n;

-- name: claim
select id::text, claim, tenant_id::text, platform_message_id, coalesce(contact_id::text, ''), kind, sender, coalesce(reply_to, ''), coalesce(text, ''),
  coalesce(body, ''), attempts, correlation_id, received_at, held
from deed.claim_messages($1::text, $2::int, make_interval(secs => $3::float8), $4::int, $5::text, $6::text::uuid);

-- name: extend
select array(select e::text from deed.extend_messages($1::text[]::uuid[], $2::bigint[], make_interval(secs => $3::float8)) e);

-- name: unrenewed
-- Those that were passed over just now: what was renewed lasts for the whole lease.
select array(
  select m.id::text
  from unnest($1::text[]::uuid[], $2::bigint[]) u(id, claim)
  cross join lateral (
    select c.id from deed.channel_messages c where c.id = u.id and c.claim = u.claim and c.lease_until < clock_timestamp() + make_interval(secs => $3::float8 * 2 / 3)
  ) m
);

-- name: finish
select id::text, status, attempts, held
from deed.finish_messages($1::text[]::uuid[], $2::bigint[], $3::text[], $4::text[], $5::float8[], $6::int, $7::text);

-- name: outcomes
-- What has become of messages that somebody waits for.
select id::text, status, held_at is not null
from deed.channel_messages
where id = any ($1::text[]::uuid[]) and status <> 'accepted';

-- name: purge
select deed.purge_messages(make_interval(secs => $1::float8), $2::int, $3::text);

-- name: now
select clock_timestamp();

-- name: unregistered
select array(select n.name from unnest($1::text[]) n(name) where not exists (select from deed.providers p where p.name = n.name) order by 1);

-- name: too_many
select count(*) >= $3::int
from (
  select from deed.channel_messages
  where contact_id = $1::text::uuid and source = $2::text and status = 'executed' and finished_at > clock_timestamp() - interval '1 hour'
  limit $3::int
) m;

-- name: list
select id::text, tenant_id::text, source, platform_message_id, coalesce(contact_id::text, ''), kind, case when emptied_at is null then sender else '' end,
  coalesce(reply_to, ''), coalesce(text, ''), case when $8::boolean then coalesce(body, '') else '' end, status, attempts, coalesce(error, ''), correlation_id, received_at, finished_at, process_after, held_at, emptied_at,
  coalesce(claimed_by, ''), claimed_at
from deed.channel_messages
where ($1::text is null or id < $1::text::uuid)
  and ($2::text is null or tenant_id = $2::text::uuid)
  and ($3::text is null or source = $3::text)
  and ($4::text is null or status = $4::text or ($4::text = 'denied' and status like 'denied%'))
  and ($5::text is null or contact_id = $5::text::uuid)
  and (not $6::boolean or held_at is not null)
order by id desc
limit $7::int;

-- name: message
select id::text, tenant_id::text, source, platform_message_id, coalesce(contact_id::text, ''), kind, case when emptied_at is null then sender else '' end,
  coalesce(reply_to, ''), coalesce(text, ''), coalesce(body, ''), status, attempts, coalesce(error, ''), correlation_id, received_at, finished_at, process_after, held_at, emptied_at,
  coalesce(claimed_by, ''), claimed_at
from deed.channel_messages
where id = $1::text::uuid;

-- name: replies
select id::text, status, channel, provider, coalesce(provider_message_id, ''), coalesce(last_error, ''), created_at, finished_at
from deed.channel_outbox
where channel_message_id = $1::text::uuid
order by id;

-- name: history
select a.at, a.actor, a.action, coalesce(a.from_status, ''), coalesce(a.to_status, ''), coalesce(a.reason, '')
from deed.audit_log a
join deed.channel_messages m on m.id = $1::text::uuid
where a.subject_type = 'channel_message' and a.at between m.received_at and coalesce(m.finished_at, clock_timestamp()) + interval '1 minute'
  and (a.subject_id = $1::text or a.details -> 'ids' ? $1::text)
order by a.n;

-- name: retry
select deed.retry_messages($1::text[]::uuid[], $2::text, $3::text);
