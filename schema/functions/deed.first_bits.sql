-- deed.first_bits: which of a plan's steps have ended in the beginning: none, but for those behind the last. Eight bits to a byte, the
-- first step's the lowest of the first.
create or replace function deed.first_bits(
  p_steps int
) returns bytea
language sql
immutable parallel safe
return decode(repeat('00', p_steps / 8) || case when p_steps % 8 > 0 then lpad(to_hex(256 - (1 << p_steps % 8)), 2, '0') else '' end, 'hex');
