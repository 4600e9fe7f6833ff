-- deed.set_subscription: change subscriptions' settings, online.
--
-- p_name null: all of the topic's. Null leaves a setting as it is;
-- p_max_attempts 0 means without limit. Workers that run keep the lease they started with.
-- Raises DDNFD if there is no such subscription.
create or replace function deed.set_subscription(
  p_topic        text,
  p_name         text,
  p_max_attempts int default null,
  p_lease        interval default null,
  p_backoff      interval default null
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update deed.subscriptions s
  set max_attempts = nullif(coalesce(p_max_attempts, s.max_attempts, 0), 0),
    lease = coalesce(p_lease, s.lease), backoff = coalesce(p_backoff, s.backoff)
  where s.topic = p_topic and s.name = coalesce(p_name, s.name) and s.id <> 0;
  if not found then
    raise exception 'set_subscription: topic % has no subscription%', quote_literal(p_topic), coalesce(' ' || quote_literal(p_name), '')
      using errcode = 'DDNFD';
  end if;
end
$$;
