-- breaking: no
-- A provider that is down costs no delivery an attempt: it is paused, in a row
-- that every relay obeys and every look shows.

-- What is left alone, a provider (destination '') or one of its destinations,
-- since when, until when, and why. When until is over one delivery finds out
-- whether it is back: the probe, under its claim; it is under way while it has
-- its lease. failures is how many found out that it is not, one after the other.
create table deed.pauses (
  provider    text        not null,
  destination text        not null default '',
  since       timestamptz not null,
  until       timestamptz not null,
  failures    int         not null default 1,
  probe       uuid,
  probe_claim bigint,
  why         text        not null,
  constraint pauses_pkey primary key (provider, destination),
  constraint pauses_provider_is_short check (length(provider) between 1 and 100),
  constraint pauses_why_is_short check (length(why) between 1 and 4000),
  constraint pauses_times_are_sane check (isfinite(since) and isfinite(until) and failures >= 1),
  constraint pauses_probe_is_whole check (num_nulls(probe, probe_claim) in (0, 2))
) with (fillfactor = 50);

alter table deed.pauses enable row level security;
alter table deed.pauses force row level security;
create policy pauses_owner on deed.pauses to current_user using (true) with check (true);
create policy pauses_worker on deed.pauses for select to deed_worker using (true);
create policy pauses_admin on deed.pauses for select to deed_admin using (true);
grant select on deed.pauses to deed_worker, deed_admin;

-- deferrals is how often the delivery was refused for now, or its destination
-- was not there, since deferred_since; none of it counts as an attempt. From
-- expires_at on nobody is called for it any more.
alter table deed.channel_outbox
  add column deferred_since timestamptz,
  add column deferrals      int not null default 0,
  add column expires_at     timestamptz;

insert into deed.delivery_transitions (from_status, to_status, made_by, meaning) values
  ('queued', 'dead', 'ledger', 'its destination was away for longer than it is tried');
update deed.delivery_transitions set meaning = 'suppressed since it was reserved, or expired' where from_status = 'queued' and to_status = 'skipped';
update deed.delivery_transitions set meaning = 'reserved for one who must not or cannot be written to, or too late' where from_status = '' and to_status = 'skipped';
update deed.delivery_transitions set meaning = 'certainly not done, and tried often or long enough' where from_status = 'sending' and to_status = 'dead';

-- Replaced by ones with more arguments or results.
drop function if exists deed.settle(uuid[], bigint[], text[], text[], text[], float8[], text, interval, float8[], int);
drop function if exists deed.reserve(text[], text[], text[], jsonb[], bytea[], text[], text[], timestamptz[], text[], uuid[], uuid[], uuid[], uuid[], int[], uuid, text);
