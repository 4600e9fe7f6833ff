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
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id bigint;
begin
  select m.id into v_id
  from deed.publish_one(
    p_topic           => p_topic,
    p_payload         => convert_to(p_payload::text, 'UTF8'),
    p_key             => p_key,
    p_type            => p_type,
    p_headers         => p_headers,
    p_tenant          => p_tenant,
    p_idempotency_key => p_idempotency_key,
    p_process_after   => p_process_after
  ) m;
  return v_id;
end
$$;
