-- breaking: no
-- What a review of erasures and of consents found missing.

-- With what a person was erased, for who repeats it from a record.
alter table deed.erasures add column suppressed boolean not null default false;

-- What a person or a provider had said of an address that a revocation took over: so it is
-- again when that is taken back.
alter table deed.suppressions
  add column kept_until  timestamptz,
  add column kept_reason text,
  add column kept_actor  text,
  add constraint suppressions_kept_is_whole check (num_nulls(kept_until, kept_reason, kept_actor) in (0, 3) and (kept_until is null or by_consent)) not valid;
