-- breaking: no
-- Who serves a provider otherwise than it is registered, and so calls nobody: the
-- last of them that said so, how it serves it, and until when that is believed.
alter table deed.providers
  add column idle_worker  text,
  add column idle_kind    text,
  add column idle_account text,
  add column idle_sandbox boolean,
  add column idle_until   timestamptz;
