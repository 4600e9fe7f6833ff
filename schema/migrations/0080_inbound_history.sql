-- breaking: no
-- Since when the one that has an inbound message, or had it last, has it: history without a
-- row for each claim. Empty again when the message is given back, or accepted anew.
alter table deed.channel_messages add column claimed_at timestamptz;
