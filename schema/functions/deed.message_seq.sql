-- deed.message_seq: the number in the log of the message with this identity.
create or replace function deed.message_seq(
  p_message_id uuid
) returns bigint
language sql
immutable strict parallel safe
return (
  ('x' || substr(replace(p_message_id::text, '-', ''), 17, 16))::bit(64)::bigint
  & 4611686018427387903
) | (('x' || substr(replace(p_message_id::text, '-', ''), 16, 1))::bit(4)::bigint << 62);
