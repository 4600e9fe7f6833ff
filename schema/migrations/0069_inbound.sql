-- breaking: no
-- What people write to us, and what became of it (D8).

-- Which message of a sender came first.
create sequence deed.turn_seq;

-- One message that a platform sent, whose signature was right.
--
-- sender is as identities are compared (deed.check_identity); of one whom nobody is
-- known as its mark (deed.address_mark). lease_until is until when an accepted one is
-- somebody's: past it anybody may run it, and infinity is one that waits until those of
-- its sender that came before have ended. process_after is when a failed one is run again
-- without being asked for; without it only if the platform repeats it. emptied_at is since
-- when sender, text and body are gone: an erasure, or retention.
create table deed.channel_messages (
  id                  uuid        not null,
  tenant_id           uuid        not null,
  source              text        not null,
  platform_message_id text        not null,
  turn                bigint      not null default nextval('deed.turn_seq'),
  contact_id          uuid,
  kind                text        not null,
  sender              text        not null,
  reply_to            text,
  text                text,
  body                text,
  status              text        not null,
  claim               bigint      not null default 0,
  claimed_by          text,
  lease_until         timestamptz,
  process_after            timestamptz,
  held_at             timestamptz,
  attempts            int         not null default 0,
  error               text,
  correlation_id      text        not null,
  received_at         timestamptz not null,
  finished_at         timestamptz,
  emptied_at          timestamptz,
  constraint channel_messages_pkey primary key (id),
  constraint channel_messages_of_tenant_key unique (tenant_id, id),
  constraint channel_messages_platform_key unique (tenant_id, source, platform_message_id),
  constraint channel_messages_tenant_fkey foreign key (tenant_id) references deed.tenants (tenant_id),
  constraint channel_messages_contact_fkey foreign key (tenant_id, contact_id) references deed.contacts (tenant_id, id),
  constraint channel_messages_names_are_short check (
    source ~ '^[A-Za-z0-9._-]{1,100}$' and kind ~ '^[a-z][a-z0-9_]{0,62}$'
    and octet_length(platform_message_id) >= 1 and octet_length(platform_message_id) <= 255
    and length(sender) <= 500 and length(correlation_id) <= 200 and length(claimed_by) <= 200
  ),
  constraint channel_messages_contents_are_bounded check (length(reply_to) <= 2048 and octet_length(body) <= 1048576 and octet_length(text) <= 1048576 and length(error) <= 4000),
  constraint channel_messages_status_is_known check (status in ('accepted', 'executed', 'dispatch_failed') or status ~ '^denied_[a-z0-9_]{1,56}$'),
  constraint channel_messages_accepted_has_a_lease check ((status = 'accepted') = (lease_until is not null)),
  constraint channel_messages_failed_waits check (num_nonnulls(process_after, held_at) = 0 or (status = 'dispatch_failed' and num_nonnulls(process_after, held_at) = 1)),
  constraint channel_messages_ended_has_a_time check ((status = 'accepted') = (finished_at is null)),
  constraint channel_messages_emptied_is_empty check (emptied_at is null or num_nonnulls(reply_to, text, body) = 0)
) with (fillfactor = 70);

-- One message of a sender at a time.
create unique index channel_messages_turn_idx on deed.channel_messages (tenant_id, source, kind, sender)
  where coalesce(lease_until, process_after) < 'infinity';
create index channel_messages_waiting_idx on deed.channel_messages (tenant_id, source, kind, sender, turn) where lease_until = 'infinity';
create index channel_messages_due_idx on deed.channel_messages (source, (coalesce(lease_until, process_after))) where coalesce(lease_until, process_after) < 'infinity';
create index channel_messages_contact_idx on deed.channel_messages (contact_id) where contact_id is not null;
create index channel_messages_held_idx on deed.channel_messages (id) where held_at is not null;
create index channel_messages_kept_idx on deed.channel_messages (received_at) where emptied_at is null;
create index channel_messages_emptied_idx on deed.channel_messages (emptied_at) where emptied_at is not null;

-- What may become of a message; denied_* are all that begin so.
create table deed.message_transitions (
  from_status text not null,
  to_status   text not null,
  constraint message_transitions_pkey primary key (from_status, to_status)
);
insert into deed.message_transitions (from_status, to_status) values
  ('', 'accepted'),
  ('', 'denied_*'),
  ('accepted', 'executed'),
  ('accepted', 'denied_*'),
  ('accepted', 'dispatch_failed'),
  ('dispatch_failed', 'accepted'),
  ('dispatch_failed', 'denied_*');

do $$
declare
  v_table text;
begin
  foreach v_table in array array['channel_messages', 'message_transitions'] loop
    execute format('alter table deed.%I enable row level security', v_table);
    execute format('alter table deed.%I force row level security', v_table);
    execute format('create policy %I on deed.%I to current_user using (true) with check (true)', v_table || '_owner', v_table);
  end loop;
end
$$;
create policy channel_messages_worker on deed.channel_messages for select to deed_worker using (true);
create policy channel_messages_admin on deed.channel_messages for select to deed_admin using (true);
create policy channel_messages_app on deed.channel_messages for select to deed_app using (tenant_id = (select deed.current_tenant()));
grant select on deed.channel_messages to deed_app, deed_worker, deed_admin;

-- What older programs reserved may name messages of the application's own.
alter table deed.channel_outbox
  add constraint channel_outbox_channel_message_fkey foreign key (tenant_id, channel_message_id) references deed.channel_messages (tenant_id, id) not valid;
