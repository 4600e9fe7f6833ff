-- deed.forget_salts: the trigger by which the salt of what is taken away from a row of the audit
-- log goes, too. What is left of it is a hash that nobody can guess the part by.
create or replace function deed.forget_salts() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update deed.audit_blinds b
  set salt = null
  where b.n = old.n and (
    (b.part = 'reason' and new.reason is distinct from old.reason)
    or (b.part = 'subject' and new.subject_id is distinct from old.subject_id)
    or (b.part = 'details' and new.details is distinct from old.details)
  );
  return null;
end
$$;
