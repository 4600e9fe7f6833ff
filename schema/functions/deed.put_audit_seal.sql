-- deed.put_audit_seal: store the seal number p_k of the audit log, which is for the rows behind the
-- seal before it, up to number p_upto; with what blinds the parts of rows that an erasure may take
-- away. False where another one was put meanwhile. Raises DDARG for one that does not follow the
-- last one, or is not of the rows that there are.
create or replace function deed.put_audit_seal(
  p_k         bigint,
  p_upto      bigint,
  p_leaves    bytea,
  p_previous  bytea,
  p_sha256    bytea,
  p_key       text,
  p_signature bytea,
  p_at        timestamptz,
  p_blinds    bigint[],
  p_parts     text[],
  p_salts     bytea[],
  p_hashes    bytea[]
) returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_last deed.audit_seals;
  v_rows bigint;
begin
  select s.* into v_last from deed.audit_seals s order by s.k desc limit 1;
  if coalesce(v_last.k, 0) >= p_k then
    return false;
  end if;
  select count(*) into v_rows from deed.audit_log a where a.n > coalesce(v_last.upto_n, 0) and a.n <= p_upto;
  if p_k <> coalesce(v_last.k, 0) + 1 or p_previous <> coalesce(v_last.sha256, decode(repeat('00', 32), 'hex')) or octet_length(p_leaves) <> v_rows * 40
    or p_upto > pg_sequence_last_value('deed.audit_log_n_seq') then
    raise exception 'put_audit_seal: seal % does not follow seal %, or is not of the % rows behind it', p_k, coalesce(v_last.k, 0), v_rows using errcode = 'DDARG';
  end if;
  insert into deed.audit_seals (k, from_n, upto_n, rows, leaves, previous, sha256, key, signature, at)
  values (p_k, coalesce(v_last.upto_n, 0), p_upto, v_rows, p_leaves, p_previous, p_sha256, p_key, p_signature, p_at)
  on conflict do nothing;
  if not found then
    return false;
  end if;
  insert into deed.audit_blinds (n, part, salt, sha256)
  select b.n, b.part, b.salt, b.sha256
  from unnest(p_blinds, p_parts, p_salts, p_hashes) b(n, part, salt, sha256);
  return true;
end
$$;
