-- breaking: no
-- The domains that a provider's account may send e-mails from, as its service has verified them (A-labels);
-- null: it is not known, and no campaign is refused for its sender's.
alter table deed.providers
  add column verified_domains text[],
  add constraint providers_verified_domains_are_some check (array_position(verified_domains, null) is null and cardinality(verified_domains) between 1 and 1000) not valid;
alter table deed.providers validate constraint providers_verified_domains_are_some;
