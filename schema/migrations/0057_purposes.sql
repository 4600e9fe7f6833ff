-- breaking: no
-- What a delivery is for, and what a suppression keeps from its address (D11).

-- '': transactional, for no purpose; such as a password reset.
alter table deed.channel_outbox
  add column purpose text not null default '',
  add constraint channel_outbox_purpose_is_named check (purpose ~ '^([A-Za-z0-9._-]{1,100})?$') not valid;

-- '': everything; '*': all that has a purpose; or one. expires_at null: for ever.
alter table deed.suppressions
  add column purpose text not null default '',
  add column expires_at timestamptz,
  add constraint suppressions_purpose_is_named check (purpose = '*' or purpose ~ '^([A-Za-z0-9._-]{1,100})?$') not valid,
  add constraint suppressions_expiry_is_finite check (isfinite(expires_at)) not valid;
