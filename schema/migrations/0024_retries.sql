-- breaking: no
-- Requests to put failed and dead deliveries back are kept beside those for
-- messages: they are listed and cancelled alike.

-- How far a request for deliveries is; null for messages.
alter table deed.redrives
  add column upto_status   text,
  add column upto_provider text,
  add column upto_delivery uuid;
