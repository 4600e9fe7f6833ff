-- The statements of the ledger. Each is prepared by New, so that one that does
-- not fit the installed schema fails there and in CI, not at first use.

-- name: reserve
select id::text, status, duplicate
from deed.reserve($1::text[], $2::text[], $3::text[], $4::text[]::jsonb[], $5::bytea[], $6::text[], $7::text[], $8::timestamptz[],
  $9::text[], $10::text[]::uuid[], $11::text[]::uuid[], $12::int[], $13::timestamptz[], $14::text[], $15::text::uuid, $17::text, $16::text[]::uuid[]);

-- name: claim
select id::text, coalesce(claim, 0), coalesce(tenant_id::text, ''), coalesce(workspace_id::text, ''), idempotency_key, coalesce(channel, ''), coalesce(lane, ''),
  coalesce(recipient, ''), coalesce(recipient_id, ''), payload::text, request, coalesce(guarantee, ''), coalesce(attempts, 0), coalesce(correlation_id, ''), coalesce(channel_message_id::text, ''),
  coalesce(lost_claims, 0), coalesce(taken_over, false), walk::text, coalesce(call, 0), coalesce(purpose, ''), coalesce(contact_id::text, ''), coalesce(run_id::text, '')
from deed.claim_deliveries($1::text, $2::text, $3::int, make_interval(secs => $4::float8), $5::text[], $6::int[], 1, $7::bigint, $8::text::jsonb, $9::int, $10::int, $11::boolean);

-- name: delivery_contents
select sha256, bytes, type from deed.delivery_contents($1::text::uuid, $2::bigint);

-- name: put_content
select encode(sha256, 'hex') from deed.put_content($1::bytea, $2::text, $3::text::uuid);

-- name: look_at_contents
select tenant_id::text, encode(sha256, 'hex'), size, type, created_at, used_at, needed_by::text[]
from deed.look_at_contents($1::timestamptz, $2::text::uuid, decode($3::text, 'hex'), $4::int, $5::int, $6::text::uuid, decode($7::text, 'hex'));

-- name: content_bytes
select c.bytes
from deed.tenants t
join deed.contents c on c.tenant_id = t.tenant_id and c.sha256 = decode($1::text, 'hex')
where $2::text is null or t.tenant_id = $2::text::uuid
limit 1;

-- name: remove_content
select from deed.remove_content(decode($1::text, 'hex'), $2::text, $3::text, $4::text::uuid);

-- name: purge_contents
select deed.purge_contents(make_interval(secs => $1::float8), $2::int, $3::text);

-- name: attempt
select id::text, status, attempts, coalesce(why, '')
from deed.attempt($1::text[]::uuid[], $2::bigint[], $3::bytea[], make_interval(secs => $4::float8), make_interval(secs => $5::float8), $6::text,
  $7::text, $8::text, $9::boolean, $10::text[]::uuid[], $11::timestamptz[]);

-- name: extend
select deed.extend_deliveries($1::text[]::uuid[], $2::bigint[], make_interval(secs => $3::float8))::text[];

