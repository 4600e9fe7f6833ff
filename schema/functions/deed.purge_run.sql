-- deed.purge_run: remove up to p_limit deliveries of a run of a campaign that is sealed, with their
-- attempts and what was said of them; once none is left, say so on the run. What somebody has in hand
-- stays, and holds up neither the others of its run nor the runs behind. Whoever is killed in between has left the rest to the next one. One audit row for each status.
-- Returns how many, 0 where a run was done with; null: nothing is to go now.
create or replace function deed.purge_run(
  p_limit int,
  p_actor text
) returns int
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_run    deed.campaign_runs;
  v_busy   uuid[] := '{}'; -- runs of which somebody has the last ones in hand
  v_places tid[];
  v_count  int;
begin
  if coalesce(p_limit, 0) < 1 then
    raise exception 'purge_run: take one at least' using errcode = 'DDARG';
  end if;
  loop
    select r.* into v_run
    from deed.campaign_runs r
    where r.sealed_at is not null and r.purged_at is null and r.id <> all (v_busy) and not exists (select from deed.tenant_removals t where t.tenant_id = r.tenant_id)
    order by r.sealed_at
    limit 1
    for no key update of r skip locked;
    if not found then
      return null;
    end if;
    v_places := array(select o.ctid from deed.channel_outbox o where o.run_id = v_run.id and o.finished_at is not null limit p_limit for update skip locked);
    exit when v_places <> '{}' or not exists (select from deed.channel_outbox c where c.run_id = v_run.id);
    v_busy := v_busy || v_run.id;
  end loop;
  -- In a statement of its own: what was said of them before they were locked goes, too.
  with gone as (
    delete from deed.channel_outbox c
    where c.ctid = any (v_places)
    returning c.id, c.status
  ),
  attempts as (
    delete from deed.delivery_attempts a using gone g where a.delivery_id = g.id
  ),
  feedback as (
    delete from deed.delivery_feedback f using gone g where f.delivery_id = g.id
  ),
  bounces as (
    delete from deed.soft_bounces s using gone g where s.delivery_id = g.id
  ),
  audited as (
    insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, from_status, affected, reason)
    select v_run.tenant_id, v_run.id, coalesce(nullif(left(p_actor, 200), ''), session_user), 'purge', 'delivery', g.status, count(*), 'its run''s retention is over'
    from gone g
    group by g.status
  )
  select count(*) into v_count from gone;
  if v_places = '{}' then
    update deed.campaign_runs r set purged_at = clock_timestamp() where r.id = v_run.id;
  end if;
  return v_count;
end
$$;
