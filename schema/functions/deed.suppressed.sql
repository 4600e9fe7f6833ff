-- deed.suppressed: why an address of a channel is not written to, for p_purpose; no
-- row where it is. '' is what has no purpose (D11).
--
-- The one answer to "may this be sent?". p_address is as addresses are compared
-- (deed.fold_address); what was suppressed for somebody who was erased since is found by
-- its mark (D12). What holds for more says why before what holds for less. Without
-- settings of its own, so that it is planned as part of what asks it.
create or replace function deed.suppressed(
  p_tenant  uuid,
  p_channel text,
  p_address text,
  p_purpose text,
  p_at      timestamptz
) returns table (reason text)
language sql
stable
begin atomic
  select x.reason
  from (
    select s.purpose, s.reason, s.expires_at
    from deed.suppressions s
    where s.tenant_id = p_tenant and s.channel = p_channel and s.address = p_address
    union all
    select s.purpose, s.reason, s.expires_at
    from (
      -- A number by chat had its + once, and a mark cannot be made anew.
      select deed.address_mark(p_tenant, p_channel, a.address) as mark
      from (values (p_address), (case when p_channel = 'chat' and p_address ~ '^[1-9][0-9]{7,14}$' then '+' || p_address end)) a(address)
      where a.address is not null and exists (select from deed.erasures e where e.tenant_id = p_tenant)
      offset 0
    ) m
    join deed.suppressions s on s.tenant_id = p_tenant and s.channel = p_channel and s.address = m.mark
  ) x
  where (x.purpose = '' or (p_purpose <> '' and x.purpose in ('*', p_purpose)))
    and (x.expires_at is null or x.expires_at > p_at)
  order by x.purpose
  limit 1;
end;
