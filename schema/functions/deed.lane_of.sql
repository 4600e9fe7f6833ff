-- deed.lane_of: the lane of a delivery to an address that is folded, of a provider
-- whose lanes are of this kind (deed.providers); null for none.
--
-- domain, host: the domain or host of the address. country: + and the country's code
-- of a number that begins with +. recipient: what stands for the address and does not
-- tell it, behind a - where the address begins with - or @, as those of groups and
-- channels do; a chat's address ends at a stroke, behind which is a thread of it. The name of a lane is in limits (deed.rate_limits) and pauses.
create or replace function deed.lane_of(
  p_kind    text,
  p_channel text,
  p_folded  text
) returns text
language sql
stable parallel safe
return case p_kind
  when 'domain' then deed.address_domain(p_channel, p_folded)
  when 'host' then deed.address_domain(p_channel, p_folded)
  when 'country' then substring(p_folded from e'^\\+(?:1|7|2[07]|3[0-469]|4[013-9]|5[1-8]|6[0-6]|8[1246]|9[0-58]|2[1-689][0-9]|3[578][0-9]|42[0-9]|5[09][0-9]|6[789][0-9]|8[035789][0-9]|9[679][0-9])')
  when 'recipient' then case when p_folded ~ '^[-@]' then '-' else '' end
    || substr(deed.address_mark('00000000-0000-0000-0000-000000000000', 'lane', case p_channel when 'chat' then split_part(p_folded, '/', 1) else p_folded end), 6, 20)
end;
