-- deed.delivery_id: a new UUIDv7 of p_at.
create or replace function deed.delivery_id(
  p_at timestamptz
) returns uuid
language sql
volatile strict parallel safe
return overlay(
  overlay(gen_random_uuid()::text placing lpad(to_hex((date_part('epoch', p_at at time zone 'UTC') * 1000)::bigint >> 16), 8, '0')
    || '-' || lpad(to_hex((date_part('epoch', p_at at time zone 'UTC') * 1000)::bigint & 65535), 4, '0') from 1 for 13)
  placing '7' from 15 for 1
)::uuid;
