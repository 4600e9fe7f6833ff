-- deed.accept_messages: store what a platform sent, before anything is done about it
-- (D8); the messages of one request, whose signature was right.
--
-- p_tenant is whose the source is. Each sender is linked to the contact who is known by
-- that identity (p_kinds, p_senders), which is made if there is none; with p_unknown
-- deny (denied_unknown_sender), and where the sender is no such identity
-- (denied_invalid_sender), the message is denied instead, and of
-- its contents nothing is kept. p_also_of, p_also_kinds and p_also_values are what else
-- the platform says that senders are known by, an entry for each, of the message
-- p_also_of, counted from 1: the contact gets those that it lacks, unless it would have too many. Where they are
-- somebody else's, that is a conflict (deed.identity_conflicts), and the message is of
-- whom the sender is. A platform's id that came before makes no second row. A
-- message without a correlation id has its own id as that.
--
-- Returns one row a message, n counting from 1, with its status, its correlation id and what was done: new;
-- waits, a repeat of one that is accepted; again, of one that had failed, and is accepted
-- again under its id; held, of one that waits for a person; repeat, of one that has
-- ended. Messages of one sender are run in the order in which they came. Raises DDARG,
-- DDTEN, DDNFD for an unknown tenant, 40001, and 55P03 where somebody else has locked what a
-- message needs, such as its sender by an erasure that is left open: that is waited for no
-- longer than others who come may wait behind it. A repeat of what nothing can be changed
-- of needs no lock.
create or replace function deed.accept_messages(
  p_source         text,
  p_ids            text[],
  p_kinds          text[],
  p_senders        text[],
  p_reply_tos      text[],
  p_texts          text[],
  p_bodies         text[],
  p_correlation_id text,
  p_unknown        text,
  p_tenant         uuid,
  p_worker         text,
  p_also_of        int[] default '{}',
  p_also_kinds     text[] default '{}',
  p_also_values    text[] default '{}'
) returns table (n int, id uuid, status text, did text, correlation_id text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set lock_timeout = '500ms'
as $$
#variable_conflict use_column
declare
  v_tenant  uuid := deed.tenant_of_call('accept_messages', p_tenant);
  v_actor   text := coalesce(nullif(left(p_worker, 200), ''), session_user);
  v_now     timestamptz := clock_timestamp();
  v_ms      text := lpad(to_hex(floor(extract(epoch from v_now) * 1000)::bigint), 12, '0');
  v_prefix  text := left(v_ms, 8) || '-' || right(v_ms, 4) || '-7';
  v_count   int := coalesce(cardinality(p_ids), 0);
  v_looks   text := deed.plan_mode(array['deed.contacts'::regclass, 'deed.contact_identities'::regclass, 'deed.channel_messages'::regclass]);
  v_row     deed.channel_messages%rowtype;
  v_sender  text;
  v_contact uuid;
  v_behind  boolean; -- whether another message of the sender is being run
  v_kinds   text[]; -- by what the sender is known, the sender first
  v_values  text[];
  v_known   int;    -- how many of the others are known,
  v_missing int;    -- and how many are not the contact's
  v_id      uuid;
  v_new     uuid[] := '{}'; -- those that are new, and those that are accepted again
  v_old     uuid[] := '{}';
  v_denied  bigint := 0;
begin
  if not (v_count = all (array[cardinality(p_kinds), cardinality(p_senders), cardinality(p_reply_tos), cardinality(p_texts), cardinality(p_bodies)])) is not false then
    raise exception 'accept_messages: the arrays do not have one entry a message each (% ids)', v_count using errcode = 'DDARG';
  elsif (p_unknown in ('link', 'deny')) is not true then
    raise exception 'accept_messages: unknown must be link or deny' using errcode = 'DDARG';
  elsif not (coalesce(cardinality(p_also_of), -1) = all (array[coalesce(cardinality(p_also_kinds), -1), coalesce(cardinality(p_also_values), -1)])) then
    raise exception 'accept_messages: the arrays do not have one entry for each of what else senders are known by' using errcode = 'DDARG';
  end if;
  -- There is a choice of indexes, in what foreign keys ask, too.
  perform set_config('plan_cache_mode', v_looks, true);
  for v_n in 1 .. v_count loop
    n := v_n;
    for v_try in 1 .. 100 loop
      id := null;
      select m.* into v_row
      from deed.channel_messages m
      where m.tenant_id = v_tenant and m.source = p_source and m.platform_message_id = p_ids[v_n];
      if not found and deed.erased_message_id(p_ids[v_n]) <> p_ids[v_n] then
        select m.* into v_row
        from deed.channel_messages m
        where m.tenant_id = v_tenant and m.source = p_source and m.platform_message_id = deed.erased_message_id(p_ids[v_n]);
      end if;
      if found and v_row.status = 'dispatch_failed' and v_row.held_at is null then
        select m.* into v_row from deed.channel_messages m where m.id = v_row.id for update;
      end if;
      if found then
        id := v_row.id;
        did := case when v_row.status = 'accepted' then 'waits' when v_row.status <> 'dispatch_failed' then 'repeat' when v_row.held_at is null then 'again' else 'held' end;
        status := v_row.status;
        correlation_id := v_row.correlation_id;
        if did = 'again' then
          perform deed.take_turn(id);
          status := 'accepted';
          v_old := v_old || id;
        end if;
        exit;
      end if;

      v_id := (v_prefix || lpad(to_hex(v_n % 4096), 3, '0') || substr(gen_random_uuid()::text, 19))::uuid; -- in their order
      v_contact := null;
      v_sender := (deed.check_identity(p_kinds[v_n], p_senders[v_n])).folded;
      if v_sender is not null then
        select k.means into v_contact from deed.known_as(v_tenant, p_kinds[v_n], v_sender) k;
        v_kinds := array[p_kinds[v_n]];
        v_values := array[v_sender];
        v_known := 0;
        v_missing := 0;
        if v_n = any (p_also_of) then
          select v_kinds || array_agg(a.kind order by a.kind, a.value), v_values || array_agg(a.value order by a.kind, a.value), count(k.means), count(*) filter (where k.means is distinct from v_contact)
          into v_kinds, v_values, v_known, v_missing
          from (
            select g.kind, (deed.check_identity(g.kind, g.value)).folded as value
            from unnest(p_also_of, p_also_kinds, p_also_values) g(n, kind, value)
            where g.n = v_n
          ) a
          left join lateral deed.known_as(v_tenant, a.kind, a.value) k on true
          where a.value is not null;
        end if;
        if v_contact is null and (p_unknown = 'link' or v_known > 0) or v_contact is not null and v_missing > 0 then
          -- Who has too many identities gets no more, and writes all the same: under one that
          -- could not be added it is somebody else.
          select case when u.outcome = 'full' then v_contact else coalesce(u.id, v_contact) end into v_contact
          from deed.upsert_contacts(array_fill(1, array[cardinality(v_kinds)]), v_kinds, v_values, array['{}'::jsonb], p_tenant => v_tenant, p_actor => v_actor) u;
          if v_contact is null and p_unknown = 'link' then
            -- The others are of several: none of them is this one.
            select u.id into v_contact
            from deed.upsert_contacts(array[1], v_kinds[1:1], v_values[1:1], array['{}'::jsonb], p_tenant => v_tenant, p_actor => v_actor) u;
          end if;
        end if;
      end if;
      if v_contact is not null then
        -- No erasure passes it by: it waits, or was before.
        perform from deed.contacts c where c.id = v_contact and c.erased_at is null for key share;
        if not found then
          raise exception 'accept_messages: the contact of message % has been erased since this began', v_n using errcode = '40001';
        end if;
        status := 'accepted';
        -- The sender's message that is being run: it cannot end before this one is there
        -- to have the turn.
        perform from deed.channel_messages o
        where o.tenant_id = v_tenant and o.source = p_source and o.kind = p_kinds[v_n] and o.sender = v_sender
          and coalesce(o.lease_until, o.process_after) < 'infinity'
        for no key update;
        v_behind := found;
        insert into deed.channel_messages as m (id, tenant_id, source, platform_message_id, contact_id, kind, sender, reply_to, text, body, status,
          lease_until, correlation_id, received_at)
        values (v_id, v_tenant, p_source, p_ids[v_n], v_contact, p_kinds[v_n], v_sender,
          nullif(p_reply_tos[v_n], ''), p_texts[v_n], p_bodies[v_n], 'accepted', case when v_behind then 'infinity' else v_now end, coalesce(nullif(p_correlation_id, ''), v_id::text), v_now)
        on conflict do nothing
        returning m.id into id;
      else
        status := case when v_sender is null then 'denied_invalid_sender' else 'denied_unknown_sender' end;
        insert into deed.channel_messages as m (id, tenant_id, source, platform_message_id, kind, sender, status, correlation_id, received_at, finished_at, emptied_at)
        values (v_id, v_tenant, p_source, deed.erased_message_id(p_ids[v_n]), p_kinds[v_n],
          deed.address_mark(v_tenant, p_kinds[v_n], coalesce(v_sender, p_senders[v_n], '')), status, coalesce(nullif(p_correlation_id, ''), v_id::text), v_now, v_now, v_now)
        on conflict do nothing
        returning m.id into id;
      end if;
      if id is not null then
        did := 'new';
        v_new := v_new || id;
        correlation_id := coalesce(nullif(p_correlation_id, ''), id::text);
        v_denied := v_denied + (v_contact is null)::int;
        exit;
      end if;
      -- The same one, or another of this sender, has come first: it is looked at.
    end loop;
    if id is null then
      raise exception 'accept_messages: this transaction''s snapshot hides what came before message %', v_n using errcode = '40001';
    end if;
    return next;
  end loop;
  if v_new <> '{}' then
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, affected, details)
    values (v_tenant, v_actor, 'receive', 'channel_message', case when cardinality(v_new) = 1 then v_new[1]::text end, cardinality(v_new),
      nullif(jsonb_strip_nulls(jsonb_build_object('denied', nullif(v_denied, 0), 'ids', case when cardinality(v_new) > 1 then to_jsonb(v_new) end)), '{}'));
  end if;
  if v_old <> '{}' then
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, from_status, to_status, affected, details)
    values (v_tenant, v_actor, 'repeat', 'channel_message', case when cardinality(v_old) = 1 then v_old[1]::text end, 'dispatch_failed', 'accepted', cardinality(v_old),
      case when cardinality(v_old) > 1 then jsonb_build_object('ids', v_old) end);
  end if;
end
$$;
