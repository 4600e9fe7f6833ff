-- deed.subscribe: declare a topic's subscription; does nothing if it exists.
--
-- A new one begins at a window. Publishers are not waited for and do not wait:
-- from the commit on they give it its messages, and what they publish under
-- the list before it is brought in by deed.backfill, late commits included
-- (O18). p_from: 'beginning' or 'now'; null means 'beginning' for the first
-- subscriptions of a topic (those made in one transaction), 'now' for later
-- ones. p_max_attempts null: 20; 0: without limit. p_lease null: 30 seconds.
-- p_backoff, from which the pause after a failure doubles, null: 1 second.
-- Returns the stored settings, which may differ from the call's.
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
as $$
declare
  v_window  bigint;
  v_version bigint;
  v_first   boolean;
  v_id      int;
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
  select s.id, false, s.max_attempts, s.lease, s.start, t.mode, s.backoff
  from deed.subscriptions s
  join deed.topics t on t.topic = s.topic
  where s.topic = p_topic and s.name = p_name;
  if found then
    return;
  end if;

  perform pg_advisory_xact_lock(hashtextextended('deed.subscribe', 0));
  return query
  select s.id, false, s.max_attempts, s.lease, s.start, t.mode, s.backoff
  from deed.subscriptions s
  join deed.topics t on t.topic = s.topic
  where s.topic = p_topic and s.name = p_name;
  if found then
    return;
  end if;

  v_window := deed.open_window(); -- before the first write: see there
  insert into deed.topics (topic, slot_base)
  select p_topic, coalesce(max(t.slot_base), 0) + 64 from deed.topics t
  on conflict do nothing;

  v_first := not exists (
    select from deed.subscriptions s
    join deed.backfills b on b.subscription = s.id
    where s.topic = p_topic and b.made_by <> pg_current_xact_id()
  );
  select max(s.id) + 1 into v_id from deed.subscriptions s;
  v_version := nextval('deed.list_seq');
  insert into deed.subscriptions (id, topic, name, max_attempts, lease, backoff, start, start_window, list_version)
  values (
    v_id, p_topic, p_name, nullif(coalesce(p_max_attempts, 20), 0), coalesce(p_lease, interval '30 seconds'),
    coalesce(p_backoff, interval '1 second'),
    coalesce(p_from, case when v_first then 'beginning' else 'now' end), v_window, v_version
  );
  -- A stream is read from the log: from its first window, or from now on.
  update deed.subscriptions s set since = 0, since_window = case s.start when 'now' then v_window else 0 end
  from deed.topics t
  where s.id = v_id and t.topic = p_topic and t.mode = 'stream';
  insert into deed.relanings (subscription, lanes, mode)
  select v_id, r.lanes, r.mode
  from deed.relanings r
  join deed.subscriptions s on s.id = r.subscription
  where s.topic = p_topic and r.mode = 'queue'
  limit 1;
  insert into deed.backfills (subscription, made_by) values (v_id, pg_current_xact_id());
  update deed.topics t set subscriptions = t.subscriptions || v_id where t.topic = p_topic;
  update deed.settings set list_version = v_version;

  return query
  select s.id, true, s.max_attempts, s.lease, s.start, t.mode, s.backoff
  from deed.subscriptions s
  join deed.topics t on t.topic = s.topic
  where s.id = v_id;
end
$$;
