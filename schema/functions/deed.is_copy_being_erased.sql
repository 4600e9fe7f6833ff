-- deed.is_copy_being_erased: as deed.is_being_erased, of those who get a copy.
create or replace function deed.is_copy_being_erased(
  p_tenant  uuid,
  p_cc      text[],
  p_created timestamptz
) returns boolean
language sql
stable
return exists (
  select from deed.erasing o
  join deed.erasures e on e.n = o.n
  cross join lateral unnest(o.channels, o.addresses) a(channel, address)
  where e.tenant_id = p_tenant and p_created <= e.at
    and a.channel = 'email' and a.address = any (p_cc)
);
