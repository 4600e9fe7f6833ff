-- deed.retry_messages: run failed messages again, also those that are held; an
-- operator's act. Their attempts and lost claims count from nothing. Returns how many; those that have
-- not failed are left. Raises DDARG without a reason, DDNFD for an id that there is not.
create or replace function deed.retry_messages(
  p_ids    uuid[],
  p_reason text,
  p_actor  text default null
) returns int
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan -- where plans were made while there was nobody, they read tables whole
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_actor text := coalesce(nullif(left(p_actor, 200), ''), session_user);
  v_ids   uuid[];
  v_none  uuid;
begin
  if coalesce(length(btrim(p_reason)), 0) not between 1 and 2000 then
    raise exception 'retry_messages: a reason of 1 to 2000 characters is needed' using errcode = 'DDARG';
  end if;
  select u.id into v_none from unnest(p_ids) u(id) where not exists (select from deed.channel_messages m where m.id = u.id) limit 1;
  if found then
    raise exception 'retry_messages: there is no channel message %', v_none using errcode = 'DDNFD';
  end if;
  v_ids := array(
    select l.id
    from (select m.id from deed.channel_messages m where m.id = any (p_ids) and m.status = 'dispatch_failed' and m.emptied_at is null order by m.id for update) l
  );
  update deed.channel_messages m set attempts = 0, lost_claims = 0 where m.id = any (v_ids);
  perform deed.take_turn(u.id) from unnest(v_ids) u(id);
  insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, from_status, to_status, reason)
  select m.tenant_id, v_actor, 'retry', 'channel_message', m.id::text, 'dispatch_failed', 'accepted', p_reason
  from deed.channel_messages m
  where m.id = any (v_ids);
  return cardinality(v_ids);
end
$$;
