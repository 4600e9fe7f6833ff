-- deed.run_event_id: the identity of an event: of a run and a number there is one.
--
-- A UUIDv8. Not a column of deed.run_log: a global unique key is impossible on partitions.
create or replace function deed.run_event_id(
  p_run uuid,
  p_seq bigint
) returns uuid
language sql
immutable strict parallel safe
return encode(
  set_bit(set_bit(set_bit(set_bit( -- the version, 8
  set_bit(set_bit(set_bit(set_bit( -- the variant, a
    substr(sha256(uuid_send(p_run) || int8send(p_seq)), 1, 16),
    71, 1), 70, 0), 69, 1), 68, 0),
    55, 1), 54, 0), 53, 0), 52, 0),
  'hex'
)::uuid;
