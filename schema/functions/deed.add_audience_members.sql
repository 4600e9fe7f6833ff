-- deed.add_audience_members: put members into an audience that is being loaded, in the
-- caller's transaction; one statement for a batch of them, 10,000 at the most.
--
-- p_after is how many it has before, so that a batch whose answer was lost can be given
-- again: it changes nothing then. Each member is a contact, p_contacts' or who is known by
-- the address (a phone's number of sms and voice, in E.164 then; of chat and social as the types chat and
-- account); one who is not known is made, without data. p_data is what templates are given of
-- it, an object each. An address is kept as addresses are compared; no contact and no address
-- are in an audience twice. p_rows_read and p_left_out note how much of the audience's source
-- has been read by now, for who goes on after an interruption. Returns how many members it has
-- now. Raises DDARG and names the first member that is refused, counted from 1 in the audience;
-- the error's detail has up to 10,000 of them, a JSON array of n and problem: those that are none by
-- themselves, or else those that are there twice. Raises DDTEN, DDNFD for an audience or a
-- contact that the tenant does not have, and DDCON where it is ready, where p_after is not where
-- it ends, and for a contact who was erased; of contacts it names the member and has the detail, too.
create or replace function deed.add_audience_members(
  p_audience  uuid,
  p_after     bigint,
  p_addresses text[],
  p_data      jsonb[] default null,
  p_zones     text[] default null,
  p_contacts  uuid[] default null,
  p_tenant    uuid default null,
  p_actor     text default null,
  p_rows_read bigint default null,
  p_left_out  bigint default null
) returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
set work_mem = '64MB'
as $$
declare
  c_deep     constant jsonpath := 'strict $.**{1000} ? (@.type() == "array" || @.type() == "object")'; -- one that 1,000 others are around
  c_number   constant jsonpath := 'strict $.** ? (@.type() == "number")';
  v_xid      xid8 := pg_current_xact_id(); -- before it is asked whether the tenant was removed: who removes it waits for this
  v_tenant   uuid := deed.tenant_of_call('add_audience_members', p_tenant);
  v_count    int := coalesce(cardinality(p_addresses), 0);
  v_audience deed.audiences;
  v_folded   text[];
  v_contacts uuid[];
  v_new      int[]; -- those whose contact is looked for
  v_bad      record;
