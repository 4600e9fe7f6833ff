-- breaking: yes
-- A lane need not be a recipient's domain: what it is, the adapter says (deed.lane_of).
-- relane: deliveries that are not finished may be in lanes of another kind.
alter table deed.providers
  drop column lane_per_domain,
  add column lanes text not null default 'domain',
  add column relane boolean not null default true,
  add constraint providers_lanes_are_known check (lanes in ('domain', 'host', 'country', 'recipient', 'none'));
alter table deed.rate_limits rename column domain to lane;

-- The buckets of lanes that are limited as all of their class are, which no limit names:
-- one is there while it is not full. Who writes here holds the limits of the provider's
-- classes (deed.take_due).
create table deed.lane_tokens (
  provider text             not null,
  lane     text             not null,
  tokens   double precision not null,
  at       timestamptz      not null,
  constraint lane_tokens_pkey primary key (provider, lane)
) with (fillfactor = 50);
alter table deed.lane_tokens enable row level security;
alter table deed.lane_tokens force row level security;
create policy lane_tokens_owner on deed.lane_tokens to current_user using (true) with check (true);
create policy lane_tokens_worker on deed.lane_tokens for select to deed_worker using (true);
create policy lane_tokens_admin on deed.lane_tokens for select to deed_admin using (true);
grant select on deed.lane_tokens to deed_worker, deed_admin;

drop function if exists deed.register_provider(text, text, boolean, interval, boolean, text[], float8[], float8[], text, text, boolean);
drop function if exists deed.pause(text, uuid[], bigint[], text[], text[], float8[], boolean[], interval, float8[], interval);
