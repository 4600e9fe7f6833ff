-- deed.audit_unsealed: the rows of the audit log behind the last seal, up to number p_upto and at
-- most p_limit. What an erasure may take away is locked until the caller's transaction ends, so that
-- it is sealed as it is or as it will be; 55P03 where an erasure has it: try again.
create or replace function deed.audit_unsealed(
  p_upto  bigint,
  p_limit int
) returns table (
  n bigint, at timestamptz, tenant_id uuid, run_id uuid, actor text, login text, action text, subject_type text, subject_id text, from_status text, to_status text,
  reason text, affected bigint, details jsonb
)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_after bigint := coalesce((select s.upto_n from deed.audit_seals s order by s.k desc limit 1), 0);
  v_ns    bigint[];
begin
  v_ns := array(select a.n from deed.audit_log a where a.n > v_after and a.n <= p_upto order by a.n limit p_limit);
  -- The next statement sees what was written before the locks were had.
  perform from deed.audit_log a
  where a.n = any (v_ns) and (a.reason is not null or a.subject_type in ('suppression', 'plan') or a.details ?| array['last_error', 'error', 'source', 'message_id'])
  order by a.n
  for share nowait;
  return query
  select a.n, a.at, a.tenant_id, a.run_id, a.actor, a.login, a.action, a.subject_type, a.subject_id, a.from_status, a.to_status, a.reason, a.affected, a.details
  from deed.audit_log a
  where a.n = any (v_ns)
  order by a.n;
end
$$;
