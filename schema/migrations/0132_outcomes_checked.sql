-- breaking: no
-- What 0075 left to be looked at, which keeps nobody from the table; nothing where a version of before has looked.
do $$
begin
  if exists (select from pg_constraint c where c.conname = 'delivery_attempts_outcome_is_known' and c.conrelid = 'deed.delivery_attempts'::regclass and not c.convalidated) then
    alter table deed.delivery_attempts validate constraint delivery_attempts_outcome_is_known;
  end if;
end
$$;
