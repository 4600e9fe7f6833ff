-- deed.mark_suppressions: let the suppressions of these addresses go on under their
-- marks (deed.address_mark): of one purpose, channel and address the longest.
--
-- One that was erased before and has come back may have both. What the audit log says
-- of them keeps who, when and why not. With p_because only what was suppressed for what became of
-- the delivery at the address's place, which its reason names. What was suppressed by consent goes with p_contact,
-- who is being erased, alone; where only another who is known by the address has revoked it, it stays theirs to lift,
-- without what a person said of it. For deed.erase_contact, deed.erase_step and deed.erase_deliveries.
create or replace function deed.mark_suppressions(
  p_tenant    uuid,
  p_channels  text[],
  p_addresses text[],
  p_marks     text[],
  p_actor     text,
  p_because   text[] default null,
  p_contact   uuid default null
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_theirs tid[] := '{}'; -- what stays for another's consent
  v_folded bigint;
begin
  if p_contact is not null and p_channels && array['chat', 'social'] then
    -- Locked first: whoever is about to revoke or to grant has it, or waits for this.
    perform from (
      select a.channel, a.address from unnest(p_channels, p_addresses) a(channel, address) where a.channel in ('chat', 'social') order by a.channel, a.address offset 0
    ) a
    cross join lateral (
      select s.purpose from deed.suppressions s
      where s.tenant_id = p_tenant and s.channel = a.channel and s.address = a.address and s.by_consent
      order by s.purpose
      for update
    ) locked;
    v_theirs := array(
      select s.ctid
      from deed.suppressions s
      join unnest(p_channels, p_addresses) a(channel, address) on s.channel = a.channel and s.address = a.address
      where s.tenant_id = p_tenant and s.by_consent and deed.revoked_by_another(p_tenant, p_contact, s.channel, s.address, s.purpose)
        and not exists (select from deed.consents_of(array[p_contact]) o where o.channel = s.channel and o.purpose = s.purpose and o.state = 'revoked')
    );
  end if;
  with plain as (
    delete from deed.suppressions s
    using unnest(p_channels, p_addresses, p_marks, p_because) a(channel, address, mark, because)
    where s.tenant_id = p_tenant and s.channel = a.channel and s.address = a.address
      and (a.because is null or strpos(s.reason, 'delivery ' || a.because) > 0)
      and (not s.by_consent or p_contact is not null) and s.ctid <> all (v_theirs)
    returning s.channel, a.mark, s.purpose, s.actor, s.created_at, s.expires_at
  ),
  marked as (
    insert into deed.suppressions as x (tenant_id, channel, address, purpose, reason, actor, created_at, expires_at)
    select p_tenant, p.channel, p.mark, p.purpose, 'erased', p.actor, p.created_at, p.expires_at
    from plain p
    order by p.channel, p.mark, p.purpose
    on conflict on constraint suppressions_pkey do update
    set expires_at = case when num_nulls(x.expires_at, excluded.expires_at) = 0 then greatest(x.expires_at, excluded.expires_at) end
    returning xmax = 0 as is_new
  )
  select (select count(*) from plain) - count(*) filter (where m.is_new) into v_folded from marked m;
  update deed.suppressions s set kept_reason = 'erased' where s.ctid = any (v_theirs) and s.kept_reason <> 'erased';
  if v_folded > 0 then -- deed.verify counts them
    insert into deed.audit_log (tenant_id, actor, action, subject_type, reason, affected)
    values (p_tenant, p_actor, 'fold', 'suppression', 'the same address as one that was erased', v_folded);
  end if;
  update deed.audit_log a
  set reason = 'erased'
  where a.subject_type = 'suppression' and a.subject_id = any (array(select u.channel || ':' || u.mark from unnest(p_channels, p_marks) u(channel, mark)))
    and a.reason <> 'erased' and (p_because is null or exists (select from unnest(p_because) b(id) where strpos(a.reason, 'delivery ' || b.id) > 0));
end
$$;
