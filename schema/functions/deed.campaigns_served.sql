-- deed.campaigns_served: whether somebody carries out campaigns, as far as it is told
-- (deed.note_campaigns).
create or replace function deed.campaigns_served() returns boolean
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
  select exists (select from deed.campaign_workers w where w.seen_until > clock_timestamp())
$$;
