-- deed.upsert_contacts: make or change contacts, in the caller's transaction; one
-- statement for any number of them.
--
-- p_data, p_zones and p_locales have one entry a contact; a null one changes nothing.
-- p_of, p_types, p_values and p_verified have one entry an identity: of which contact
-- it is, counted from 1, and by what that is known. Each contact has one at the least,
-- and, with those of the contacts that were merged into it, 100 at the most: what would
-- be more changes nothing of that contact (full); the others go through.
-- Who is known by one of them is changed: what is new of its identities is added, its
-- data get the keys that are given. Who is known by none is made. Identities that two
-- contacts have are a conflict (deed.identity_conflicts): nothing of that contact is
-- changed, and nothing is merged; the others go through. What is given twice is as if
-- it were given in two calls, in that order.
--
-- Returns one row a contact, n counting from 1: its id and created, updated,
-- unchanged, full, or conflict, with those who have its identities in others and no id. One
-- audit row for the call. Raises DDARG and names the contact and the field, DDTEN, and
-- 40001 where a transaction's snapshot hides who has an identity, or one of them is
-- erased meanwhile.
--
-- All identities that are new are inserted first, in their order: two callers wait
-- for each other there or not at all.
create or replace function deed.upsert_contacts(
  p_of       int[],
  p_types    text[],
  p_values   text[],
  p_data     jsonb[],
  p_zones    text[] default null,
  p_locales  text[] default null,
  p_verified boolean[] default null,
  p_tenant   uuid default null,
  p_actor    text default null
) returns table (n int, id uuid, outcome text, others uuid[])
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_custom_plan
set enable_seqscan = on
set enable_bitmapscan = on
set enable_hashjoin = on
set enable_mergejoin = on
set work_mem = '64MB'
as $$
#variable_conflict use_column
declare
  v_tenant  uuid := deed.tenant_of_call('upsert_contacts', p_tenant);
  v_actor   text := coalesce(nullif(left(p_actor, 200), ''), session_user);
  v_count   int := coalesce(cardinality(p_data), 0);
  v_mode    text := case when cardinality(p_of) <= 20 then 'force_generic_plan' else 'force_custom_plan' end; -- of plan_cache_mode,
  v_looks   text := 'force_custom_plan'; -- and where deed.known_as is asked, which has a choice of indexes
  v_now     timestamptz := clock_timestamp();
  v_ms      text := lpad(to_hex(floor(extract(epoch from v_now) * 1000)::bigint), 12, '0');
  v_prefix  text := left(v_ms, 8) || '-' || right(v_ms, 4) || '-7';
  v_holder  uuid := (v_prefix || substr(gen_random_uuid()::text, 16))::uuid;
  v_bad     record;
  v_n       int[];     -- the identities, in their order, each once a contact: of which contact,
  v_type    text[];
  v_value   text[];
  v_sure    boolean[]; -- whether it is verified
  v_like    int[];     -- by contact: the first one of the call that has the same identities
  v_tangled int[] := '{}'; -- those that share some of theirs with others
  v_ids     uuid[];    -- by contact: who it is
  v_means   uuid[];    -- by identity: who is known by it
  v_known   int[];     -- by contact: how many contacts have its identities,
  v_whose   text[];    -- and which, if they are several
  v_free    uuid[];    -- of those, whom nobody else is changing
  v_added   int[] := '{}'; -- the contacts that got identities,
  v_over    uuid[];    -- who have too many with them,
  v_full    int[] := '{}'; -- and those of the call that would have had
  v_gives   boolean;
  v_changed uuid[];    -- that got other data
  v_wanted  int[];     -- of those that nobody had: of which contact,
  v_types   text[];    -- and which
  v_values  text[];
  v_certain boolean[];
  v_made    text[];    -- what nobody came first with
  v_raced   int[];
  v_merged  jsonb;     -- by alias: whose
  v_given   int;
  v_owners  uuid[];
  v_i       int;
