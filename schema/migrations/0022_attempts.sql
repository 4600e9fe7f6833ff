-- breaking: no
-- What came of each call that did not simply succeed, and what was learnt when
-- the delivery was another's or finished.

-- number is the attempt's, under its claim; 0 and 0 of a proof. late is what
-- came when the claim was gone. took is how long the call was under way.
-- outcome, beside what a call ends with: accepted is only here when it was late;
-- lost, nobody was there to hear the answer; proved, a later event said that it
-- had been accepted. They go with the delivery (deed.purge_deliveries).
create table deed.delivery_attempts (
  delivery_id         uuid        not null,
  tenant_id           uuid        not null,
  claim               bigint      not null,
  number              int         not null,
  outcome             text        not null,
  late                boolean     not null default false,
  sandbox             boolean     not null default false,
  at                  timestamptz not null,
  began_at            timestamptz,
  took                interval,
  worker              text        not null,
  provider_key        text,
  provider_message_id text,
  code                text,
  error               text,
  constraint delivery_attempts_pkey primary key (delivery_id, claim, number, outcome),
  constraint delivery_attempts_outcome_is_known check (outcome in ('accepted', 'refused', 'not now', 'deferred', 'outage', 'unknown', 'lost', 'proved')),
  constraint delivery_attempts_texts_are_short check (length(worker) between 1 and 200 and length(provider_key) <= 300
    and length(provider_message_id) <= 500 and length(code) <= 100 and length(error) <= 4000)
);

alter table deed.delivery_attempts enable row level security;
alter table deed.delivery_attempts force row level security;
create policy delivery_attempts_owner on deed.delivery_attempts to current_user using (true) with check (true);
create policy delivery_attempts_worker on deed.delivery_attempts for select to deed_worker using (true);
create policy delivery_attempts_admin on deed.delivery_attempts for select to deed_admin using (true);
create policy delivery_attempts_app on deed.delivery_attempts for select to deed_app using (tenant_id = (select deed.current_tenant()));
grant select on deed.delivery_attempts to deed_app, deed_worker, deed_admin;

-- unsettled_since: a call whose outcome nobody knows was followed by another, so
-- that what the others say does not make it certainly unsent. proved_at: a proof
-- that it was accepted came when it had ended otherwise.
alter table deed.channel_outbox
  add column unsettled_since timestamptz,
  add column proved_at       timestamptz;
