-- breaking: no
-- What providers say later of what they took: beside what the ledger says was done, never
-- in its place (D13).

-- When each was said to have happened first, in whatever order the events came. reason and
-- code are those of the bounce, or of why it was dropped; without one, of how a call ended. They go with the delivery.
create table deed.delivery_feedback (
  delivery_id     uuid not null,
  tenant_id       uuid not null,
  run_id          uuid,
  delivered_at    timestamptz,
  bounced_at      timestamptz,
  complained_at   timestamptz,
  unsubscribed_at timestamptz,
  opened_at       timestamptz,
  clicked_at      timestamptz,
  answered_at     timestamptz,
  reason          text,
  code            text,
  constraint delivery_feedback_pkey primary key (delivery_id),
  constraint delivery_feedback_texts_are_short check (length(reason) <= 1000 and length(code) <= 100)
);

-- Soft bounces of addresses, in a row: a delivery ends it. Kept for seven days.
create table deed.soft_bounces (
  delivery_id uuid        not null,
  tenant_id   uuid        not null,
  channel     text        not null,
  address     text        not null,
  at          timestamptz not null,
  constraint soft_bounces_pkey primary key (delivery_id)
);
create index soft_bounces_address_idx on deed.soft_bounces (tenant_id, channel, address);
create index soft_bounces_at_idx on deed.soft_bounces (at);

-- Events that name no delivery, and a message that no delivery has yet: it may be about to
-- be recorded. Kept for seven days. Nothing in them is of a person.
create table deed.unmatched_events (
  n           bigint      generated always as identity,
  provider    text        not null,
  kind        text        not null,
  account     text        not null,
  tenants     uuid[],
  event       text        not null,
  event_id    text        not null,
  message_id  text        not null,
  at          timestamptz not null,
  code        text,
  received_at timestamptz not null,
  tried_at    timestamptz not null,
  constraint unmatched_events_pkey primary key (n),
  constraint unmatched_events_once unique (provider, event_id, event),
  constraint unmatched_events_texts_are_short check (length(event_id) <= 255 and length(message_id) <= 500 and length(code) <= 100)
);
create index unmatched_events_tried_idx on deed.unmatched_events (tried_at);

do $$
declare
  v_table text;
begin
  foreach v_table in array array['delivery_feedback', 'soft_bounces', 'unmatched_events'] loop
    execute format('alter table deed.%I enable row level security', v_table);
    execute format('alter table deed.%I force row level security', v_table);
    execute format('create policy %I on deed.%I to current_user using (true) with check (true)', v_table || '_owner', v_table);
    execute format('create policy %I on deed.%I for select to deed_worker using (true)', v_table || '_worker', v_table);
    execute format('create policy %I on deed.%I for select to deed_admin using (true)', v_table || '_admin', v_table);
    execute format('grant select on deed.%I to deed_worker, deed_admin', v_table);
  end loop;
end
$$;
create policy delivery_feedback_app on deed.delivery_feedback for select to deed_app using (tenant_id = (select deed.current_tenant()));
create policy soft_bounces_app on deed.soft_bounces for select to deed_app using (tenant_id = (select deed.current_tenant()));
grant select on deed.delivery_feedback, deed.soft_bounces to deed_app;
