-- deed.remove_content: take away a file of the tenant, p_tenant or the one that the
-- transaction has set, before its time (deed.purge_contents); whoever names it then is told to
-- put it again. Only one that no delivery needs which is unfinished or may be put back.
--
-- Raises DDNFD; DDCON for one that is needed, or that a reservation is naming at this
-- moment; DDARG without a reason; and DDTEN. Call it under READ COMMITTED.
create or replace function deed.remove_content(
  p_sha256 bytea,
  p_reason text,
  p_actor  text default null,
  p_tenant uuid default null
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant uuid := deed.tenant_of_call('remove_content', p_tenant);
  v_place  tid;
  v_needed uuid;
begin
  if coalesce(length(p_reason), 0) not between 1 and 200 then
    raise exception 'remove_content: a reason of 1 to 200 characters is needed' using errcode = 'DDARG';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'remove_content: it needs READ COMMITTED' using errcode = 'DDARG';
  end if;
  -- In a statement of its own, as deed.purge_contents: what was reserved before is seen afterwards.
  select c.ctid into v_place from deed.contents c where c.tenant_id = v_tenant and c.sha256 = p_sha256 for update skip locked;
  if not found then
    if exists (select from deed.contents c where c.tenant_id = v_tenant and c.sha256 = p_sha256) then
      raise exception 'remove_content: content % is being put or named at this moment; try again', encode(p_sha256, 'hex') using errcode = 'DDCON';
    end if;
    raise exception 'remove_content: there is no content %', encode(p_sha256, 'hex') using errcode = 'DDNFD';
  end if;
  if deed.drop_contents(array[v_place], p_actor, p_reason) = 0 then
    select o.id into v_needed from deed.channel_outbox o
    where o.contents @> array[p_sha256] and o.status in ('queued', 'sending', 'failed', 'dead') and o.contents is not null and o.tenant_id = v_tenant
    limit 1;
    raise exception 'remove_content: content % is needed by delivery %, which is not over or may be put back', encode(p_sha256, 'hex'), v_needed using errcode = 'DDCON';
  end if;
end
$$;
