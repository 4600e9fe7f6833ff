-- breaking: no
-- Go functions as plans of one step (local.Func), and what each worker serves (R5, R12).

-- A function is a plan that no tenant has stored: an engine registers it, for all tenants, and a
-- tenant's first run of it stores it as a plan of the tenant's (deed.start_run).
create table deed.run_functions (
  registered_at timestamptz not null,
  version       int         not null,
  function_id   text        not null,
  body          bytea       not null,
  constraint run_functions_pkey primary key (function_id, version),
  constraint run_functions_version_counts check (version >= 1),
  constraint run_functions_are_bounded check (length(function_id) >= 1 and length(function_id) <= 100 and octet_length(body) <= 4096)
);

-- Which queues of steps a worker claims from, as long as it says so again (deed.serve_queues).
create table deed.run_workers (
  instance   uuid        not null,
  started_at timestamptz not null,
  seen_until timestamptz not null,
  worker     text        not null,
  queues     text[]      not null,
  constraint run_workers_pkey primary key (instance),
  constraint run_workers_are_bounded check (length(worker) >= 1 and length(worker) <= 200 and cardinality(queues) <= 10000)
) with (fillfactor = 50);

do $$
declare
  v_table text;
begin
  foreach v_table in array array['run_functions', 'run_workers'] loop
    execute format('alter table deed.%I enable row level security', v_table);
    execute format('alter table deed.%I force row level security', v_table);
    execute format('create policy %I on deed.%I to current_user using (true) with check (true)', v_table || '_owner', v_table);
    execute format('create policy %I on deed.%I for select to deed_worker using (true)', v_table || '_worker', v_table);
    execute format('create policy %I on deed.%I for select to deed_admin using (true)', v_table || '_admin', v_table);
    execute format('grant select on deed.%I to deed_worker, deed_admin', v_table);
  end loop;
end
$$;
