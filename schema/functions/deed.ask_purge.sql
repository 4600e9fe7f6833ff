-- deed.ask_purge: name a finished message for deed.purge at the statement's end.
--
-- For the faces' triggers, a call for each row of a DELETE. True if it will be
-- removed: each subscription that its topic has now has finished it, and nobody
-- else removes it. Who else has named it is waited for. What is not removed is
-- not named, so that the DELETE counts what goes.
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
  ) then
    return true;
  end if;
  delete from deed.purges p where p.id = p_id;
  return false;
end
$$;
