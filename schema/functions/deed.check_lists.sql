-- deed.check_lists: raise 40001 if one of the topics' lists of subscriptions has
-- changed since the caller's snapshot was taken.
--
-- For publishers under REPEATABLE READ or SERIALIZABLE, which have their
-- transaction id already. A row lock, and the insertion of a key, look past the
-- snapshot: the server itself raises 40001 if what they meet has been committed
-- since. What has not been is passed by: the change commits after the caller
-- took its id, so deed.backfill brings what the caller publishes. Both are
-- undone at once, so nobody meets them. The caller has locked the table, in the
-- mode of one who writes to it: a row's lock is all that there is to pass by.
create or replace function deed.check_lists(
  p_topics text[]
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '1ms'
as $$
declare
  v_topic text;
begin
  for v_topic in select distinct u from unnest(p_topics) u order by u loop
    begin
      if exists (select from deed.topics t where t.topic = v_topic) then
        perform from deed.topics t where t.topic = v_topic for share skip locked;
      else
        -- No other transaction that runs has this slot_base.
        insert into deed.topics (topic, slot_base, list_version)
        values (v_topic, 64 * (33554431 - (pg_current_xact_id()::text::bigint & 8388607))::int, 0)
        on conflict do nothing;
      end if;
      raise exception using errcode = 'DDCON';
    exception when sqlstate 'DDCON' or lock_not_available then
      null;
    end;
  end loop;
end
$$;
