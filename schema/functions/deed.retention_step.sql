-- deed.retention_step: take one small step towards being rid of partitions of
-- the log that are old and finished. No row: there is nothing to do now.
--
-- For each partition that nothing keeps (deed.keepers), oldest first, but those
-- that began anew last:
--   began    it is noted that it goes
--   moved    content of up to p_limit messages that are not finished is moved to deed.kept,
--            of fewer if it is large
--   emptied  the partition is truncated
--   dropped  its table is dropped
--   waits    a transaction uses the table, or keeps a row locked; to be tried again in a minute
--   failed   the database refuses, as to drop a table on which somebody's view stands:
--            problem says why; to be tried again in a minute, and the others go on
-- Any number of processes may call it; one at a time works. Call it under READ
-- COMMITTED, in a transaction of its own.
--
-- No publisher waits: nobody publishes to an old partition, and truncating it
-- locks no other. Who reads the log waits 50 ms at the most. Only for dropping
-- the empty table the log as a whole is locked, for which others wait 20 ms at
-- the most; the table's owner can detach it beforehand, for which nobody waits.
--
-- A publisher that has its number and not its row yet may still come. Hence:
-- under the lock on the partition all its rows are visible, and if one was not
-- when moving began, or a backfill has begun since, moving begins anew, and the
-- other partitions have their turn first; after three times it waits a minute.
--
-- Rows that came from another cluster, with its transaction ids, are told by the
-- window at which moving began (see deed.page). If the cluster has none yet, one
-- is opened; what had begun in the other cluster begins anew.
create or replace function deed.retention_step(
  p_limit int default 1000
) returns table (n int, did text, messages bigint, problem text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '50ms'
set jit = off
as $$
#variable_conflict use_column
declare
  v_p     deed.partitions%rowtype;
  v_snap  pg_snapshot;
  v_left  int := p_limit;
  v_room  bigint := 16777216; -- bytes of content that a step moves, but for the last message
  v_sub   int;
  v_ids   bigint[];
  v_slots int[];
  v_count bigint;
  v_size  bigint;
  v_w     record;
  v_state text;
  v_text  text;
  v_more  text;
begin
  if p_limit is null or p_limit < 1 then
    raise exception 'retention_step: limit must be above 0, got %', coalesce(p_limit::text, 'null') using errcode = 'DDARG';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'retention_step: it needs READ COMMITTED' using errcode = 'DDARG';
  end if;
  begin
    lock table deed.retention_lock in share update exclusive mode nowait;
  exception when lock_not_available then
    return;
  end;

  select c.system_identifier into v_w from pg_control_system() c;
  if v_w.system_identifier <> (select w.system_identifier from deed.windows w order by w.n desc limit 1)
    and deed.open_window('try') is null
  then
    return; -- the next time
  end if;

  for v_p in select p.* from deed.partitions p where p.dropped_at is null order by p.restarts, p.n loop
    n := v_p.n;
    messages := 0;
    continue when v_p.tried_at > clock_timestamp() - interval '1 minute';
    begin
      if v_p.emptied_at is not null then
        did := deed.drop_partition(v_p.n);
        return next;
        return;
      end if;
      select pg_current_snapshot() into v_snap; -- before what is looked at
      continue when exists (select from deed.keepers(v_p.n));

      select w.restored_id, w.restored_h into v_w
      from deed.windows w
      cross join pg_control_system() c
      where w.n = v_p.moving_window and w.system_identifier = c.system_identifier;
      if v_p.moving is null or not found or exists (
        select from deed.backfills b where b.window_n > v_p.moving_window
      ) then
        perform deed.begin_moving(v_p.n, v_snap);
        did := 'began';
        return next;
        return;
      end if;

      if v_p.moved_at is null then
        did := 'moved';
        for v_sub in select s.id from deed.subscriptions s where s.id >= v_p.moved_subscription order by s.id loop
          if v_sub > v_p.moved_subscription then
            v_p.moved_id := v_p.from_id - 1;
          end if;
          select array_agg(q.id order by q.id), array_agg(q.slot order by q.id), sum(q.size) into v_ids, v_slots, v_size
          from (
            select m.id, m.slot, m.size, sum(m.size) over (order by m.id) - m.size as before
            from (
              select w.id, w.slot, coalesce((
                select octet_length(l.payload) from deed.log l where l.slot = w.slot and l.id = w.id and l.id >= v_p.from_id and l.id < v_p.upto_id
              ), 0) as size
              from deed.pending w
              where w.subscription = v_sub and w.id > v_p.moved_id and w.id < v_p.upto_id
              order by w.subscription, w.id
              limit v_left
            ) m
          ) q
          where q.before < v_room;
          continue when v_ids is null;
          with gone as (
            delete from deed.log l
            using unnest(v_slots, v_ids) u(slot, id)
            where l.slot = u.slot and l.id = u.id and l.id >= v_p.from_id and l.id < v_p.upto_id
              and (pg_visible_in_snapshot(l.xid, v_p.moving) or (l.id <= v_w.restored_id and l.xid >= v_w.restored_h))
            returning l.*
          )
          insert into deed.kept select g.* from gone g;
          get diagnostics v_count = row_count;
          messages := messages + v_count;
          v_room := v_room - v_size;
          v_left := case when v_room > 0 then v_left - cardinality(v_ids) else 0 end;
          v_p.moved_subscription := v_sub;
          v_p.moved_id := v_ids[cardinality(v_ids)];
          exit when v_left <= 0;
        end loop;
        update deed.partitions p
        set moved_subscription = v_p.moved_subscription, moved_id = v_p.moved_id,
          moved_at = case when v_left > 0 then clock_timestamp() end,
          -- Where it began anew under the lock, lanes had still to read what came late: now they have.
          read_window = greatest(p.read_window, deed.newest_read())
        where p.n = v_p.n;
        return next;
        return;
      end if;

      begin
        execute format('lock table deed.%I in access exclusive mode', 'log_p' || v_p.n);
      exception when lock_not_available then
        update deed.partitions p set tried_at = clock_timestamp() where p.n = v_p.n;
        did := 'waits';
        return next;
        return;
      end;
      select pg_current_snapshot() into v_snap;
      if deed.unseen(v_p.from_id, v_p.upto_id, 0, 2147483647, 0, v_p.moving, v_w.restored_id, v_w.restored_h)
        or exists (select from deed.keepers(v_p.n))
        or exists (select from deed.backfills b where b.window_n > v_p.moving_window)
      then
        perform deed.begin_moving(v_p.n, v_snap);
        did := 'began';
        return next;
        return;
      end if;
      execute format('truncate deed.%I', 'log_p' || v_p.n);
      update deed.partitions p set emptied_at = clock_timestamp(), tried_at = null where p.n = v_p.n;
      did := 'emptied';
      return next;
      return;
    exception when others then -- of this partition: what it has begun is undone
      get stacked diagnostics v_state = returned_sqlstate, v_text = message_text, v_more = pg_exception_detail;
      update deed.partitions p set tried_at = clock_timestamp() where p.n = v_p.n;
      did := 'waits';
      messages := 0;
      if v_state <> '55P03' then
        did := 'failed';
        problem := format('%s (SQLSTATE %s)', concat_ws(': ', v_text, nullif(v_more, '')), v_state);
      end if;
      return next;
      return;
    end;
  end loop;
end
$$;
