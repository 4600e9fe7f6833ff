-- breaking: yes
-- Claims go by what is due. Older programs claim through functions and indexes
-- that go here.
drop function if exists deed.claim_deliveries(text, text, int, interval, text[], int, uuid, uuid[], text[]);
drop function if exists deed.claim_doubts(text, text, int, interval, boolean, boolean, interval, interval, int, text, text, boolean);
drop function if exists deed.next_delivery(text);
drop function if exists deed.lane_of(text, text);
drop index deed.channel_outbox_claim_idx;
drop index deed.channel_outbox_due_idx;
