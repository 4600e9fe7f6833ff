-- deed.order_at: the time by which a message that waits takes its turn, when its
-- publisher says that it was made at p_created_at.
--
-- That time, but not after now, and not before an hour ago: what is said to be
-- older passes nobody that has waited longer. Such messages keep their own order
-- in the minutes before that hour (under seven for the year 1970).
create or replace function deed.order_at(
  p_created_at timestamptz,
  p_now        timestamptz
) returns timestamptz
language sql
immutable parallel safe
return case
  when p_created_at is null or p_created_at > p_now then p_now
  when p_created_at >= p_now - interval '1 hour' then p_created_at
  else p_now - interval '1 hour' - make_interval(secs => 30 * ln(extract(epoch from p_now - p_created_at)::float8 / 3600))
end;
