-- deed.remove_topic: remove a topic with all of its subscriptions, and give up
-- what they are owed.
--
-- As deed.remove_subscription for each of them; and when it has committed, the
-- topic is one that nobody has declared. What its publishers had given to
-- nobody, since it had no subscription, goes too (deed.remove_step); what was
-- published before it was declared, and nobody has taken over, stays with
-- what nobody declared. One that is declared by its name later is a new
-- one, with other slots: nothing of this one comes to it.
--
-- Returns the numbers of their rows in deed.removals; for a topic that is being
-- cleared away already, those. Raises as deed.remove_subscription does.
create or replace function deed.remove_topic(
  p_topic  text,
  p_reason text,
  p_by     text default null
) returns bigint[]
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
declare
  v_topic deed.topics%rowtype;
  v_ns    bigint[];
  v_n     bigint;
begin
  perform deed.check_removal(p_topic, p_reason, p_by);
  begin
    lock table deed.list_lock in row exclusive mode; -- see deed.level_list
    select t.* into v_topic from deed.topics t where t.topic = p_topic for update;
    if v_topic.topic is null then
      v_ns := array(select r.n from deed.removals r where r.topic = p_topic and r.whole and r.finished_at is null order by r.n);
      if v_ns = '{}' then
        raise exception 'remove_topic: topic % is not declared', quote_literal(p_topic) using errcode = 'DDNFD';
      end if;
      return v_ns;
    end if;
    if v_topic.own then
      raise exception 'remove_topic: topic % is deed''s own and cannot be removed', quote_literal(p_topic)
        using errcode = 'DDARG', hint = 'Remove its subscriptions: nothing is published to it while it has none.';
    end if;
    v_ns := array(
      select deed.remove_subscription(s.topic, s.name, p_reason, p_by)
      from (select o.topic, o.name from deed.subscriptions o where o.topic = p_topic order by o.id) s
    );
    -- Those removed before are of this topic too, whose slots nobody reads again.
    update deed.removals r set whole = true where r.topic = p_topic and r.slot_base = v_topic.slot_base;
    perform nextval('deed.list_seq'); -- so that publishers under REPEATABLE READ look
    delete from deed.topics t where t.topic = p_topic;
  exception when lock_not_available then
    raise exception 'remove_topic: % is being changed by a transaction that has not ended', p_topic
      using errcode = '55P03', hint = 'deed doctor names it.';
  end;
  insert into deed.removals (subscription, topic, slot_base, whole, log_id, actor, reason, made_by)
  values (0, p_topic, v_topic.slot_base, true, pg_sequence_last_value('deed.log_seq'), coalesce(p_by, session_user), p_reason, pg_current_xact_id())
  returning n into v_n;
  insert into deed.audit_log (actor, action, subject_type, subject_id, reason, affected, details)
  values (
    coalesce(p_by, session_user), 'topic removed', 'topic', p_topic, p_reason, 1,
    jsonb_build_object('topic', p_topic, 'removal', v_n, 'subscriptions', cardinality(v_ns), 'mode', v_topic.mode, 'lanes', v_topic.lanes,
      'ordered', v_topic.ordered, 'retention', v_topic.retention, 'created_at', v_topic.created_at)
  );
  return v_ns || v_n;
end
$$;
