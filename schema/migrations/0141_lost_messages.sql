-- breaking: no
-- How many claims of an inbound message ran out, of its attempts: the process died, or was too slow for its lease.
alter table deed.channel_messages add column lost_claims int not null default 0;
