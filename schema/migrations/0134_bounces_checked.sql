-- breaking: no
-- What 0086 left to be looked at, which keeps nobody from the table; nothing where a version of before has looked.
do $$
begin
  if exists (select from pg_constraint c where c.conname = 'delivery_feedback_bounce_is_whole' and c.conrelid = 'deed.delivery_feedback'::regclass and not c.convalidated) then
    alter table deed.delivery_feedback validate constraint delivery_feedback_bounce_is_whole;
  end if;
end
$$;
