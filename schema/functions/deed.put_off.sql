-- deed.put_off: have deliveries of a campaign's run wait for the end of their recipients' quiet
-- hours, of those at these places whose it are; they are queued, due, and the caller has them
-- locked. Returns the places where these were.
create or replace function deed.put_off(
  p_run    uuid,
  p_places tid[],
  p_now    timestamptz
) returns tid[]
language sql
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
  with late as (
    select c.place, t.loud
    from deed.campaign_runs r
    cross join unnest(p_places) u(place)
    cross join lateral (select o.ctid as place, o.contact_id from deed.channel_outbox o where o.ctid = u.place offset 0) c
    left join deed.audience_members m on m.contact_id = c.contact_id and m.audience_id = r.audience_id
    cross join lateral deed.time_in(r.options, r.created_at, r.scheduled_for, m.zone, p_now) t
    where r.id = p_run and t.loud > p_now
  ),
  put as (
    update deed.channel_outbox c
    set process_after = l.loud, due = false, updated_at = p_now
    from late l
    where c.ctid = l.place -- locked by the caller: they stay where they are
    returning l.place
  )
  select coalesce(array_agg(p.place), '{}') from put p
$$;
