-- deed.publish: store one JSON message in the caller's transaction (O1).
--
-- For every language that speaks SQL. Returns the message's number; with an
-- idempotency key that was used before, the first message's, and nothing is
-- stored. For bytes as they are, other content types and many messages in one
-- round trip there is deed.publish_many, whose errors these are.
create or replace function deed.publish(
  p_topic           text,
  p_payload         jsonb,
  p_key             text default null,
  p_type            text default null,
  p_headers         jsonb default null,
  p_tenant          uuid default null,
  p_idempotency_key text default null,
  p_process_after   timestamptz default null
) returns bigint
language sql
volatile
set search_path = pg_catalog, pg_temp
as $$
  select m.id
  from deed.publish_many(
    p_topics           => array[p_topic],
    p_payloads         => array[convert_to(p_payload::text, 'UTF8')],
    p_keys             => array[p_key],
    p_types            => array[p_type],
    p_headers          => array[p_headers],
    p_tenants          => array[p_tenant],
    p_idempotency_keys => case when p_idempotency_key is not null then array[p_idempotency_key] end,
    p_process_after    => array[p_process_after]
  ) m
$$;
