-- deed.json_excess: what a JSON text has too much of for PostgreSQL to take it in
-- and give it out again wherever it is asked to; null: of nothing.
--
-- Callers spare themselves the look at texts of up to 1024 bytes, which have room
-- for neither.
create or replace function deed.json_excess(
  p_payload bytea
) returns text
language sql
immutable parallel safe
return case
  when deed.has_vast_numbers(p_payload) then 'numbers of over 16777216 digits in all, with their exponents written out (they travel as strings)'
  when deed.is_deep(p_payload) then 'over 1000 arrays and objects in each other (such a document travels as a string)'
end;
