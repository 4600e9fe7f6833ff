-- breaking: no
-- transaction: no
-- What has been sent to a contact, and is to be.
create index concurrently channel_outbox_contact_idx on deed.channel_outbox (contact_id, id) where contact_id is not null;
