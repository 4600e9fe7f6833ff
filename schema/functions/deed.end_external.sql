-- deed.end_external: record the end of a step of kind external by its claim, for deed.finish_external and
-- deed.fail_external: recorded, repeated or lost, as deed.finish_steps has it.
create or replace function deed.end_external(
  p_run      uuid,
  p_step     text,
  p_claim    bigint,
  p_outcome  text,
  p_data     jsonb,
  p_not_done boolean default false
) returns text
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_step   record;
  v_result text;
begin
  select s.place, s.attempt, s.key_n = s.attempt and (s.engine_attempt <= 1 or s.at_most_once) as first into v_step
  from deed.run_steps s
  where s.run_id = p_run and s.step_id = p_step and s.claim = p_claim and s.offer is not null;
  if found then
    -- That this attempt did nothing says nothing of one before it under its key.
    select f.result into v_result
    from deed.finish_steps(array[p_run], array[v_step.place], array[p_claim], array[p_step], array[v_step.attempt], array[p_outcome], array[p_data],
      p_not_done => array[p_not_done and v_step.first], p_adapter => 'external/1') f;
    if v_result <> 'lost' then
      return v_result;
    end if;
  end if;
  return case when exists (
    select from deed.run_log l
    where l.run_id = p_run and l.step_id = p_step and l.event_type in ('StepCompleted', 'StepFailed') and l.event_data ->> 'claim' = p_claim::text
  ) then 'repeated' else 'lost' end;
end
$$;
