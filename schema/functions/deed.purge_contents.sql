-- deed.purge_contents: remove files that nobody has put or named for p_age and that no
-- delivery needs which is unfinished or may be put back; and before them those that an erasure
-- left (deed.erase_deliveries). It looks at p_limit at most, and returns at how many.
--
-- What is needed is set aside for a day, so that others come up; what somebody has locked is
-- passed over. Files are locked before it is looked again who needs them, in a statement of its
-- own: whoever reserves takes a lock that this waits for no more than a claim does, and what he
-- has committed before it is seen. Call it under READ COMMITTED. Raises DDARG.
create or replace function deed.purge_contents(
  p_age   interval,
  p_limit int,
  p_actor text
) returns int
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_now    timestamptz := clock_timestamp();
  v_looked int;
  v_needed tid[];
  v_free   tid[];
begin
  if p_age is null or p_age < interval '2 days' then
    raise exception 'purge_contents: the age must be at least two days: that a file is used is written down once a day' using errcode = 'DDARG';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'purge_contents: it needs READ COMMITTED' using errcode = 'DDARG';
  end if;
  v_looked := deed.purge_erased_contents(p_limit);
  with old as (
    select c.ctid as place, exists (
        select from deed.channel_outbox o
        where o.contents @> array[c.sha256] and o.status in ('queued', 'sending', 'failed', 'dead') and o.contents is not null and o.tenant_id = c.tenant_id
      ) as is_needed
    from deed.contents c
    where greatest(c.used_at, c.passed_at) < v_now - p_age
    order by greatest(c.used_at, c.passed_at)
    limit p_limit - v_looked
    for no key update skip locked
  )
  select v_looked + count(*), coalesce(array_agg(o.place) filter (where o.is_needed), '{}'), coalesce(array_agg(o.place) filter (where not o.is_needed), '{}')
  into v_looked, v_needed, v_free
  from old o;
  -- As if it had been used then: it is old again in a day.
  update deed.contents c set passed_at = v_now - p_age + interval '1 day' where c.ctid = any (v_needed);
  v_free := array(select c.ctid from deed.contents c where c.ctid = any (v_free) for update skip locked);
  if v_free <> '{}' then
    perform deed.drop_contents(v_free, p_actor, format('not used for %s', p_age));
  end if;
  return v_looked;
end
$$;