begin
  select a.* into v_audience from deed.audiences a where a.id = p_audience and a.tenant_id = v_tenant for update;
  if not found then
    raise exception 'add_audience_members: there is no audience %', p_audience using errcode = 'DDNFD';
  elsif v_count > 10000 or exists (
    select from unnest(array[coalesce(array_dims(p_addresses), '[1:0]'), array_dims(p_data), array_dims(p_zones), array_dims(p_contacts)]) d where d <> format('[1:%s]', v_count)
  ) then
    raise exception 'add_audience_members: the arrays must have one entry a member, 10000 at the most, and count from 1 (% addresses)', v_count using errcode = 'DDARG';
  end if;
  v_folded := array(select deed.fold_address(v_audience.channel, nullif(btrim(p_addresses[i], e' \t\r\n'), '')) from generate_series(1, v_count) i order by i);
  select min(u.n) as n, (array_agg(u.problem order by u.n))[1] as problem, jsonb_agg(jsonb_build_object('n', u.n, 'problem', u.problem) order by u.n)::text as list
  into v_bad
  from (
    select u.n, case
        when u.folded is null and btrim(u.address, e' \t\r\n') <> '' then 'its address is none: ' || (deed.check_address(v_audience.channel, u.address)).problem
        when u.contact is null and v_audience.channel in ('sms', 'voice') and u.folded !~ e'^\\+[1-9][0-9]{7,14}$' -- as deed.check_identity has it
          then 'its address is none: it is not a number in E.164: a + with the country''s code, and 8 to 15 digits'
        when length(u.folded) > 500 then 'its address has over 500 characters'
        when u.folded is null and u.contact is null then 'it has neither an address nor a contact'
        when jsonb_typeof(u.data) <> 'object' then 'its data must be a JSON object'
        when pg_column_size(u.data) > 65536 then format('its data of %s bytes are over the limit of 65536', pg_column_size(u.data))
        -- Neither writes them out: what is 65,536 bytes here may be half a gigabyte as text, in an expansion and in each claim.
        when pg_column_size(u.data) > 8000 and jsonb_path_exists(u.data, c_deep) then 'its data have over 1000 arrays and objects in each other'
        when jsonb_path_exists(u.data, c_number) and deed.json_digits(u.data) > 65536 then 'its data have numbers with so many digits that they are over the limit of 65536 bytes'
        when not deed.is_zone(u.zone) then 'its zone is not the name of a time zone, such as Europe/Berlin'
      end as problem
    from (
      select p_after + i as n, p_addresses[i] as address, v_folded[i] as folded, p_contacts[i] as contact, p_data[i] as data, nullif(p_zones[i], '') as zone
      from generate_series(1, v_count) i
    ) u
    where (u.folded is null and (btrim(u.address, e' \t\r\n') <> '' or u.contact is null)) or length(u.folded) > 500
      or (u.contact is null and v_audience.channel in ('sms', 'voice') and u.folded !~ e'^\\+[1-9][0-9]{7,14}$')
      or jsonb_typeof(u.data) <> 'object' or pg_column_size(u.data) > 65536 or (pg_column_size(u.data) > 8000 and jsonb_path_exists(u.data, c_deep))
      or (jsonb_path_exists(u.data, c_number) and deed.json_digits(u.data) > 65536) or not deed.is_zone(u.zone)
  ) u;
  if v_bad.n is not null then
    raise exception 'add_audience_members: member %: %', v_bad.n, v_bad.problem using errcode = 'DDARG', detail = v_bad.list;
  end if;
  if p_after + v_count <= v_audience.members and p_after >= 0 then
    select m.n into v_bad
    from generate_series(1, v_count) i
    join deed.audience_members m on m.audience_id = p_audience and m.n = p_after + i
    where m.address <> v_folded[i] or (m.address is null) < (v_folded[i] is null) or (m.address is not null and m.data <> coalesce(p_data[i], '{}'))
    order by m.n
    limit 1;
    if found then
      raise exception 'add_audience_members: member % is another one than was given before', v_bad.n using errcode = 'DDCON';
    end if;
    if v_count = 0 and p_rows_read > v_audience.rows_read and v_audience.status = 'loading' and p_after = v_audience.members then
      update deed.audiences a set rows_read = p_rows_read, left_out = coalesce(p_left_out, a.left_out) where a.id = p_audience;
    end if;
    return v_audience.members;
  elsif p_after is distinct from v_audience.members then
    raise exception 'add_audience_members: the audience has % members, and these would come after %', v_audience.members, coalesce(p_after::text, 'null') using errcode = 'DDCON';
  elsif v_audience.status <> 'loading' then
    raise exception 'add_audience_members: the audience is %, and cannot be changed', case v_audience.status when 'removing' then 'being removed' else v_audience.status end using errcode = 'DDCON';
  end if;

  if cardinality(array_remove(p_contacts, null)) > 0 then
    -- As deed.lock_contacts has it, which says nothing of members.
    select min(u.n) as n, (array_agg(u.problem order by u.n))[1] as problem, (array_agg(u.code order by u.n))[1] as code,
      jsonb_agg(jsonb_build_object('n', u.n, 'problem', u.problem) order by u.n)::text as list
    into v_bad
    from (
      select p_after + i as n, case when c.id is null then format('there is no contact %s', p_contacts[i]) else format('contact %s has been erased', p_contacts[i]) end as problem,
        case when c.id is null then 'DDNFD' else 'DDCON' end as code
      from generate_series(1, v_count) i
      left join deed.contacts c on c.id = p_contacts[i] and c.tenant_id = v_tenant
      where p_contacts[i] is not null and (c.id is null or c.erased_at is not null)
    ) u;
    if v_bad.n is not null then
      raise exception 'add_audience_members: member %: %', v_bad.n, v_bad.problem using errcode = v_bad.code, detail = v_bad.list;
    end if;
    perform deed.lock_contacts('add_audience_members', v_tenant, p_contacts);
  end if;
  v_new := array(select i from generate_series(1, v_count) i where p_contacts[i] is null order by i);
  v_contacts := array(select deed.contact_of(v_tenant, p_contacts[i]) from generate_series(1, v_count) i order by i);
  if cardinality(v_new) > 0 then
    select array_agg(coalesce(v_contacts[i], u.id) order by i) into v_contacts
    from generate_series(1, v_count) i
    left join deed.upsert_contacts(
      array(select generate_series(1, cardinality(v_new))),
      array_fill(case v_audience.channel when 'email' then 'email' when 'sms' then 'phone' when 'voice' then 'phone' when 'social' then 'account' else 'chat' end, array[cardinality(v_new)]),
      array(select v_folded[w.n] from unnest(v_new) with ordinality w(n, k) order by w.k),
      array_fill(null::jsonb, array[cardinality(v_new)]),
      p_tenant => v_tenant, p_actor => p_actor
    ) u on v_new[u.n] = i;
  end if;
  -- Two of the batch, or one that is there: what people get wrong in their lists.
  select min(u.n) as n, (array_agg(u.problem order by u.n))[1] as problem, jsonb_agg(jsonb_build_object('n', u.n, 'problem', u.problem) order by u.n)::text as list
  into v_bad
  from (
    select u.n, format('has the %s of member %s', max(u.what), min(u.first)) as problem
    from (
      select w.n, min(w.n) over (partition by w.contact) as first, 'contact' as what from (select p_after + i as n, v_contacts[i] as contact from generate_series(1, v_count) i) w
      union all
      select w.n, min(w.n) over (partition by w.address), 'address' from (select p_after + i as n, v_folded[i] as address from generate_series(1, v_count) i) w where w.address is not null
      union all
      select p_after + i, m.n, 'contact' from generate_series(1, v_count) i join deed.audience_members m on m.audience_id = p_audience and m.contact_id = v_contacts[i]
      union all
      select p_after + i, m.n, 'address' from generate_series(1, v_count) i join deed.audience_members m on m.audience_id = p_audience and m.address = v_folded[i]
    ) u
    where u.n <> u.first
    group by u.n
  ) u;
  if v_bad.n is not null then
    raise exception 'add_audience_members: member % %', v_bad.n, v_bad.problem
      using errcode = 'DDARG', detail = v_bad.list, hint = 'In an audience nobody is twice: leave one of them out.';
  end if;
  insert into deed.audience_members (audience_id, n, tenant_id, contact_id, address, zone, data)
  select p_audience, p_after + i, v_tenant, v_contacts[i], v_folded[i], nullif(p_zones[i], ''), coalesce(p_data[i], '{}')
  from generate_series(1, v_count) i;
  update deed.audiences a
  set members = p_after + v_count, rows_read = coalesce(p_rows_read, a.rows_read), left_out = coalesce(p_left_out, a.left_out)
  where a.id = p_audience;
  return p_after + v_count;
end
$$;
