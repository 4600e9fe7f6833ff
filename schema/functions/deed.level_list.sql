-- deed.level_list: note up to which version no change of a list is under way.
--
-- A change moves the sequence of versions on, and holds a lock that only this
-- function looks at, until it has committed or not. Who finds the sequence
-- where this function left it knows that no list has changed since (see
-- deed.check_lists). The lock is not waited for.
create or replace function deed.level_list() returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  begin
    lock table deed.list_lock in share row exclusive mode nowait;
  exception when lock_not_available then
    return;
  end;
  update deed.settings s
  set list_version = pg_sequence_last_value('deed.list_seq')
  where s.list_version < pg_sequence_last_value('deed.list_seq');
end
$$;