begin
  if v_count = 0 then
    return;
  end if;
  if v_mode = 'force_generic_plan' then
    -- Of a few, planning would be two thirds of what a call costs: their plans are kept,
    -- and go by indexes whatever the tables held when they were made.
    v_looks := deed.plan_mode(array['deed.contacts'::regclass, 'deed.contact_identities'::regclass]);
    perform set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
      set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true);
  end if;
  if not (cardinality(p_of) = all (array[coalesce(cardinality(p_types), -1), coalesce(cardinality(p_values), -1), coalesce(cardinality(p_verified), cardinality(p_of))]))
    or not (v_count = all (array[coalesce(cardinality(p_zones), v_count), coalesce(cardinality(p_locales), v_count)])) then
    raise exception 'upsert_contacts: the arrays do not have one entry a contact, or one an identity (% contacts)', v_count using errcode = 'DDARG';
  end if;
  if exists (
    select from unnest(array[array_dims(p_of), array_dims(p_types), array_dims(p_values), array_dims(p_verified)]) d where d <> format('[1:%s]', cardinality(p_of))
    union all
    select from unnest(array[array_dims(p_data), array_dims(p_zones), array_dims(p_locales)]) d where d <> format('[1:%s]', v_count)
  ) then
    raise exception 'upsert_contacts: the arrays must have one dimension and count from 1' using errcode = 'DDARG';
  end if;

  select q.n, q.type, q.value, q.sure into v_n, v_type, v_value, v_sure
  from (
    select array_agg(f.n) as n, array_agg(f.type) as type, array_agg(f.value) as value, array_agg(f.sure) as sure
    from (
      select g.n, g.type, bool_or(coalesce(g.sure, false)) as sure, g.folded as value
      from (
        select u.n, u.type collate "C" as type, u.sure,
          case when u.type = 'email' then deed.fold_address('email', u.value) else (deed.check_identity(u.type, u.value)).folded end collate "C" as folded
        from unnest(p_of, p_types, p_values, p_verified) u(n, type, value, sure)
      ) g
      group by g.type, g.folded, g.n
      order by g.type, g.folded, g.n
    ) f
  ) q;
  select b.n, b.problem into v_bad
  from (
    select g.n, case
        when g.n is null or g.n not between 1 and v_count then 'an identity is of no contact of the call'
        else format('%s: %s', coalesce(left(g.type, 63), 'identity'), (deed.check_identity(g.type, g.value)).problem) end as problem
    from unnest(p_of, p_types, p_values) g(n, type, value)
    where (array_position(v_value, null) is not null or 1 > any (v_n) or v_count < any (v_n) or array_position(v_n, null) is not null)
      and ((g.n between 1 and v_count) is not true or (deed.check_identity(g.type, g.value)).folded is null)
    union all
    select g.n, case
        when g.n::int <> all (v_n) then 'it has no identity'
        when jsonb_typeof(g.data) <> 'object' then 'data must be a JSON object'
        when pg_column_size(g.data) > 65536 then format('data of %s bytes are over the limit of 65536', pg_column_size(g.data))
        -- Without writing it out: 64 KiB of 1e131071 are half a gigabyte as text.
        when pg_column_size(g.data) > 8000 and jsonb_path_exists(g.data, 'strict $.**{1000} ? (@.type() == "array" || @.type() == "object")')
          then 'data have over 1000 arrays and objects in each other'
        when jsonb_path_exists(g.data, 'strict $.** ? (@.type() == "number")') and deed.json_digits(g.data) > 65536
          then 'data have numbers with so many digits that they are over the limit of 65536 bytes'
        when g.zone is not null and not deed.is_zone(g.zone) then 'zone is not the name of a time zone, such as Europe/Berlin'
        when g.locale !~ '^[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8}){0,4}$' then 'locale is not a language tag, such as de or pt-BR'
      end
    from unnest(p_data, p_zones, p_locales) with ordinality g(data, zone, locale, n)
    union all
    select u.n, 'it has over 100 identities' from unnest(v_n) u(n) group by u.n having count(*) > 100
  ) b
  where b.problem is not null
  order by b.n nulls first
  limit 1;
  if found then
    raise exception 'upsert_contacts: contact %: %', coalesce(v_bad.n::text, '?'), v_bad.problem using errcode = 'DDARG';
  end if;

  -- Who has the same identities as another one of the call, and who has some of
  -- another one's. Mostly nobody.
  v_like := array(select generate_series(1, v_count));
  if exists (select from unnest(v_type, v_value) u(type, value) group by u.type, u.value having count(*) > 1) then
    select array_agg(w.first order by w.n) into v_like
    from (
      select m.n, min(m.n) over (partition by m.mark) as first
      from (
        select u.n, string_agg(u.type || e'\x1f' || u.value, e'\x1e' order by u.type, u.value) as mark
        from unnest(v_n, v_type, v_value) u(n, type, value)
        group by u.n
      ) m
    ) w;
    v_tangled := array(
      select distinct u.n
      from (select u.n, count(*) over (partition by u.type, u.value) as times from unnest(v_n, v_type, v_value) u(n, type, value) where v_like[u.n] = u.n) u
      where u.times > 1
      order by u.n
    );
  end if;

  -- Who is known by what they have; of those that are tangled it is asked once more.
  perform set_config('plan_cache_mode', v_looks, true);
  select array_agg(k.means order by u.o) into v_means
  from unnest(v_type, v_value) with ordinality u(type, value, o)
  left join lateral deed.known_as(v_tenant, u.type, u.value) k on true;
  perform set_config('plan_cache_mode', v_mode, true);
  select array_agg(k.id order by k.n), array_agg(k.known order by k.n), array_agg(k.whose order by k.n) into v_ids, v_known, v_whose
  from (
    select u.n, min(u.means::text)::uuid as id, count(distinct u.means)::int as known,
      case when count(distinct u.means) > 1 then string_agg(distinct u.means::text, ',' order by u.means::text) end as whose
    from unnest(v_n, v_means) u(n, means)
    group by u.n
  ) k;
  v_ids := array(
    select case when g.known > 1 or g.first <> g.n or g.n::int = any (v_tangled) then null
      else coalesce(g.id, (v_prefix || substr(gen_random_uuid()::text, 16))::uuid) end
    from unnest(v_ids, v_known, v_like) with ordinality g(id, known, first, n)
    order by g.n
  );

  -- A foreign key's look at each row is planned once, and not for each row.
  perform set_config('plan_cache_mode', 'auto', true) where v_mode <> 'force_generic_plan';
  insert into deed.contacts (id, tenant_id, data, zone, locale, created_at, updated_at)
  select g.id, v_tenant, coalesce(g.data, '{}'), g.zone, g.locale, v_now, v_now
  from unnest(v_ids, v_known, p_data, p_zones, p_locales) g(id, known, data, zone, locale)
  where g.known = 0 and g.id is not null
  union all
  select v_holder, v_tenant, '{}', null, null, v_now, v_now where v_tangled <> '{}';
  select array_agg(w.n), array_agg(w.type), array_agg(w.value), array_agg(w.sure) into v_wanted, v_types, v_values, v_certain
  from (
    select u.type collate "C" as type, u.value collate "C" as value, min(case when u.n = any (v_tangled) then null else u.n end) as n, bool_or(u.sure) as sure
    from unnest(v_n, v_type, v_value, v_sure, v_means) u(n, type, value, sure, means)
    where u.means is null and v_like[u.n] = u.n and (v_known[u.n] < 2 or u.n = any (v_tangled))
    group by 1, 2
    order by 1, 2
  ) w;
  begin
    -- A row waits at the index of its value with an entry in that of its contact. Where
    -- others know the contact, who is waited for may want that entry, as soon as it turns
    -- out whose the value is. Whoever looks before each row waits without an entry.
    if 1 = any (array(select v_known[w] from unnest(v_wanted) w where w is not null)) then
      raise exception using errcode = 'unique_violation';
    end if;
    insert into deed.contact_identities (tenant_id, contact_id, type, value, verified_at, created_at)
    select v_tenant, coalesce(v_ids[w.n], v_holder), w.type, w.value, case when w.sure and w.n is not null then v_now end, v_now
    from unnest(v_wanted, v_types, v_values, v_certain) with ordinality w(n, type, value, sure, o)
    order by w.o;
  exception when unique_violation then
    -- Others have come first with some: who has those is asked below, with the rest of
    -- what those contacts have given back. Mostly nobody has, and among contacts that are
    -- all new looking before each row costs for nothing.
    with made as (
      insert into deed.contact_identities (tenant_id, contact_id, type, value, verified_at, created_at)
      select v_tenant, coalesce(v_ids[w.n], v_holder), w.type, w.value, case when w.sure and w.n is not null then v_now end, v_now
      from unnest(v_wanted, v_types, v_values, v_certain) with ordinality w(n, type, value, sure, o)
      order by w.o
      on conflict do nothing
      returning type || ' ' || value as mark
    )
    -- By an array, since the planner takes what with holds for small, and compared each with all.
    select coalesce(array_agg(m.mark), '{}') into v_made from made m;
    v_raced := array(select distinct w.n from unnest(v_wanted, v_types, v_values) w(n, type, value) where w.n is not null and w.type || ' ' || w.value <> all (v_made));
  end;
  perform set_config('plan_cache_mode', v_mode, true);
  v_added := array(select distinct w from unnest(v_wanted) w where w is not null);
  if v_raced <> '{}' then
    insert into deed.contacts (id, tenant_id, created_at, updated_at) values (v_holder, v_tenant, v_now, v_now) on conflict do nothing;
    update deed.contact_identities e
    set contact_id = v_holder, verified_at = null
    from unnest(v_n, v_type, v_value) u(n, type, value)
    where u.n = any (v_raced) and e.tenant_id = v_tenant and e.contact_id = v_ids[u.n] and e.type = u.type and e.value = u.value
      and e.created_at = v_now;
    delete from deed.contacts c where c.id = any (array(select v_ids[o] from unnest(v_raced) o where v_known[o] = 0));
    v_tangled := array(select distinct t from unnest(v_tangled || v_raced) t order by t);
    v_added := array(select a from unnest(v_added) a where a <> all (v_raced));
  end if;

  perform set_config('plan_cache_mode', v_looks, true);
  foreach v_i in array v_tangled loop
    select array_agg(distinct k.means order by k.means) filter (where k.contact_id <> v_holder), count(*) filter (where k.contact_id is null) into v_owners, v_given
    from unnest(v_n, v_type, v_value) u(n, type, value)
    left join lateral deed.known_as(v_tenant, u.type, u.value) k on true
    where u.n = v_i;
    if v_given > 0 then
      raise exception 'upsert_contacts: somebody has got an identity of contact % since this transaction began', v_i using errcode = '40001';
    end if;
    v_known[v_i] := coalesce(cardinality(v_owners), 0);
    v_whose[v_i] := case when v_known[v_i] > 1 then array_to_string(v_owners, ',') end;
    v_ids[v_i] := case v_known[v_i] when 0 then (v_prefix || substr(gen_random_uuid()::text, 16))::uuid when 1 then v_owners[1] end;
    continue when v_known[v_i] > 1;
    if v_known[v_i] = 0 then
      insert into deed.contacts (id, tenant_id, data, zone, locale, created_at, updated_at)
      values (v_ids[v_i], v_tenant, coalesce(p_data[v_i], '{}'), p_zones[v_i], p_locales[v_i], v_now, v_now);
    end if;
    update deed.contact_identities e
    set contact_id = v_ids[v_i], verified_at = case when u.sure then v_now end
    from unnest(v_n, v_type, v_value, v_sure) u(n, type, value, sure)
    where u.n = v_i and e.contact_id = v_holder and e.type = u.type and e.value = u.value;
    if found then
      v_added := v_added || v_i;
    end if;
  end loop;
  if v_tangled <> '{}' then
    delete from deed.contact_identities e where e.contact_id = v_holder;
    delete from deed.contacts c where c.id = v_holder;
  end if;

  perform set_config('plan_cache_mode', v_mode, true);

  -- The others' data, and what is verified by now. They are locked in the order of
  -- their ids, as in deed.merge_contacts. Who turns out to have been merged since it was
  -- asked is the one that it was merged into: all locks are given back then, since that
  -- one may come earlier in the order, and who holds it may wait for these.
  loop
    begin
      perform from (
        select c.id from deed.contacts c
        where c.id = any (array(select distinct v_ids[v_like[i]] from generate_series(1, v_count) i where v_known[i] = 1 or v_like[i] <> i))
        order by c.id
        for no key update
      ) locked;
      select jsonb_object_agg(c.id, deed.contact_of(v_tenant, c.id)) into v_merged
      from deed.contacts c
      where c.id = any (v_ids) and c.merged_into is not null;
      exit when v_merged is null;
      raise exception using errcode = 'DDMRG';
    exception when sqlstate 'DDMRG' then
      v_ids := array(select coalesce((v_merged ->> v_ids[i]::text)::uuid, v_ids[i]) from generate_series(1, v_count) i);
    end;
  end loop;
  -- Who are at odds, but for those whom somebody is changing: they may be merged, or erased, in a moment. Nobody is waited for.
  v_free := array(
    select c.id from deed.contacts c
    where c.id = any (array(select x::uuid from unnest(v_whose) w(whose) cross join unnest(string_to_array(w.whose, ',')) x))
    order by c.id
    for no key update skip locked
  );
  if exists (select from deed.contacts c where c.id = any (v_ids) and c.erased_at is not null) then
    raise exception 'upsert_contacts: a contact of the call has been erased since it began' using errcode = '40001';
  end if;
  -- Who would have too many gets none of them, each in its turn, as if it had come in a call of its own. All were given
  -- above; what only these give goes. Nobody else gives it any now.
  v_over := array(
    select distinct v_ids[a] from unnest(v_added) a
    where v_known[a] > 0 and 100 < (select count(*) from deed.names_of(v_ids[a]) m(id) join deed.contact_identities e on e.contact_id = m.id)
  );
  foreach v_i in array array(select i from generate_series(1, v_count) i where v_known[i] > 0 and v_ids[i] = any (v_over) order by i) loop
    -- How many there are with those of its own and of who was before it, and whether it gives any.
    select count(*), bool_or(g.first = v_i) into v_given, v_gives
    from deed.names_of(v_ids[v_i]) m(id) -- it may have got them before it was merged into that one
    join deed.contact_identities e on e.contact_id = m.id
    left join (
      select u.type, u.value, min(u.n) as first
      from unnest(v_n, v_type, v_value) u(n, type, value)
      where u.n <= v_i and v_ids[u.n] = v_ids[v_i] and u.n <> all (v_full)
      group by u.type, u.value
    ) g on e.created_at = v_now and g.type = e.type and g.value = e.value
    where e.created_at <> v_now or g.first is not null;
    if v_gives and v_given > 100 then
      v_full := v_full || v_i;
    elsif v_gives then
      v_added := v_added || v_i;
    end if;
  end loop;
  if v_full <> '{}' then
    update deed.contact_identities e
    set verified_at = null -- whoever else gives it says below whether it is
    from unnest(v_n, v_type, v_value) u(n, type, value)
    where u.n = any (v_full) and e.contact_id = any (array(select deed.names_of(v_ids[u.n])))
      and e.type = u.type and e.value = u.value and e.created_at = v_now and e.verified_at is not null;
    delete from deed.contact_identities e
    using unnest(v_n, v_type, v_value) u(n, type, value)
    where u.n = any (v_full) and e.contact_id = any (array(select deed.names_of(v_ids[u.n])))
      and e.type = u.type and e.value = u.value and e.created_at = v_now
      and not exists (
        select from unnest(v_n, v_type, v_value) o(n, type, value)
        where o.n <> all (v_full) and v_ids[o.n] = v_ids[u.n] and o.type = u.type and o.value = u.value
      );
  end if;
  v_added := array(select a from unnest(v_added) a where a <> all (v_full));
  with given as (
    select v_ids[g.first] as id, bool_or(g.n::int = any (v_added)) as added, array_agg(g.data order by g.n) filter (where g.data is not null) as data,
      (array_agg(g.zone order by g.n desc) filter (where g.zone is not null))[1] as zone,
      (array_agg(g.locale order by g.n desc) filter (where g.locale is not null))[1] as locale
    from unnest(v_like, v_known, p_data, p_zones, p_locales) with ordinality g(first, known, data, zone, locale, n)
    where v_ids[g.first] is not null and (g.known = 1 or g.first <> g.n) and g.first <> all (v_full)
    group by 1
  ),
  merged as (
    select c.id, g.added, coalesce(g.zone, c.zone) as zone, coalesce(g.locale, c.locale) as locale, c.data || case cardinality(g.data)
        when 1 then g.data[1]
        else coalesce((select jsonb_object_agg(e.key, e.value order by o.n) from unnest(g.data) with ordinality o(data, n), jsonb_each(o.data) e), '{}') end as data
    from given g
    join deed.contacts c on c.id = g.id
  ),
  changed as (
    update deed.contacts c
    set data = m.data, zone = m.zone, locale = m.locale, updated_at = v_now
    from merged m
    where c.id = m.id and (m.added or (c.data, c.zone, c.locale) is distinct from (m.data, m.zone, m.locale))
    returning c.id, pg_column_size(c.data) as size
  )
  select array_agg(h.id), max(h.size) into v_changed, v_given from changed h;
  if v_given > 65536 then
    raise exception 'upsert_contacts: with what it has by now the data of a contact are over the limit of 65536 bytes' using errcode = 'DDARG';
  end if;
  -- What a contact has revoked holds for the addresses that it has now got, too.
  perform deed.apply_consents(v_tenant, array(select distinct v_ids[a] from unnest(v_added) a where v_known[a] > 0), v_actor);
  if true = any (p_verified) then
    perform set_config('plan_cache_mode', v_looks, true);
    update deed.contact_identities e
    set verified_at = v_now
    from unnest(v_n, v_type, v_value, v_sure) u(n, type, value, sure)
    cross join lateral deed.known_as(v_tenant, u.type, u.value) k
    where u.sure and v_like[u.n] <> all (v_full) and v_ids[v_like[u.n]] = k.means and e.contact_id = k.contact_id and e.type = u.type and e.value = u.value and e.verified_at is null;
  end if;

  return query
  with at_odds as (
    select w.n, w.whose from unnest(v_whose) with ordinality w(whose, n) where w.whose is not null
  ),
  told as (
    select a.n, string_to_array(a.whose, ',')::uuid[] as contacts, array_agg(distinct u.type order by u.type) as types
    from at_odds a
    join unnest(v_n, v_type) u(n, type) on u.n = a.n
    group by a.n, a.whose
  ),
  noted as (
    insert into deed.identity_conflicts as o (tenant_id, contact_ids, types, actor, at)
    select v_tenant, t.contacts, min(t.types), v_actor, v_now
    from told t
    where t.contacts <@ v_free and 1 < (select count(distinct deed.contact_of(v_tenant, x)) from unnest(t.contacts) x)
      and not exists (select from deed.contacts c where c.id = any (t.contacts) and c.erased_at is not null)
    group by t.contacts
    order by t.contacts
    on conflict (tenant_id, contact_ids) where settled_at is null do update
    set times = o.times + 1, at = excluded.at, actor = excluded.actor
  ),
  result as (
    select i as n, v_ids[v_like[i]] as id, case
        when v_known[v_like[i]] > 1 then 'conflict'
        when v_like[i] = any (v_full) then 'full'
        when v_known[i] = 0 and v_like[i] = i then 'created'
        when v_like[i] = any (v_added) and v_known[v_like[i]] > 0 or v_ids[v_like[i]] = any (v_changed) then 'updated'
        else 'unchanged' end as outcome, t.contacts
    from generate_series(1, v_count) i
    left join told t on t.n = v_like[i]
  ),
  audited as (
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, affected, details)
    select v_tenant, v_actor, 'upsert', 'contact', case when v_count = 1 then min(r.id::text) end, count(*) filter (where r.outcome in ('created', 'updated')),
      jsonb_build_object('asked', v_count, 'created', count(*) filter (where r.outcome = 'created'), 'conflicts', count(*) filter (where r.outcome = 'conflict'))
    from result r
    having count(*) filter (where r.outcome not in ('unchanged', 'full')) > 0
  )
  select r.n, r.id, r.outcome, r.contacts from result r order by r.n;
end
$$;
