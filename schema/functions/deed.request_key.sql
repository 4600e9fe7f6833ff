-- deed.request_key: what makes a request for a run another one's repeat (R12): deed.idempotency_key of the tenant, the project, the environment,
-- the plan, its version unless that is null, and the request's id, as one expression, which costs a fifth of it.
--
-- Of anything else that is null the key is null. Called stable, for convert_to is: else calls are not inlined.
create or replace function deed.request_key(
  p_tenant      uuid,
  p_project     text,
  p_environment text,
  p_plan        text,
  p_version     text,
  p_request     text
) returns bytea
language sql
stable parallel safe
return sha256(
  int8send(36) || convert_to(p_tenant::text, 'UTF8')
  || int8send(octet_length(p_project)) || convert_to(p_project, 'UTF8')
  || int8send(octet_length(p_environment)) || convert_to(p_environment, 'UTF8')
  || int8send(octet_length(p_plan)) || convert_to(p_plan, 'UTF8')
  || coalesce(int8send(octet_length(p_version)) || convert_to(p_version, 'UTF8'), '')
  || int8send(octet_length(p_request)) || convert_to(p_request, 'UTF8')
);
