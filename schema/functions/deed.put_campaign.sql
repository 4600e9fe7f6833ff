-- deed.put_campaign: find the tenant's campaign of a name, or make it, and a content of it,
-- in the caller's transaction.
--
-- p_content is an object of strings: asset (default: the campaign's name), variant, subject,
-- text, html, script, script_version, post. The same content is the same row; another one is
-- a row of its own, and none ever changes. Raises DDARG, DDTEN, DDNFD for an unknown tenant.
create or replace function deed.put_campaign(
  p_name          text,
  p_content       jsonb,
  p_workspace     uuid default null,
  p_tenant        uuid default null,
  p_actor         text default null,
  out campaign_id uuid,
  out content_id  uuid
) returns record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
  v_tenant  uuid := deed.tenant_of_call('put_campaign', p_tenant);
  v_space   uuid := coalesce(p_workspace, '00000000-0000-0000-0000-000000000000');
  v_now     timestamptz := clock_timestamp();
  v_hash    bytea;
  v_unknown text;
begin
  if (length(p_name) between 1 and 200) is not true then
    raise exception 'put_campaign: the name must have 1 to 200 characters' using errcode = 'DDARG';
  elsif (jsonb_typeof(p_content) = 'object') is not true then
    raise exception 'put_campaign: the content must be a JSON object' using errcode = 'DDARG';
  end if;
  select e.key into v_unknown
  from jsonb_each(p_content) e
  where e.key not in ('asset', 'variant', 'subject', 'text', 'html', 'script', 'script_version', 'post') or jsonb_typeof(e.value) <> 'string'
  limit 1;
  if found then
    raise exception 'put_campaign: the content has %, which is no string or none of asset, variant, subject, text, html, script, script_version, post', quote_literal(left(v_unknown, 60)) using errcode = 'DDARG';
  end if;
  select e.key into v_unknown
  from jsonb_each_text(p_content) e
  where octet_length(e.value) > case when e.key in ('text', 'html', 'script') then 1048576 else 200 end and not (e.key = 'subject' and length(e.value) <= 2000)
    or (e.value = '' and e.key in ('asset', 'script_version', 'post'))
  limit 1;
  if found then
    raise exception 'put_campaign: % of the content is empty or too long', v_unknown using errcode = 'DDARG';
  end if;
  p_content := jsonb_build_object('asset', p_name, 'variant', '') || p_content;
  v_hash := sha256(convert_to(p_content::text, 'UTF8'));
  insert into deed.campaigns (id, tenant_id, workspace_id, name, created_at)
  values (deed.new_id(), v_tenant, v_space, p_name, v_now)
  on conflict on constraint campaigns_name_key do nothing;
  select c.id into campaign_id from deed.campaigns c where c.tenant_id = v_tenant and c.workspace_id = v_space and c.name = p_name;
  insert into deed.campaign_contents (id, campaign_id, tenant_id, created_at, sha256, asset_id, variant, subject, text, html, script, script_version, post_id)
  values (deed.new_id(), put_campaign.campaign_id, v_tenant, v_now, v_hash, p_content ->> 'asset', p_content ->> 'variant', p_content ->> 'subject', p_content ->> 'text',
    p_content ->> 'html', p_content ->> 'script', p_content ->> 'script_version', p_content ->> 'post')
  on conflict on constraint campaign_contents_sha256_key do nothing;
  if found then
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, details)
    values (v_tenant, coalesce(nullif(left(p_actor, 200), ''), session_user), 'put', 'campaign', campaign_id::text, jsonb_build_object('sha256', encode(v_hash, 'hex')));
  end if;
  select c.id into content_id from deed.campaign_contents c where c.campaign_id = put_campaign.campaign_id and c.sha256 = v_hash;
  if content_id is null then
    raise exception 'put_campaign: the same content was made since this transaction began' using errcode = '40001';
  end if;
end
$$;
