-- deed.refold_suppressions: store suppressions as addresses are compared now.
--
-- Run after every replacement of the functions. What no address can be made of
-- stays as it is and holds for that text; deed doctor names it. Returns how many
-- have changed.
create or replace function deed.refold_suppressions() returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count bigint;
begin
  with stale as (
    delete from deed.suppressions s
    where deed.fold_address(s.channel, s.address) <> s.address
    returning s.tenant_id, s.channel, s.address, s.purpose, s.reason, s.actor, s.created_at, s.expires_at, s.by_consent, s.kept_until, s.kept_reason, s.kept_actor
  ),
  put as (
    insert into deed.suppressions as x (tenant_id, channel, address, purpose, reason, actor, created_at, expires_at, by_consent, kept_until, kept_reason, kept_actor)
    select distinct on (s.tenant_id, s.channel, f.address, s.purpose) s.tenant_id, s.channel, f.address, s.purpose, s.reason, s.actor, s.created_at, s.expires_at, s.by_consent,
      s.kept_until, s.kept_reason, s.kept_actor
    from stale s
    cross join lateral (select deed.fold_address(s.channel, s.address) as address offset 0) f
    order by s.tenant_id, s.channel, f.address, s.purpose, s.expires_at desc nulls first, s.by_consent, s.kept_until desc nulls last, s.created_at
    -- The one that is there already holds as long as either of them.
    on conflict on constraint suppressions_pkey do update
    set expires_at = case when num_nulls(x.expires_at, excluded.expires_at) = 0 then greatest(x.expires_at, excluded.expires_at) end, by_consent = x.by_consent and excluded.by_consent,
      (kept_until, kept_reason, kept_actor) = (
        -- What a person said, for when the consent is no longer revoked.
        select k.kept_until, k.kept_reason, k.kept_actor
        from (values (x.kept_until, x.kept_reason, x.kept_actor), (excluded.kept_until, excluded.kept_reason, excluded.kept_actor)) k(kept_until, kept_reason, kept_actor)
        where x.by_consent and excluded.by_consent and k.kept_until is not null
        order by k.kept_until desc
        limit 1
      )
    returning tenant_id, xmax = 0 as is_new
  ),
  -- Of two that have become the same one is left (deed.verify counts them).
  folded as (
    insert into deed.audit_log (tenant_id, actor, action, subject_type, reason, affected)
    select s.tenant_id, session_user, 'fold', 'suppression', 'the same address as another', count(*) - (select count(*) from put p where p.tenant_id = s.tenant_id and p.is_new)
    from stale s
    group by s.tenant_id
    having count(*) > (select count(*) from put p where p.tenant_id = s.tenant_id and p.is_new)
  )
  select count(*) into v_count from stale;
  return v_count;
end
$$;
