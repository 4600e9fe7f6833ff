-- deed.event_key: what makes an event of a run another one's repeat (R3):
-- deed.idempotency_key of the run, the step, the logical attempt, the type and the plan's
-- version, as one expression, which costs a third of it.
--
-- p_subject is the step, RUN, or the id of the signal that takes the step's place. The
-- engine's attempt is no part of it. Called stable, for convert_to is: else calls are not
-- inlined.
create or replace function deed.event_key(
  p_run     uuid,
  p_subject text,
  p_attempt int,
  p_type    text,
  p_version text
) returns bytea
language sql
stable parallel safe
return sha256(
  int8send(36) || convert_to(p_run::text, 'UTF8')
  || int8send(octet_length(p_subject)) || convert_to(p_subject, 'UTF8')
  || int8send(octet_length(p_attempt::text)) || convert_to(p_attempt::text, 'UTF8')
  || int8send(octet_length(p_type)) || convert_to(p_type, 'UTF8')
  || int8send(octet_length(p_version)) || convert_to(p_version, 'UTF8')
);
