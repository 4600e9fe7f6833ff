-- breaking: no
-- When the request of a campaign's delivery was made: what it says of its time, its date and the link
-- by which its recipient leaves, is of this, and so the same can be made again once the bytes are gone.
alter table deed.channel_outbox add column made_at timestamptz;
