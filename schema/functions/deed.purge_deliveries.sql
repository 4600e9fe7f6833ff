-- deed.purge_deliveries: remove finished deliveries that ended longer than p_age
-- ago, at most p_limit, with their attempts and what was said of them; dead and failed ones never (O11).
--
-- One that names files stays for two days at least, as they do (deed.purge_contents): by it an
-- erasure finds them.
--
-- One audit row for each tenant and status. Returns how many.
create or replace function deed.purge_deliveries(
  p_age   interval,
  p_limit int,
  p_actor text
) returns int
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_places tid[];
  v_count  int;
begin
  if p_age is null or p_age < interval '1 day' then
    raise exception 'purge_deliveries: the age must be at least a day: providers'' windows and people ask for them' using errcode = 'DDARG';
  end if;
  v_places := array(
    select o.ctid from deed.channel_outbox o
    where o.finished_at < clock_timestamp() - p_age and (o.contents is null or o.finished_at < clock_timestamp() - interval '2 days') and o.status in ('sent', 'called', 'posted', 'skipped') and o.run_id is null
    order by o.finished_at
    limit p_limit
    for update skip locked
  );
  -- In a statement of its own: what was said of them before they were locked goes, too.
  with gone as (
    delete from deed.channel_outbox c
    where c.ctid = any (v_places)
    returning c.id, c.tenant_id, c.status
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
    insert into deed.audit_log (tenant_id, actor, action, subject_type, from_status, affected, reason)
    select g.tenant_id, coalesce(nullif(left(p_actor, 200), ''), session_user), 'purge', 'delivery', g.status, count(*), format('finished longer than %s ago', p_age)
    from gone g
    group by g.tenant_id, g.status
  )
  select count(*) into v_count from gone;
  return v_count;
end
$$;
