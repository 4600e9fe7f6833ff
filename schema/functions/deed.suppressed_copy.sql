-- deed.suppressed_copy: why one of those who get a copy of an e-mail is not written to; no row
-- where all are (deed.suppressed). Who is left out nobody would see, and what is stored is sent as
-- it is or not at all: so one is enough for the whole.
create or replace function deed.suppressed_copy(
  p_tenant  uuid,
  p_cc      text[],
  p_purpose text,
  p_at      timestamptz
) returns table (reason text)
language sql
stable
begin atomic
  select s.reason
  from unnest(p_cc) a(address)
  cross join lateral deed.suppressed(p_tenant, 'email', a.address, p_purpose, p_at) s
  limit 1;
end;
