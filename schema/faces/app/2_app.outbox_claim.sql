-- app.outbox_claim: claim up to p_limit messages under a token, oldest first.
--
-- For five minutes; then they come back by themselves. p_tenant null: all
-- tenants (O10). Messages that wait for a retry are as old as their due time.
-- Raises DDARG for a missing token and a limit below 0.
create or replace function app.outbox_claim(
  p_limit  int,
  p_token  uuid,
  p_tenant uuid
) returns setof public.outbox
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_token is null then
    raise exception 'outbox_claim: a token is needed: without one nobody could mark the messages delivered'
      using errcode = 'DDARG', hint = 'Give each worker a UUID of its own, such as gen_random_uuid().';
  end if;
  return query
  select deed.message_id(c.created_at, c.id), c.tenant_id, c.topic, deed.payload_json(c.content_type, c.payload),
    c.created_at, null::timestamptz, p_token, c.attempts
  from deed.claim_doors(p_token::text, p_limit, p_tenant) c
  order by c.created_at, c.id;
end
$$;
