-- breaking: no
-- The index of turns by id takes the place, and the name, of that without.
drop index if exists deed.channel_outbox_ready_idx;
alter index deed.channel_outbox_turn_idx rename to channel_outbox_ready_idx;
