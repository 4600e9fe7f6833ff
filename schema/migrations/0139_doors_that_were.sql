-- breaking: no
-- Until when the published faces finish what they have in hand of a subscription that is their door no more.
alter table deed.subscriptions add column door_until timestamptz;
