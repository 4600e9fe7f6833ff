-- deed.run_event_id: the identity of an event: of a run and a number there is one.
--
-- A UUIDv8. Not a column of deed.run_log: a global unique key is impossible on partitions.
create or replace function deed.run_event_id(
  p_run uuid,
  p_seq bigint
) returns uuid
language sql
immutable strict parallel safe
return overlay(overlay(encode(substr(sha256(uuid_send(p_run) || int8send(p_seq)), 1, 16), 'hex') placing '8' from 13 for 1) placing 'a' from 17 for 1)::uuid;
