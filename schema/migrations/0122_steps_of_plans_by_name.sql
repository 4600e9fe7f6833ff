-- breaking: no
-- Of an event that is appended it is looked up whether its step is one of the plan's (deed.refuse_engines_steps).
create index plan_steps_name_idx on deed.plan_steps (tenant_id, plan_id, plan_version, step_id);
