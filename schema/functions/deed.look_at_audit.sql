-- deed.look_at_audit: rows of the audit log that concern p_subject, or those of what
-- people did, or with p_all of everything; newest first, from number p_upto on
-- downwards, at most p_limit. Each kind of look goes by an index of its own.
create or replace function deed.look_at_audit(
  p_upto    bigint,
  p_limit   int,
  p_subject text default null,
  p_all     boolean default false
) returns table (
  n bigint, at timestamptz, actor text, login text, action text, subject_type text, subject_id text, reason text,
  affected bigint, details jsonb
)
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
  -- The types of subjects that there are: few, and found by halting at each.
  with recursive types as (
    (select a.subject_type as name from deed.audit_log a where p_subject is not null order by a.subject_type limit 1)
    union all
    select (select a.subject_type from deed.audit_log a where a.subject_type > t.name order by a.subject_type limit 1)
    from types t
    where t.name is not null
  ),
  found as (
    (
      select a.*
      from types t
      cross join lateral (
        select a.* from deed.audit_log a where a.subject_type = t.name and a.subject_id = p_subject and a.n <= p_upto
        order by a.subject_type desc, a.subject_id desc, a.n desc
        limit p_limit
      ) a
    )
    union all
    (
      select a.* from deed.audit_log a where p_subject is null and p_all and a.n <= p_upto order by a.n desc limit p_limit
    )
    union all
    (
      select a.*
      from deed.audit_log a
      where p_subject is null and not p_all and a.n <= p_upto
        and a.action not in ('expire', 'give up', 'proof')
        and (a.subject_type <> 'delivery'
          or (a.action not in ('reserve', 'attempt', 'reconcile', 'doubt', 'hold', 'purge') and (a.action <> 'settle' or a.details ? 'decision')))
      order by a.n desc
      limit p_limit
    )
  )
  select f.n, f.at, f.actor, f.login, f.action, f.subject_type, f.subject_id, f.reason, f.affected, f.details
  from found f
  order by f.n desc
  limit p_limit
$$;
