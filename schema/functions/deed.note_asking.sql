-- deed.note_asking: note that somebody asks for messages of these subscriptions, every
-- twenty seconds at the most (deed.unattended). Waits for nobody: where another notes
-- the same, or a transaction sees an older state, that is good enough. What a clock that
-- was set back has left in the future is corrected.
create or replace function deed.note_asking(p_subscriptions int[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
begin
  if not exists (
    select from unnest(p_subscriptions) s(id)
    join deed.attended a on a.subscription = s.id
    where a.asked_at not between clock_timestamp() - interval '20 seconds' and clock_timestamp()
  ) then
    return;
  end if;
  begin
    update deed.attended a
    set asked_at = clock_timestamp()
    where a.subscription = any (array(
      select q.subscription from deed.attended q
      where q.subscription = any (p_subscriptions) and q.asked_at not between clock_timestamp() - interval '20 seconds' and clock_timestamp()
      order by q.subscription
      for update skip locked
    ));
  exception when serialization_failure then
    null;
  end;
end
$$;
