-- app.outbox_written: what writing to public.outbox does.
--
-- INSERT publishes. DELETE names finished messages for deed.purge, which the
-- statement's end calls. What is deed's to manage is refused with DDARG and the
-- name of the function to call instead.
create or replace function app.outbox_written() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ours text;
begin
  if tg_level = 'STATEMENT' then
    perform deed.purge();
    return null;
  end if;

  if tg_op = 'DELETE' then
    if old.delivered_at is null then
      raise exception 'outbox: message % has not been delivered, and is not deleted', old.id
        using errcode = 'DDARG', hint = 'An operator gives up a dead message with: deed dead discard ID --reason TEXT';
    end if;
    -- What another subscription has still to deliver stays, and is not counted.
    return case when deed.ask_purge(deed.message_seq(old.id), old.topic) then old end;
  end if;

  if tg_op = 'UPDATE' then
    raise exception 'outbox: % is not written by hand', case
        when new.delivered_at is distinct from old.delivered_at then 'delivered_at'
        when new.processing_token is distinct from old.processing_token then 'processing_token'
        when new.attempts is distinct from old.attempts then 'attempts'
        else 'a published message' end
      using errcode = 'DDARG', hint = case
        when new.delivered_at is distinct from old.delivered_at then 'Call app.outbox_mark_delivered(token, ids).'
        when new.processing_token is distinct from old.processing_token
          then 'Call app.outbox_claim(limit, token, tenant); a claim comes back by itself after five minutes.'
        when new.attempts is distinct from old.attempts
          then 'Attempts are counted by app.outbox_mark_delivered(token, ids) and by the functions that report failures.'
        else 'It stays as it was published; publish another one.' end;
  end if;

  v_ours := case
    when new.id is not null then 'id'
    when new.delivered_at is not null then 'delivered_at'
    when new.processing_token is not null then 'processing_token'
    when new.attempts <> 0 then 'attempts' end;
  if v_ours is not null then
    raise exception 'outbox: % is deed''s to write', v_ours
      using errcode = 'DDARG',
        hint = 'Insert topic, payload, tenant_id and created_at; claim with app.outbox_claim, finish with app.outbox_mark_delivered.';
  end if;
  new.tenant_id := coalesce(new.tenant_id, deed.current_tenant(), '00000000-0000-0000-0000-000000000000');
  new.created_at := coalesce(new.created_at, clock_timestamp());
  select p.message_id into new.id
  from deed.publish_many(
    array[new.topic], array[convert_to(new.payload::text, 'UTF8')],
    p_tenants => array[new.tenant_id], p_created_at => array[new.created_at]
  ) p;
  new.attempts := 0;
  return new;
end
$$;

create or replace trigger outbox_written instead of insert or update or delete on public.outbox
  for each row execute function app.outbox_written();
create or replace trigger outbox_deleted after delete on public.outbox
  for each statement execute function app.outbox_written();
