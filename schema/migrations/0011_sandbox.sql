-- breaking: yes
-- Whom a delivery's calls go to, and through which account: the sandbox, while
-- it is on, and never another account than the first call's. An older program's
-- adapters put the sandbox into the stored request; it must not run.

-- sandbox says of the call that is under way, or of the last one, that it went
-- to the sandbox. request_kind and request_account are for whom the request was
-- made; null before the first call, and of rows that an older program called.
alter table deed.channel_outbox
  add column sandbox         boolean not null default false,
  add column request_kind    text,
  add column request_account text;

alter table deed.providers
  add column account text    not null default '',
  add column sandbox boolean not null default false;

alter table deed.providers
  add constraint providers_account_is_short check (length(account) <= 300) not valid;
alter table deed.providers validate constraint providers_account_is_short;

insert into deed.delivery_transitions (from_status, to_status, made_by, meaning)
values ('sending', 'skipped', 'ledger', 'taken by the sandbox, and not by its recipient');

drop function if exists deed.attempt(uuid[], bigint[], bytea[], interval, interval, text);
drop function if exists deed.claim_doubts(text, text, int, interval, boolean, boolean, interval, interval, int);
drop function if exists deed.register_provider(text, text, boolean, interval, boolean, text[], float8[], float8[], text);
