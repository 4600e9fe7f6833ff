-- deed.ask_purge: name a finished message for deed.purge at the statement's end.
--
-- For the faces' triggers, a call for each row of a DELETE. True if it will be
-- removed: each subscription that its topic has now has finished it, none is
-- just being put in the topic's list (deed.join_list), nobody else removes it, and no
-- stream has gone past it (deed.passed_by_stream). Who else has named it is waited
-- for. What is not removed is not named, so that the DELETE counts what goes.
create or replace function deed.ask_purge(
  p_id    bigint,
  p_topic text
) returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_subs int[];
begin
  insert into deed.purges (id) values (p_id) on conflict do nothing;
  select case when t.mode = 'queue' then coalesce(nullif(t.subscriptions, '{}'), '{0}') end into v_subs
  from deed.topics t
  where t.topic = p_topic;
  if not found then
    v_subs := '{0}';
  end if;
  -- In a statement of its own: who was waited for may have removed it.
  if (
    select count(distinct r.subscription) = cardinality(v_subs)
    from deed.receipts r
    where r.finished > 0 and int8range(r.min_id, r.max_id, '[]') @> p_id
      and r.subscription = any (v_subs) and p_id = any (r.ids)
  ) and not exists (
    select from deed.subscriptions s where s.topic = p_topic and s.list_version is null
  ) and not exists (
    select from deed.subscriptions s
    join deed.former_lanes f on f.subscription = s.id
    cross join generate_series(f.slot_from, f.slot_upto) a(slot)
    join deed.log l on l.slot = a.slot and l.id = p_id
    where s.topic = p_topic and deed.passed_by_stream(p_topic, l.slot, l.list_version)
  ) then
    return true;
  end if;
  delete from deed.purges p where p.id = p_id;
  return false;
end
$$;
