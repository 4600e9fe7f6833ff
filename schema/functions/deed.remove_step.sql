-- deed.remove_step: take away up to p_limit of what waited for a subscription
-- that was removed, or that a removed topic's slots hold for the subscription 0.
-- First its lanes are ended, so that no page of them is recorded any more.
--
-- state says what there is to do then:
--   going  call it again
--   waits  some transaction that was open may still publish to it, or has a row
--          of it locked: again in a while
--   done   nothing of it is left, and nothing can come any more
-- taken is what this call took away, total what all have. Who finds another at
-- the same one returns at once, and waits. Killed anywhere it goes on where it
-- was. Rows are passed over by number, so that none steps over the index
-- entries of what is gone; what is locked is left to the next pass.
--
-- Who may publish to it took a transaction id before reading the topic's list,
-- hence one below that of a transaction begun after the removal was committed:
-- when all below have ended, one more pass finds the last. Call it under READ
-- COMMITTED, in a transaction of its own. Raises DDNFD for an unknown removal,
-- DDARG.
create or replace function deed.remove_step(
  p_n     bigint,
  p_limit int default 5000
) returns table (state text, taken int, total bigint)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set enable_sort = off
set jit = off
set lock_timeout = '1s'
as $$
declare
  v_r     deed.removals%rowtype;
  v_ended boolean;
  v_sys   bigint;
  v_seen  int;
  v_last  bigint;
  v_ids   bigint[];
  v_rows  tid[];
begin
  if p_limit is null or p_limit < 1 then
    raise exception 'remove_step: limit must be above 0, got %', coalesce(p_limit::text, 'null') using errcode = 'DDARG';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'remove_step: it needs READ COMMITTED' using errcode = 'DDARG';
  end if;
  state := 'waits';
  taken := 0;
  select r.* into v_r from deed.removals r where r.n = p_n for update skip locked;
  if not found then
    select r.taken into total from deed.removals r where r.n = p_n;
    if not found then
      raise exception 'remove_step: there is no removal %', coalesce(p_n::text, 'null') using errcode = 'DDNFD';
    end if;
    return next;
    return;
  end if;
  total := v_r.taken;
  if v_r.finished_at is not null then
    state := 'done';
    return next;
    return;
  end if;
  if v_r.made_by = pg_current_xact_id_if_assigned() then
    return next; -- it is not committed: whoever publishes meanwhile has a higher id
    return;
  end if;

  if v_r.subscription <> 0 then
    begin
      perform deed.end_lanes(v_r.subscription);
    exception when lock_not_available then
      return next;
      return;
    end;
  end if;

  -- In another cluster (a restore) all that ran in the one before have ended.
  select c.system_identifier into v_sys from pg_control_system() c;
  if v_r.upto is null or v_r.system_identifier <> v_sys then
    v_r.upto := pg_current_xact_id();
    v_r.system_identifier := v_sys;
  end if;
  v_ended := pg_snapshot_xmin(pg_current_snapshot()) >= v_r.upto; -- before what is looked at
  if v_r.waits and not v_ended then
    update deed.removals r set upto = v_r.upto, system_identifier = v_sys where r.n = p_n and r.upto is distinct from v_r.upto;
    return next;
    return;
  end if;
  if v_r.at_id = 0 then
    v_r.is_final := v_ended;
    v_r.left_some := false;
  end if;

  select count(*), max(q.id), array_agg(q.id) filter (where v_r.subscription <> 0 or q.slot between v_r.slot_base and v_r.slot_base + 63)
  into v_seen, v_last, v_ids
  from (
    select p.id, p.slot from deed.pending p
    where p.subscription = v_r.subscription and p.id > v_r.at_id
    order by p.subscription, p.id
    limit p_limit
  ) q;
  if v_ids is not null then
    v_rows := array(
      select q.ctid
      from unnest(v_ids) u(id)
      cross join lateral (
        select p.ctid from deed.pending p where p.subscription = v_r.subscription and p.id = u.id for update skip locked
      ) q
    );
    delete from deed.pending p where p.ctid = any (v_rows); -- locked above: they stay where they are
    get diagnostics taken = row_count;
    v_r.left_some := v_r.left_some or taken < cardinality(v_ids);
  end if;
  total := total + taken;

  if v_seen = p_limit then
    state := 'going';
  elsif v_r.is_final and not v_r.left_some then
    state := 'done';
    delete from deed.relays l where l.subscription = v_r.subscription and v_r.subscription <> 0;
    delete from deed.running_calls c where c.subscription = v_r.subscription and v_r.subscription <> 0;
    delete from deed.attended a where a.subscription = v_r.subscription and v_r.subscription <> 0;
    delete from deed.sink_pauses p where p.subscription = v_r.subscription and v_r.subscription <> 0;
    delete from deed.delivered d where d.subscription = v_r.subscription and v_r.subscription <> 0;
    insert into deed.audit_log (actor, action, subject_type, subject_id, reason, affected, details)
    values (
      v_r.actor, 'removal finished', case when v_r.name is null then 'topic' else 'subscription' end, concat_ws('/', v_r.topic, v_r.name),
      v_r.reason, total, jsonb_build_object('removal', v_r.n, 'topic', v_r.topic, 'subscription', v_r.name, 'id', v_r.subscription)
    );
  end if;
  update deed.removals r
  set upto = v_r.upto, system_identifier = v_r.system_identifier, taken = total, left_some = v_r.left_some, is_final = v_r.is_final,
    at_id = case when state = 'going' then v_last else 0 end, waits = state = 'waits' and not v_r.left_some,
    finished_at = case when state = 'done' then clock_timestamp() end
  where r.n = p_n;
  return next;
end
$$;
