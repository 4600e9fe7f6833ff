-- breaking: no
-- Checks that each write of a row pays for, without a pattern: that of a purpose cost 3.6 µs four times a mail, that of an engine's name a
-- third of all that a run's row is checked for. They say what they said before; 0129 looks at what there is.
alter table deed.channel_outbox
  drop constraint channel_outbox_purpose_is_named,
  add constraint channel_outbox_purpose_is_named check (length(purpose) <= 100 and purpose !~ '[^A-Za-z0-9._-]') not valid;
alter table deed.runs
  drop constraint runs_names_are_short,
  add constraint runs_names_are_short check (
    length(project) >= 1 and length(project) <= 200 and length(environment) >= 1 and length(environment) <= 200
    and length(plan_id) >= 1 and length(plan_id) <= 200 and length(plan_version) >= 1 and length(plan_version) <= 200
    and length(parent_step_id) >= 1 and length(parent_step_id) <= 200 and (engine = 'local' or engine ~ '^[a-z][a-z0-9_-]{0,62}$')
  ) not valid;
