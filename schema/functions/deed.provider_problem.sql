-- deed.provider_problem: why every delivery of a channel and a tenant would fail with a provider, as the precondition
-- no_provider (C8); null: none that is known. To a tenant that it does not serve nothing else of it is said. What it serves is what its last relay has registered.
create or replace function deed.provider_problem(
  p_provider text,
  p_channel  text,
  p_tenant   uuid
) returns text
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select 'no_provider: ' || case
      when p.name is null then format('no relay has registered %s', coalesce(quote_literal(left(p_provider, 100)), 'a provider, and the options name none'))
      when p_tenant <> all (p.tenants) then format('%s does not serve this tenant; see its tenants', quote_literal(p.name))
      when p_channel <> all (p.channels) then format('%s (%s) carries %s, and not %s', quote_literal(p.name), p.kind, array_to_string(p.channels, ', '), p_channel)
    end
  from (values (p_provider)) n(name)
  left join deed.providers p on p.name = n.name
$$;
