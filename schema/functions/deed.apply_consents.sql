-- deed.apply_consents: let the suppressions of contacts be as their consents are: what
-- they have revoked is suppressed for each of their addresses, and what stands only
-- for a revocation that holds no longer is lifted; where a person had suppressed it, or has
-- since, it is as they said.
--
-- p_contacts were merged into no other, and are locked by the caller. A number that two
-- messengers know is lifted only by hand: whose it is is not certain. What another contact that is
-- known by the same address has revoked is not lifted (deed.revoked_by_another). One audit row a kind.
create or replace function deed.apply_consents(
  p_tenant   uuid,
  p_contacts uuid[],
  p_actor    text
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
as $$
declare
  v_of        uuid[]; -- the contacts' addresses: whose,
  v_channels  text[]; -- where,
  v_addresses text[]; -- and which
  v_who       uuid[]; -- what is revoked: by whom,
  v_where     text[]; -- where,
  v_purposes  text[]; -- and for what
  v_new       bigint;
  v_longer    bigint;
begin
  if not exists (
    -- Each by its id, in turn (offset 0), whatever statistics say of how many there are.
    select from unnest(p_contacts) r(id), deed.names_of(r.id) m(id),
      lateral (select from deed.consents e where e.contact_id = m.id and e.state = 'revoked' offset 0) e
  ) then
    return;
  end if;
  select array_agg(t.id), array_agg(t.channel), array_agg(t.address) into v_of, v_channels, v_addresses
  from (
    select distinct r.id, a.channel, a.address
    from unnest(p_contacts) r(id)
    cross join lateral deed.known_addresses(array(select deed.names_of(r.id))) a
    where a.address is not null
  ) t;
  select array_agg(s.contact_id), array_agg(s.channel), array_agg(s.purpose) into v_who, v_where, v_purposes
  from deed.consents_of(p_contacts) s
  where s.state = 'revoked';
  with added as (
    insert into deed.suppressions (tenant_id, channel, address, purpose, reason, actor, created_at, by_consent)
    select p_tenant, t.channel, t.address, s.purpose, 'consent revoked', p_actor, clock_timestamp(), true
    from unnest(v_of, v_channels, v_addresses) t(contact_id, channel, address)
    join unnest(v_who, v_where, v_purposes) s(contact_id, channel, purpose) using (contact_id, channel)
    group by t.channel, t.address, s.purpose
    order by t.channel, t.address, s.purpose
    on conflict on constraint suppressions_pkey do update
    set kept_until = deed.suppressions.expires_at, kept_reason = deed.suppressions.reason, kept_actor = deed.suppressions.actor,
      expires_at = null, reason = excluded.reason, actor = excluded.actor, by_consent = true
    where deed.suppressions.expires_at is not null
    returning xmax = 0 as is_new
  )
  select count(*) filter (where a.is_new), count(*) filter (where not a.is_new) into v_new, v_longer from added a;
  -- In a statement of its own: what a person says of them meanwhile the next one sees, and changes.
  perform from (
    select distinct a.channel, a.address
    from unnest(v_channels, v_addresses) a(channel, address)
    order by a.channel, a.address
    offset 0
  ) t
  cross join lateral (
    select x.purpose from deed.suppressions x
    where x.tenant_id = p_tenant and x.channel = t.channel and x.address = t.address and x.by_consent
    order by x.purpose
    for update
  ) locked;
  -- What may be another's, too, is written once more: who lifts it for that one, in a snapshot from before these words, gets 40001.
  if v_channels && array['chat', 'social'] then
    update deed.suppressions x
    set by_consent = true
    from (select distinct a.channel, a.address from unnest(v_channels, v_addresses) a(channel, address) where a.channel in ('chat', 'social')) t
    where x.tenant_id = p_tenant and x.channel = t.channel and x.address = t.address and x.by_consent;
  end if;
  with theirs as (
    select t.contact_id, t.channel, t.address from unnest(v_of, v_channels, v_addresses) t(contact_id, channel, address)
  ),
  over as (
    select x.ctid as place, x.kept_until > clock_timestamp() as kept
    from deed.suppressions x
    join theirs t on t.channel = x.channel and t.address = x.address
    where x.by_consent and x.tenant_id = p_tenant
      and not exists (
        select from unnest(v_who, v_where, v_purposes) o(contact_id, channel, purpose) join theirs u using (contact_id, channel)
        where o.channel = x.channel and u.address = x.address and o.purpose = x.purpose
      )
      and (x.channel <> 'chat' or 2 > (select count(*) from unnest(array['telegram', 'whatsapp']) k(type), deed.known_as(p_tenant, k.type, x.address)))
      and (x.channel not in ('chat', 'social') or not deed.revoked_by_another(p_tenant, t.contact_id, x.channel, x.address, x.purpose))
    for update of x
  ),
  lifted as (
    delete from deed.suppressions x where x.ctid = any (array(select o.place from over o where o.kept is not true)) returning 1
  ),
  restored as ( -- what a person had said before
    update deed.suppressions x
    set expires_at = x.kept_until, reason = x.kept_reason, actor = x.kept_actor, by_consent = false, kept_until = null, kept_reason = null, kept_actor = null
    where x.ctid = any (array(select o.place from over o where o.kept))
    returning 1
  )
  insert into deed.audit_log (tenant_id, actor, action, subject_type, reason, affected)
  select p_tenant, p_actor, k.action, 'suppression', k.reason, k.affected
  from (
    values ('suppress', 'consent revoked', v_new), ('extend', 'consent revoked', v_longer)
    union all
    select 'unsuppress', 'consent no longer revoked', count(*) from lifted
    union all
    select 'extend', 'consent no longer revoked: as it was before', count(*) from restored
  ) k(action, reason, affected)
  where k.affected > 0;
end
$$;
