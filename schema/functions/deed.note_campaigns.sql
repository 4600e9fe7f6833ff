-- deed.note_campaigns: say that p_worker carries out campaigns, and does so for p_for unless it
-- says so again; null: that it does not any more. Forgets those that died, too. Raises DDARG.
create or replace function deed.note_campaigns(
  p_worker text,
  p_for    interval
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  if coalesce(p_worker, '') = '' or length(p_worker) > 200 or p_for not between interval '1 second' and interval '1 hour' then
    raise exception 'note_campaigns: worker must have 1 to 200 characters, and it is for 1 second to 1 hour' using errcode = 'DDARG';
  end if;
  -- Nobody waits for a row that somebody has locked: it is said again before long.
  delete from deed.campaign_workers w
  where w.ctid = any (array(
    select o.ctid from deed.campaign_workers o
    where o.seen_until < v_now - interval '1 day' or (p_for is null and o.worker = p_worker)
    for update skip locked
  ));
  if p_for is not null then
    insert into deed.campaign_workers as w (worker, seen_until)
    values (p_worker, v_now + p_for)
    on conflict (worker) do update set seen_until = excluded.seen_until;
  end if;
end
$$;
