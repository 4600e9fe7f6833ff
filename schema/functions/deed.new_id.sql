-- deed.new_id: an id that nobody else has, a UUIDv7 of the database's clock.
create or replace function deed.new_id() returns uuid
language sql
volatile
set search_path = pg_catalog, pg_temp
as $$
  select (lpad(to_hex(floor(extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') || '7' || substr(encode(uuid_send(gen_random_uuid()), 'hex'), 14))::uuid
$$;
