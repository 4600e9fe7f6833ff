-- deed.identity_written: what writing to public.contact_identities does.
--
-- INSERT is deed.add_identity. The rest is refused with DDARG and the name of what to
-- call instead.
create or replace function deed.identity_written() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op <> 'INSERT' then
    raise exception 'contact_identities: an identity is not % by hand', case tg_op when 'UPDATE' then 'changed' else 'taken away' end
      using errcode = 'DDARG', hint = 'Insert another one; two contacts who are one person: deed.merge_contacts(from, into, reason).';
  elsif new.created_at is not null then
    raise exception 'contact_identities: created_at is deed''s to write' using errcode = 'DDARG', hint = 'Insert tenant_id, contact_id, type and value.';
  end if;
  new.tenant_id := coalesce(new.tenant_id, deed.current_tenant(), '00000000-0000-0000-0000-000000000000');
  new.contact_id := coalesce(new.contact_id, gen_random_uuid());
  new.value := deed.add_identity(new.contact_id, new.type, new.value, new.verified_at is not null, new.tenant_id);
  new.created_at := clock_timestamp();
  return new;
end
$$;
