-- breaking: no
-- What a provider's service says later of what it took, and can be verified, such as complained;
-- null: it is not known, as of providers that an earlier version has registered.
alter table deed.providers
  add column reports text[],
  add constraint providers_reports_are_known check (reports <@ array['accepted', 'delivered', 'bounced', 'soft_bounced', 'dropped', 'complained', 'unsubscribed', 'opened', 'clicked', 'answered']) not valid;
alter table deed.providers validate constraint providers_reports_are_known;
