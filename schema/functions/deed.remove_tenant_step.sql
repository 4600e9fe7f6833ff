-- deed.remove_tenant_step: take away up to p_limit rows of a tenant that is being removed
-- (deed.remove_tenant), one kind after the other; of the log and of what has no index by
-- tenant, those of a stretch of rows that is looked at.
--
-- state says what there is to do then, and taken what this call took away, by table:
--   going  call it again
--   waits  some transaction that was open may still write for it, or has a row of it
--          locked, or has made some of a kind that was over: again in a while
--   done   nothing of it is left, and nothing can come any more
-- Who finds another at the same one returns at once, and waits. Killed anywhere it goes
-- on where it was.
--
-- What was being written when the removal was asked for is there when all transactions
-- have ended that had an id below that of one begun afterwards: a second pass takes that.
-- The log goes in that pass only, when nothing of the tenant waits any more, and a window
-- shows all that was published: so nobody records anything of what is taken out, and what
-- streams have gone past is counted from there on. That nothing is left of what names the tenant by
-- a foreign key the deletion of its row proves; if something has come, there is another
-- pass. Call it under READ COMMITTED, in a transaction of its own. Raises DDNFD, DDARG.
create or replace function deed.remove_tenant_step(
  p_tenant uuid,
  p_limit  int default 5000
) returns table (state text, taken jsonb)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
set lock_timeout = '1s'
as $$
declare
  c_stages constant text[] := '{pending,door_claims,publish_keys,channel_outbox,channel_messages,suppressions,identity_conflicts,contents,erased_contents,runs,plans,delivery_holds,job_queue,campaign_runs,audience_members,audiences,campaign_contents,campaigns,contacts,window,log,kept,audit_log,tenants}';
  v_r     deed.tenant_removals%rowtype;
  v_sys   bigint;
  v_ended boolean;
  v_step  record;
begin
  if p_limit is null or p_limit < 1 then
    raise exception 'remove_tenant_step: limit must be above 0, got %', coalesce(p_limit::text, 'null') using errcode = 'DDARG';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'remove_tenant_step: it needs READ COMMITTED' using errcode = 'DDARG';
  end if;
  state := 'waits';
  taken := '{}';
  select r.* into v_r from deed.tenant_removals r where r.tenant_id = p_tenant for update skip locked;
  if not found then
    if not deed.is_removed(p_tenant) then
      raise exception 'remove_tenant_step: nobody has asked for tenant % to be removed', coalesce(p_tenant::text, 'null') using errcode = 'DDNFD';
    end if;
    return next;
    return;
  end if;
  if v_r.finished_at is not null then
    state := 'done';
    return next;
    return;
  end if;
  if v_r.made_by = pg_current_xact_id_if_assigned() then
    return next; -- it is not committed
    return;
  end if;

  -- In another cluster (a restore) all that ran in the one before have ended.
  select c.system_identifier into v_sys from pg_control_system() c;
  if v_r.upto is null or v_r.system_identifier <> v_sys then
    v_r.upto := pg_current_xact_id();
    v_r.system_identifier := v_sys;
  end if;
  v_ended := pg_snapshot_xmin(pg_current_snapshot()) >= v_r.upto; -- before what is looked at
  if v_r.stage = 0 and (v_ended or not v_r.waits) then
    v_r.stage := 1;
    v_r.is_final := v_ended;
  end if;
  if c_stages[v_r.stage] = 'window' then
    -- One that shows all that was published for the tenant (see deed.verify_streams).
    select w.n, w.system_identifier = v_sys as ours, pg_snapshot_xmin(w.cur) >= v_r.upto as shows into v_step
    from deed.windows w
    order by w.n desc
    limit 1;
    v_r.read_window := case when v_step.ours and v_step.shows then v_step.n when v_step.ours then deed.open_window('try') end;
    if v_r.read_window is not null then
      state := 'going';
      v_r.stage := v_r.stage + 1;
    end if;
  elsif v_r.stage > 0 then
    select t.* into v_step
    from deed.take_tenant(p_tenant, c_stages[v_r.stage], v_r.at_sub, v_r.at_id, v_r.left_some, p_limit) t;
    taken := v_step.taken;
    state := case v_step.did when 'waits' then 'waits' else 'going' end;
    v_r.at_sub := v_step.at_sub;
    v_r.at_id := v_step.at_id;
    v_r.left_some := v_step.left_some;
    v_r.waits := false;
    if v_step.did = 'over' then
      v_r.stage := v_r.stage + 1;
    end if;
    if v_step.did = 'again' then
      v_r.stage := 0;
      state := 'waits'; -- or the whole log would be read over and over for what comes each time
    elsif c_stages[v_r.stage] = 'window' and not v_r.is_final then
      v_r.stage := 0;
      v_r.waits := true;
      state := 'waits';
    end if;
    select coalesce(jsonb_object_agg(s.what, s.n), '{}') into v_r.taken
    from (
      select o.key as what, sum(o.value::bigint) as n
      from (select * from jsonb_each_text(v_r.taken) union all select * from jsonb_each_text(taken)) o
      group by o.key
    ) s;
    if v_r.stage > cardinality(c_stages) then
      state := 'done';
      v_r.finished_at := clock_timestamp();
      insert into deed.audit_log (actor, action, subject_type, subject_id, reason, affected, details)
      select v_r.actor, 'tenant removal finished', 'tenant', p_tenant::text, v_r.reason, coalesce(sum(o.value::bigint), 0),
        jsonb_build_object('name', v_r.name, 'taken', v_r.taken)
      from jsonb_each_text(v_r.taken) o
      where o.key <> 'audit_log';
    end if;
  end if;
  update deed.tenant_removals r
  set upto = v_r.upto, system_identifier = v_r.system_identifier, stage = v_r.stage, is_final = v_r.is_final, at_sub = v_r.at_sub, at_id = v_r.at_id,
    left_some = v_r.left_some, waits = v_r.waits, read_window = v_r.read_window, taken = v_r.taken, finished_at = v_r.finished_at
  where r.tenant_id = p_tenant;
  return next;
end
$$;
