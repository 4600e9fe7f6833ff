-- deed.said_by: the contents that a campaign's run with these options has: of each variant its
-- own, in order, or the one content. Raises DDNFD where the campaign has no such content, DDARG
-- where it has several and the options do not say which, or where variants are not such of one
-- another: keys hold the asset (or script_version, or post), so that nobody gets two.
create or replace function deed.said_by(
  p_campaign uuid,
  p_options  jsonb
) returns setof deed.campaign_contents
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_content deed.campaign_contents;
  v_first   deed.campaign_contents;
  v_name    text;
begin
  for v_name in
    select k from jsonb_object_keys(case when p_options ? 'variants' then p_options -> 'variants' else '{"": null}' end) k order by k collate "C"
  loop
    begin
      select c.* into strict v_content
      from deed.campaign_contents c
      where c.campaign_id = p_campaign and c.id = coalesce((p_options -> 'variants' ->> v_name)::uuid, (p_options ->> 'content')::uuid, c.id);
    exception
      when no_data_found or invalid_text_representation then
        raise exception 'deploy_campaign: the campaign has no such content' using errcode = 'DDNFD';
      when too_many_rows then
        raise exception 'deploy_campaign: the campaign has several contents; say which in the option content, or in variants' using errcode = 'DDARG';
    end;
    v_first := case when v_first.id is null then v_content else v_first end;
    if v_name <> '' and v_content.variant <> v_name then
      raise exception 'deploy_campaign: the content of variant % is of variant %', quote_literal(v_name), quote_literal(v_content.variant) using errcode = 'DDARG';
    elsif (v_content.asset_id, v_content.script_version, v_content.post_id) is distinct from (v_first.asset_id, v_first.script_version, v_first.post_id) then
      raise exception 'deploy_campaign: variants are of one asset, one script_version and one post, or somebody could get two' using errcode = 'DDARG';
    end if;
    return next v_content;
  end loop;
end
$$;
