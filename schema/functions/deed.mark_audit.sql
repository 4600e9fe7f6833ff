-- deed.mark_audit: put marks (deed.address_mark) where the audit log names addresses, as
-- programs before migration 0066 wrote it, at most p_limit rows; returns how many.
create or replace function deed.mark_audit(p_limit int) returns bigint
language sql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
  with marked as (
    update deed.audit_log a
    set subject_id = split_part(a.subject_id, ':', 1) || ':'
      || deed.address_mark(a.tenant_id, split_part(a.subject_id, ':', 1), substr(a.subject_id, strpos(a.subject_id, ':') + 1))
    where a.n = any (array(
      select o.n from deed.audit_log o
      where o.subject_type = 'suppression' and o.subject_id !~ ':hmac:[0-9a-f]{32}$'
      order by o.n
      limit p_limit
    ))
    returning 1
  )
  select count(*) from marked
$$;
