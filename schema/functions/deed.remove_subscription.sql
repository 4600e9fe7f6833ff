-- deed.remove_subscription: remove a topic's subscription, and give up what it
-- is owed.
--
-- A short transaction: when it has committed, publishers give it nothing, its
-- workers claim nothing, nothing keeps a partition for it,
-- and its name is free: one that is declared by it later is a new one, with
-- another id. deed.remove_step ends its lanes, and takes away what was waiting for
-- it, as well as what transactions that had begun before still publish to it. Receipts and pages stay
-- until retention: what was delivered was delivered. A stream that waited for this one
-- alone to become a queue is one then.
--
-- Returns the number of its row in deed.removals; for one that is being cleared
-- away already, that one's. Until the caller's transaction ends only other changes of
-- the topic are put off. Raises DDNFD, DDARG without a reason, and 55P03 while
-- another transaction that has not ended is changing the topic.
create or replace function deed.remove_subscription(
  p_topic  text,
  p_name   text,
  p_reason text,
  p_by     text default null
) returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
declare
  v_topic   deed.topics%rowtype;
  v_sub     deed.subscriptions%rowtype;
  v_n       bigint;
  v_version bigint;
  v_ask     deed.relanings%rowtype;
begin
  perform deed.check_removal(p_topic, p_reason, p_by);
  begin
    lock table deed.list_lock in row exclusive mode; -- see deed.level_list
    select t.* into v_topic from deed.topics t where t.topic = p_topic for update;
    select s.* into v_sub from deed.subscriptions s where s.topic = p_topic and s.name = p_name and s.id <> 0 for update;
    if v_sub.id is null then
      select max(r.n) into v_n from deed.removals r where r.topic = p_topic and r.name = p_name and r.finished_at is null;
      if v_n is not null then
        return v_n;
      end if;
      raise exception 'remove_subscription: topic % has no subscription %', quote_literal(p_topic), coalesce(quote_literal(left(p_name, 110)), 'null')
        using errcode = 'DDNFD';
    end if;
    if v_topic.topic is null then -- deed.join_list may have declared it while this waited
      select t.* into v_topic from deed.topics t where t.topic = p_topic for update;
    end if;

    if v_topic.topic is not null then
      v_version := nextval('deed.list_seq');
      update deed.topics t
      set list_version = v_version, subscriptions = array_remove(t.subscriptions, v_sub.id)
      where t.topic = p_topic;
    end if;
    delete from deed.backfills b where b.subscription = v_sub.id;
    delete from deed.relanings r where r.subscription = v_sub.id returning r.* into v_ask;
    delete from deed.subscriptions s where s.id = v_sub.id;
    if v_ask.mode = 'queue' and not exists (
      select from deed.relanings r join deed.subscriptions s on s.id = r.subscription where s.topic = p_topic
    ) then
      perform deed.end_stream(p_topic);
      if exists (select from deed.topics t where t.topic = p_topic and t.mode = 'stream') then
        raise lock_not_available; -- one who is to join the queue is being changed: nobody would end it afterwards
      end if;
    end if;
  exception when lock_not_available then
    raise exception 'remove_subscription: %/% is being changed by a transaction that has not ended', p_topic, p_name
      using errcode = '55P03', hint = 'deed doctor names it.';
  end;

  insert into deed.removals (
    subscription, topic, name, slot_base, whole, start, list_version, log_id, actor, reason, made_by
  )
  values (
    v_sub.id, p_topic, p_name, coalesce(v_topic.slot_base, 0), false, v_sub.start, v_sub.list_version,
    pg_sequence_last_value('deed.log_seq'), coalesce(p_by, session_user), p_reason, pg_current_xact_id()
  )
  returning n into v_n;
  insert into deed.audit_log (actor, action, subject_type, subject_id, reason, details)
  values (
    coalesce(p_by, session_user), 'subscription removed', 'subscription', p_topic || '/' || p_name, p_reason,
    jsonb_build_object('topic', p_topic, 'subscription', p_name, 'id', v_sub.id, 'removal', v_n, 'door', v_sub.door, 'max_attempts', v_sub.max_attempts,
      'lease', v_sub.lease, 'backoff', v_sub.backoff, 'created_at', v_sub.created_at)
  );
  return v_n;
end
$$;
