-- breaking: no
-- Who gets copies of an e-mail, as addresses are compared (deed.fold_address): they are people
-- as the recipient is, who may be suppressed, and erased.
alter table deed.channel_outbox add column cc text[];
