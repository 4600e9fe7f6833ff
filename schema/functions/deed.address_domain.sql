-- deed.address_domain: the domain or host of an address that is folded; null
-- where a channel's addresses have none. A lane may be one of these (deed.lane_of).
create or replace function deed.address_domain(
  p_channel text,
  p_folded  text
) returns text
language sql
immutable parallel safe
return case p_channel
  when 'email' then split_part(p_folded, '@', -1)
  when 'webhook' then substring(p_folded from e'^[a-z]+://(\\[[^]]*\\]|[^/?#:]+)')
end;
