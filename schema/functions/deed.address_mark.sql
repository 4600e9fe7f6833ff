-- deed.address_mark: what stands for an address where the address itself must not: its
-- HMAC-SHA256, cut to 128 bits, under a key of the installation that no role may read.
-- By it the address is known again, and from it nobody tells the address without the
-- key. p_address is as addresses are compared (deed.fold_address).
create or replace function deed.address_mark(
  p_tenant  uuid,
  p_channel text,
  p_address text
) returns text
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
  select 'hmac:' || left(encode(sha256(k.outer_key || sha256(k.inner_key || uuid_send(p_tenant) || convert_to(p_channel || ':' || p_address, 'UTF8'))), 'hex'), 32)
  from deed.secrets k
  where k.name = 'address'
$$;
