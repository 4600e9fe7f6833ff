-- deed.suppressed: why an address of a channel is not written to, for p_purpose; no
-- row where it is. '' is what has no purpose (D11).
--
-- The one answer to "may this be sent?". p_address is as addresses are compared
-- (deed.fold_address). What holds for more says why before what holds for less.
-- Without settings of its own, so that it is planned as part of what asks it.
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
  select s.reason
  from deed.suppressions s
  where s.tenant_id = p_tenant and s.channel = p_channel and s.address = p_address
    and (s.purpose = '' or (p_purpose <> '' and s.purpose in ('*', p_purpose)))
    and (s.expires_at is null or s.expires_at > p_at)
  order by s.purpose
  limit 1;
end;
