-- deed.give_up_job: say that the expansion of a job has failed, and why; the caller has
-- claimed it, and what it did is rolled back. As deed.fail_job, after which it is queued or
-- dead; null if the claim is not the caller's.
create or replace function deed.give_up_job(
  p_job    uuid,
  p_claim  bigint,
  p_error  text,
  p_worker text
) returns text
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform from deed.job_queue j where j.id = p_job and j.claim = p_claim and j.status = 'locked' and j.expanded_at is null for update;
  if not found then
    return null;
  end if;
  return deed.fail_job(p_job, p_error, false, p_worker);
end
$$;
