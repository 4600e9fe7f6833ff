-- deed.message_id: the identity of a message outside the database.
--
-- A UUIDv7-shaped value of the time of publishing, in milliseconds, and the
-- number in the log: reversible, and different when a number is used twice, as
-- happens after a failover to an asynchronous standby. At time zone: the part of
-- a timestamptz is not immutable, and calls would not be inlined. The cast
-- rounds what a double cannot hold.
create or replace function deed.message_id(
  p_created_at timestamptz,
  p_id         bigint
) returns uuid
language sql
immutable strict parallel safe
return (
  lpad(to_hex(
    (date_part('epoch', date_trunc('milliseconds', p_created_at at time zone 'UTC')) * 1000)::bigint << 16
    | 28672 | (p_id >> 62)
  ), 16, '0')
  || to_hex((p_id & 4611686018427387903) | (-9223372036854775807 - 1))
)::uuid;
