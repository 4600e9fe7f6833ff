-- deed.fail_external: an attempt of a step of kind external has failed. Whether there is another the plan says, unless
-- p_retryable is false. p_code is for programs, p_message for people: neither has a secret in it. p_category is whose doing it is:
-- user, provider, infrastructure or secret. p_not_done: it is known that this attempt did nothing, as after a refused connection; then
-- the next one gets a key of its own, and one that must not be repeated may be.
--
-- Answers as deed.finish_external does. Raises DDARG.
create or replace function deed.fail_external(
  p_run       uuid,
  p_step      text,
  p_claim     bigint,
  p_code      text,
  p_message   text default '',
  p_category  text default 'user',
  p_retryable boolean default true,
  p_not_done  boolean default false
) returns text
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if (length(p_code) between 1 and 100 and p_category in ('user', 'provider', 'infrastructure', 'secret')) is not true then
    raise exception 'fail_external: a failure has a code of 1 to 100 characters, and is of the user, provider, infrastructure or secret' using errcode = 'DDARG';
  end if;
  return deed.end_external(p_run, p_step, p_claim, 'failed', jsonb_build_object('error', jsonb_build_object(
    'category', p_category, 'code', p_code, 'message', left(coalesce(p_message, ''), 1000), 'retryable', coalesce(p_retryable, true))), coalesce(p_not_done, false));
end
$$;
