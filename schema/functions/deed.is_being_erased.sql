-- deed.is_being_erased: whether a delivery is for an address of somebody who was erased after
-- it was reserved, and is still to be emptied (deed.erase_step): until then nobody is
-- called for it. Costs more than a look whether anybody is being erased, which comes first
-- where it matters.
create or replace function deed.is_being_erased(
  p_tenant    uuid,
  p_channel   text,
  p_recipient text,
  p_created   timestamptz
) returns boolean
language sql
stable
return exists (
  select from deed.erasing o
  join deed.erasures e on e.n = o.n
  cross join lateral unnest(o.channels, o.addresses) a(channel, address)
  where e.tenant_id = p_tenant and p_created <= e.at
    and a.channel = p_channel and a.address = coalesce(deed.fold_address(p_channel, p_recipient), lower(btrim(p_recipient)))
);
