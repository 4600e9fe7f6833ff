-- breaking: no
-- transaction: no
-- Of an e-mail with copies each address has soft bounces of its own.
create unique index concurrently soft_bounces_each_idx on deed.soft_bounces (delivery_id, address);
