-- breaking: yes
-- The functions below have other arguments now. Nobody reserves for a campaign's run
-- but its expansion (C1): an outsider could add to one that has ended.
alter table deed.channel_outbox validate constraint channel_outbox_purpose_is_named;
alter table deed.suppressions validate constraint suppressions_purpose_is_named;
alter table deed.suppressions validate constraint suppressions_expiry_is_finite;
alter table deed.suppressions
  drop constraint suppressions_pkey,
  add constraint suppressions_pkey primary key using index suppressions_of_purpose_idx;
drop function if exists deed.reserve(text[], text[], text[], jsonb[], bytea[], text[], text[], timestamptz[], text[], uuid[], uuid[], uuid[], uuid[], int[], uuid, text, timestamptz[]);
drop function if exists deed.suppress(text, text[], text, text, uuid);
drop function if exists deed.unsuppress(text, text[], text, text, uuid);
drop function if exists deed.look_at_suppressions(timestamptz, uuid, text, text, int, int, uuid, text, text);
