-- deed.purge_contents: remove files that nobody has put or named for p_age and that no
-- delivery needs which is unfinished or may be put back; of p_limit that are old enough, in
-- the order of their use. Returns how many went.
--
-- They are locked before it is looked who needs them, in a statement of its own: whoever
-- reserves takes a lock that this waits for no more than a claim does, and what he
-- has committed before it is seen. Call it under READ COMMITTED. Raises DDARG.
create or replace function deed.purge_contents(
  p_age   interval,
  p_limit int,
  p_actor text
) returns int
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  v_places tid[];
  v_count  int;
begin
  if p_age is null or p_age < interval '2 days' then
    raise exception 'purge_contents: the age must be at least two days: that a file is used is written down once a day' using errcode = 'DDARG';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'purge_contents: it needs READ COMMITTED' using errcode = 'DDARG';
  end if;
  v_places := array(
    select c.ctid from deed.contents c
    where c.used_at < clock_timestamp() - p_age
      and not exists (
        select from deed.channel_outbox o
        where o.contents @> array[c.sha256] and o.status in ('queued', 'sending', 'failed', 'dead') and o.contents is not null and o.tenant_id = c.tenant_id
      )
    order by c.used_at
    limit p_limit
    for update skip locked
  );
  select deed.drop_contents(v_places, p_actor, format('not used for %s', p_age)) into v_count;
  return v_count;
end
$$;
