-- breaking: no
-- Plans of runs (R9, R12): what is stored of a name and a version never changes, so that a
-- run keeps the plan that it began with.

-- body is the plan in its canonical form, JSON with its steps in their order, and sha256 its
-- hash, which is checked whenever it is loaded (deed.load_plan).
create table deed.plans (
  tenant_id      uuid        not null,
  sha256         bytea       not null,
  created_at     timestamptz not null,
  schema_version int         not null, -- of the form that it is written in
  steps          int         not null,
  plan_id        text        not null,
  plan_version   text        not null,
  created_by     text        not null,
  body           bytea       not null,
  constraint plans_pkey primary key (tenant_id, plan_id, plan_version),
  constraint plans_tenant_fkey foreign key (tenant_id) references deed.tenants (tenant_id),
  constraint plans_hash_is_sha256 check (octet_length(sha256) = 32),
  constraint plans_names_are_short check (length(plan_id) >= 1 and length(plan_id) <= 100 and length(plan_version) >= 1 and length(plan_version) <= 100
    and length(created_by) >= 1 and length(created_by) <= 200),
  constraint plans_are_bounded check (octet_length(body) <= 262144 and steps between 1 and 1000)
);

-- The graph of a plan: what deed.plan_graph reads in its body. A step is known by its place in the
-- plan, from 0; depends and successors are places.
create table deed.plan_steps (
  tenant_id     uuid    not null,
  place           int     not null,
  needs_success bool    not null,
  plan_id       text    not null,
  plan_version  text    not null,
  step_id       text    not null,
  kind          text    not null,
  depends       int[]   not null,
  successors    int[]   not null,
  constraint plan_steps_pkey primary key (tenant_id, plan_id, plan_version, place),
  constraint plan_steps_place_is_bounded check (place between 0 and 999),
  constraint plan_steps_kind_is_known check (kind in ('go', 'http', 'publish', 'deliver', 'external', 'sleep'))
);

do $$
declare
  v_table text;
begin
  foreach v_table in array array['plans', 'plan_steps'] loop
    execute format('alter table deed.%I enable row level security', v_table);
    execute format('alter table deed.%I force row level security', v_table);
    execute format('create policy %I on deed.%I to current_user using (true) with check (true)', v_table || '_owner', v_table);
    execute format('create policy %I on deed.%I for select to deed_worker using (true)', v_table || '_worker', v_table);
    execute format('create policy %I on deed.%I for select to deed_admin using (true)', v_table || '_admin', v_table);
    execute format('create policy %I on deed.%I for select to deed_app using (tenant_id = (select deed.current_tenant()))', v_table || '_app', v_table);
    execute format('grant select on deed.%I to deed_app, deed_worker, deed_admin', v_table);
  end loop;
end
$$;