-- name: note
select id::text, status, coalesce(was, '')
from deed.note_attempts($1::text[]::uuid[], $2::bigint[], $3::int[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::boolean[], $10::float8[], $11::text);

-- name: attempts
select n.number, n.outcome, n.late, n.sandbox, n.at, n.began_at, n.took, n.worker, n.code, n.error, n.provider_key, n.provider_message_id, n.total
from (
  select a.number, a.outcome, a.late, a.sandbox, a.at, a.began_at, coalesce(extract(epoch from a.took), 0)::float8 as took, a.worker, coalesce(a.code, '') as code,
    coalesce(a.error, '') as error, coalesce(a.provider_key, '') as provider_key, coalesce(a.provider_message_id, '') as provider_message_id, count(*) over () as total
  from deed.delivery_attempts a
  where a.delivery_id = $1::text::uuid
  order by a.at desc, a.number desc
  limit $2::int
) n
order by n.at, n.number;

-- name: settle
select id::text, status, attempts, process_after, in_doubt, held, destinations, coalesce(was, ''), busy
from deed.settle($1::text[]::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::float8[], $7::text, make_interval(secs => $8::float8), $9::float8[], $10::int,
  make_interval(secs => $11::float8), make_interval(secs => $12::float8), p_leave => true);

-- name: pause
select destination, case when destination <> '' then tenant_id::text else '' end, since, until, failures
from deed.pause($1::text, $2::text[]::uuid[], $3::bigint[], $4::text[], $5::text[], $6::float8[], $7::boolean[], make_interval(secs => $8::float8), $9::float8[],
  p_until => $10::text[]);

-- name: claim_doubts
select id::text, coalesce(claim, 0), coalesce(tenant_id::text, ''), coalesce(workspace_id::text, ''), idempotency_key, coalesce(channel, ''), coalesce(lane, ''),
  coalesce(recipient, ''), coalesce(recipient_id, ''), payload::text, request, coalesce(guarantee, ''), coalesce(attempts, 0), coalesce(correlation_id, ''), coalesce(channel_message_id::text, ''),
  coalesce(action, ''), coalesce(called_at, to_timestamp(0)), walk::text, coalesce(batch_id::text, ''), coalesce(batch_place, 0), coalesce(batch_size, 0)
from deed.claim_doubts($1::text, $2::text, $3::int, make_interval(secs => $4::float8), $5::boolean, $6::boolean, make_interval(secs => $7::float8),
  p_max_attempts => $8::int, p_kind => $9::text, p_account => $10::text, p_sandbox => $11::boolean,
  p_lanes => $12::text[], p_rooms => $13::int[], p_room => 1, p_bytes => $14::bigint, p_places => $15::text::jsonb, p_batches => $16::boolean,
  p_base => make_interval(secs => $17::float8), p_jitter => $18::float8[]);

-- name: may_repeat
select deed.may_repeat($1::text::uuid, $2::bigint, $3::text, $4::text, $5::boolean);

-- name: is_ours
-- Whether no other delivery of its account has that message, or may have it. Of some
-- channels all are looked at: such a look is rare.
select not case when c.channel in ('email', 'sms', 'voice') then exists (
    select from deed.channel_outbox o
    where o.provider_message_id = $2::text and o.channel in ('email', 'sms', 'voice') and o.id <> c.id
      and o.request_kind = c.request_kind and o.request_account = c.request_account
  ) else exists (
    select from deed.channel_outbox o
    where o.provider_message_id = $2::text and o.channel = c.channel and o.id <> c.id
      and o.request_kind = c.request_kind and o.request_account = c.request_account
  ) end and not exists (
    select from deed.channel_outbox o
    where o.status = 'sending' and o.id <> c.id and o.channel = c.channel
      and o.request_kind = c.request_kind and o.request_account = c.request_account
      and deed.fold_address(o.channel, o.recipient) = deed.fold_address(c.channel, c.recipient)
  ) and not exists (
    -- Nor one that was put back, or is dead, after a call of which nobody knows: what was found was made minutes before this
    -- one's last call, or since; of one with a key, which was repeated, an hour and minutes.
    select from deed.channel_outbox o
    where o.unsettled_since is not null and o.called_at >= c.called_at - case when c.repeat_safe_until is null then interval '10 minutes' else interval '70 minutes' end
      and o.provider_message_id is null and o.id <> c.id and o.channel = c.channel
      and o.request_kind = c.request_kind and o.request_account = c.request_account
      and deed.fold_address(o.channel, o.recipient) = deed.fold_address(c.channel, c.recipient)
  )
from deed.channel_outbox c
where c.id = $1::text::uuid;

-- name: register_provider
-- With what was there before.
select r.changed, p.kind, p.account, p.sandbox
from (select deed.register_provider($1::text, $2::text, $3::text, make_interval(secs => $4::float8), $5::boolean, $6::text[], $7::float8[], $8::float8[], $9::text,
  $10::text, $11::boolean, $12::text[], $13::text[], $14::text[], $15::text[]::uuid[]) as changed) r
left join deed.providers p on p.name = $1::text;

-- name: note_idle
select deed.note_idle($1::text, $2::text, $3::text, $4::text, $5::boolean);

-- name: real_calls
select count(*)
from (
  select from deed.channel_outbox c
  where c.provider = $1::text and c.status = 'sending' and c.held_at is null and not c.sandbox and c.lease_until > clock_timestamp()
  limit 10000
) c;

-- name: relane
select deed.relane_deliveries($1::text, $2::int);

-- name: forget_lanes
select deed.forget_lanes($1::text, $2::int);

-- name: prove
select ended, coalesce(was, ''), coalesce(status, ''), coalesce(tenant_id::text, ''), coalesce(provider, ''), coalesce(channel, ''), coalesce(attempts, 0), coalesce(correlation_id, ''), coalesce(channel_message_id::text, '')
from deed.prove_delivery($1::text::uuid, $2::text, $3::text);

-- name: record_events
select matched, waiting, strange, busy, told::text
from deed.record_events($1::text, $2::text, $3::text, $4::text[]::uuid[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::timestamptz[], $11::text[], $12::text[], $13::text, make_interval(secs => $14::float8));

-- name: match_late_events
select looked, told::text
from deed.match_late_events($1::int, $2::text);

-- name: feedback
select f.delivered_at, f.bounced_at, f.complained_at, f.unsubscribed_at, f.opened_at, f.clicked_at, f.answered_at,
  coalesce(f.bounce, ''), f.bounce_since, coalesce(f.reason, ''), coalesce(f.code, '')
from deed.delivery_feedback f
where f.delivery_id = $1::text::uuid;

-- name: addressee
-- Whether it goes to an address, and whether others get copies.
select coalesce(bool_or(deed.fold_address(c.channel, $2::text) = any (c.cc || deed.fold_address(c.channel, c.recipient))), false), coalesce(bool_or(c.cc is not null), false)
from deed.channel_outbox c
where c.id = $1::text::uuid;

-- name: now
select clock_timestamp();

-- name: settle_delivery
select deed.settle_delivery($1::text::uuid, $2::text, $3::text, $4::text, $5::text);

-- name: retry
select deed.retry_deliveries($1::text[]::uuid[], $2::text, $3::text);

-- name: redrive
select state, chosen, redriven, wait
from deed.redrive_deliveries($1::text, $2::text[], $3::text, $4::text::uuid, $5::text, make_interval(secs => $6::float8), $7::int, $8::int, $9::text, $10::text,
  p_dry => $11::boolean);

-- name: expire
select id::text, tenant_id::text, provider, channel, attempts, coalesce(correlation_id, ''), coalesce(channel_message_id::text, ''), reason
from deed.expire_deliveries($1::int, $2::text);

-- name: expire_suppressions
select deed.expire_suppressions($1::int, $2::text);

-- name: give_up
select id::text, tenant_id::text, provider, channel, attempts, coalesce(correlation_id, ''), coalesce(channel_message_id::text, ''), reason
from deed.give_up_deliveries($1::text, make_interval(secs => $2::float8), $3::int, $4::text);

-- name: purge
select deed.purge_deliveries(make_interval(secs => $1::float8), $2::int, $3::text);

-- name: suppress
select deed.suppress($1::text, $2::text[], $3::text, $4::text, $5::text::uuid, $6::text, clock_timestamp() + make_interval(secs => $7::float8));

-- name: unsuppress
select deed.unsuppress($1::text, $2::text[], $3::text, $4::text, $5::text::uuid, $6::text);

-- name: look_at_suppressions
select looked, next_at, next_tenant::text, next_channel, next_address, next_purpose, tenant_id::text, channel, address, purpose, reason, actor, created_at, expires_at
from deed.look_at_suppressions($1::timestamptz, $2::text::uuid, $3::text, $4::text, $5::text, $6::int, $7::int, $8::text::uuid, $9::text, $10::text, $11::text);

-- name: draft
-- What the request of a delivery is made of again.
select id::text, tenant_id::text, workspace_id::text, idempotency_key, channel, coalesce(recipient, ''), coalesce(recipient_id, ''), payload::text,
  coalesce(correlation_id, ''), coalesce(channel_message_id::text, ''), purpose, coalesce(contact_id::text, ''), coalesce(run_id::text, ''),
  provider, made_at, erased_at is not null, coalesce(encode(coalesce(request_sha256, sha256(request)), 'hex'), '')
from deed.channel_outbox
where id = $1::text::uuid;

-- name: look_at_deliveries
select looked, next::text, oldest, id::text
from deed.look_at_deliveries($1::text::uuid, $2::int, $3::int, $4::text, $5::text, $6::text::uuid, $7::text, $8::boolean, $9::text[]::uuid[]);

-- name: deliveries
-- By their ids; the errors of those that were sent in the end only where they are shown alone.
select id::text, tenant_id::text, workspace_id::text, encode(idempotency_key, 'hex'), status, channel, provider, coalesce(recipient, ''),
  coalesce(recipient_id, ''), guarantee, attempts, sandbox, coalesce(max_attempts, 0), created_at, process_after, first_called_at, called_at, sent_at, finished_at,
  repeat_safe_until, coalesce(batch_id::text, ''), coalesce(batch_place, 0), coalesce(batch_size, 0), batch_until, case when status = 'sending' and lease_until <= clock_timestamp() then coalesce(doubt_since, lease_until) else doubt_since end,
  coalesce(doubt_reason, case when status = 'sending' and lease_until <= clock_timestamp() then 'the lease of ' || claimed_by || ' ran out during the call' end, ''),
  held_at, coalesce(provider_message_id, ''), proved_at, unsettled_since, coalesce(skip_reason, ''),
  case when not $2::boolean and sent_at is not null then '' else coalesce(last_error, '') end, coalesce(correlation_id, ''),
  coalesce(channel_message_id::text, ''), coalesce(run_id::text, ''), coalesce(job_id::text, ''), coalesce(claimed_by, ''), purpose,
  coalesce(contact_id::text, ''), erased_at, coalesce(encode(coalesce(request_sha256, sha256(request)), 'hex'), ''),
  case when $3::boolean then payload::text end, case when $3::boolean then request end, coalesce(octet_length(request), 0)
from deed.channel_outbox
where id = any ($1::text[]::uuid[])
order by id desc; -- as they were reserved: UUIDv7

-- name: history
select a.at, a.actor, a.action, coalesce(a.from_status, ''), coalesce(a.to_status, ''), coalesce(a.reason, '')
from deed.audit_log a
join deed.channel_outbox c on c.id = $1::text::uuid
where a.subject_type = 'delivery' and a.at between c.created_at and c.updated_at + interval '1 minute'
  and (a.subject_id = $1::text or a.details -> 'ids' ? $1::text or (a.action = 'reserve' and a.at < c.created_at + interval '5 minutes'
    and a.tenant_id = c.tenant_id and a.subject_id is null and a.affected > 1 and a.at = (
      select min(r.at) from deed.audit_log r
      where r.subject_type = 'delivery' and r.action = 'reserve' and r.tenant_id = c.tenant_id and r.at >= c.created_at)))
order by a.n;

-- name: providers
select name, kind, account, sandbox, registered, key_window_seconds, can_look_up, queued, due, sending, in_doubt, held, dead, paused, pauses, limits, idle, deferred, deferred_since
from deed.look_at_providers($1::int);

-- name: rates
select provider, domain, whole, hour_accepted, hour_delivered, hour_bounced, hour_complained, day_accepted, day_delivered, day_bounced, day_complained
from deed.look_at_rates($1::int, $2::int, $3::text);

-- name: resume
select deed.resume_provider($1::text, $2::text, $3::text, $4::text);

-- name: unfinished
select case when exists (select from deed.delivery_holds) then deed.due_unheld($1::text[]) else exists (
  select from deed.channel_outbox c
  where c.due and c.status = 'queued' and c.provider = any ($1::text[])
) end or exists (
  select from deed.channel_outbox c
  where not c.due and c.status = 'queued' and c.provider = any ($1::text[]) and c.ord <= clock_timestamp() + make_interval(secs => $2::float8)
    and (c.run_id is null or not exists (select from deed.delivery_holds h where h.run_id = c.run_id))
) or exists (
  select from deed.channel_outbox c
  where c.provider = any ($1::text[]) and c.status = 'sending' and c.held_at is null
);
