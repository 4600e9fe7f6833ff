-- deed.provider_lacks: what a provider that serves a tenant lacks for a run with these options, each by its precondition's
-- name (C8): no_complaints, unverified_domain, no_clicks. Of one that does not serve it nothing is to be said: the caller has
-- asked deed.provider_problem.
create or replace function deed.provider_lacks(
  p_provider text,
  p_channel  text,
  p_options  jsonb
) returns text[]
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce((
    select array_remove(array[
      case when p_options -> 'pause_on' ? 'complained' and not 'complained' = any (p.reports)
        then 'no_complaints: the provider reports none, and pause_on goes by complaints; have its events sent here, or leave that out' end,
      case when p_channel = 'email' and s.domain <> all (p.verified_domains)
        then format('unverified_domain: %s has not verified %s, from which it is; see its verified_domains in deed.yaml', quote_literal(p.name), s.domain) end,
      case when p_options #>> '{test,by}' <> 'person' and case p_options #>> '{test,by}' when 'clicks' then 'clicked' when 'complaints' then 'complained' end <> all (p.reports)
        then format('no_%1$s: %2$s does not report %1$s: have its events arrive%3$s, or let a person decide', p_options #>> '{test,by}', quote_literal(p.name),
          case when p_options #>> '{test,by}' = 'clicks' then ', with engagement: true' else '' end) end
    ], null)
    from deed.providers p
    cross join lateral (select deed.sender_domain(p_options ->> 'from') as domain) s
    where p.name = p_provider
  ), '{}')
$$;
