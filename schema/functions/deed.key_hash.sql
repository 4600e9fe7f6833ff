-- deed.key_hash: what identifies a tenant's key among those with messages aside.
--
-- Its first byte is the one by which deed.slot chooses the slot, which all
-- tenants' keys of a name share. Relays of one protocol number (deed.take_lanes)
-- make the same of it.
create or replace function deed.key_hash(
  p_tenant uuid,
  p_key    text
) returns bigint
language sql
stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select ('x' || encode(
    substr(k.hash, 1, 1) || substr(sha256(uuid_send(p_tenant) || substr(k.hash, 1, 8)), 1, 7), 'hex'
  ))::bit(64)::bigint
  from (select sha256(convert_to(p_key, 'UTF8'))) k(hash)
$$;
