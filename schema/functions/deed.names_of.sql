-- deed.names_of: the ids under which a contact is known: its own, and those of all
-- that were merged into it.
create or replace function deed.names_of(p_id uuid) returns setof uuid
language sql
stable
begin atomic
  with recursive names as (
    select p_id as id
    union all
    select c.id from names n join deed.contacts c on c.merged_into = n.id
  )
  select n.id from names n;
end;
