-- deed.subscribe: declare a topic's subscription; does nothing if it exists.
--
-- A new one begins at a mark in the log, and is in the topic's list when the
-- caller's transaction has committed, or as soon as another that is changing the
-- same list has ended: nobody waits for either. Publishers are not waited for and do not wait:
-- from then on they give it its messages, and what they publish under
-- the list before it is brought in by deed.backfill, late commits included
-- (O18). p_from: 'beginning' or 'now', which is that of the call; null means 'beginning' for the first
-- subscriptions of a topic (those made in one transaction), 'now' for later
-- ones, also if those before were removed: what they delivered is not to come again. p_max_attempts null: 20; 0: without limit. p_lease null: 30 seconds.
-- p_backoff, from which the pause after a failure doubles, null: 1 second.
-- Returns the stored settings, which may differ from the call's. Raises 55P03
-- while another transaction that has not ended makes the same one.
create or replace function deed.subscribe(
  p_topic        text,
  p_name         text,
  p_from         text default null,
  p_max_attempts int default null,
  p_lease        interval default null,
  p_backoff      interval default null
) returns table (subscription int, made boolean, max_attempts int, lease interval, start text, mode text, backoff interval)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
declare
  v_mark  bigint;
  v_first boolean;
  v_id    int;
begin
  if p_topic is null or p_topic !~ '^[A-Za-z0-9._:/-]{1,200}$' then
    raise exception 'subscribe: topic % must be 1 to 200 characters of A-Z a-z 0-9 . _ : / -', coalesce(quote_literal(left(p_topic, 60)), 'null')
      using errcode = 'DDARG';
  end if;
  if p_name is null or p_name !~ '^[A-Za-z0-9._-]{1,100}$' then
    raise exception 'subscribe: name % must be 1 to 100 characters of A-Z a-z 0-9 . _ -', coalesce(quote_literal(left(p_name, 60)), 'null')
      using errcode = 'DDARG';
  end if;
  if p_from not in ('beginning', 'now') then
    raise exception 'subscribe: from % must be beginning or now', quote_literal(p_from) using errcode = 'DDARG';
  end if;

  return query
  select s.id, false, s.max_attempts, s.lease, s.start, coalesce(t.mode, 'queue'), s.backoff
  from deed.subscriptions s
  left join deed.topics t on t.topic = s.topic
  where s.topic = p_topic and s.name = p_name;
  if found then
    return;
  end if;

  v_mark := deed.open_window('mark'); -- before the first write: see there
  v_first := not exists (
    select from deed.subscriptions s
    join deed.backfills b on b.subscription = s.id
    where s.topic = p_topic and b.made_by <> pg_current_xact_id()
    union all
    select from deed.removals r where r.topic = p_topic and not r.whole
  );
  v_id := nextval('deed.subscription_seq');
  begin
    insert into deed.subscriptions (id, topic, name, max_attempts, lease, backoff, start, start_window)
    values (
      v_id, p_topic, p_name, nullif(coalesce(p_max_attempts, 20), 0), coalesce(p_lease, interval '30 seconds'),
      coalesce(p_backoff, interval '1 second'),
      coalesce(p_from, case when v_first then 'beginning' else 'now' end), v_mark
    )
    on conflict (topic, name) do nothing;
  exception when lock_not_available then
    raise exception 'subscribe: %/% is being made by a transaction that has not ended', p_topic, p_name
      using errcode = '55P03', hint = 'deed doctor names it.';
  end;
  if not found then
    return query
    select s.id, false, s.max_attempts, s.lease, s.start, coalesce(t.mode, 'queue'), s.backoff
    from deed.subscriptions s
    left join deed.topics t on t.topic = s.topic
    where s.topic = p_topic and s.name = p_name;
    return;
  end if;
  insert into deed.backfills (subscription, made_by) values (v_id, pg_current_xact_id());
  insert into deed.attended (subscription, asked_at) values (v_id, clock_timestamp());
  perform deed.join_list(v_id);

  return query
  select s.id, true, s.max_attempts, s.lease, s.start, coalesce(t.mode, 'queue'), s.backoff
  from deed.subscriptions s
  left join deed.topics t on t.topic = s.topic
  where s.id = v_id;
end
$$;
