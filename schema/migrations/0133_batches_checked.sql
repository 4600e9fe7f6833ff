-- breaking: no
-- What 0083 left to be looked at, which keeps nobody from the table; nothing where a version of before has looked.
do $$
begin
  if exists (select from pg_constraint c where c.conname = 'channel_outbox_batch_is_whole' and c.conrelid = 'deed.channel_outbox'::regclass and not c.convalidated) then
    alter table deed.channel_outbox validate constraint channel_outbox_batch_is_whole;
  end if;
end
$$;
