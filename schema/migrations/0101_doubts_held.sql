-- breaking: no
-- It takes the place, and the name, of the index that has both together.
drop index if exists deed.channel_outbox_sending_idx;
alter index deed.channel_outbox_unheld_idx rename to channel_outbox_sending_idx;
