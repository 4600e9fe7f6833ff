-- breaking: no
-- How many of a receipt's messages were taken out of it, as by a DELETE on a face's relation: they
-- were delivered all the same. One of which all were stays until it is added up (deed.tally).
alter table deed.receipts add column gone int not null default 0;
