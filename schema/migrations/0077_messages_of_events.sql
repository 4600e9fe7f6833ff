-- breaking: no
-- transaction: no
-- To find the delivery of an event that names the provider's message alone, and whether
-- another one has the message that a look-up found.
create index concurrently channel_outbox_message_idx on deed.channel_outbox (provider_message_id) where provider_message_id is not null and channel in ('email', 'sms', 'voice');
