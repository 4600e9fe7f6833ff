-- deed.set_door: let the published faces claim a topic's subscription, or not.
--
-- A topic has at most one such subscription: marking one takes the mark from
-- the other. Who else drains it goes on and shares the work with the faces.
-- What they have in hand when the mark goes, for five minutes, they finish for an hour: who
-- claims while this is not committed has it for longer than five minutes from now.
-- Raises DDNFD if there is no such subscription, DDMOD for a stream.
create or replace function deed.set_door(
  p_topic text,
  p_name  text,
  p_door  boolean default true
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_door and exists (select from deed.topics t where t.topic = p_topic and t.mode = 'stream') then
    raise exception 'set_door: topic % is a stream, which deed''s own relay reads in order', quote_literal(p_topic)
      using errcode = 'DDMOD', hint = format('To have its messages claimed one by one: deed topic set %s --mode queue', p_topic);
  end if;
  if not exists (select from deed.subscriptions s where s.topic = p_topic and s.name = p_name and s.id <> 0) then
    raise exception 'set_door: topic % has no subscription %', quote_literal(coalesce(p_topic, '')), quote_literal(coalesce(p_name, ''))
      using errcode = 'DDNFD';
  end if;
  update deed.subscriptions s set door = false, door_until = clock_timestamp() + interval '1 hour'
  where p_door and s.topic = p_topic and s.name <> p_name and s.door;
  update deed.subscriptions s
  set door = p_door, door_until = case when not p_door then clock_timestamp() + interval '1 hour' end
  where s.topic = p_topic and s.name = p_name and s.door <> p_door;
end
$$;
