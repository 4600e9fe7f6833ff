-- deed.put_content: keep a file that deliveries of the tenant, p_tenant or the one that the
-- transaction has set, may name by its SHA-256 (deed.reserve), with its media type.
--
-- The same bytes again are the same file, with the type that it has; its time of use is
-- now. Returns its SHA-256 and whether it was there. Raises DDARG, for what is empty or larger
-- than 7 MiB, too, and DDTEN.
create or replace function deed.put_content(
  p_bytes  bytea,
  p_type   text default null,
  p_tenant uuid default null
) returns table (sha256 bytea, duplicate boolean)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_xid    xid8 := pg_current_xact_id(); -- before it is asked whether the tenant was removed: who removes it waits for this
  v_tenant uuid := deed.tenant_of_call('put_content', p_tenant);
  v_now    timestamptz := clock_timestamp();
begin
  if coalesce(octet_length(p_bytes), 0) not between 1 and 7340032 then
    raise exception 'put_content: a file has 1 byte to 7 MiB, got %', coalesce(octet_length(p_bytes), 0) using errcode = 'DDARG';
  end if;
  if p_type is not null and (length(p_type) > 200 or p_type !~ '^[!-~]+/[ -~]+$' or p_type ~* '^(multipart|message)/|; *name *=') then
    raise exception 'put_content: type is no media type of a file, such as application/pdf' using errcode = 'DDARG';
  end if;
  return query
  insert into deed.contents as c (tenant_id, sha256, bytes, size, type, created_at, used_at)
  values (v_tenant, pg_catalog.sha256(p_bytes), p_bytes, octet_length(p_bytes), coalesce(p_type, 'application/octet-stream'), v_now, v_now)
  on conflict on constraint contents_pkey do update set used_at = greatest(c.used_at, v_now)
  returning c.sha256, xmax <> 0;
end
$$;
