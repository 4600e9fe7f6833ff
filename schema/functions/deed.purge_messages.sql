-- deed.purge_messages: remove messages that ended, and were received longer than p_age
-- ago, at most p_limit; one that a delivery names is emptied instead, and removed when no
-- delivery does any more.
--
-- Returns how many were looked at, of each kind. Platforms repeat for a week, so that
-- p_age is eight days at the least. Raises DDARG.
create or replace function deed.purge_messages(
  p_age   interval,
  p_limit int,
  p_actor text
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
  v_actor  text := coalesce(nullif(left(p_actor, 200), ''), session_user);
  v_now    timestamptz := clock_timestamp();
  v_ids    uuid[];
  v_looked int;
begin
  if p_age is null or p_age < interval '8 days' then
    raise exception 'purge_messages: the age must be at least eight days: platforms repeat for seven' using errcode = 'DDARG';
  end if;
  v_ids := array(
    select m.id from deed.channel_messages m
    where m.emptied_at is null and m.received_at < v_now - p_age and num_nonnulls(m.lease_until, m.process_after) = 0
    order by m.received_at
    limit p_limit
    for update skip locked
  );
  v_ids := v_ids || array(
    select m.id from deed.channel_messages m
    where m.emptied_at < v_now - p_age and num_nonnulls(m.lease_until, m.process_after) = 0
    order by m.emptied_at
    limit p_limit
    for update skip locked
  );
  v_looked := cardinality(v_ids);
  if v_looked = 0 then
    return 0;
  end if;
  with gone as (
    delete from deed.channel_messages m
    where m.id = any (v_ids) and not exists (select from deed.channel_outbox c where c.channel_message_id = m.id)
    returning m.id, m.tenant_id, m.status
  ),
  audited as (
    insert into deed.audit_log (tenant_id, actor, action, subject_type, from_status, affected, reason)
    select g.tenant_id, v_actor, 'purge', 'channel_message', g.status, count(*), format('received longer than %s ago', p_age)
    from gone g
    group by g.tenant_id, g.status
  )
  -- Those that stay are looked at again after as long.
  update deed.channel_messages m
  set sender = m.id::text, reply_to = null, text = null, body = null, emptied_at = v_now, error = case when m.error is not null then 'emptied' end
  where m.id = any (v_ids) and m.id <> all (array(select g.id from gone g));
  return v_looked;
end
$$;
