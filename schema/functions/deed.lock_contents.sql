-- deed.lock_contents: keep the files that e-mails name (deed.payload_contents) from being
-- removed until the caller's transaction has ended, and say what is wrong with them. For
-- deed.reserve, whose arrays these are. A duplicate may name what is gone by now.
--
-- Returns, by delivery, how many bytes its files have. Raises DDARG for what is no SHA-256 and for
-- files, named and in the payload, of more than 7 MiB together; DDNFD for one that the tenant has not put.
create or replace function deed.lock_contents(
  p_tenant     uuid,
  p_channels   text[],
  p_payloads   jsonb[],
  p_keys       bytea[],
  p_workspaces uuid[]
) returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
  v_now   timestamptz := clock_timestamp();
  v_all   bytea[];
  v_bad   record;
  v_sizes bigint[];
begin
  select n into v_bad
  from generate_subscripts(p_channels, 1) n
  where p_channels[n] = 'email' and p_payloads[n] ? 'attachments' and array_position(deed.payload_contents(p_payloads[n]), null) > 0
  order by n
  limit 1;
  if found then
    raise exception 'reserve: delivery %: sha256 of an attachment must be 64 characters of 0-9 a-f, in place of its content', v_bad.n using errcode = 'DDARG';
  end if;
  v_all := array(
    select distinct d.sha256
    from generate_subscripts(p_channels, 1) n
    cross join lateral unnest(deed.payload_contents(p_payloads[n])) d(sha256)
    where p_channels[n] = 'email' and p_payloads[n] ? 'attachments'
    order by d.sha256
  );
  if cardinality(v_all) = 0 then
    return null;
  end if;
  perform from (
    select c.sha256 from deed.contents c
    where c.tenant_id = p_tenant and c.sha256 = any (v_all)
    order by c.sha256
    for key share
  ) locked;
  -- Once a day, and by one of those that would.
  update deed.contents c
  set used_at = v_now
  where c.ctid = any (array(
    select o.ctid from deed.contents o
    where o.tenant_id = p_tenant and o.sha256 = any (v_all) and o.used_at < v_now - interval '1 day'
    for no key update skip locked
  ));
  select n, encode(d.sha256, 'hex') as sha256 into v_bad
  from generate_subscripts(p_channels, 1) n
  cross join lateral unnest(deed.payload_contents(p_payloads[n])) d(sha256)
  where p_channels[n] = 'email' and p_payloads[n] ? 'attachments'
    and not exists (select from deed.contents c where c.tenant_id = p_tenant and c.sha256 = d.sha256)
    and not exists (
      select from deed.channel_outbox o where o.tenant_id = p_tenant
        and o.workspace_id = coalesce(p_workspaces[n], '00000000-0000-0000-0000-000000000000') and o.idempotency_key = p_keys[n]
    )
  order by n, d.sha256
  limit 1;
  if found then
    raise exception 'reserve: delivery %: there is no content %; put it first (deed.put_content), again if it was used long ago', v_bad.n, v_bad.sha256 using errcode = 'DDNFD';
  end if;
  -- A file counts as often as it is named, and what is inline by the length of its base64.
  v_sizes := array(
    select coalesce((
      select sum(coalesce(c.size, octet_length(a.file ->> 'content') / 4 * 3, 0))
      from jsonb_array_elements(case when deed.payload_contents(p_payloads[n]) is not null and p_channels[n] = 'email' then p_payloads[n] -> 'attachments' else '[]' end) a(file)
      left join deed.contents c on c.tenant_id = p_tenant and c.sha256 = decode(a.file ->> 'sha256', 'hex')
    ), 0)
    from generate_subscripts(p_channels, 1) n
    order by n
  );
  select n, v_sizes[n] as size into v_bad from generate_subscripts(v_sizes, 1) n where v_sizes[n] > 7340032 + 60 order by n limit 1;
  if found then
    raise exception 'reserve: delivery %: attachments of % bytes together are over the limit of 7340032 (7 MiB)', v_bad.n, v_bad.size using errcode = 'DDARG';
  end if;
  return v_sizes;
end
$$;
