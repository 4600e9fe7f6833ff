-- deed.run_was_read: whether nothing of a run is needed any more by those who read it: its
-- newest snapshot is after its newest event, no event of it is missing, and every
-- one of the subscriptions given has read all its messages and finished each. For
-- deed.retain_runs.
--
-- p_unread is what deed.retain_runs knows of all of them: what they have still to read was published since then.
create or replace function deed.run_was_read(
  p_run           uuid,
  p_tenant        uuid,
  p_subscriptions int[],
  p_unread        timestamptz
) returns boolean
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
  select exists (
      select
      from (
        select l.run_seq, l.persisted_at from deed.run_log l where l.run_id = p_run order by l.run_seq desc limit 1
      ) l
      where l.persisted_at < p_unread
        and exists (select from deed.run_snapshots s where s.run_id = p_run and s.last_event_seq = l.run_seq)
    )
    and not exists (select from deed.run_stale t where t.run_id = p_run)
    and not exists (
      select from deed.pending w
      where w.subscription = any (p_subscriptions) and w.key_hash = deed.key_hash(p_tenant, p_run::text)
    )
$$;
