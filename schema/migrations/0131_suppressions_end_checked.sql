-- breaking: no
-- What 0063 left to be looked at, which keeps nobody from the table; nothing where a version of before has looked.
-- One that was written while 0063 waited for its lock has passed it by.
update deed.suppressions set expires_at = '9999-12-31Z' where expires_at >= '10000-01-01Z';
do $$
begin
  if exists (select from pg_constraint c where c.conname = 'suppressions_end_in_a_year' and c.conrelid = 'deed.suppressions'::regclass and not c.convalidated) then
    alter table deed.suppressions validate constraint suppressions_end_in_a_year;
  end if;
end
$$;
