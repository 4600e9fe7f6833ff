-- deed.take_tenant_rows: take away up to p_limit rows that a tenant has in a table, with
-- what belongs to them, whoever has them in hand. did is going, waits or over, as
-- deed.take_tenant says, whose part it is.
--
-- A contact goes when no other one that is left was merged into it.
create or replace function deed.take_tenant_rows(
  p_tenant  uuid,
  p_table   text,
  p_limit   int,
  out did   text,
  out taken jsonb
) returns record
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set enable_bitmapscan = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_n      bigint;
  v_of     bigint;
  v_places tid[];
  v_ids    uuid[];
  v_run    uuid;
begin
  case p_table
  when 'channel_outbox' then
    v_places := array(select o.ctid from deed.channel_outbox o where o.tenant_id = p_tenant limit p_limit for update skip locked);
    -- In a statement of its own: what was said of them before they were locked goes, too.
    with gone as (
      delete from deed.channel_outbox c where c.ctid = any (v_places) returning c.id
    ),
    attempts as (
      delete from deed.delivery_attempts a using gone g where a.delivery_id = g.id returning 1
    ),
    feedback as (
      delete from deed.delivery_feedback f using gone g where f.delivery_id = g.id returning 1
    ),
    bounces as (
      delete from deed.soft_bounces s using gone g where s.delivery_id = g.id returning 1
    )
    select (select count(*) from gone), jsonb_build_object('delivery_attempts', (select count(*) from attempts), 'delivery_feedback', (select count(*) from feedback), 'soft_bounces', (select count(*) from bounces))
    into v_n, taken;
    taken := jsonb_build_object(p_table, v_n) || taken;
  when 'runs' then
    -- The newest event first: what is left has no gap.
    select r.run_id into v_run from deed.runs r where r.tenant_id = p_tenant limit 1 for update skip locked;
    delete from deed.run_log l
    where l.run_id = v_run and l.run_seq > (select o.run_seq from deed.run_log o where o.run_id = v_run order by o.run_seq desc limit 1) - p_limit;
    get diagnostics v_of = row_count;
    taken := jsonb_build_object('run_log', v_of);
    if v_of < p_limit then
      -- Nobody stores one meanwhile: the run is locked for that (deed.store_snapshots).
      delete from deed.run_snapshots s where s.run_id = v_run;
      get diagnostics v_of = row_count;
      taken := taken || jsonb_build_object('run_snapshots', v_of);
      delete from deed.run_stale s where s.run_id = v_run;
      get diagnostics v_of = row_count;
      taken := taken || jsonb_build_object('run_stale', v_of);
      delete from deed.run_steps s where s.run_id = v_run;
      get diagnostics v_of = row_count;
      delete from deed.run_requests q where q.run_id = v_run;
      delete from deed.runs r where r.run_id = v_run;
      get diagnostics v_n = row_count;
      taken := taken || jsonb_build_object('run_steps', v_of, 'run_requests', v_n, p_table, v_n);
    else
      v_n := v_of;
    end if;
  when 'plans' then
    with gone as (
      delete from deed.plans p
      where p.ctid = any (array(select o.ctid from deed.plans o where o.tenant_id = p_tenant limit 1 + p_limit / 1000 for update skip locked))
      returning p.plan_id, p.plan_version
    ),
    steps as (
      delete from deed.plan_steps s using gone g where s.tenant_id = p_tenant and s.plan_id = g.plan_id and s.plan_version = g.plan_version returning 1
    )
    select (select count(*) from gone), (select count(*) from steps) into v_n, v_of;
    taken := jsonb_build_object(p_table, v_n, 'plan_steps', v_of);
  when 'campaign_runs' then
    with gone as (
      delete from deed.campaign_runs r
      where r.ctid = any (array(select o.ctid from deed.campaign_runs o where o.tenant_id = p_tenant limit p_limit for update skip locked))
      returning r.id, r.provider
    ),
    rates as (
      delete from deed.rate_limits b using gone g where b.provider = g.provider and b.run_id = g.id
    )
    select count(*) into v_n from gone;
    taken := jsonb_build_object(p_table, v_n);
  when 'contacts' then
    v_ids := array(
      select c.id from deed.contacts c
      where c.tenant_id = p_tenant and not exists (select from deed.contacts o where o.merged_into = c.id)
      limit (p_limit + 4) / 5
      for update of c skip locked
    );
    delete from deed.contact_merges m where m.into_id = any (v_ids); -- not both at once: no index has both
    get diagnostics v_of = row_count;
    delete from deed.erasing o using deed.erasures e where e.n = o.n and e.contact_id = any (v_ids);
    with erasures as (
      delete from deed.erasures e where e.contact_id = any (v_ids) returning 1
    ),
    merges as (
      delete from deed.contact_merges m where m.from_id = any (v_ids) returning 1
    ),
    words as (
      delete from deed.consents w where w.contact_id = any (v_ids) returning 1
    ),
    identities as (
      delete from deed.contact_identities i where i.contact_id = any (v_ids) returning 1
    )
    select jsonb_build_object('erasures', (select count(*) from erasures), 'contact_merges', (select count(*) from merges) + v_of,
      'consents', (select count(*) from words), 'contact_identities', (select count(*) from identities))
    into taken;
    delete from deed.contacts c where c.id = any (v_ids);
    get diagnostics v_n = row_count;
    taken := taken || jsonb_build_object(p_table, v_n);
  else
    if p_table = 'kept' then
      lock table deed.retention_lock in share update exclusive mode nowait;
    end if;
    execute format('
      with gone as (
        delete from deed.%1$I r
        where r.ctid = any (array(select o.ctid from deed.%1$I o where o.tenant_id = $1 limit $2 for update skip locked))
        returning 1
      )
      select count(*) from gone', p_table) into v_n using p_tenant, p_limit;
    taken := jsonb_build_object(p_table, v_n);
  end case;
  if v_n > 0 then
    did := 'going';
    return;
  end if;
  execute format('select exists (select from deed.%I r where r.tenant_id = $1)', p_table) into strict did using p_tenant;
  did := case when did::boolean then 'waits' else 'over' end;
end
$$;
