-- deed.fold_address: an address of a channel as it is compared; null for what is
-- none.
--
-- The one answer to "is that the same address?", and deed.check_address says
-- what is wrong with one that has none. The first branch is what most addresses
-- are, and costs a few microseconds instead of a hundred. Without settings of its
-- own, so that calls are inlined.
create or replace function deed.fold_address(
  p_channel text,
  p_address text
) returns text
language sql
immutable parallel safe
return case
  when p_channel = 'email' and length(p_address) <= 64
    and lower(p_address collate "C") ~ e'^[a-z0-9_+-]+(\\.[a-z0-9_+-]+)*@[a-z0-9]+(-[a-z0-9]+)*(\\.[a-z0-9]+(-[a-z0-9]+)*)*$'
    then lower(p_address collate "C")
  else (deed.check_address(p_channel, p_address)).folded
end;
